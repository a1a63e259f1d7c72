"""A live process, meant by more than its number, and what /proc says of it and of the machine."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import PartialDataError, UsageError

LONGEST = 4096  # bytes of a command line that are kept
PF_KTHREAD = 0x00200000  # include/linux/sched.h
THP = Path("/sys/kernel/mm/transparent_hugepage")


@dataclass(frozen=True)
class Process:
    """A process that is meant, not whoever gets its number: pidfd; proc, its directory in /proc."""

    pid: int
    pidfd: int
    proc: Path

    def signal(self, number: int) -> None:
        """PartialDataError if it has ended."""
        try:
            with self.there():
                signal.pidfd_send_signal(self.pidfd, number)
        except PermissionError:
            raise UsageError(f"PID {self.pid}: not permitted to stop it") from None

    @contextmanager
    def there(self) -> Iterator[None]:
        """PartialDataError for what fails as the process has ended (ESRCH)."""
        try:
            yield
        except ProcessLookupError:
            raise PartialDataError(f"PID {self.pid}: ended while it was read; nothing was kept") from None


@contextmanager
def opened(pid: int) -> Iterator[Process]:
    """The Process `pid`; UsageError if there is none.

    The pidfd comes first: if its process has not been reaped when /proc/PID is open, both are the same.
    """
    with ExitStack() as stack:
        try:
            pidfd = os.pidfd_open(pid)
            stack.callback(os.close, pidfd)
            directory = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, directory)
            with suppress(PermissionError):
                signal.pidfd_send_signal(pidfd, 0)
        except (OSError, OverflowError):  # EINVAL: a number that no process has, or a thread's
            raise UsageError(f"PID {pid}: no such process") from None
        yield Process(pid, pidfd, Path(f"/proc/self/fd/{directory}"))


def check_process(proc: Path, pid: int) -> None:
    try:
        fields = (proc / "stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise UsageError(f"PID {pid}: no such process") from None
    if fields[0] in "ZX":
        raise UsageError(f"PID {pid}: has exited (a zombie has no page tables)")
    if int(fields[6]) & PF_KTHREAD:
        raise UsageError(f"PID {pid}: a kernel thread, it has no page tables of its own")


def huge_pages() -> str | None:
    """Transparent huge pages of 2 MiB as the machine is set: "always", "madvise", "never"; None: unknown."""
    for file in (THP / "hugepages-2048kB" / "enabled", THP / "enabled"):
        with suppress(OSError):
            chosen = re.search(r"\[(\w+)\]", file.read_text())
            if chosen and chosen[1] != "inherit":
                return chosen[1]
    return None


def command_line(pid: int, comm: str) -> list[str]:
    """Words of the command line, or the title that a server gave itself; none if `pid` is no `comm` any more.

    Bytes that are no UTF-8 become \\xff.
    """
    proc = Path("/proc") / str(pid)
    try:
        text = (proc / "cmdline").read_bytes()[:LONGEST].rstrip(b"\0 ")
        if not text or (proc / "comm").read_text(errors="replace").rstrip("\n") != comm:
            return []
    except OSError:
        return []
    return [word.decode("utf-8", "backslashreplace") for word in text.split(b"\0")]


def cpu_lines() -> list[str]:
    return Path("/proc/cpuinfo").read_text().splitlines()
