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
    asked = 0
    leave_no_byte_code()

    def end(number: int, frame: "FrameType | None") -> None:
        nonlocal asked
        asked = number
        raise Terminated

    try:
        import signal

        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP, and so do we then
                signal.signal(number, end)
        from .cli import run

        code = run()
    except KeyboardInterrupt:  # before run() could take it
        print("ptanalyze: interrupted", file=sys.stderr)
        code = 130
    if asked:
        leave_quietly()
    raise SystemExit(128 + asked if asked else code)


def leave_no_byte_code() -> None:
    """Under sudo, remove what Python wrote for the package's own __init__.py before that could forbid it."""
    package = sys.modules[str(__package__)]
    home, kept = str(package.__file__), package.__cached__
    if not sys.dont_write_bytecode or os.geteuid() or not kept:
        return
    folder, name = os.path.split(kept)
    try:
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if os.stat(home).st_uid and not os.lstat(name, dir_fd=inside).st_uid:
            os.unlink(name, dir_fd=inside)
        if not os.fstat(inside).st_uid and os.stat(home).st_uid:
            os.rmdir(folder)  # fails unless it is empty
    except OSError:
        pass
    finally:
        os.close(inside)


def leave_quietly() -> None:
    """What is still buffered goes nowhere if the terminal is gone: else Python's exit code would be 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
