"""`ptanalyze` and `python -m ptanalyze`."""

import signal
import sys
from types import FrameType
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """Another signal that asks us to end: everything is cleaned up as after Ctrl-C."""


def main() -> NoReturn:
    """Run the command line. SIGTERM and SIGHUP end it as Ctrl-C does, with exit code 128 + their number."""
    asked = 0

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = number
        raise Terminated

    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP, and so do we then
                signal.signal(number, end)
        from .cli import run

        code = run()
    except KeyboardInterrupt:  # before run() could take it
        print("ptanalyze: interrupted", file=sys.stderr)
        code = 130
    raise SystemExit(128 + asked if asked else code)


if __name__ == "__main__":
    main()
