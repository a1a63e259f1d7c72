"""Children of a recorded program that are traced too (--follow-fork): found by the files of their traces."""

import fcntl
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

TRACE = re.compile(r"trace\.([1-9]\d{0,9})\.ptt", re.ASCII)


@dataclass(frozen=True)
class Children:
    """traces: the directory in which their tracers write trace.PID.ptt."""

    traces: Path

    def files(self) -> dict[int, Path]:
        """{PID: its trace}."""
        named = ((TRACE.fullmatch(path.name), path) for path in sorted(self.traces.iterdir()))
        return {int(name[1]): path for name, path in named if name}

    def pids(self) -> set[int]:
        return set(self.files())

    def writing(self) -> list[int]:
        """Those whose tracers have not finished their files: they hold a lock as long as they write."""
        return [pid for pid, path in self.files().items() if is_locked(path)]

    def running(self, user: int) -> Iterator[tuple[int, int]]:
        """Yield (PID, pidfd) of those that still write, if they are this user's: files can have any name."""
        for pid in self.writing():
            with suppress(OSError), descriptor(os.pidfd_open(pid)) as pidfd:
                if os.stat(f"/proc/{pid}").st_uid == user:
                    yield pid, pidfd

    def send(self, number: int, user: int) -> None:
        for _, pidfd in self.running(user):
            with suppress(OSError):
                signal.pidfd_send_signal(pidfd, number)


def is_locked(path: Path) -> bool:
    with suppress(OSError), descriptor(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def descriptor(file: int) -> Iterator[int]:
    try:
        yield file
    finally:
        os.close(file)
