"""Writing the steps of memory-management calls: the entries of touched leaf tables that a range means.

A call is a row of numbers; its addresses are edges of the VmaMap. Every function takes the Writer first; its
other arguments say which part of it to work on.
"""

from typing import NamedTuple

import numpy as np

from .data_moves import RANGE
from .hooks import either
from .steps import CLEAR, FLUSH, FREE, MOVE, SET, UPDATE, Steps
from .vma_map import BYTE, LINEAGE, NONE, PROT, VmaMap, stretch

PAGE, REGION = 12, 21
SLOTS, LEVELS = 512, 5
(MMAP, MUNMAP, MPROTECT, MREMAP, MADVISE, BRK), MOVE_PAGES = range(3, 9), 11  # as trace.Event
RUNS = 0  # a call that is none: most threads run on another node from now on
OLDER, YOUNGER = -1, -2  # a VMA older than all calls, of lineage FLAGS; a range that was not mapped then
KIND, AT, NODE, NUMBER, FLAGS, EVENT, FROM, TO, CUT, THERE, THERE_TO, COLUMNS = range(12)  # of calls
VA, ROW, SLOT, LEAF, HUGE, FIRST, PAST, BY_ID, REGION_COLUMNS = range(9)
PARENT, BELOW, ABOVE, OF_TABLE, LEVEL, BASE, HUGE_FROM, HUGE_TO, ALIVE, TABLE_COLUMNS = range(10)
TABLE, TOUCHED, FREED = range(3)  # of near
HUGE_SLOT, HUGE_OF = range(2)
OWNER, MERGES = range(2)  # of lineages
STEPS, SHOOTDOWNS, LINEAGES, BREAK, WALKED, LAST_AT, LAST_KIND, CALL, STATE = range(9)  # of `now`
READ_WRITE = 3  # the protection of memory in no VMA that is known
NO_VMA = -1  # lineage of no VMA that is known


class Writer(NamedTuple):
    """All that turns calls into steps; C calls, R regions, T tables, H huge entries.

    calls     int64[C, 11]   KIND (trace.Event, or those below), AT (before this walk), NODE (of the caller's
                             CPU), EVENT (its index), and edges: FROM..TO the range, CUT where a shorter or
                             longer one ends (mremap), THERE..THERE_TO where mremap moved it
                             NUMBER: protection (mmap, mprotect), CLEAR or UPDATE (madvise), 1 if the old VMA
                             stays (mremap), node (move_pages), node before (RUNS), protection (OLDER)
                             FLAGS: what mmap and its neighbours must share to merge, -1: nothing merges
    vmas      VmaMap
    lineages  int64[..., 2]  OWNER, and MERGES (FLAGS of the mmap), of each call that made a VMA; the first is
                             of the memory in no VMA that is known
    regions   int64[R, 8]    by address: VA, ROW, SLOT of the huge entry (-1: 512 small ones), LEAF table,
                             HUGE (the entry's number), FIRST: last edge up to its begin, PAST: first edge
                             from its end on; BY_ID: leaf table of the region of this id
    tables    int64[T, 9]    PARENT (-1: a root), BELOW and ABOVE as FIRST and PAST, its row (-1), LEVEL,
                             BASE; HUGE_FROM..HUGE_TO: numbers of its huge entries; ALIVE: it may exist, was
                             not freed since a walk
    near      int64[N, 3]    TABLE: touched leaf tables and what leads to them, by the first byte TOUCHED
                             below; FREED is for scratch
    huge      int64[H, 2]    by row and slot: HUGE_SLOT, lineage of its VMA or NO_VMA
    page      uint32[W]      as WalkStream.page
    now       int64[8]       STEPS so far, SHOOTDOWNS, LINEAGES, BREAK (an edge), WALKED (walks that ALIVE
                             knows of), LAST_AT and LAST_KIND of the step before, CALL
    steps     Steps          out: number of a SET is the lineage; of a FLUSH, lo and hi are Shootdowns.single
                             and kernel
    extra     int64[S]       out: protection of a SET, event of a FLUSH
    """

    calls: np.ndarray
    vmas: VmaMap
    lineages: np.ndarray
    regions: np.ndarray
    tables: np.ndarray
    near: np.ndarray
    huge: np.ndarray
    page: np.ndarray
    now: np.ndarray
    steps: Steps
    extra: np.ndarray


@either
def add(w, kind, row, lo, hi, was, number, to, extra):
    """A step, operands as in Steps; none of no slots."""
    if lo == hi and (kind <= MOVE or kind == RANGE):
        return
    n, call = w.now[STEPS], w.calls[w.now[CALL]]
    if n < w.extra.size:
        steps = w.steps
        steps.at[n], steps.kind[n], steps.row[n], steps.lo[n], steps.hi[n] = call[AT], kind, row, lo, hi
        steps.was[n], steps.number[n], steps.to[n], w.extra[n] = was, number, to, extra
        steps.node[n], steps.call[n] = call[NODE], call[KIND]
    w.now[STEPS], w.now[LAST_AT], w.now[LAST_KIND] = n + 1, call[AT], kind


