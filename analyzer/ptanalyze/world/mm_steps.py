"""Memory-management events as steps on the leaf tables that a trace touches.

What each system call does to page tables follows mm/mmap.c, mm/mprotect.c, mm/mremap.c and mm/madvise.c;
failed calls do nothing. A range that covers a huge entry only in part rewrites that entry.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..core.trace import PAGE_SHIFT, REGION_SHIFT, Event
from ..core.walks import Tables
from ..kernels.data_moves import RANGE
from ..kernels.steps import CLEAR, FLUSH, FREE, MOVE, RUN, SET, UPDATE
from .leaf_slots import Entry, Slots
from .live_cpus import LiveCpus
from .owners import UNKNOWN_VMA, Carved, VmaMap

PAGE = 1 << PAGE_SHIFT
TOP = 1 << 63  # what lies above is no address but a wrapped length
LAST_NODE = (1 << 15) - 1
MREMAP_DONTUNMAP = 4
ADVICE_THAT_CLEARS = {
    4,
    9,
    21,
    24,
    100,
    101,
    102,
}  # DONTNEED, REMOVE, PAGEOUT, ... (asm-generic/mman-common.h)
ANONYMOUS_PRIVATE, MAP_GROWSDOWN = 0x22, 0x100
VMA_FLAGS = 0x46000  # MAP_LOCKED, MAP_NORESERVE, MAP_HUGETLB: VMAs with different ones do not merge
ADVICE_THAT_UPDATES = {8, 20, 25}  # FREE, COLD, COLLAPSE


class StepWriter:
    """Turns events into rows of kernels.steps.Steps and Shootdowns; `vmas` is kept up to date."""

    def __init__(
        self, vmas: VmaMap, slots: Slots, tables: Tables, live: LiveCpus, walked: Callable[[], None]
    ) -> None:
        """live: whom a shootdown interrupts; walked: calls `walked` with the walks up to the event."""
        self.vmas, self.slots, self.tables = vmas, slots, tables
        self._live_cpus, self._catch_up = live, walked
        self._tables, touched = slots.tables(tables.parent)
        self._touched: list[int] = touched.tolist()
        self.begin({})
        self._at = self._node = self._call = self._cpu = 0
        self._brk: int | None = None
        self._do: dict[int, Callable[[int, int, int, int, int], None]] = {
            Event.MMAP: self._mmap,
            Event.MUNMAP: self._munmap,
            Event.MPROTECT: self._mprotect,
            Event.MREMAP: self._mremap,
            Event.MADVISE: self._madvise,
            Event.BRK: self._brk_to,
            Event.MOVE_PAGES: self._move_pages,
        }

    def begin(self, huge: dict[Entry, int]) -> None:
        """What happened so far was before the first walk: no steps of it are kept.

        huge  {(row, slot): VMA id} of the huge entries now
        """
        self.steps = array("q")  # the columns of Steps, row by row
        self.live: list[list[int]] = []
        self.single: list[bool] = []
        self.kernel: list[bool] = []
        self._last = -1, -1  # what the last step was: before which walk, of which kind
        self._huge = huge
        self._alive = np.ones(len(self.tables.level), bool)  # tables that may exist: not freed since a walk

    def walked(self, pages: np.ndarray) -> None:
        """uint32[n], as WalkStream.page: the next walks; the tables they went through exist now."""
        self._exist(self.slots.leaves(pages))

    def _exist(self, tables: np.ndarray) -> None:
        while len(tables):
            tables = tables[~self._alive[tables]]
            self._alive[tables] = True
            tables = self.tables.parent[tables]
            tables = tables[tables >= 0]

    def event(self, at: int, node: int, cpu: int, event: tuple[int, ...]) -> None:
        """One event (of EVENT_DTYPE: a, b, c, d, result, kind) before walk `at`, on a CPU of `node`."""
        a, b, c, d, result, kind = event
        handler = self._do.get(kind)
        if handler is None or result < 0 or a >= TOP or b >= TOP:
            return
        self._at, self._node, self._call, self._cpu = at, node, kind, cpu
        handler(a, b, c, d, result)

    def run(self, at: int, before: int, node: int) -> None:
        """Most live threads run on `node` from walk `at` on."""
        self._at, self._node, self._call = at, node, 0
        self._add(RUN, was=before, to=node)

    def _mmap(self, a: int, b: int, c: int, d: int, result: int) -> None:
        start, end = result, result + page_up(b)
        if start <= 0:
            return
        self._clear(self.vmas.carve(start, end), start, end)
        self._new(start, end, self.vmas.joined(start, end, c, self._node, kind_of(d)), c)

    def _munmap(self, a: int, b: int, c: int, d: int, result: int) -> None:
        self._unmap(a, a + page_up(b))

    def _mprotect(self, a: int, b: int, c: int, d: int, result: int) -> None:
        start, end = a, a + page_up(b)
        carved = self.vmas.carve(start, end)
        pieces = [(lo, hi, piece) for lo, hi, piece in carved if piece is not None]
        others = [(lo, hi) for lo, hi, piece in pieces if piece.prot != c]
        for lo, hi, piece in pieces:
            if piece.prot != c:
                self._change_small(UPDATE, lo, hi, self.vmas.owner_of(piece))
        self._change_huge(UPDATE, start, end, others)
        self._flush(start, end)
        for lo, hi, piece in pieces:
            self._new(lo, hi, piece.lineage, c)

    def _mremap(self, a: int, b: int, c: int, d: int, result: int) -> None:
        old, new = page_up(b), page_up(c)
        if result != a:
            return self._move(a, old, result, new, keep=bool(d & MREMAP_DONTUNMAP))
        if new < old:
            return self._unmap(a + new, a + old)
        piece = self.vmas.at(a + old - 1) if old else None
        if new > old and piece is not None:
            self._clear(self.vmas.carve(a + old, a + new), a + old, a + new)
            self._new(a + old, a + new, piece.lineage, piece.prot)

    def _move(self, source: int, old: int, target: int, new: int, keep: bool) -> None:
        """mremap to somewhere else: entries go there, one leaf table at a time, each with its own flush."""
        self._clear(self.vmas.carve(target, target + new), target, target + new)
        if new < old:
            self._unmap(source + new, source + old)
        old = min(old, new)
        mine = self.vmas.at(source)
        lineage, prot = self.vmas.lineage(self.vmas.owner_of(mine)), 3 if mine is None else mine.prot
        self._new(target, target + new, lineage, prot)
        pieces = self.vmas.carve(source, source + old)
        for start, end in extents(source, old, target):
            for lo, hi, piece in pieces:
                owner = self.vmas.owner_of(piece)
                self._move_small(max(lo, start), min(hi, end), target - source, owner)
            self._flush(start, end)
        self._change_huge(CLEAR, source, source + old)
        if not keep:
            return self._leave(source, source + old)
        for lo, hi, piece in pieces:
            if piece is not None:
                self.vmas.put(lo, hi, piece.lineage, piece.prot)
        self._flush(source, source + old)

    def _madvise(self, a: int, b: int, c: int, d: int, result: int) -> None:
        kind = CLEAR if c in ADVICE_THAT_CLEARS else UPDATE if c in ADVICE_THAT_UPDATES else None
        if kind is None:
            return
        start, end = a, a + page_up(b)
        self._change(kind, self.vmas.within(start, end), start, end)
        self._flush(start, end)

    def _move_pages(self, a: int, b: int, c: int, d: int, result: int) -> None:
        start, end, node = a, a + page_up(b), min(c, LAST_NODE)
        for region, lo, hi in self.slots.regions(start, end):
            row, slot = self.slots.row(region), self.slots.entry(region)
            first, last = (lo, hi) if slot < 0 else (slot, slot + 1)
            self._add(RANGE, row, first, last, to=node)
        self._flush(start, end)

    def _brk_to(self, a: int, b: int, c: int, d: int, result: int) -> None:
        before, self._brk = self._brk, page_up(result)
        if before is None or before == self._brk:
            return
        if self._brk < before:
            return self._unmap(self._brk, before)
        heap = self.vmas.at(before - 1)
        lineage = heap.lineage if heap else self.vmas.lineage(self._node)
        self._clear(self.vmas.carve(before, self._brk), before, self._brk)
        self._new(before, self._brk, lineage, heap.prot if heap else 3)

    def _unmap(self, start: int, end: int) -> None:
        self._clear(self.vmas.carve(start, end), start, end, flush=False)
        self._leave(start, end)

    def _leave(self, start: int, end: int) -> None:
        """The VMAs of the range are gone, its entries cleared: shoot down, free tables, forget the VMAs."""
        freed = self._freed(start, end)
        for table in freed:
            self._clear_leftovers(self.slots.row_of_table.get(table))
        for table in freed:
            self._add(FREE, self.slots.row_of_table.get(table, -1), number=table)
        self._flush(start, end, unmaps=True)
        self.set_vma(start, end, UNKNOWN_VMA)

    def _clear_leftovers(self, row: int | None) -> None:
        """What was touched outside known VMAs, or in a huge page unmapped bit by bit, goes with its table."""
        if row is None:
            return
        unknown = self.vmas.owner[UNKNOWN_VMA]
        if row not in self.slots.huge_slots:
            return self._add(CLEAR, row, 0, 512, unknown)
        for slot in self.slots.huge_slots[row]:
            owner = self.vmas.owner[self._huge.get((row, slot), UNKNOWN_VMA)]
            self._add(CLEAR, row, slot, slot + 1, owner)

    def _freed(self, start: int, end: int) -> list[int]:
        """Flat ids of tables whose whole span has no VMA left, leaf tables first (free_pgtables).

        Tables touched outside every known VMA go with those around them.
        """
        empty: set[int] = set()
        for region, _, _ in self.slots.regions(start, end):
            empty.update(self._empty_from(region))
        low = min((int(self.tables.base[t]) for t in empty), default=start)
        high = max((self._end(t) for t in empty), default=end)
        first, last = bisect_left(self._touched, low), bisect_left(self._touched, high)
        if first == last:
            return []
        near = self._tables[first:last]
        self._catch_up()
        found = [t for t in near[self._alive[near]].tolist() if t in empty or self._is_empty(t)]
        self._alive[found] = False
        return sorted(found, key=lambda t: (self.tables.level[t], self.tables.base[t]))

    def _empty_from(self, region: int) -> Iterator[int]:
        table = self.slots.leaf(region)
        while self._is_empty(table):
            yield table
            table = self.tables.parent.item(table)

    def _is_empty(self, table: int) -> bool:
        if self.tables.parent.item(table) < 0:
            return False
        return not self.vmas.any(self.tables.base.item(table), self._end(table))

    def _end(self, table: int) -> int:
        end: int = self.tables.base.item(table) + (1 << (PAGE_SHIFT + 9 * self.tables.level.item(table)))
        return end

    def _clear(self, pieces: Sequence[Carved], start: int, end: int, flush: bool = True) -> None:
        self._change(CLEAR, pieces, start, end)
        if flush:
            self._flush(start, end, unmaps=True)

    def _new(self, start: int, end: int, lineage: int, prot: int) -> None:
        if end > start:
            whole, reach = self.vmas.put(start, end, lineage, prot), 1 << REGION_SHIFT
            around = max(whole.start, start - reach), min(whole.end, end + reach)
            self.set_vma(*around, self.vmas.id(lineage, prot))

    def _flush(self, start: int, end: int, unmaps: bool = False) -> None:
        if self._last[0] != self._at or self._last[1] not in (CLEAR, UPDATE, MOVE, RANGE, FREE):
            return
        self._add(FLUSH, number=len(self.live))
        self.live.append(self._live_cpus.others(self._cpu))
        self.single.append(start >> REGION_SHIFT == (end - 1) >> REGION_SHIFT)
        self.kernel.append(unmaps or start >> REGION_SHIFT == end >> REGION_SHIFT)

    def _change(self, kind: int, pieces: Sequence[Carved], start: int, end: int) -> None:
        for lo, hi, piece in pieces:
            self._change_small(kind, lo, hi, self.vmas.owner_of(piece))
        self._change_huge(kind, start, end)

    def _change_small(self, kind: int, start: int, end: int, owner: int) -> None:
        for region, lo, hi in self.slots.regions(start, end):
            if self.slots.entry(region) < 0:
                self._add(kind, self.slots.row(region), lo, hi, owner)

    def _change_huge(
        self, kind: int, start: int, end: int, within: Sequence[tuple[int, int]] | None = None
    ) -> None:
        """within  only the entries that overlap one of these ranges; None: all"""
        if not self.slots.any_huge:
            return
        for region, lo, hi in self.slots.regions(start, end):
            row, slot = self.slots.row(region), self.slots.entry(region)
            base = self.slots.va(region) << REGION_SHIFT
            here = within is None or any(a < base + (1 << REGION_SHIFT) and base < b for a, b in within)
            if slot >= 0 and here:
                owner = self.vmas.owner[self._huge.get((row, slot), UNKNOWN_VMA)]
                self._add(kind if hi - lo == 512 else UPDATE, row, slot, slot + 1, owner)

    def set_vma(self, start: int, end: int, vma_id: int) -> None:
        """Slots of the range now belong to a VMA; a huge entry to the last one that covers it whole."""
        for region, lo, hi in self.slots.regions(start, end):
            row, slot = self.slots.row(region), self.slots.entry(region)
            if slot < 0:
                self._add(SET, row, lo, hi, number=vma_id)
            elif hi - lo == 512:
                self._huge[row, slot] = vma_id
                self._add(SET, row, slot, slot + 1, number=vma_id)

    def _move_small(self, start: int, end: int, shift: int, owner: int) -> None:
        """MOVE where both ends are 4 KiB entries of tables the trace touches, CLEAR elsewhere."""
        for region, lo, hi in self.slots.regions(start, end):
            if self.slots.entry(region) >= 0:
                continue
            row, first = self.slots.row(region), self.slots.va(region) << REGION_SHIFT
            at = lo
            for target, to, to_end in self.slots.regions(
                first + lo * PAGE + shift, first + hi * PAGE + shift
            ):
                if self.slots.entry(target) >= 0:
                    continue
                offset = ((self.slots.va(target) << REGION_SHIFT) - shift - first) // PAGE
                self._add(CLEAR, row, at, offset + to, owner)
                self._add(MOVE, row, offset + to, offset + to_end, owner, self.slots.row(target), to)
                self._exist(np.array([self.slots.leaf(target)]))
                at = offset + to_end
            self._add(CLEAR, row, at, hi, owner)

    def _add(
        self, kind: int, row: int = 0, lo: int = 0, hi: int = 0, was: int = 0, number: int = 0, to: int = 0
    ) -> None:
        """Write a step; operands as in Steps."""
        if lo == hi and kind not in (FREE, FLUSH, RUN):
            return
        self.steps.extend((self._at, kind, row, lo, hi, was, number, to, self._node, self._call))
        self._last = self._at, kind


def extents(source: int, length: int, target: int) -> Iterator[tuple[int, int]]:
    """Iterate (start, end): parts of what mremap moves, in one leaf table before and in one after."""
    at, table = source, 1 << REGION_SHIFT
    while at < source + length:
        room = table - max(at % table, (at - source + target) % table)
        yield at, min(at + room, source + length)
        at += room


def kind_of(flags: int) -> int | None:
    """What of mmap's flags two mappings must share to be one VMA; None: one that never merges."""
    if flags & ANONYMOUS_PRIVATE != ANONYMOUS_PRIVATE or flags & MAP_GROWSDOWN:
        return None
    return flags & VMA_FLAGS


def page_up(length: int) -> int:
    return (length + PAGE - 1) & -PAGE
