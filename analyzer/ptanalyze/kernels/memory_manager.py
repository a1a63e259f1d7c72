"""Memory-management calls as steps on the leaf tables that a trace touches, one call after the other.

What each system call does to page tables follows mm/mmap.c, mm/mprotect.c, mm/mremap.c and mm/madvise.c. A
range that covers a huge entry only in part rewrites that entry, but splits it first where two regions are of
the same 2 MiB, one with the huge entry and one with a leaf table (core.trace.Regions).
"""

from typing import NamedTuple

import numpy as np

from .data_migration import RANGE
from .jit import either, kernel
from .replay import CLEAR, FLUSH, FREE, MOVE, RUN, SET, SPLIT, UPDATE, MmSteps

# Which VMA holds which bytes: an interval map whose ends are all known beforehand.
#
# A VMA begins and ends at addresses of the snapshot or of the trace's calls. These are the edges, numbered by
# address. A bit map tells at which of them a piece begins, and bit maps of its words, and of theirs, which
# are not 0: the piece before an edge or after it is found in a few steps, however many pieces there are.

NONE = -1
BYTE, END, LINEAGE, PROT, HELD_FROM, HELD_TO, HELD_OF, EDGE_COLUMNS = range(8)
ONE, ALL = np.uint64(1), ~np.uint64(0)


class VmaMap(NamedTuple):
    """Disjoint pieces of VMAs over K edges; pieces of one VMA that touch are one.

    begins  uint64[levels, W]  level 0: bit e says that a piece begins at edge e; above: bit w says that word
                               w of the level below is not 0
    edges   int64[K, 7]        BYTE (address), of the piece that begins there END (an edge), LINEAGE, PROT;
                               HELD_FROM, HELD_TO, HELD_OF are for scratch
    """

    begins: np.ndarray
    edges: np.ndarray


def vma_map(byte):
    """An empty VmaMap over edges at these addresses, sorted."""
    words, levels = max(len(byte) + 63 >> 6, 1), 1
    while words >> 6 * levels:
        levels += 1
    edges = np.zeros((len(byte), EDGE_COLUMNS), np.int64)
    edges[:, BYTE] = byte
    return VmaMap(np.zeros((levels + 1, words), np.uint64), edges)


@either
def mark(vmas, edge):
    """A piece begins at `edge`."""
    for level in range(vmas.begins.shape[0]):
        was = vmas.begins[level, edge >> 6]
        vmas.begins[level, edge >> 6] = was | ONE << np.uint64(edge & 63)
        if was:
            return
        edge >>= 6


@either
def unmark(vmas, edge):
    """None begins there any more."""
    for level in range(vmas.begins.shape[0]):
        vmas.begins[level, edge >> 6] &= ~(ONE << np.uint64(edge & 63))
        if vmas.begins[level, edge >> 6]:
            return
        edge >>= 6


@either
def highest(word):
    """Number of the highest bit of a uint64 that is not 0."""
    bit = 0
    for shift in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(shift):
            word >>= np.uint64(shift)
            bit += shift
    return bit


@either
def lowest(word):
    return highest(word & (~word + ONE))


@either
def latest(vmas, edge):
    """The last edge up to `edge` at which a piece begins, NONE before the first."""
    for level in range(vmas.begins.shape[0]):
        if edge < 0:
            break
        word = vmas.begins[level, edge >> 6] & ALL >> np.uint64(63 - (edge & 63))
        if word:
            found = edge >> 6 << 6 | highest(word)
            for below in range(level - 1, -1, -1):
                found = found << 6 | highest(vmas.begins[below, found])
            return found
        edge = (edge >> 6) - 1
    return NONE


@either
def earliest(vmas, edge):
    """The first edge from `edge` on at which a piece begins; without one K."""
    for level in range(vmas.begins.shape[0]):
        if edge >> 6 >= vmas.begins.shape[1]:
            break
        word = vmas.begins[level, edge >> 6] & ALL << np.uint64(edge & 63)
        if word:
            found = edge >> 6 << 6 | lowest(word)
            for below in range(level - 1, -1, -1):
                found = found << 6 | lowest(vmas.begins[below, found])
            return found
        edge = (edge >> 6) + 1
    return vmas.edges.shape[0]


