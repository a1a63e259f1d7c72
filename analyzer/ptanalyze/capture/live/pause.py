"""Stop a process, and continue it even if we are killed; as dumps/stop.c does for ptdump."""

import fcntl
import os
import signal
import socket
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

    A process that was stopped before stays stopped. A guardian in a session of its own, at the other end of
    a pipe, continues the process when we end, also by SIGKILL; we do it ourselves if the guardian was killed,
    and the kernel does it if both were (tied).
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
        with tied(process):
            process.signal(signal.SIGSTOP)
            yield wait_until_stopped(process.proc)
    finally:
        guardian.kill()
        guardian.stdin.close()
        guardian.stdout.close()
        guardian.wait()


@contextmanager
def tied(process: Process) -> Iterator[None]:
    """Let the kernel continue a process if we end within the block.

    Each end of a connection sends it SIGCONT (fcntl(2), F_SETSIG) when the other is closed, which the kernel
    does one after the other with the files of whatever ends. It sends nothing to another user's process
    unless we are root.
    """
    ends = socket.socketpair()
    try:
        for end in ends:
            with process.there():
                fcntl.fcntl(end, fcntl.F_SETOWN, process.pid)
            fcntl.fcntl(end, fcntl.F_SETSIG, signal.SIGCONT)
        process.signal(0)  # still itself: the number was its own
        for end in ends:
            fcntl.fcntl(end, fcntl.F_SETFL, os.O_RDWR | os.O_ASYNC)
        yield
    finally:
        with suppress(PtanalyzeError):
            process.signal(signal.SIGCONT)
        for end in ends:
            fcntl.fcntl(end, fcntl.F_SETFL, os.O_RDWR)
        for end in ends:
            end.close()


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
