"""`ptanalyze` and `python -m ptanalyze`."""

from typing import NoReturn

from .cli import run


def main() -> NoReturn:
    raise SystemExit(run())


if __name__ == "__main__":
    main()
