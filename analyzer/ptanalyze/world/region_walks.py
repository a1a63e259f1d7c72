"""How often the regions of a trace are walked, and from where: what a sample of regions is chosen by."""

from typing import NamedTuple

import numpy as np

from ..core.arrays import chunk_runs
from ..core.mapped import give_back
from ..core.trace import SLOT_BITS
from ..core.walks import Placement, WalkStream

BLOCK = 1 << 20  # walks looked at together


class RegionWalks(NamedTuple):
    """Walks of R regions of a WalkStream.

    by_node  int64[R, nodes]  by the node whose CPU walked
    first    int16[R]         node of the first one, -1: none walks there
    """

    by_node: np.ndarray
    first: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """int64[R]"""
        total: np.ndarray = self.by_node.sum(axis=1)
        return total

    @property
    def most(self) -> np.ndarray:
        """int64[R]: the node that walks most, the lowest of several."""
        most: np.ndarray = self.by_node.argmax(axis=1)
        return most


def region_walks(stream: WalkStream, placement: Placement, regions: int) -> RegionWalks:
    """RegionWalks of a stream of the whole trace."""
    nodes = int(placement.cpu_node.max(initial=0)) + 1
    by_node, first = np.zeros(regions * nodes, np.int64), np.full(regions, -1, np.int16)
    for begin, end in chunk_runs(stream.offset, BLOCK):
        chunk_node = placement.cpu_node[placement.chunk_cpu[begin:end]]
        node = np.repeat(chunk_node, np.diff(stream.offset[begin : end + 1]))
        page = stream.page[stream.offset[begin] : stream.offset[end]]
        region = np.asarray(page >> np.uint32(SLOT_BITS), np.int64)
        give_back(page)
        np.add.at(by_node, region * nodes + node, 1)
        new = np.flatnonzero(first[region] < 0)
        which, at = np.unique(region[new], return_index=True)
        first[which] = node[new[at]]
    return RegionWalks(by_node.reshape(regions, nodes), first)
