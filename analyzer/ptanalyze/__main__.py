"""`ptanalyze` and `python -m ptanalyze`."""

from .cli import run


def main():
    raise SystemExit(run())


if __name__ == "__main__":
    main()
