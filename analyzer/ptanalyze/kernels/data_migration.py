"""Data pages that move to other nodes: a pass over the walks turns moves into steps for every replay.

A page is int8: its node, MARKED added where the scan has marked it; NOT_MAPPED - n where it is not mapped and
will be on node n; NOWHERE where it is not mapped and its first touch decides.
"""

from typing import NamedTuple

import numpy as np

from .jit import called_hook, hook, kernel
from .replay import (
    ALL,
    BALANCING,
    CLEAR,
    DATA,
    FLUSH,
    HINT,
    HOST_DATA,
    MOVE,
    TABLE_DATA,
    host_entry,
    missed_at,
    move_target,
    slot_range,
)
from .walker import data_frame, frame, host_of, leaf

NOWHERE, NOT_MAPPED = -1, -2
MARKED = 64
CHUNK, WALK, STEP, NEXT_SCAN, ROW, SLOT, FLUSHES, OUT, REFILLED, STOP, FAULTS = range(11)
ANY = -1  # instead of a slot: a FLUSH of a whole scan
GUEST_LEAF, HOST_LEAF = 8, 1  # bits of Reads.read of 4 KiB leaf entries: the host's of the data page
RANGE = 10  # only here: the data of slots lo..hi-1 are on node `to` from now on


class Schedule(NamedTuple):
    """period, first  ns; scan  4 KiB pages marked at a time; rate  pages per ns, 0: no limit; burst  pages;
    alone  a process of one thread; shoots  each page that moves has a shootdown"""

    on: bool
    by_host: bool
    period: int
    first: int
    scan: int
    rate: float
    burst: float
    alone: bool
    shoots: bool


class Where(NamedTuple):
    """Constants of the pass.

    entries     uint64[G, 512] of the guest tables; code, their encoding; host_of as in AddressSpace
    order       int32[...]  rows to scan (the guest's, or the host's), by address
    pages       int64[...]  4 KiB pages per slot of each of these rows
    host_row    int32[T]    row of each host table, -1: it maps no touched page
    unit        int64[K]    sorted: host row << 9 | slot that maps each guest table of a known place
    table       int32[K]    that guest table
    shootdowns  number of the first FLUSH made here
    most        the most steps of a walk or event
    """

    entries: np.ndarray
    code: int
    host_of: np.ndarray
    order: np.ndarray
    pages: np.ndarray
    host_row: np.ndarray
    unit: np.ndarray
    table: np.ndarray
    shootdowns: int
    most: int


class State(NamedTuple):
    """guest int8[L, 512], host int8[H, 512]: pages; clock int64[11], credit float64[1] in pages."""

    guest: np.ndarray
    host: np.ndarray
    clock: np.ndarray
    credit: np.ndarray


@kernel
def follow(page, offset, time, chunk_node, regions, tables, rows, where, schedule, events, state, out):
    """Write steps into `out` until it is full, or before chunk clock[STOP]; True when all is done.

    Call again with an empty `out`, and a later STOP.

    page, offset  as WalkStream; time int64[chunks + 1] ns; chunk_node int16[chunks]
    events        MmSteps with RANGEs; other kinds are passed on
    out           MmSteps; state.clock[OUT] of them are filled
    """
    clock, room = state.clock, out.at.size - where.most
    guest, of_region, region_slot = state.guest, rows.of_region, regions.slot
    while clock[CHUNK] < offset.size - 1:
        chunk = clock[CHUNK]
        if chunk == clock[STOP]:
            return False
        begin, end = offset[chunk], offset[chunk + 1]
        tick = (time[chunk + 1] - time[chunk]) // max(end - begin, 1)
        node = np.int64(chunk_node[chunk])
        for w in range(max(clock[WALK], begin), end):
            while clock[STEP] < events.at.size and events.at[clock[STEP]] <= w:
                if clock[OUT] > room:
                    clock[WALK] = w
                    return False
                take(tables, rows, where, schedule, events, state, out)
            if clock[OUT] > room:
                clock[WALK] = w
                return False
            now = time[chunk] + tick * (w - begin)
            if schedule.on and now >= clock[NEXT_SCAN]:
                scan(w, now, node, where, schedule, state, out)
            region, slot = page[w] >> np.uint32(9), np.int64(region_slot[page[w] >> np.uint32(9)])
            if slot < 0:
                slot = np.int64(page[w]) & 511
            row = of_region[region]
            value = place_page(guest, row, slot, node)
            if schedule.by_host:
                touch_units(
                    w, now, page[w], row, slot, node, regions, tables, rows, where, schedule, state, out
                )
            elif value >= MARKED:
                touch_page(w, now, row, slot, node, tables, rows, where, schedule, state, out)
        clock[WALK] = max(clock[WALK], end)
        clock[CHUNK] += 1
    while clock[STEP] < events.at.size:
        if clock[OUT] > room:
            return False
        take(tables, rows, where, schedule, events, state, out)
    return True


