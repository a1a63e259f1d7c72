"""Read-only views of arrays, and cutting long arrays into batches."""

from collections.abc import Iterator

import numpy as np


def chunk_runs(offset: np.ndarray, batch: int) -> Iterator[tuple[int, int]]:
    """Iterate (first, last): runs of whole chunks with at least `batch` walks each, except the last run."""
    chunks, first = len(offset) - 1, 0
    while first < chunks:
        last = int(np.searchsorted(offset, offset[first] + batch))
        last = min(max(last, first + 1), chunks)
        yield first, last
        first = last


def read_only(array: np.ndarray) -> np.ndarray:
    """A plain read-only view: memory-mapped or not, kernels are compiled once for it."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
