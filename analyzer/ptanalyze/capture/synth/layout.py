"""The table pages that a set of 2 MiB regions needs, in the order of a tables file: depth first."""

from dataclasses import dataclass

import numpy as np

from ...formats.tables_file import enclosing_tables


@dataclass(frozen=True)
class Layout:
    """T tables: base uint64[T] first byte mapped, level uint8[T], parent int32[T], slot int16[T] in parent.

    leaf  int32[R], by region: the table with its leaf entries: level 1, or 2 where the region is huge
    """

    base: np.ndarray
    level: np.ndarray
    parent: np.ndarray
    slot: np.ndarray
    leaf: np.ndarray

    def __len__(self) -> int:
        return len(self.level)


def lay_out(regions: np.ndarray, huge: np.ndarray, levels: int) -> Layout:
    """Layout for `regions` (int64[R], address >> 21, ascending); huge  bool[R]."""
    bases, heights = [np.zeros(1, np.int64)], [np.array([levels], np.uint8)]
    for here in range(levels - 1, 0, -1):
        shift = 9 * (here - 1)
        covered = (regions if here > 1 else regions[~huge]) >> shift
        new = np.ones(len(covered), bool)
        new[1:] = covered[1:] != covered[:-1]
        bases.append(covered[new] << (21 + shift))
        heights.append(np.full(np.count_nonzero(new), here, np.uint8))
    base, level = np.concatenate(bases), np.concatenate(heights)
    order = np.lexsort((-level.astype(np.int8), base))
    base, level = base[order], level[order]
    parent = enclosing_tables(level.astype(np.int64), levels).astype(np.int32)
    slot = np.where(parent < 0, 0, base >> (12 + 9 * level.astype(np.int64)) & 511).astype(np.int16)
    leaf = np.empty(len(regions), np.int32)
    leaf[~huge] = np.flatnonzero(level == 1)
    upper = np.flatnonzero(level == 2)
    at = np.searchsorted(base[upper], (regions[huge] >> 9) << 30)
    leaf[huge] = upper[at]
    return Layout(base.astype(np.uint64), level, parent, slot, leaf)