@kernel
def take(tables, rows, where, schedule, events, state, out):
    """Pass the next event's step on, or turn a RANGE into moves."""
    step, begin, guest = state.clock[STEP], state.clock[OUT], state.guest
    state.clock[STEP] += 1
    kind, to = events.kind[step], np.int64(events.to[step])
    row, lo, hi = slot_range(events, step)
    row, lo, hi = np.int64(row), np.int64(lo), np.int64(hi)
    if kind == RANGE:
        for slot in range(lo, hi):
            if guest[row, slot] >= 0:
                move_by_event(step, row, slot, to, tables, rows, where, schedule, events, state, out)
    else:
        if kind in (CLEAR, MOVE):
            move_pages(guest, events, step)
        put(
            state, out, events.at[step], kind, row, lo, hi, events.was[step], events.number[step], to,
            events.node[step], events.call[step],
        )  # fmt: skip
    out.chunk[begin : state.clock[OUT]] = events.chunk[step]


@called_hook
def move_pages(guest, steps, step):
    """Pages of a CLEAR are nowhere then, those of a MOVE are where they were behind other entries."""
    row, lo, hi = slot_range(steps, step)
    if steps.kind[step] == MOVE:
        target, to, each = move_target(steps, step)
        for slot in range(np.int64(lo), hi):
            if guest[row, slot] >= 0:
                guest[target, to + slot - lo : to + slot - lo + each] = guest[row, slot]
    for slot in range(np.int64(lo), hi):
        if guest[row, slot] >= 0:
            guest[row, slot] = NOWHERE


@hook
def place_page(guest, row, slot, node):
    """The node of a page, with MARKED; one that is not mapped is where its first touch from `node` has it."""
    value = np.int64(guest[row, slot])
    if value < 0:
        value = node if value == NOWHERE else NOT_MAPPED - value
        guest[row, slot] = value
    return value


@called_hook
def move_by_event(step, row, slot, to, tables, rows, where, schedule, events, state, out):
    at, node, call = events.at[step], events.node[step], events.call[step]
    if not schedule.by_host:
        value = np.int64(state.guest[row, slot])
        if value & ~MARKED != to:
            move_page(at, row, slot, to, node, call, tables, rows, where, state, out)
            state.guest[row, slot] = to | (value & MARKED)
        return
    first, count = frames_of(rows.leaf[row], slot, tables, where)
    number = first
    while first >= 0 and number < first + count:
        host = host_of(where.host_of, number)
        span = np.int64(1)
        if host >= 0:
            span <<= 9 * (np.int64(tables.level[host]) - 1)
            unit_row, unit_slot = np.int64(where.host_row[host]), host_slot(host, number, tables)
            value = np.int64(state.host[unit_row, unit_slot])
            if value >= 0 and value & ~MARKED != to:
                move_unit(at, unit_row, unit_slot, row, slot, host, -1, to, node, call, where, state, out)
                state.host[unit_row, unit_slot] = to | (value & MARKED)
        number = number // span * span + span


@hook
def host_slot(host, number, tables):
    return (number >> (9 * (np.int64(tables.level[host]) - 1))) & 511


@hook
def frames_of(table, slot, tables, where):
    """(first frame, frames) of a leaf entry in the snapshot; -1 where there is none. 512 of a 1 GiB page."""
    if table >= len(where.entries):
        return np.int64(-1), np.int64(0)
    level, entry = np.int64(tables.level[table]), where.entries[table, slot]
    if not leaf(entry, level, where.code):
        return np.int64(-1), np.int64(0)
    return frame(entry, level, where.code), np.int64(1) << (9 * (min(level, 2) - 1))


