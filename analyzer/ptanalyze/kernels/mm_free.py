"""What unmapping does: entries go, tables that no VMA needs any more are freed (free_pgtables)."""

import numpy as np

from .hooks import either
from .mm_writer import (
    ABOVE,
    ALIVE,
    AT,
    BASE,
    BELOW,
    BY_ID,
    CALL,
    FREED,
    HUGE_FROM,
    HUGE_OF,
    HUGE_SLOT,
    HUGE_TO,
    LEAF,
    LEVEL,
    LEVELS,
    NO_VMA,
    OF_TABLE,
    PAGE,
    PARENT,
    SLOTS,
    TABLE,
    TOUCHED,
    WALKED,
    add,
    byte_at,
    change,
    covers,
    first_from,
    flush,
    owner_of,
    region_from,
    set_vma,
)
from .steps import CLEAR, FREE
from .vma_map import NONE, carve, earliest, piece_at


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
    region = region_from(w, start)
    lo, hi = covers(w, region, start, end)
    while lo < hi:
        table = w.regions[region, LEAF]
        while is_empty(w, table):
            base = w.tables[table, BASE]
            low = min(low, base)
            high = max(high, base + (np.int64(1) << (PAGE + 9 * w.tables[table, LEVEL])))
            table = w.tables[table, PARENT]
        region += 1
        lo, hi = covers(w, region, start, end)
    return (low, high) if high >= 0 else (start, end)


@either
def is_empty(w, table):
    """No VMA lies in the table's span; a root is never empty."""
    if w.tables[table, PARENT] < 0:
        return False
    below = w.tables[table, BELOW]
    return piece_at(w.vmas, below) == NONE and earliest(w.vmas, below + 1) >= w.tables[table, ABOVE]
