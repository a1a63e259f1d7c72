"""Stop a process, and continue it even if we are killed; as dumps/stop.c does for ptdump."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...core.errors import PtanalyzeError
from .process import Process

WAIT_SECONDS = 2.0
GUARDIAN = """
import os, signal, sys
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
print(flush=True)
sys.stdin.buffer.read()
signal.pidfd_send_signal(int(sys.argv[1]), signal.SIGCONT)
"""


@contextmanager
def paused(process: Process) -> Iterator[bool]:
    """Stop a process for the block; yields whether every thread stopped. PartialDataError if it has ended.

    A process that was stopped before stays stopped. A guardian in a session of its own, at the other end of a
    pipe, continues the process when we end, also by SIGKILL; we do it ourselves if the guardian was killed.
    """
    if state(process.proc) in "Tt":
        yield True
        return
    guardian = subprocess.Popen(
        [sys.executable, "-S", "-c", GUARDIAN, str(process.pidfd)],
        pass_fds=(process.pidfd,),
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert guardian.stdin and guardian.stdout
    try:
        guardian.stdout.read(1)  # it is on guard
        process.signal(signal.SIGSTOP)
        yield wait_until_stopped(process.proc)
    finally:
        with suppress(PtanalyzeError):
            process.signal(signal.SIGCONT)
        guardian.kill()
        guardian.stdin.close()
        guardian.stdout.close()
        guardian.wait()


def wait_until_stopped(proc: Path) -> bool:
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if all(state(task) in "TtZX" for task in (proc / "task").glob("*")):
            return True
        time.sleep(0.0005)
    return False


def state(proc: str | os.PathLike[str]) -> str:
    """State letter of a process or thread directory below /proc; "X" when it is gone."""
    try:
        return (Path(proc) / "stat").read_text().rpartition(") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
