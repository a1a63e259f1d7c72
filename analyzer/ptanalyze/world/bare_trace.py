"""Page tables for a trace without any: all are inferred from the pages it touches."""

import numpy as np

from ..core.errors import UNKNOWN_NODE
from ..core.snapshot import INFERRED, NO_PARENT, VMA_DTYPE, Node, Snapshot, Topology, Tree
from ..core.trace import Trace

ASSUMED = "no page tables were captured: 4 KiB pages, tables placed by first touch, one owner for all memory"
FOUR_LEVELS = np.uint64(1 << (48 - 21))  # 2 MiB regions that four levels map


def bare_snapshot(trace: Trace) -> Snapshot:
    """Snapshot of an empty root table on one node; the regions of the trace all lack their tables."""
    levels = 4 if (trace.regions < FOUR_LEVELS).all() else 5
    root = Tree(
        np.zeros((1, 512), np.uint64),
        np.zeros(1, np.uint64),
        np.full(1, -1, np.int64),
        np.full(1, NO_PARENT, np.int32),
        np.full(1, UNKNOWN_NODE, np.int16),
        np.full(1, levels, np.uint8),
        np.full(1, INFERRED, np.uint8),
        levels,
    )
    topology = Topology((Node(0, (), np.zeros((0, 2), np.int64)),))
    return Snapshot(root, np.zeros(0, VMA_DTYPE), (), topology, facts={"assumed": ASSUMED})
