"""Memory-management events as steps on the leaf tables that a trace touches.

What each system call does to page tables follows mm/mmap.c, mm/mprotect.c, mm/mremap.c and mm/madvise.c;
failed calls do nothing. A range that covers a huge entry only in part rewrites that entry.
"""

import numpy as np

from .kernels.steps import CLEAR, FLUSH, FREE, MOVE, SET, UPDATE
from .owners import UNKNOWN_VMA
from .trace import PAGE_SHIFT, REGION_SHIFT, Event

PAGE = 1 << PAGE_SHIFT
TOP = 1 << 63  # what lies above is no address but a wrapped length
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
ADVICE_THAT_UPDATES = {8, 20, 25}  # FREE, COLD, COLLAPSE


class StepWriter:
    """Turns events into rows of kernels.steps.Steps and Shootdowns; `vmas` is kept up to date."""

    def __init__(self, vmas, slots, tables):
        self.vmas, self.slots, self.tables = vmas, slots, tables
        self.steps, self.live, self.single = [], [], []
        self._huge = {}  # (row, slot) of a huge entry -> VMA id
        self._at = self._node = 0
        self._brk = None
        self._do = {
            Event.MMAP: self._mmap,
            Event.MUNMAP: self._munmap,
            Event.MPROTECT: self._mprotect,
            Event.MREMAP: self._mremap,
            Event.MADVISE: self._madvise,
            Event.BRK: self._brk_to,
        }

    def begin(self, huge):
        """What happened so far was before the first walk: no steps of it are kept.

        huge  {(row, slot): VMA id} of the huge entries now
        """
        self.steps, self.live, self.single = [], [], []
        self._huge = huge

    def event(self, at, node, live, event):
        """One event (EVENT_DTYPE as a tuple a, b, c, d, result, kind) before walk `at`, made on `node`.

        live  function that returns [per node] the CPUs a shootdown would have to interrupt
        """
        a, b, c, d, result, kind = event
        handler = self._do.get(kind)
        if handler is None or result < 0 or a >= TOP or b >= TOP:
            return
        self._at, self._node, self._live_now = at, node, live
        handler(a, b, c, d, result)

    def _mmap(self, a, b, c, d, result):
        start, end = result, result + page_up(b)
        if start <= 0:
            return
        self._clear(self.vmas.carve(start, end), start, end)
        self._new(start, end, self.vmas.lineage(self._node), c)

    def _munmap(self, a, b, c, d, result):
        self._unmap(a, a + page_up(b))

    def _mprotect(self, a, b, c, d, result):
        start, end = a, a + page_up(b)
        pieces = [found for found in self.vmas.carve(start, end) if found[2] is not None]
        if pieces:
            self._change(UPDATE, pieces, start, end)
        self._flush(start, end)
        for lo, hi, piece in pieces:
            self._new(lo, hi, piece.lineage, c)

    def _mremap(self, a, b, c, d, result):
        old, new = page_up(b), page_up(c)
        if result != a:
            return self._move(a, old, result, new, keep=bool(d & MREMAP_DONTUNMAP))
        if new < old:
            return self._unmap(a + new, a + old)
        piece = self.vmas.at(a + old - 1) if old else None
        if new > old and piece is not None:
            self._clear(self.vmas.carve(a + old, a + new), a + old, a + new)
            self._new(a + old, a + new, piece.lineage, piece.prot)

    def _move(self, source, old, target, new, keep):
        self._clear(self.vmas.carve(target, target + new), target, target + new, flush=False)
        pieces = self.vmas.carve(source, source + old)
        moved = min(old, new)
        for lo, hi, piece in pieces:
            owner = self.vmas.owner_of(piece)
            self._move_small(lo, min(hi, source + moved), target - source, owner)
            self._change_small(CLEAR, max(lo, source + moved), hi, owner)
        self._change_huge(CLEAR, source, source + old)
        known = [found for found in pieces if found[2] is not None]
        prot = known[0][2].prot if known else 3
        lineage = self.vmas.lineage(self._node)
        self.vmas.put(target, target + new, lineage, prot)
        if keep:
            for lo, hi, piece in known:
                self.vmas.put(lo, hi, piece.lineage, piece.prot)
            self._flush(source, source + old)
        else:
            self._leave(source, source + old)
        self.set_vma(target, target + new, self.vmas.id(lineage, prot))

    def _madvise(self, a, b, c, d, result):
        kind = CLEAR if c in ADVICE_THAT_CLEARS else UPDATE if c in ADVICE_THAT_UPDATES else None
        if kind is None:
            return
        start, end = a, a + page_up(b)
        pieces = self.vmas.carve(start, end)
        self._change(kind, pieces, start, end)
        for lo, hi, piece in pieces:
            if piece is not None:
                self.vmas.put(lo, hi, piece.lineage, piece.prot)
        self._flush(start, end)

    def _brk_to(self, a, b, c, d, result):
        before, self._brk = self._brk, page_up(result)
        if before is None or before == self._brk:
            return
        if self._brk < before:
            return self._unmap(self._brk, before)
        heap = self.vmas.at(before - 1)
        lineage = heap.lineage if heap else self.vmas.lineage(self._node)
        self._clear(self.vmas.carve(before, self._brk), before, self._brk)
        self._new(before, self._brk, lineage, heap.prot if heap else 3)

    def _unmap(self, start, end):
        self._clear(self.vmas.carve(start, end), start, end, flush=False)
        self._leave(start, end)

    def _leave(self, start, end):
        """The VMAs of the range are gone, its entries cleared: shoot down, free tables, forget the VMAs."""
        freed = self._freed(start, end)
        for table in freed:
            self._clear_leftovers(self.slots.row_of_table.get(table))
        self._flush(start, end)
        for table in freed:
            self._add(FREE, self.slots.row_of_table.get(table, -1), other=table)
        self.set_vma(start, end, UNKNOWN_VMA)

    def _clear_leftovers(self, row):
        """What was touched outside known VMAs, or in a huge page unmapped bit by bit, goes with its table."""
        if row is None:
            return
        unknown = self.vmas.owner[UNKNOWN_VMA]
        if row not in self.slots.huge_slots:
            return self._add(CLEAR, row, 0, 512, unknown)
        for slot in self.slots.huge_slots[row]:
            owner = self.vmas.owner[self._huge.get((row, slot), UNKNOWN_VMA)]
            self._add(CLEAR, row, slot, slot + 1, owner)

    def _freed(self, start, end):
        """Flat ids of tables whose whole span has no VMA left, leaf tables first (free_pgtables)."""
        found = set()
        for region, _, _ in self.slots.regions(start, end):
            found.update(self._empty_from(region))
        low = min((int(self.tables.base[t]) for t in found), default=start)
        high = max((self._end(t) for t in found), default=end)
        for region, _, _ in self.slots.regions(low, high):  # touched outside every known VMA
            found.update(self._empty_from(region))
        return sorted(found, key=lambda t: (self.tables.level[t], self.tables.base[t]))

    def _empty_from(self, region):
        table = self.slots.leaf(region)
        while self.tables.parent[table] >= 0 and not self.vmas.any(
            int(self.tables.base[table]), self._end(table)
        ):
            yield table
            table = int(self.tables.parent[table])

    def _end(self, table):
        return int(self.tables.base[table]) + (1 << (PAGE_SHIFT + 9 * int(self.tables.level[table])))

    def _clear(self, pieces, start, end, flush=True):
        self._change(CLEAR, pieces, start, end)
        if flush:
            self._flush(start, end)

    def _new(self, start, end, lineage, prot):
        if end > start:
            self.vmas.put(start, end, lineage, prot)
            self.set_vma(start, end, self.vmas.id(lineage, prot))

    def _flush(self, start, end):
        if not self.steps or self.steps[-1][0] != self._at or self.steps[-1][1] not in (CLEAR, UPDATE, MOVE):
            return
        self._add(FLUSH, other=len(self.live))
        self.live.append(self._live_now())
        self.single.append(start >> REGION_SHIFT == (end - 1) >> REGION_SHIFT)

    def _change(self, kind, pieces, start, end):
        for lo, hi, piece in pieces:
            self._change_small(kind, lo, hi, self.vmas.owner_of(piece))
        self._change_huge(kind, start, end)

    def _change_small(self, kind, start, end, owner):
        for region, lo, hi in self.slots.regions(start, end):
            if self.slots.entry(region) < 0:
                self._add(kind, self.slots.row(region), lo, hi, owner)

    def _change_huge(self, kind, start, end):
        for region, lo, hi in self.slots.regions(start, end):
            row, slot = self.slots.row(region), self.slots.entry(region)
            if slot >= 0:
                owner = self.vmas.owner[self._huge.get((row, slot), UNKNOWN_VMA)]
                self._add(kind if hi - lo == 512 else UPDATE, row, slot, slot + 1, owner)

    def set_vma(self, start, end, vma_id):
        """Slots of the range now belong to a VMA; a huge entry to the last one that covers it whole."""
        for region, lo, hi in self.slots.regions(start, end):
            row, slot = self.slots.row(region), self.slots.entry(region)
            if slot < 0:
                self._add(SET, row, lo, hi, other=vma_id)
            elif hi - lo == 512:
                self._huge[row, slot] = vma_id
                self._add(SET, row, slot, slot + 1, other=vma_id)

    def _move_small(self, start, end, shift, owner):
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
                at = offset + to_end
            self._add(CLEAR, row, at, hi, owner)

    def _add(self, kind, row=0, lo=0, hi=0, owner=0, other=0, to=0):
        if lo == hi and kind not in (FREE, FLUSH):
            return
        self.steps.append((self._at, kind, row, lo, hi, owner, other, to, self._node))


