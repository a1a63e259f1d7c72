"""Guest frames through the nested tables to host frames, many at a time."""

import numpy as np

from ..core import snapshot as bits
from ..core.snapshot import Snapshot, Tree
from .address_space import NO_TABLE, host_index

PAGES = 512  # 4 KiB pages of a region


class Nested:
    """The host tree of a two-dimensional Snapshot; of several roots the last that maps a region counts.

    table   int32[D]   by guest frame >> 9: host table with the leaf entry, NO_TABLE where there is none
    mapped  uint16[D]  by guest frame >> 9: number of its 512 pages that the host maps
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.tree = snapshot.nested
        tables = host_index(snapshot)
        self.table = np.where(tables == NO_TABLE, NO_TABLE, tables - len(snapshot.guest))
        per_table = np.full(len(self.tree), PAGES, np.uint16)
        leaves = np.flatnonzero(self.tree.level == 1)
        per_table[leaves] = leaf_counts(self.tree, leaves)
        self.mapped = np.where(self.table == NO_TABLE, 0, per_table[self.table]).astype(np.uint16)

    def region_pages(self, regions: np.ndarray) -> np.ndarray:
        """int64, the shape of `regions` (guest frame >> 9): pages of each that the host maps."""
        if not len(self.mapped):
            return np.zeros(np.shape(regions), np.int64)
        inside = (regions >= 0) & (regions < len(self.mapped))
        return np.where(inside, self.mapped[np.where(inside, regions, 0)], 0).astype(np.int64)

    def host_frames(self, frames: np.ndarray) -> np.ndarray:
        """int64[n]: host frame behind each guest frame (int64[n]), -1 where the host maps nothing."""
        frames = np.asarray(frames, np.int64)
        out = np.full(len(frames), -1, np.int64)
        region = frames >> 9
        at = np.flatnonzero((region >= 0) & (region < len(self.table)))
        at = at[self.table[region[at]] != NO_TABLE]
        table = self.table[region[at]]
        for level in (1, 2, 3):
            here = self.tree.level[table] == level
            which, tables = at[here], table[here]
            shift = 9 * (level - 1)
            raw = self.tree.entries[tables, frames[which] >> shift & 511]
            leaf = bits.leaf(raw, level, self.tree.encoding)
            within = frames[which[leaf]] & ((1 << shift) - 1)
            out[which[leaf]] = bits.frame(raw[leaf], level, self.tree.encoding) + within
        return out


def leaf_counts(tree: Tree, tables: np.ndarray) -> np.ndarray:
    """int64[n]: mapped entries of each of the leaf tables `tables`."""
    from ..kernels.classify import Segments, count_mapped
    from ..kernels.walker import CODES

    n, counts = len(tables), np.zeros(len(tables), np.int64)
    lo, hi = np.zeros(n, np.int16), np.full(n, PAGES, np.int16)
    segments = Segments(tables.astype(np.int32), lo, hi, np.zeros(n, np.int64))
    count_mapped(np.asarray(tree.entries), segments, CODES[tree.encoding], counts)
    return counts
