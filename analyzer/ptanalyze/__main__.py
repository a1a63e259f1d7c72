"""`ptanalyze` and `python -m ptanalyze`: whatever takes time to import is imported where Ctrl-C is heeded."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """Another signal that asks us to end: everything is cleaned up as after Ctrl-C."""


def main() -> "NoReturn":
    """Run the command line. SIGTERM and SIGHUP end it as Ctrl-C does, with exit code 128 + their number."""
    fill_streams()
    try:  # where memory runs out, as in a service's control group, it is us that the kernel must kill
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000" * ("--" not in sys.argv))  # else a program that is started would inherit it
    except OSError:
        pass
    asked = 0

    def end(number: int, frame: "FrameType | None") -> None:
        nonlocal asked
        asked = number
        raise Terminated

    try:
        import gc
        import signal

        gc.set_threshold(200_000, 50, 100)  # modules and figures make many objects, few of them garbage

        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP, and so do we then
                signal.signal(number, end)
        from .cli import run

        code = run()
        gc.freeze()  # Python ends by a search for garbage: not among all that was imported
    except KeyboardInterrupt:  # before run() could take it
        print("ptanalyze: interrupted", file=sys.stderr)
        code = 130
    if not asked:
        raise SystemExit(code)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the terminal is gone: else Python's exit code would be 120
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    raise SystemExit(128 + asked)


def fill_streams() -> None:
    """Open /dev/null where a standard stream is closed (`>&-`), whose number a file of ours would get."""
    while (file := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(file, True)
    os.close(file)
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")


if __name__ == "__main__":
    main()