@kernel
def scan(w, now, node, where, schedule, state, out):
    """task_numa_work: mark the next mapped pages; shoot down these marks together (change_prot_numa).

    A guest's (or native) kernel rewrites entries of pages that were not marked; a hypervisor's do not count.
    Of one thread alone it leaves pages of 4 KiB on its node (change_pte_range, commit 3e321587).
    """
    clock = state.clock
    clock[NEXT_SCAN] = now + schedule.period
    pages = state.host if schedule.by_host else state.guest
    budget, seen, most = schedule.scan, np.int64(0), 512 * where.order.size
    marked = False
    while budget > 0 and seen < most:
        row, slot = where.order[clock[ROW]], clock[SLOT]
        left = schedule.alone and not schedule.by_host and where.pages[row] == 1
        if pages[row, slot] >= 0 and not (left and pages[row, slot] & ~MARKED == node):
            if not schedule.by_host and pages[row, slot] < MARKED:
                put(state, out, w, HINT, row, slot, 0, 0, 0, 0, node, BALANCING)
                marked = True
            pages[row, slot] |= MARKED
            budget -= where.pages[row]
        clock[SLOT] += 1
        if clock[SLOT] == 512:
            clock[SLOT] = 0
            clock[ROW] = (clock[ROW] + 1) % where.order.size
        seen += 1
    if marked:
        shoot_down(w, 0, ANY, node, where, state, out)


@hook
def put(state, out, at, kind, row, lo, hi, was, number, to, node, call):
    """Write a step; operands as in MmSteps."""
    k = state.clock[OUT]
    out.at[k], out.kind[k], out.row[k], out.lo[k], out.hi[k] = at, kind, row, lo, hi
    out.was[k], out.number[k], out.to[k], out.node[k], out.call[k] = was, number, to, node, call
    out.chunk[k] = state.clock[CHUNK]
    state.clock[OUT] = k + 1


@hook
def shoot_down(at, row, slot, node, where, state, out):
    """A FLUSH of the page of a slot, in row and lo, or of ANY."""
    put(state, out, at, FLUSH, row, slot, 0, 0, where.shootdowns + state.clock[FLUSHES], 0, node, BALANCING)
    state.clock[FLUSHES] += 1


@hook
def may_move(now, pages, schedule, state):
    """A token bucket of `burst` pages, filled at `rate`."""
    if schedule.rate == 0:
        return True
    passed = now - state.clock[REFILLED]
    state.clock[REFILLED] = now
    state.credit[0] = min(state.credit[0] + passed * schedule.rate, schedule.burst)
    if state.credit[0] < pages:
        return False
    state.credit[0] -= pages
    return True


@called_hook
def touch_page(w, now, row, slot, node, tables, rows, where, schedule, state, out):
    """A walk finds the page marked: the fault moves it to the walker's node (should_numa_migrate_memory), or
    restores the entry where it is (do_numa_page). Before Linux 5.13 a page that moves has a shootdown of its
    own, as it is present by then (ptep_clear_flush); later a huge one alone has (set_pmd_migration_entry)."""
    before = np.int64(state.guest[row, slot]) - MARKED
    state.guest[row, slot] = before
    state.clock[FAULTS] += 1
    if before != node and may_move(now, where.pages[row], schedule, state):
        move_page(w + 1, row, slot, node, node, BALANCING, tables, rows, where, state, out)
        state.guest[row, slot] = node
        if schedule.shoots or where.pages[row] > 1:
            shoot_down(w + 1, row, slot, node, where, state, out)
    else:
        put(state, out, w + 1, HINT, row, slot, 0, 0, 0, 0, node, BALANCING)


@hook
def move_page(at, row, slot, to, node, call, tables, rows, where, state, out):
    before = np.int64(state.guest[row, slot]) & ~MARKED
    table = np.int64(rows.leaf[row])
    first, _ = frames_of(table, slot, tables, where)
    host, behind = np.int64(-1), np.int64(0)
    if first >= 0:
        host = np.int64(host_of(where.host_of, first))
    if host >= 0:
        below = np.int64(tables.level[table]) - np.int64(tables.level[host])
        behind = host_slot(host, first, tables) if below == 0 else ALL
        if below < 0 or below > 1:
            host = np.int64(-1)
    put(state, out, at, DATA, row, slot, behind, before, host, to, node, call)