@either
def piece_at(vmas, edge):
    """The piece (its first edge) that holds the byte at `edge`, or NONE."""
    piece = latest(vmas, edge)
    return piece if piece != NONE and vmas.edges[piece, END] > edge else NONE


@either
def stretch(vmas, edge, stop):
    """(where the piece or the gap that holds the byte at `edge` ends, at most `stop`; the piece or NONE)."""
    piece = piece_at(vmas, edge)
    end = vmas.edges[piece, END] if piece != NONE else earliest(vmas, edge)
    return min(end, stop), piece


@either
def put(vmas, start, end, lineage, prot):
    """Add a piece where nothing is; it is one with those of its VMA that it touches: (start, end) of all."""
    before = latest(vmas, start)
    if end < vmas.edges.shape[0] and latest(vmas, end) == end and same(vmas, end, lineage, prot):
        unmark(vmas, end)
        end = vmas.edges[end, END]
    if before != NONE and vmas.edges[before, END] == start and same(vmas, before, lineage, prot):
        start = before
    else:
        mark(vmas, start)
    vmas.edges[start, END], vmas.edges[start, LINEAGE], vmas.edges[start, PROT] = end, lineage, prot
    return start, end


@either
def same(vmas, piece, lineage, prot):
    return vmas.edges[piece, LINEAGE] == lineage and vmas.edges[piece, PROT] == prot


@either
def carve(vmas, start, end):
    """Remove what lies in start..end."""
    if start >= end:
        return
    split(vmas, start)
    split(vmas, end)
    piece = earliest(vmas, start)
    while piece < end:
        unmark(vmas, piece)
        piece = earliest(vmas, piece + 1)


@either
def split(vmas, edge):
    """A piece that goes on beyond `edge` ends there, and another begins."""
    piece = latest(vmas, edge - 1)
    if piece != NONE and vmas.edges[piece, END] > edge:
        for column in (END, LINEAGE, PROT):
            vmas.edges[edge, column] = vmas.edges[piece, column]
        vmas.edges[piece, END] = edge
        mark(vmas, edge)


# Writing the steps of memory-management calls: the entries of touched leaf tables that a range means.
#
# A call is a row of numbers; its addresses are edges of the VmaMap. Every function takes the Writer first;
# its other arguments say which part of it to work on.

