"""The leaf entries of pages whose accessed bits were sampled."""

import numpy as np

from ..core import snapshot as bits
from ..core.snapshot import Heat, Tree


def leaves_of(tree: Tree, heat: Heat) -> tuple[np.ndarray, np.ndarray]:
    """(int64[P] table, int64[P] slot) of the entry that maps each page of a Heat; table -1: none does now."""
    table, slot = np.full(len(heat.address), -1), np.zeros(len(heat.address), np.int64)
    for level in np.unique(heat.level).tolist():
        tables = np.flatnonzero(tree.level == level)
        if not len(tables):
            continue
        tables = tables[np.argsort(tree.base[tables])]
        of = np.flatnonzero(heat.level == level)
        shift = np.uint64(3 + 9 * level)
        base = heat.address[of] >> (shift + np.uint64(9)) << (shift + np.uint64(9))
        at = np.minimum(np.searchsorted(tree.base[tables], base), len(tables) - 1)
        within = (heat.address[of] >> shift & np.uint64(511)).astype(np.int64)
        entries = tree.entries[tables[at], within]
        there = (tree.base[tables[at]] == base) & bits.leaf(entries, level, tree.encoding)
        table[of[there]], slot[of[there]] = tables[at[there]], within[there]
    return table, slot


def known_pages(tree: Tree, heat: Heat) -> int:
    """Number of the pages of a Heat that the tree maps as they were mapped when they were sampled."""
    return int(np.count_nonzero(leaves_of(tree, heat)[0] >= 0))