class Slots:
    """Finds the rows and slots of the regions that a trace touched."""

    def __init__(self, regions, rows):
        self._order = np.argsort(regions.va, kind="stable")
        self._sorted = regions.va[self._order].astype(np.int64)
        self.row_of_table = {int(table): row for row, table in enumerate(rows.leaf)}
        self.huge_slots = {}
        for region in np.flatnonzero(regions.slot >= 0).tolist():
            mine = self.huge_slots.setdefault(int(rows.of_region[region]), [])
            mine.append(int(regions.slot[region]))
        self._columns = regions.va.astype(np.int64), regions.leaf, regions.level, regions.slot, rows.of_region

    def span(self, start, end):
        """int64[n] region ids that overlap bytes start..end, int64[n] first slot, int64[n] last slot + 1."""
        first, last = start >> PAGE_SHIFT, (end + PAGE - 1) >> PAGE_SHIFT
        if last <= first:
            return np.zeros((3, 0), np.int64)
        lo, hi = np.searchsorted(self._sorted, [first >> 9, ((last - 1) >> 9) + 1])
        base = self._sorted[lo:hi] << 9
        return self._order[lo:hi], np.maximum(first - base, 0), np.minimum(last - base, 512)

    def regions(self, start, end):
        """Iterate over (region id, first slot, one past the last slot)."""
        return zip(*(column.tolist() for column in self.span(start, end)), strict=True)

    def whole_huge(self, start, end):
        """(row, slot) of each huge entry whose region lies in start..end as a whole."""
        for region, lo, hi in self.regions(start, end):
            if hi - lo == 512 and self.entry(region) >= 0:
                yield self.row(region), self.entry(region)

    def va(self, region):
        return int(self._columns[0][region])

    def leaf(self, region):
        return int(self._columns[1][region])

    def entry(self, region):
        """Slot of a region's huge entry, -1 where it has 512 small ones."""
        return int(self._columns[3][region])

    def row(self, region):
        return int(self._columns[4][region])


def page_up(length):
    return (length + PAGE - 1) & -PAGE
