"""Tables of one dimension side by side: what a view of them shows, in columns."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import snapshot
from ...core.snapshot import EMULATOR, Topology, Tree
from ..plots.page_table_map import extents

PAGE_BITS, SLOT_BITS = 12, 9


@dataclass(frozen=True)
class TableMap:
    """
    tree     the tables, depth first
    own      int64[t]: those of the program, as indices into the tree
    start, end  int64[t]: place of each beside the others: a slot for each that has no child
    walks    int64[T] by table of the tree: walks that end in it; None without a trace
    near     float64[T] by table of the tree: share of nodes that read a copy of their own; None: no policy
    """

    tree: Tree
    own: np.ndarray
    start: np.ndarray
    end: np.ndarray
    walks: np.ndarray | None = None
    near: np.ndarray | None = None

    @property
    def slots(self) -> int:
        return int(self.end.max(initial=1))

    def bands(self, low: float, high: float, columns: int) -> list[dict[str, Any]]:
        """A band for each level, root first: by column of low..high (slots) its table, node, walks, near.

        A column shows the table at its middle, and the walks of all that begin in it; -1: no table.
        """
        level = self.tree.level[self.own]
        edges = np.linspace(low, high, columns + 1)
        return [
            self._band(np.flatnonzero(level == one), one, edges) for one in range(int(level.max()), 0, -1)
        ]

    def _band(self, mine: np.ndarray, level: int, edges: np.ndarray) -> dict[str, Any]:
        at = np.searchsorted(self.start[mine], (edges[1:] + edges[:-1]) / 2, side="right") - 1
        found = mine[np.maximum(at, 0)]
        inside = (at >= 0) & ((edges[1:] + edges[:-1]) / 2 < self.end[found])
        table = self.own[found]
        band: dict[str, Any] = {"level": level, "node": np.where(inside, self.tree.node[table], -2).tolist()}
        if self.walks is not None:
            band["walks"] = np.where(inside, self._walks_within(edges, found), -1).tolist()
        if self.near is not None:
            band["near"] = np.where(inside, self.near[table], -1).round(3).tolist()
        return band

    def _walks_within(self, edges: np.ndarray, found: np.ndarray) -> np.ndarray:
        """int64[columns]: walks of the slots that a column covers, of its whole table if that is wider."""
        assert self.walks is not None
        by_slot = np.zeros(self.slots, np.int64)
        np.add.at(by_slot, self.start, self.walks[self.own])
        total = np.concatenate([[0], np.cumsum(by_slot)])
        first, last = np.round(edges[:-1]).astype(int), np.round(edges[1:]).astype(int)
        if edges[1] - edges[0] < 1:
            first = np.floor((edges[:-1] + edges[1:]) / 2).astype(int)
            last = first + 1
        whole = (self.start[found] <= first) & (self.end[found] >= last)
        first, last = np.where(whole, self.start[found], first), np.where(whole, self.end[found], last)
        counted: np.ndarray = total[np.clip(last, 0, self.slots)] - total[np.clip(first, 0, self.slots)]
        return counted

    def place(self, address: int) -> float | None:
        """Where the walk of an address ends, in slots: its reads are above; None where no table has it."""
        level = self.tree.level[self.own].astype(np.uint64)
        shift = PAGE_BITS + SLOT_BITS * level
        mine = np.flatnonzero(self.tree.base[self.own] >> shift == np.uint64(address) >> shift)
        if not len(mine):
            return None
        lowest = mine[np.argmin(level[mine])]
        table, wide = int(self.own[lowest]), float(self.end[lowest] - self.start[lowest])
        span = self.last(table) + 1 - self.first(table)
        within = (address - self.first(table)) / span if wide == 1 else 0.5
        return float(self.start[lowest] + within * wide)

    def first(self, table: int) -> int:
        """The first address that a table of the tree maps."""
        return int(self.tree.base[table])

    def last(self, table: int) -> int:
        return self.first(table) + (1 << (PAGE_BITS + SLOT_BITS * int(self.tree.level[table]))) - 1

    def leaf_at(self, slot: float) -> int:
        """Index, in the tree, of the table without children at a slot."""
        childless = np.flatnonzero(self.end - self.start == 1)
        lowest = childless[np.searchsorted(self.start[childless], int(slot), side="right") - 1]
        return int(self.own[lowest])

    def cells(self, table: int, topology: Topology) -> dict[str, Any]:
        """The entries of one table page: first address, node of each entry's frame, -2 where not present."""
        raw = np.asarray(self.tree.entries[table])
        level = int(self.tree.level[table])
        present = snapshot.present(raw, self.tree.encoding)
        leaf = snapshot.leaf(raw, level, self.tree.encoding)
        frames, tables = (snapshot.frame(raw, level, self.tree.encoding, leaves=one) for one in (True, False))
        frames = np.where(leaf, frames, tables)
        node = np.where(present, topology.node_of_frame(np.where(present, frames, -1)), -2)
        step = 1 << (PAGE_BITS + SLOT_BITS * (level - 1))
        return {"base": int(self.tree.base[table]), "step": step, "level": level, "node": node.tolist()}


def table_map(tree: Tree, walks: np.ndarray | None = None, near: np.ndarray | None = None) -> TableMap:
    own = np.flatnonzero((tree.flags & EMULATOR) == 0)
    start, end = extents(tree.level[own].astype(np.int64))
    return TableMap(tree, own, start, end, walks, near)
