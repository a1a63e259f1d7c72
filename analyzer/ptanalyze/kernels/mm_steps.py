"""Memory-management calls as steps on the leaf tables that a trace touches, one call after the other.

What each system call does to page tables follows mm/mmap.c, mm/mprotect.c, mm/mremap.c and mm/madvise.c. A
range that covers a huge entry only in part rewrites that entry.
"""

import numpy as np

from .data_moves import RANGE
from .hooks import either, kernel
from .mm_free import exist, leave, unmap
from .mm_writer import (
    AT,
    BREAK,
    BRK,
    CALL,
    CUT,
    FLAGS,
    FROM,
    KIND,
    LEAF,
    LINEAGES,
    MADVISE,
    MERGES,
    MMAP,
    MOVE_PAGES,
    MPROTECT,
    MREMAP,
    MUNMAP,
    NODE,
    NUMBER,
    OLDER,
    OWNER,
    PAGE,
    READ_WRITE,
    REGION,
    ROW,
    RUNS,
    SLOT,
    THERE,
    THERE_TO,
    TO,
    VA,
    YOUNGER,
    add,
    byte_at,
    change,
    change_huge,
    change_small,
    covers,
    flush,
    owner_at,
    owner_of,
    region_from,
    set_vma,
)
from .steps import CLEAR, MOVE, RUN, UPDATE
from .vma_map import HELD_FROM, HELD_OF, HELD_TO, LINEAGE, NONE, PROT, carve, piece_at, put, stretch


@kernel
def write_steps(w, last, until):
    """Carry out calls from now[CALL] up to `last`; stops before one that may free tables after walk `until`.

    Steps that `step` has no room for are counted in `now` alone.
    """
    while w.now[CALL] < last:
        call = w.calls[w.now[CALL]]
        kind = call[KIND]
        if call[AT] > until and kind in (MUNMAP, MREMAP, BRK):
            return
        if kind == RUNS:
            add(w, RUN, 0, 0, 0, call[NUMBER], 0, call[NODE], 0)
        elif kind == MMAP:
            mmap(w, call)
        elif kind == MUNMAP:
            unmap(w, call[FROM], call[TO])
        elif kind == MPROTECT:
            mprotect(w, call)
        elif kind == MREMAP:
            mremap(w, call)
        elif kind == MADVISE:
            change(w, call[NUMBER], call[FROM], call[TO])
            flush(w, byte_at(w, call[FROM]), byte_at(w, call[TO]), False)
        elif kind == BRK:
            brk(w, call)
        elif kind == MOVE_PAGES:
            move_pages(w, call)
        elif kind == OLDER and call[FROM] < call[TO]:
            put(w.vmas, call[FROM], call[TO], call[FLAGS], call[NUMBER])
        elif kind == YOUNGER:
            carve(w.vmas, call[FROM], call[TO])
        w.now[CALL] += 1


@either
def new_lineage(w, owner, merges):
    n = w.now[LINEAGES]
    w.lineages[n + 1, OWNER], w.lineages[n + 1, MERGES] = owner, merges
    w.now[LINEAGES] = n + 1
    return n


@either
def new(w, start, end, lineage, prot):
    """A VMA where nothing is; it may complete that of a huge entry beside it."""
    if start < end:
        first, past = put(w.vmas, start, end, lineage, prot)
        reach = np.int64(1) << REGION
        low = max(byte_at(w, first), byte_at(w, start) - reach)
        high = min(byte_at(w, past), byte_at(w, end) + reach)
        set_vma(w, low, high, lineage, prot)


@either
def clear(w, start, end):
    """What a new mapping lands on."""
    change(w, CLEAR, start, end)
    carve(w.vmas, start, end)
    flush(w, byte_at(w, start), byte_at(w, end), True)


@either
def mmap(w, call):
    start, end, prot = call[FROM], call[TO], call[NUMBER]
    clear(w, start, end)
    new(w, start, end, joined(w, start, end, call), prot)


@either
def joined(w, start, end, call):
    """Lineage of a mapping where nothing is: of the VMA before or after it if they merge, else a new one.

    Between two that it would merge with it joins the lower one: both were used, and by then they have
    anonymous memory of their own, which does not merge (is_mergeable_anon_vma).
    """
    for near in (piece_at(w.vmas, start - 1), piece_at(w.vmas, end)):
        if near != NONE and call[FLAGS] >= 0 and w.vmas.edges[near, PROT] == call[NUMBER]:
            lineage = w.vmas.edges[near, LINEAGE]
            if owner_of(w, lineage) == call[NODE] and w.lineages[lineage + 1, MERGES] == call[FLAGS]:
                return lineage
    return new_lineage(w, call[NODE], call[FLAGS])


@either
def mprotect(w, call):
    start, end, prot = call[FROM], call[TO], call[NUMBER]
    at = start
    while at < end:
        to, piece = stretch(w.vmas, at, end)
        if piece != NONE and w.vmas.edges[piece, PROT] != prot:
            change_small(w, UPDATE, byte_at(w, at), byte_at(w, to), owner_at(w, piece))
        at = to
    change_huge(w, UPDATE, start, end, True, prot)
    flush(w, byte_at(w, start), byte_at(w, end), False)
    for n in range(set_aside(w, start, end)):
        edges = w.vmas.edges
        new(w, edges[n, HELD_FROM], edges[n, HELD_TO], edges[n, HELD_OF], prot)


