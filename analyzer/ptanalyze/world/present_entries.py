"""Entries that table pages hold when a trace begins: what it takes to copy them."""

import numpy as np

from ..core.snapshot import Tree, blocks, leaf
from .history import History
from .site import Site


def present_entries(site: Site, past: History) -> np.ndarray:
    """int64[T], by flat id: present entries of each table page when the trace begins, 0 where there is none.

    Leaf tables that the trace touches as the history has them; others, and the host's, as captured. Upper
    tables hold an entry for each table below.
    """
    space = site.space
    entries = np.zeros(len(space.tables.level), np.int64)
    exists = past.exists.copy()
    entries[: space.guest_tables] = leaf_entries(space.snapshot.guest)
    entries[past.rows.leaf] = np.bitwise_count(past.valid).sum(axis=1)
    if space.host_tables:
        host = slice(space.guest_tables, space.guest_tables + space.host_tables)
        entries[host], exists[host] = leaf_entries(space.snapshot.nested), True
    below = np.flatnonzero(exists & (space.tables.parent >= 0))
    np.add.at(entries, space.tables.parent[below], 1)
    entries[~exists] = 0
    return entries


def leaf_entries(tree: Tree) -> np.ndarray:
    """int64[T]: entries of each table of a Tree that map pages, of whatever size."""
    counts = np.zeros(len(tree), np.int64)
    for level, ids, raw in blocks(tree, (1, 2, 3)):
        counts[ids] = leaf(raw, level, tree.encoding).sum(axis=1)
    return counts
