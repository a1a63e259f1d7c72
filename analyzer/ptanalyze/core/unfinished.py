"""Directories that are being filled: under a name that cannot be guessed, locked while their process lives.

What a killed process left behind is not locked any more, and the next one in that place removes it.
"""

import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NAME = re.compile(r"\..*ptanalyze-[0-9a-f]{16}\.tmp", re.DOTALL)
LONGEST = 100  # characters of the final name that an unfinished one shows


def unfinished_name(final: str) -> str:
    """A new name for what is to become `final`, hidden, as NAME."""
    return f".{final[:LONGEST]}.ptanalyze-{secrets.token_hex(8)}.tmp"


@contextmanager
def unfinished_directory(place: Path, final: str) -> Iterator[Path]:
    """A new private directory (0700) in `place`, which is gone when the block ends unless it was renamed.

    final  the name that it is to get, shown in its own
    """
    remove_unfinished(place)
    directory, lock = _new_directory(place, final)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """A private directory among temporary files, which is gone when the block ends."""
    with unfinished_directory(Path(tempfile.gettempdir()), "run") as directory:
        yield directory


def _new_directory(place: Path, final: str) -> tuple[Path, int]:
    while True:
        directory = place / unfinished_name(final)
        directory.mkdir(mode=0o700)
        with suppress(FileNotFoundError):
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if hold(lock, directory):
                return directory, lock
            os.close(lock)


def hold(fd: int, path: Path) -> bool:
    """Lock what was made under `path`, so that nobody takes it for left behind; False: somebody has already.

    Where a file system has no locks, nothing is ever removed.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return os.path.lexists(path)


def remove_unfinished(place: Path) -> None:
    """Remove what killed processes of this user left unfinished in a directory."""
    with suppress(OSError):
        for name in os.listdir(place):
            if NAME.fullmatch(name):
                _remove(place / name)


def _remove(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if os.fstat(fd).st_uid == os.geteuid():
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    except OSError:
        pass  # somebody fills it, or removes it as we do
    finally:
        os.close(fd)
