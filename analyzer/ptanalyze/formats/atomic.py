"""Files appear whole or not at all: written beside their name, synced, renamed, readable by their owner."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any


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
