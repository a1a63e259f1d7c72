"""The walks of a trace, thinned to those of a sample: the TLBs were those of the whole trace."""

from dataclasses import replace

import numpy as np

from ..core.arrays import chunk_runs, read_only
from ..core.mapped import give_back
from ..core.trace import SLOT_BITS, Trace
from ..core.walks import Placement, Regions, WalkStream, WholeStream
from . import stream_store
from .filter_batches import by_cpu
from .sampling import Sampling
from .thinner import Thinner

BLOCK = 1 << 20  # walks looked at together


class ThinnedWalks:
    """Walks of the whole trace, less those that a sample does not hold; hits are of the whole."""

    def __init__(self, trace: Trace, regions: Regions, placement: Placement, sampling: Sampling) -> None:
        self.placement, self.regions = placement, len(regions.va)
        self.thinner = Thinner(sampling, trace.events, regions, len(placement.cpu_node))

    def first(self, walks: WalkStream) -> WalkStream:
        """WalkStream of the sample; walks: of the whole trace."""
        return self._thinned(walks, 0)

    def again(self, walks: WalkStream, begin: int) -> WalkStream:
        """The same of a further run from chunk `begin` on: what was touched before is not touched first."""
        none, at = read_only(np.zeros(0, np.uint32)), np.array([[len(walks.offset) - 1, 0, 0]], np.int64)
        for cpu in range(len(self.placement.cpu_node)):
            self.thinner.run(cpu, none, at, np.zeros(0, bool))
        return self._thinned(walks, begin)

    def _thinned(self, walks: WalkStream, begin: int) -> WalkStream:
        self.thinner.begin(begin)
        by_region = np.zeros(self.regions, np.int64)
        with stream_store.Writer(None, "") as writer:
            for first, last in chunk_runs(walks.offset, BLOCK):
                at = walks.offset[first : last + 1] - walks.offset[first]
                own = slice(int(walks.offset[first]), int(walks.offset[last]))
                page, write = read_only(walks.page[own]), read_only(walks.write[own])
                stays = np.ones(len(page), bool)
                chunks = np.column_stack([np.arange(first, last), at[:-1], np.diff(at)])
                for cpu, mine in zip(*by_cpu(self.placement.chunk_cpu[first:last]), strict=True):
                    self.thinner.run(cpu, page, chunks[mine], stays)
                np.add.at(by_region, page >> np.uint32(SLOT_BITS), 1)
                kept = np.concatenate([[0], np.cumsum(stays)])[at]
                writer.append(page[stays], write[stays], np.diff(kept))
                give_back(page)
                give_back(write)
            whole = WholeStream(by_region, np.diff(walks.offset))
            return replace(writer.seal(walks.hits), whole=whole)
