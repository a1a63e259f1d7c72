"""Leaves out of what CPUs touch, or of what misses their TLBs, what a sample does not hold."""

from typing import TYPE_CHECKING

import numpy as np

from ..core.arrays import read_only
from ..core.trace import PAGE_SHIFT
from ..core.walks import Regions
from .mm_events import invalidations
from .sampling import Sampling

if TYPE_CHECKING:
    from ..kernels import thin as kernels


class Thinner:
    """A Sampling of what `cpus` CPUs touch, one after the other in each; see kernels.thin for what stays."""

    def __init__(self, sampling: Sampling, events: np.ndarray, regions: Regions, cpus: int) -> None:
        self.lost = forgotten(events, regions)
        self.tables = read_only(regions.tlb_level), sampling.groups, self.lost
        self.seen = [_unseen(regions) for _ in range(cpus)]

    def begin(self, chunk: int) -> None:
        """Whatever is forgotten before a chunk is forgotten."""
        for seen in self.seen:
            seen.done[0], seen.kept[0] = np.searchsorted(self.lost.chunk, chunk), 0

    def run(self, cpu: int, page: np.ndarray, chunks: np.ndarray, stays: np.ndarray) -> None:
        """bool[n] `stays` becomes False where a touch of chunks of a CPU, True so far, is left out."""
        from ..kernels.thin import thin

        thin(page, chunks, *self.tables, self.seen[cpu], stays)

    def of_the_sample(self, hits: np.ndarray, accesses: np.ndarray) -> np.ndarray:
        """int64[cpus, 3]: WalkStream.hits of a sample that was taken before the TLBs.

        accesses  int64[cpus]: those of the trace that neither hit the second level nor miss hit the first
        """
        own = hits.copy()
        own[:, 2] -= np.array([int(seen.kept[0]) for seen in self.seen], np.int64)
        own[:, 0] = np.maximum(accesses - own[:, 1:].sum(axis=1), 0)
        return own


def _unseen(regions: Regions) -> "kernels.Seen":
    from ..kernels.thin import Seen

    return Seen(np.zeros(len(regions.va) * 8, np.uint64), np.zeros(1, np.int64), np.zeros(1, np.int64))


def forgotten(events: np.ndarray, regions: Regions) -> "kernels.Forgotten":
    """kernels.thin.Forgotten of a trace's events."""
    from ..kernels.thin import Forgotten

    rows, order = invalidations(events), np.argsort(regions.va, kind="stable")
    first, end = ((rows[name] >> np.uint64(PAGE_SHIFT)).astype(np.int64) for name in ("start", "end"))
    return Forgotten(
        rows["chunk"].astype(np.int64), first, end, regions.va[order].astype(np.int64), order.astype(np.int64)
    )
