"""Files appear whole or not at all: written beside their name, synced, renamed, readable by their owner."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any

from ..core.errors import UsageError


@contextmanager
def atomic_write(path: str | PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """An open file that becomes `path` (0600) when the block ends, and vanishes if it raises."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(fd, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