@either
def flush(w, start, end, unmaps):
    """A shootdown of bytes start..end, if the step before changed entries."""
    kind = w.now[LAST_KIND]
    changed = kind in (CLEAR, UPDATE, MOVE, RANGE, FREE)
    call = w.calls[w.now[CALL]]
    if not changed or w.now[LAST_AT] != call[AT]:
        return
    single = start >> REGION == (end - 1) >> REGION
    kernel = unmaps or start >> REGION == end >> REGION
    add(w, FLUSH, 0, int(single), int(kernel), 0, w.now[SHOOTDOWNS], 0, call[EVENT])
    w.now[SHOOTDOWNS] += 1


@either
def region_from(w, address):
    """The first region that ends behind `address`."""
    return first_from(w.regions, VA, address >> REGION)


@either
def first_from(rows, column, value):
    """The first row whose `column`, by which they are sorted, is `value` or more."""
    lo, hi = 0, rows.shape[0]
    while lo < hi:
        middle = (lo + hi) >> 1
        if rows[middle, column] < value:
            lo = middle + 1
        else:
            hi = middle
    return lo


@either
def covers(w, region, start, end):
    """(first slot, one past the last) of the bytes start..end in a region; none where `end` is before it."""
    if region >= w.regions.shape[0] or start >= end:
        return np.int64(0), np.int64(0)
    base = w.regions[region, VA] << (REGION - PAGE)
    return max((start >> PAGE) - base, 0), min(((end - 1) >> PAGE) + 1 - base, SLOTS)


@either
def byte_at(w, edge):
    return w.vmas.edges[edge, BYTE]


@either
def owner_of(w, lineage):
    """Node; lineage 0 is of the memory in no VMA that is known."""
    return w.lineages[lineage + 1, OWNER]


@either
def owner_at(w, piece):
    return owner_of(w, w.vmas.edges[piece, LINEAGE] if piece != NONE else NO_VMA)


@either
def change(w, kind, start, end):
    """CLEAR or UPDATE what lies in start..end (edges), VMA by VMA, and then its huge entries."""
    at = start
    while at < end:
        to, piece = stretch(w.vmas, at, end)
        change_small(w, kind, byte_at(w, at), byte_at(w, to), owner_at(w, piece))
        at = to
    change_huge(w, kind, start, end, False, 0)


@either
def change_small(w, kind, start, end, owner):
    """Entries of 4 KiB in bytes start..end."""
    region = region_from(w, start)
    lo, hi = covers(w, region, start, end)
    while lo < hi:
        if w.regions[region, SLOT] < 0:
            add(w, kind, w.regions[region, ROW], lo, hi, owner, 0, 0, 0)
        region += 1
        lo, hi = covers(w, region, start, end)


@either
def change_huge(w, kind, start, end, others, prot):
    """Huge entries of start..end (edges); `others`: those with a VMA of another protection than `prot`."""
    if w.huge.shape[0] == 0:
        return
    first, past = byte_at(w, start), byte_at(w, end)
    region = region_from(w, first)
    lo, hi = covers(w, region, first, past)
    while lo < hi:
        slot = w.regions[region, SLOT]
        if slot >= 0 and (not others or differs(w, region, start, end, prot)):
            owner = owner_of(w, w.huge[w.regions[region, HUGE], HUGE_OF])
            whole = hi - lo == SLOTS
            add(w, kind if whole else UPDATE, w.regions[region, ROW], slot, slot + 1, owner, 0, 0, 0)
        region += 1
        lo, hi = covers(w, region, first, past)


@either
def differs(w, region, start, end, prot):
    """Whether in start..end (edges) a VMA in the region has another protection."""
    at, stop = max(w.regions[region, FIRST], start), min(w.regions[region, PAST], end)
    while at < stop:
        at, piece = stretch(w.vmas, at, stop)
        if piece != NONE and w.vmas.edges[piece, PROT] != prot:
            return True
    return False


@either
def set_vma(w, start, end, lineage, prot):
    """Slots of bytes start..end now belong to a VMA; a huge entry to the last one that covers it whole."""
    region = region_from(w, start)
    lo, hi = covers(w, region, start, end)
    while lo < hi:
        row, slot = w.regions[region, ROW], w.regions[region, SLOT]
        if slot < 0:
            add(w, SET, row, lo, hi, 0, lineage, 0, prot)
        elif hi - lo == SLOTS:
            w.huge[w.regions[region, HUGE], HUGE_OF] = lineage
            add(w, SET, row, slot, slot + 1, 0, lineage, 0, prot)
        region += 1
        lo, hi = covers(w, region, start, end)