@either
def set_aside(w, start, end):
    """Carve start..end, and hold its pieces (first edge, last, lineage); how many there were."""
    held, at = 0, start
    while at < end:
        to, piece = stretch(w.vmas, at, end)
        if piece != NONE:
            w.vmas.edges[held, HELD_FROM], w.vmas.edges[held, HELD_TO] = at, to
            w.vmas.edges[held, HELD_OF] = w.vmas.edges[piece, LINEAGE]
            held += 1
        at = to
    carve(w.vmas, start, end)
    return held


@either
def mremap(w, call):
    start, end, cut = call[FROM], call[TO], call[CUT]
    if call[THERE] != start:
        move(w, call)
    elif cut < end:
        unmap(w, cut, end)
    elif cut > end and end > start:
        piece = piece_at(w.vmas, end - 1)
        if piece != NONE:
            lineage, prot = w.vmas.edges[piece, LINEAGE], w.vmas.edges[piece, PROT]
            clear(w, end, cut)
            new(w, end, cut, lineage, prot)


@either
def move(w, call):
    """mremap to somewhere else: entries go there, one leaf table at a time, each with its own flush."""
    start, end, cut, there, there_to = call[FROM], call[TO], call[CUT], call[THERE], call[THERE_TO]
    clear(w, there, there_to)
    if cut < end:
        unmap(w, cut, end)
        end = cut
    mine = piece_at(w.vmas, start)
    prot = w.vmas.edges[mine, PROT] if mine != NONE else np.int64(READ_WRITE)
    new(w, there, there_to, new_lineage(w, owner_at(w, mine), NONE), prot)
    move_entries(w, start, end, byte_at(w, there) - byte_at(w, start))
    change_huge(w, CLEAR, start, end, False, 0)
    if call[NUMBER]:
        flush(w, byte_at(w, start), byte_at(w, end), False)
    else:
        carve(w.vmas, start, end)
        leave(w, start, end)


@either
def move_entries(w, start, end, shift):
    """Small entries of start..end (edges), by parts in one leaf table before and in one after."""
    first, past, table = byte_at(w, start), byte_at(w, end), np.int64(1) << REGION
    at = start
    while first < past:
        last = min(first + table - max(first % table, (first + shift) % table), past)
        while True:
            to, piece = stretch(w.vmas, at, end)
            move_small(w, max(byte_at(w, at), first), min(byte_at(w, to), last), shift, owner_at(w, piece))
            if byte_at(w, to) > last or to == end:
                break
            at = to
        flush(w, first, last, False)
        first = last


@either
def move_small(w, start, end, shift, owner):
    """MOVE where both ends are 4 KiB entries of tables the trace touches, CLEAR elsewhere."""
    region = region_from(w, start)
    lo, hi = covers(w, region, start, end)
    while lo < hi:
        if w.regions[region, SLOT] < 0:
            move_region(w, region, lo, hi, shift, owner)
        region += 1
        lo, hi = covers(w, region, start, end)


@either
def move_region(w, region, lo, hi, shift, owner):
    row, base, at = w.regions[region, ROW], w.regions[region, VA] << REGION, lo
    first, past = base + (lo << PAGE) + shift, base + (hi << PAGE) + shift
    target = region_from(w, first)
    to, to_end = covers(w, target, first, past)
    while to < to_end:
        if w.regions[target, SLOT] < 0:
            offset = ((w.regions[target, VA] << REGION) - shift - base) >> PAGE
            add(w, CLEAR, row, at, offset + to, owner, 0, 0, 0)
            there = w.regions[target, ROW]
            add(w, MOVE, row, offset + to, offset + to_end, owner, there, to, 0)
            exist(w.tables, w.regions[target, LEAF])
            at = offset + to_end
        target += 1
        to, to_end = covers(w, target, first, past)
    add(w, CLEAR, row, at, hi, owner, 0, 0, 0)


@either
def move_pages(w, call):
    start, end = byte_at(w, call[FROM]), byte_at(w, call[TO])
    region = region_from(w, start)
    lo, hi = covers(w, region, start, end)
    while lo < hi:
        row, slot = w.regions[region, ROW], w.regions[region, SLOT]
        if slot >= 0:
            lo, hi = slot, slot + 1
        add(w, RANGE, row, lo, hi, 0, 0, call[NUMBER], 0)
        region += 1
        lo, hi = covers(w, region, start, end)
    flush(w, start, end, False)


@either
def brk(w, call):
    before, end = w.now[BREAK], call[FROM]
    w.now[BREAK] = end
    if before in (NONE, end):
        return
    if end < before:
        return unmap(w, end, before)
    heap = piece_at(w.vmas, before - 1)
    if heap != NONE:
        lineage, prot = w.vmas.edges[heap, LINEAGE], w.vmas.edges[heap, PROT]
    else:
        lineage, prot = new_lineage(w, call[NODE], NONE), np.int64(READ_WRITE)
    clear(w, before, end)
    new(w, before, end, lineage, prot)