PAGE, REGION = 12, 21
SLOTS, LEVELS = 512, 5
(MMAP, MUNMAP, MPROTECT, MREMAP, MADVISE, BRK), MOVE_PAGES = range(3, 9), 11  # as trace.Event
RUNS = 0  # a call that is none: most threads run on another node from now on
OLDER, YOUNGER = -1, -2  # a VMA older than all calls, of lineage FLAGS; a range that was not mapped then
SPLITS = -3  # the call NUMBER, which comes next, needs the leaf table of 2 MiB
KIND, AT, CHUNK, NODE, NUMBER, FLAGS, EVENT, FROM, TO, CUT, THERE, THERE_TO, COLUMNS = range(13)  # of calls
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

    calls     int64[C, 12]   KIND (trace.Event, or those below), AT (before this walk), CHUNK (before this
                             chunk), NODE (of the caller's CPU), EVENT (its index), and edges: FROM..TO the
                             range, CUT where a shorter or longer one ends (mremap), THERE..THERE_TO where
                             mremap moved it
                             NUMBER: protection (mmap, mprotect), CLEAR or UPDATE (madvise), 1 if the old VMA
                             stays (mremap), node (move_pages), node before (RUNS), protection (OLDER), KIND
                             of the next (SPLITS)
                             FLAGS: what mmap and its neighbours must share to merge, -1: nothing merges; 1: a
                             madvise frees the leaf tables that it empties, and mprotect flushes no PROT_NONE
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
    steps     MmSteps        out: number of a SET is the lineage; of a FLUSH, lo and hi are Shootdowns.single
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
    steps: MmSteps
    extra: np.ndarray


@either
def add(w, kind, row, lo, hi, was, number, to, extra):
    """A step, operands as in MmSteps; none of no slots."""
    if lo == hi and (kind <= MOVE or kind == RANGE):
        return
    n, call = w.now[STEPS], w.calls[w.now[CALL]]
    if n < w.extra.size:
        steps = w.steps
        steps.at[n], steps.kind[n], steps.row[n], steps.lo[n], steps.hi[n] = call[AT], kind, row, lo, hi
        steps.was[n], steps.number[n], steps.to[n], w.extra[n] = was, number, to, extra
        caller = call[NUMBER] if call[KIND] == SPLITS else call[KIND]
        steps.node[n], steps.call[n], steps.chunk[n] = call[NODE], caller, call[CHUNK]
    w.now[STEPS], w.now[LAST_AT], w.now[LAST_KIND] = n + 1, call[AT], kind


@either
def flush(w, start, end, unmaps):
    """A shootdown of bytes start..end, if the step before changed entries."""
    changed = w.now[LAST_KIND] in (CLEAR, UPDATE, MOVE, RANGE, FREE)
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
def touched(w, start, end):
    """Numbers of the regions with any of the bytes start..end, by address."""
    first = past = region_from(w, start)
    while start < end and past < w.regions.shape[0] and w.regions[past, VA] <= (end - 1) >> REGION:
        past += 1
    return range(first, past)


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
    """(first slot, one past the last) of the bytes start..end in a region that they touch."""
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
def change_small(w, kind, start, end, owner, cached=True):
    """Entries of 4 KiB in bytes start..end; cached: TLBs may hold them."""
    for region in touched(w, start, end):
        lo, hi = covers(w, region, start, end)
        if w.regions[region, SLOT] < 0:
            add(w, kind, w.regions[region, ROW], lo, hi, owner, int(not cached), 0, 0)


@either
def change_huge(w, kind, start, end, others, prot):
    """Huge entries of start..end (edges). Of `others`, with a VMA of another protection than `prot`, and of
    a part only what may have pages: memory that grows beside a huge page, or was reserved, changes none."""
    if w.huge.shape[0] == 0:
        return
    first, past = byte_at(w, start), byte_at(w, end)
    for region in touched(w, first, past):
        lo, hi = covers(w, region, first, past)
        slot = w.regions[region, SLOT]
        whole = hi - lo == SLOTS
        if slot >= 0 and ((whole and not others) or differs(w, region, start, end, prot)):
            owner = owner_of(w, w.huge[w.regions[region, HUGE], HUGE_OF])
            add(w, kind if whole else UPDATE, w.regions[region, ROW], slot, slot + 1, owner, 0, 0, 0)


@either
def differs(w, region, start, end, prot):
    """Whether in start..end (edges) a VMA in the region has another protection, and not PROT_NONE."""
    at, stop = max(w.regions[region, FIRST], start), min(w.regions[region, PAST], end)
    while at < stop:
        at, piece = stretch(w.vmas, at, stop)
        if piece != NONE and w.vmas.edges[piece, PROT] != prot and w.vmas.edges[piece, PROT]:
            return True
    return False


@either
def set_vma(w, start, end, lineage, prot):
    """Slots of bytes start..end now belong to a VMA; a huge entry to the last one that covers it whole."""
    for region in touched(w, start, end):
        lo, hi = covers(w, region, start, end)
        row, slot = w.regions[region, ROW], w.regions[region, SLOT]
        if slot < 0:
            add(w, SET, row, lo, hi, 0, lineage, 0, prot)
        elif hi - lo == SLOTS:
            w.huge[w.regions[region, HUGE], HUGE_OF] = lineage
            add(w, SET, row, slot, slot + 1, 0, lineage, 0, prot)


@either
def split_entry(w, start, end):
    """The huge entry of 2 MiB becomes a leaf table, which is flushed by itself (__split_huge_pmd)."""
    huge = region_from(w, start)
    row, slot, small = w.regions[huge, ROW], w.regions[huge, SLOT], huge + 1
    owner = owner_of(w, w.huge[w.regions[huge, HUGE], HUGE_OF])
    add(w, MOVE, row, slot, slot + 1, owner, w.regions[small, ROW], SPLIT, 0)
    exist(w.tables, w.regions[small, LEAF])
    flush(w, start, end, False)


# What unmapping does: entries go, tables that no VMA needs any more are freed (free_pgtables).


@either
def unmap(w, start, end):
    if start < end:
        change(w, CLEAR, start, end)
        carve(w.vmas, start, end)
        leave(w, start, end)


@either
def leave(w, start, end):
    """The VMAs of the range are gone, its entries cleared: shoot down, free tables, forget the VMAs."""
    count = to_free(w, start, end)
    for n in range(count):
        clear_leftovers(w, w.near[n, FREED])
    for n in range(count):
        table = w.near[n, FREED]
        add(w, FREE, w.tables[table, OF_TABLE], 0, 0, 0, table, 0, 0)
    flush(w, byte_at(w, start), byte_at(w, end), True)
    set_vma(w, byte_at(w, start), byte_at(w, end), NO_VMA, 0)


@either
def clear_leftovers(w, table):
    """What was touched outside known VMAs, or in a huge page unmapped bit by bit, goes with its table."""
    row, first, past = w.tables[table, OF_TABLE], w.tables[table, HUGE_FROM], w.tables[table, HUGE_TO]
    if row >= 0 and first == past:
        add(w, CLEAR, row, 0, SLOTS, owner_of(w, NO_VMA), 0, 0, 0)
    for n in range(first, past):
        slot, owner = w.huge[n, HUGE_SLOT], owner_of(w, w.huge[n, HUGE_OF])
        add(w, CLEAR, row, slot, slot + 1, owner, 0, 0, 0)


@either
def to_free(w, start, end):
    """FREED of near: tables whose whole span has no VMA left, leaf tables first (free_pgtables); how many.

    Tables touched outside every known VMA go with those around them.
    """
    low, high = span_of_empty(w, byte_at(w, start), byte_at(w, end))
    first, past = first_from(w.near, TOUCHED, low), first_from(w.near, TOUCHED, high)
    if first >= past:
        return 0
    catch_up(w)
    count = 0
    for level in range(1, LEVELS + 1):
        for n in range(first, past):
            table = w.near[n, TABLE]
            if w.tables[table, LEVEL] == level and w.tables[table, ALIVE] and is_empty(w, table):
                w.near[count, FREED] = table
                count += 1
    for n in range(count):
        w.tables[w.near[n, FREED], ALIVE] = 0
    return count


@either
def frees_emptied(call):
    return call[KIND] == MADVISE and call[FLAGS] == 1


@either
def free_emptied(w, start, end):
    """Leaf tables whose 2 MiB lie in start..end (edges) and in one VMA are free of entries, and go."""
    catch_up(w)
    at = start
    while at < end:
        to, piece = stretch(w.vmas, at, end)
        first, past = byte_at(w, at), byte_at(w, to)
        for region in touched(w, first, past):
            lo, hi = covers(w, region, first, past)
            table, small = w.regions[region, LEAF], w.regions[region, SLOT] < 0
            if piece != NONE and hi - lo == SLOTS and small and w.tables[table, ALIVE]:
                w.tables[table, ALIVE] = 0
                add(w, FREE, w.tables[table, OF_TABLE], 0, 0, 0, table, 0, 0)
        at = to


@either
def catch_up(w):
    """ALIVE knows of all walks before the call."""
    at = w.calls[w.now[CALL], AT]
    for n in range(w.now[WALKED], at):
        exist(w.tables, w.regions[w.page[n] >> np.uint32(9), BY_ID])
    w.now[WALKED] = max(w.now[WALKED], at)


@either
def exist(tables, table):
    """The table is there, and what leads to it."""
    while table >= 0 and not tables[table, ALIVE]:
        tables[table, ALIVE] = 1
        table = tables[table, PARENT]


@either
def span_of_empty(w, start, end):
    """(first byte, one past the last) of the empty tables around bytes start..end; without one of these."""
    low, high = np.int64(1) << 62, np.int64(-1)
    for region in touched(w, start, end):
        table = w.regions[region, LEAF]
        while is_empty(w, table):
            base = w.tables[table, BASE]
            low = min(low, base)
            high = max(high, base + (np.int64(1) << (PAGE + 9 * w.tables[table, LEVEL])))
            table = w.tables[table, PARENT]
    return (low, high) if high >= 0 else (start, end)


@either
def is_empty(w, table):
    """No VMA lies in the table's span; a root is never empty."""
    if w.tables[table, PARENT] < 0:
        return False
    below = w.tables[table, BELOW]
    return piece_at(w.vmas, below) == NONE and earliest(w.vmas, below + 1) >= w.tables[table, ABOVE]


@kernel
def write_steps(w, last, until):
    """Carry out calls from now[CALL] up to `last`; stops before one that may free tables after walk `until`.

    Steps that `step` has no room for are counted in `now` alone.
    """
    while w.now[CALL] < last:
        call = w.calls[w.now[CALL]]
        kind = call[KIND]
        if call[AT] > until and (kind in (MUNMAP, MREMAP, BRK) or frees_emptied(call)):
            return
        if kind == RUNS:
            add(w, RUN, 0, 0, 0, call[NUMBER], 0, call[NODE], 0)
        elif kind == SPLITS:
            split_entry(w, byte_at(w, call[FROM]), byte_at(w, call[TO]))
        elif kind == MMAP:
            clear(w, call[FROM], call[TO])
            new(w, call[FROM], call[TO], joined(w, call), call[NUMBER])
        elif kind == MUNMAP:
            unmap(w, call[FROM], call[TO])
        elif kind == MPROTECT:
            mprotect(w, call)
        elif kind == MREMAP:
            mremap(w, call)
        elif kind == MADVISE:
            change(w, call[NUMBER], call[FROM], call[TO])
            if frees_emptied(call):
                free_emptied(w, call[FROM], call[TO])
            flush(w, byte_at(w, call[FROM]), byte_at(w, call[TO]), call[NUMBER] == CLEAR)
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
def joined(w, call):
    """Lineage of a mapping where nothing is: of the VMA before or after it if they merge, else a new one.

    Between two that it would merge with it joins the lower one: both were used, and by then they have
    anonymous memory of their own, which does not merge (is_mergeable_anon_vma).
    """
    for near in (piece_at(w.vmas, call[FROM] - 1), piece_at(w.vmas, call[TO])):
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
            cached = w.vmas.edges[piece, PROT] > 0 or call[FLAGS] == 0
            change_small(w, UPDATE, byte_at(w, at), byte_at(w, to), owner_at(w, piece), cached)
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
    for region in touched(w, start, end):
        lo, hi = covers(w, region, start, end)
        if w.regions[region, SLOT] < 0:
            move_region(w, region, lo, hi, shift, owner)


@either
def move_region(w, region, lo, hi, shift, owner):
    row, base, at = w.regions[region, ROW], w.regions[region, VA] << REGION, lo
    first, past = base + (lo << PAGE) + shift, base + (hi << PAGE) + shift
    for target in touched(w, first, past):
        to, to_end = covers(w, target, first, past)
        if w.regions[target, SLOT] < 0:
            offset = ((w.regions[target, VA] << REGION) - shift - base) >> PAGE
            add(w, CLEAR, row, at, offset + to, owner, 0, 0, 0)
            add(w, MOVE, row, offset + to, offset + to_end, owner, w.regions[target, ROW], to, 0)
            exist(w.tables, w.regions[target, LEAF])
            at = offset + to_end
    add(w, CLEAR, row, at, hi, owner, 0, 0, 0)


@either
def move_pages(w, call):
    start, end = byte_at(w, call[FROM]), byte_at(w, call[TO])
    for region in touched(w, start, end):
        lo, hi = covers(w, region, start, end)
        row, slot = w.regions[region, ROW], w.regions[region, SLOT]
        if slot >= 0:
            lo, hi = slot, slot + 1
        add(w, RANGE, row, lo, hi, 0, 0, call[NUMBER], 0)
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
