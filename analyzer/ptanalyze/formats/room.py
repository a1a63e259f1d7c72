"""Room on disk before a mapped file is written to: a store that finds none is a SIGBUS, not an error."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..core.errors import PtanalyzeError, UsageError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def map_new(file: IO[bytes], dtype: str | type, shape: tuple[int, ...], offset: int = 0) -> np.ndarray:
    """A writable map, all zero, of `shape` from byte `offset` on of a new file, whose blocks are allocated.

    OSError (ENOSPC, EDQUOT, EFBIG) if there is no room. posix_fallocate(3).
    """
    size = offset + prod(shape) * np.dtype(dtype).itemsize
    os.posix_fallocate(file.fileno(), 0, size)
    return np.memmap(file, dtype, "r+", offset, shape)


@contextmanager
def says_where(out: Path, inside: Path) -> Iterator[None]:
    """Errors name `out`, not the directory `inside` that is to become it; a full disk is a UsageError."""
    try:
        yield
    except PtanalyzeError as error:
        error.args = tuple(named(one, out, inside) for one in error.args)
        raise
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise UsageError(f"{out}: cannot write: {os.strerror(error.errno)}; nothing was kept") from None


def named(said: Any, out: Path, inside: Path) -> Any:
    """Text with the final name for each file below `inside`."""
    if not isinstance(said, str) or str(inside) not in said:
        return said
    return said.replace(str(inside), str(out))
