"""Stop a process, and continue it even if we are killed; as dumps/stop.c does for ptdump."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...core.errors import UsageError

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
def paused(pid: int) -> Iterator[bool]:
    """Stop process `pid` for the block; yields whether every thread stopped.

    A process that was stopped before stays stopped. A guardian in a session of its own, at the other end of a
    pipe, continues the process when we end, also by SIGKILL; a pidfd keeps it from a stranger with that PID.
    """
    if state(f"/proc/{pid}") in "Tt":
        yield True
        return
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        raise UsageError(f"PID {pid}: no such process") from None
    guardian = subprocess.Popen(
        [sys.executable, "-S", "-c", GUARDIAN, str(pidfd)],
        pass_fds=(pidfd,),
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert guardian.stdin and guardian.stdout
    try:
        guardian.stdout.read(1)  # it is on guard
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        yield wait_until_stopped(pid)
    except PermissionError:
        raise UsageError(f"PID {pid}: not permitted to stop it") from None
    finally:
        guardian.stdin.close()
        guardian.stdout.close()
        guardian.wait()
        os.close(pidfd)


def wait_until_stopped(pid: int) -> bool:
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if all(state(task) in "TtZX" for task in Path(f"/proc/{pid}/task").glob("*")):
            return True
        time.sleep(0.0005)
    return False


def state(proc: str | os.PathLike[str]) -> str:
    """State letter of a process or thread directory below /proc; "X" when it is gone."""
    try:
        return (Path(proc) / "stat").read_text().rpartition(") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
