"""Files appear whole or not at all: written under another name, synced, renamed, readable by their owner."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from math import prod
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..core.errors import PtanalyzeError, UsageError, is_whole
from ..core.safe_files import lock_unfinished, remove_unfinished, unfinished_directory, unfinished_name

# Room on disk before a mapped file is written to: a store that finds none is a SIGBUS, not an error.

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def map_new(file: IO[bytes], dtype: str | type, shape: tuple[int, ...]) -> np.ndarray:
    """A writable map, all zero, of `shape` of a new file, whose blocks are allocated.

    OSError (ENOSPC, EDQUOT, EFBIG) if there is no room. posix_fallocate(3).
    """
    os.posix_fallocate(file.fileno(), 0, prod(shape) * np.dtype(dtype).itemsize)
    return np.memmap(file, dtype, "r+", shape=shape)


@contextmanager
def says_where(out: Path, inside: Path) -> Iterator[None]:
    """Errors name `out`, not the directory `inside` that is to become it; a full disk is a UsageError."""
    try:
        yield
    except PtanalyzeError as error:
        was, new = str(inside), str(out)
        error.args = tuple(one.replace(was, new) if isinstance(one, str) else one for one in error.args)
        raise
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise UsageError(f"{out}: cannot write: {os.strerror(error.errno)}; nothing was kept") from None


@contextmanager
def atomic_write(path: str | PathLike[str], mode: str = "wb", *, given: bool = False) -> Iterator[IO[Any]]:
    """An open file that becomes `path` (0600) when the block ends, and vanishes if it raises.

    Until then its name cannot be guessed.

    given  somebody typed `path`: a device or pipe there, such as /dev/stdout, is written to. Else what is
           there is replaced: in a capture it may be a stranger's link to a disk. Under sudo it is theirs
    """
    path = Path(path)
    if given and _is_no_file(path):
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:  # ENXIO of a pipe without a reader, which nobody waits for
            raise UsageError(f"{path}: {error.strerror}; of a pipe, start the reader first") from None
        os.set_blocking(fd, True)
        with os.fdopen(fd, mode) as file:
            yield file
        return
    remove_unfinished(path.parent)
    fd, temporary = _new_file(path)
    try:
        with os.fdopen(fd, mode) as file:
            yield file
            file.flush()
            if given and (owner := caller()):
                os.fchown(file.fileno(), *owner)
            os.fsync(file.fileno())
            os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in FULL and not isinstance(error.filename, str):
            raise OSError(error.errno, f"cannot write: {os.strerror(error.errno)}", str(path)) from None
        raise
    sync(path.parent)


def _is_no_file(path: Path) -> bool:
    """Whether it is a device or pipe, such as /dev/stdout: written to, never replaced."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _new_file(path: Path) -> tuple[int, Path]:
    """(open file, its name): locked, so that no cleanup removes it."""
    flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR | os.O_CLOEXEC
    while True:
        temporary = path.with_name(unfinished_name(path.name))
        fd = os.open(temporary, flags, 0o600)
        if lock_unfinished(fd, temporary):
            return fd, temporary
        os.close(fd)


def sync(path: Path) -> None:
    """Let a file, or the names in a directory, survive a loss of power."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError) if path.is_dir() else nullcontext():  # a file system that cannot
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
    if not may_write(place.parent) and not _is_no_file(place):
        raise UsageError(f"{named}: nothing can be written in {place.parent.resolve()}; name another")


def may_write(directory: Path) -> bool:
    """Whether files can be made in a directory, tried: root has every right in /proc. A full disk may."""
    try:
        with unfinished_directory(directory, "asked"):
            return True
    except OSError as error:
        return error.errno in FULL


# Whose the files are that root makes: under sudo, of the user who typed it.


def caller() -> tuple[int, int] | None:
    """(uid, gid) of the user behind sudo; None without sudo, or where that user is root."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() or not is_whole(uid) or not is_whole(gid) or uid == "0":
        return None
    return int(uid), int(gid)


def give_to_caller(made: Path) -> None:
    """Under sudo, make a private directory and the files in it the caller's; else change nothing."""
    if (to := caller()) is None:
        return
    for path in made.rglob("*"):
        os.chown(path, *to, follow_symlinks=False)
    os.chown(made, *to)


def take_over(path: Path, user: int) -> None:
    """Make a file ours that `user` wrote. UsageError if it is a link, or no file of that user's alone."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{path.name}: {error.strerror}; the program put something else there") from None
    try:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1 or facts.st_uid != user:
            what = f"no plain file of user {user}"
            raise UsageError(f"{path.name}: {what}; the program put something else there")
        os.fchown(file, os.geteuid(), os.getegid())
    finally:
        os.close(file)