@called_hook
def touch_units(w, now, page, row, slot, node, regions, tables, rows, where, schedule, state, out):
    """Touch units of the host: the data page, then the guest's tables from the leaf upwards."""
    region, table = page >> np.uint32(9), np.int64(rows.leaf[row])
    vpn = np.int64(regions.va[region]) << 9 | np.int64(page) & 511
    number = data_frame(where.entries, table, slot, np.int64(tables.level[table]), vpn, where.code)
    host = np.int64(host_of(where.host_of, number))
    if host >= 0:
        behind = host_slot(host, number, tables)
        touch_unit(w, now, row, slot, host, behind, -1, node, where, schedule, state, out)
    while table >= 0:
        host = np.int64(tables.host_leaf[table])
        if host >= 0:
            behind = np.int64(tables.host_slot[table])
            touch_unit(w, now, -1, 0, host, behind, table, node, where, schedule, state, out)
        table = np.int64(tables.parent[table])


@hook
def touch_unit(w, now, row, slot, host, behind, table, node, where, schedule, state, out):
    unit_row = np.int64(where.host_row[host])
    before = np.int64(state.host[unit_row, behind]) - MARKED
    if before >= 0:
        state.host[unit_row, behind] = before
        state.clock[FAULTS] += 1
        if before != node and may_move(now, where.pages[unit_row], schedule, state):
            move_unit(
                w + 1, unit_row, behind, row, slot, host, table, node, node, BALANCING, where, state, out
            )
            state.host[unit_row, behind] = node


@called_hook
def move_unit(at, unit_row, behind, row, slot, host, table, to, node, call, where, state, out):
    """An entry of the host's has its data on `to`: a page of the guest's, or its table (`table` >= 0).

    Guest tables that share the host's page go with it; the host's entry is written once.
    """
    before = np.int64(state.host[unit_row, behind]) & ~MARKED
    if table >= 0:
        put(state, out, at, TABLE_DATA, -1, 1, behind, before, table, to, node, call)
    else:
        put(state, out, at, HOST_DATA, row, slot, behind, before, host, to, node, call)
    key = unit_row << 9 | behind
    k = np.searchsorted(where.unit, key)
    while k < where.unit.size and where.unit[k] == key:
        if where.table[k] != table:
            put(state, out, at, TABLE_DATA, -1, 0, behind, before, where.table[k], to, node, call)
        k += 1


# Where the data of each walk are: the node that walks, and the node that its page is on by then.


class Pages(NamedTuple):
    """Nodes of data pages now, as world.page_homes.DataNodes: changed by `count_data`.

    guest    int8[L, 512]; host  int8[H, 512]; host_row  int32[T]
    by_host  whether the hypervisor's entries say where pages are
    """

    guest: np.ndarray
    host: np.ndarray
    host_row: np.ndarray
    by_host: bool


@kernel
def count_data(cpu_node, reads, of_region, tables, steps, pages, first, step, counts):
    """counts[reader, node, missed] += walks first, first + 1, ... by the node of their data.

    counts  int64[nodes, nodes, 3 + shares]: by missed_at of the walk's 4 KiB leaf entry, the guest's or the
            host's, that comes from farther: where one comes from DRAM, the data do too (ADR 20)
    reads   Reads; step: first step not yet taken. Returns the next one. A page that is nowhere yet is where
            its first walk comes from.
    """
    for w in range(np.uint64(reads.page.size)):
        while step < steps.at.size and steps.at[step] <= first + np.int64(w):
            take_data_reads(tables, steps, pages, step)
            step += 1
        node = np.int64(cpu_node[np.uint64(reads.cpu[w])])
        there = np.int64(NOWHERE)
        table = np.int64(reads.host_leaf[w])
        if pages.by_host and table >= 0 and pages.host_row[table] >= 0:
            there = np.int64(pages.host[pages.host_row[table], reads.host_slot[w]])
        if there < 0:
            row = of_region[reads.page[w] >> np.uint32(9)]
            there = place_page(pages.guest, row, np.int64(reads.slot[w]), node)
        missed = missed_at(reads.missed, w, GUEST_LEAF)
        if table >= 0:
            missed = max(missed, missed_at(reads.missed, w, HOST_LEAF))
        counts[np.uint64(node), np.uint64(there & ~MARKED), missed] += 1
    return step


@called_hook
def take_data_reads(tables, steps, pages, step):
    """A step that moves pages, or clears or moves entries."""
    kind = steps.kind[step]
    if kind == DATA:
        row, slot = steps.row[step], steps.lo[step]
        pages.guest[row, slot] = steps.to[step]
    elif kind == HOST_DATA:
        table, slot = host_entry(steps, tables, step)
        if table >= 0 and slot >= 0 and pages.host_row[table] >= 0:
            pages.host[pages.host_row[table], slot] = steps.to[step]
    elif kind in (CLEAR, MOVE):
        move_pages(pages.guest, steps, step)
