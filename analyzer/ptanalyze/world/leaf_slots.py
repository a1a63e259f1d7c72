"""Where bytes of the address space are among the leaf entries that a trace touches."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from ..core.trace import PAGE_SHIFT, REGION_SHIFT
from ..core.walks import Regions
from ..kernels.steps import Rows

PAGE = 1 << PAGE_SHIFT
Entry: TypeAlias = tuple[int, int]  # row, slot


class Slots:
    """Finds the rows and slots of the regions that a trace touched."""

    def __init__(self, regions: Regions, rows: Rows) -> None:
        self._order = np.argsort(regions.va, kind="stable")
        self._sorted = regions.va[self._order].astype(np.int64)
        self._vas, self._ids = self._sorted.tolist(), self._order.tolist()
        self.row_of_table = {int(table): row for row, table in enumerate(rows.leaf)}
        self.huge_slots: dict[int, list[int]] = {}
        for region in np.flatnonzero(regions.slot >= 0).tolist():
            mine = self.huge_slots.setdefault(int(rows.of_region[region]), [])
            mine.append(int(regions.slot[region]))
        self._asked, self._found = (0, 0), list[tuple[int, int, int]]()
        self._va, self._leaf = regions.va.astype(np.int64), regions.leaf
        self._va_of: list[int] = self._va.tolist()
        self._leaf_of: list[int] = regions.leaf.tolist()
        self._entry_of: list[int] = regions.slot.tolist()
        self._row_of: list[int] = rows.of_region.tolist()

    def span(self, start: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """int64[n] region ids that overlap bytes start..end, int64[n] first slot, int64[n] last slot + 1."""
        first, last = start >> PAGE_SHIFT, (end + PAGE - 1) >> PAGE_SHIFT
        if last <= first:
            none = np.zeros(0, np.int64)
            return none, none, none
        lo, hi = np.searchsorted(self._sorted, [first >> 9, ((last - 1) >> 9) + 1])
        base = self._sorted[lo:hi] << 9
        return self._order[lo:hi], np.maximum(first - base, 0), np.minimum(last - base, 512)

    def regions(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """[(region id, first slot, one past the last slot)] by address."""
        if self._asked == (start, end):  # steps of a call ask for the same range, one after another
            return self._found
        first, last = start >> PAGE_SHIFT, (end + PAGE - 1) >> PAGE_SHIFT
        vas, found, low, high = self._vas, [], first >> 9, (last + 511) >> 9
        at = bisect_left(vas, low) if last > first else len(vas)
        while at < len(vas) and (va := vas[at]) < high:
            found.append((self._ids[at], first & 511 if va == low else 0, min(last - (va << 9), 512)))
            at += 1
        self._asked, self._found = (start, end), found
        return found

    @property
    def any_huge(self) -> bool:
        return len(self.huge_slots) > 0

    def whole_huge(self, start: int, end: int) -> Iterator[Entry]:
        """(row, slot) of each huge entry whose region lies in start..end as a whole."""
        return (key for _, key in self.huge_within(start, end))

    def huge_within(self, start: int, end: int) -> Iterator[tuple[int, Entry]]:
        """(first byte of the region, (row, slot)) of each huge entry whose region lies in start..end."""
        for region, lo, hi in self.regions(start, end):
            if hi - lo == 512 and self.entry(region) >= 0:
                yield self.va(region) << REGION_SHIFT, (self.row(region), self.entry(region))

    def leaves(self, pages: np.ndarray) -> np.ndarray:
        """int32[n]: leaf table of each page (uint32[n], as Touches.page)."""
        found: np.ndarray = self._leaf[pages >> np.uint32(9)]
        return found

    def tables(self, parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ids, first byte touched below each): touched leaf tables and what leads to them, int64[n].

        Sorted by that address. parent  int32[T]
        """
        touched = np.full(len(parent), np.iinfo(np.int64).max)
        at, first = self._leaf, self._va << REGION_SHIFT
        while len(at):
            np.minimum.at(touched, at, first)
            at = np.unique(at[parent[at] >= 0])
            at, first = parent[at], touched[at]
        found = np.argsort(touched, kind="stable")[: np.count_nonzero(touched < np.iinfo(np.int64).max)]
        return found, touched[found]

    def va(self, region: int) -> int:
        return self._va_of[region]

    def leaf(self, region: int) -> int:
        return self._leaf_of[region]

    def entry(self, region: int) -> int:
        """Slot of a region's huge entry, -1 where it has 512 small ones."""
        return self._entry_of[region]

    def row(self, region: int) -> int:
        return self._row_of[region]
