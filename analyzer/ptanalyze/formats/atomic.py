"""Files appear whole or not at all: written without a name, synced, then named, readable by their owner."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import IO, Any

from ..core.errors import UsageError
from ..core.regular import hold, remove_unfinished, unfinished_name
from .room import FULL

FILES = "/proc/self/fd"
UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)  # no O_TMPFILE here, open(2)


@contextmanager
def atomic_write(path: str | PathLike[str], mode: str = "wb", *, given: bool = False) -> Iterator[IO[Any]]:
    """An open file that becomes `path` (0600) when the block ends, and vanishes if it raises.

    Where the file system has O_TMPFILE nothing is there before, else a file whose name cannot be guessed.

    given  somebody typed `path`: a device or pipe there, such as /dev/stdout, is written to. Else what is
           there is replaced: in a capture it may be a stranger's link to a disk
    """
    path = Path(path)
    if given and _is_no_file(path):
        with path.open(mode) as file:
            yield file
        return
    remove_unfinished(path.parent)
    fd, temporary = _new_file(path)
    try:
        with os.fdopen(fd, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if temporary is None:
                temporary = _named(file.fileno(), path)
            os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL and not isinstance(error.filename, str):
            raise OSError(error.errno, f"cannot write: {os.strerror(error.errno)}", str(path)) from None
        raise
    sync_directory(path.parent)


def _is_no_file(path: Path) -> bool:
    """Whether it is a device or pipe, such as /dev/stdout: written to, never replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _new_file(path: Path) -> tuple[int, Path | None]:
    """(open file, its name or None): locked, so that nobody takes it for left behind."""
    if os.path.exists(FILES):
        try:
            return os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600), None
        except OSError as error:
            if error.errno not in UNNAMED:
                raise
    flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR | os.O_CLOEXEC
    while True:
        temporary = path.with_name(unfinished_name(path.name))
        fd = os.open(temporary, flags, 0o600)
        if hold(fd, temporary):
            return fd, temporary
        os.close(fd)


def _named(fd: int, path: Path) -> Path:
    """Give the file a name beside `path`: linkat(2) alone cannot replace a file."""
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    temporary = path.with_name(unfinished_name(path.name))
    files = os.open(FILES, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # only with a directory does Python pass AT_SYMLINK_FOLLOW
        os.link(str(fd), temporary, src_dir_fd=files)
    finally:
        os.close(files)
    return temporary


def sync_directory(directory: str | PathLike[str]) -> None:
    """Let the names in a directory survive a loss of power."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system that cannot
            os.fsync(fd)
    finally:
        os.close(fd)


def must_be_writable(path: str | PathLike[str], *endings: str, option: str = "") -> None:
    """UsageError unless `path` ends with one of `endings` (none: any) and its directory is there.

    Call it before long work. option: the command-line option that the message names
    """
    named, place = f"{option} {path}".strip(), Path(path)
    if endings and place.suffix.removeprefix(".").lower() not in endings:
        *most, last = [f"FILE.{ending}" for ending in endings]
        raise UsageError(f"{named}: name it {' or '.join(filter(None, [', '.join(most), last]))}")
    if place.is_dir():
        raise UsageError(f"{named}: is a directory; name a file")
    if not place.parent.is_dir():
        raise UsageError(f"{named}: there is no directory {place.parent}; make it first")
