"""Reading mapped files front to back without keeping them: what was read is given back to the kernel."""

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

from .arrays import read_only

AROUND = 1 << 21  # bytes: the largest piece of a file that is cached, and mapped, as one


def give_back(part: np.ndarray) -> None:
    """Let go of a mapped file's pages below `part` and shortly before it: the process holds them no more.

    They stay in the kernel's cache of files; who reads them again maps them again. madvise(2), MADV_DONTNEED.
    Before it, because a page fault maps what the cache has around the page (do_fault_around in mm/memory.c).
    Arrays that are no mapped file, or that can be written to, are left alone.
    """
    mapped = _mapping(part)
    if mapped is None or not part.flags.c_contiguous:
        return
    whole = np.frombuffer(mapped, np.uint8)
    if whole.flags.writeable:
        return
    start = part.ctypes.data - whole.ctypes.data
    first, last = max(start - AROUND, 0) // mmap.PAGESIZE, (start + part.nbytes) // mmap.PAGESIZE
    if last > first:
        mapped.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)


def blocks(array: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Iterate read-only views of at most `size` elements, in order; each is given back before the next."""
    for first in range(0, len(array), size):
        block = read_only(array[first : first + size])
        yield block
        give_back(block)


def _mapping(array: np.ndarray) -> mmap.mmap | None:
    """The mapping below an array, or None."""
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.obj if isinstance(base, memoryview) else base.base
    return base if isinstance(base, mmap.mmap) else None
