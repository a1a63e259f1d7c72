"""Files that others made: opened only where they are what they should be, and never read without limit."""

import errno
import os
import stat
from io import BufferedReader
from os import PathLike
from pathlib import Path

from .errors import CaptureError, UsageError

KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
MANY = 1 << 24  # bytes: more than any file of settings, of facts or of a table has
NO_LINK = "a capture holds its files itself, not links to others"


def open_inside(path: str | PathLike[str]) -> BufferedReader:
    """A file of a capture, open for reading: a regular file, no link, so that no pipe or device is read.

    CaptureError for anything else; FileNotFoundError where there is nothing.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CaptureError(path, "file", "a link", NO_LINK) from None
        if error.errno == errno.ENXIO:
            raise CaptureError(path, "file", "a socket", "expected a regular file") from None
        raise
    kind = stat.S_IFMT(os.fstat(fd).st_mode)
    if kind != stat.S_IFREG:
        os.close(fd)
        raise CaptureError(path, "file", KINDS.get(kind, "no file"), "expected a regular file")
    return open(path, "rb", opener=lambda *_: fd)  # by its name, which a memory map of it keeps


def read_inside(path: str | PathLike[str], most: int = MANY) -> bytes:
    """The bytes of a file of a capture; CaptureError for more than `most`."""
    with open_inside(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise CaptureError(path, "bytes", f"{size:,}", f"more than such a file may have: {most:,}")
        return file.read(size)


def read_given(path: str | PathLike[str], most: int = MANY) -> bytes:
    """The bytes of a file, or of a pipe until its end, that a user named.

    UsageError where it cannot be read, CaptureError for more than `most` bytes.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    if len(content) > most:
        raise CaptureError(path, "bytes", f"over {most:,}", "more than such a file may have")
    return content
