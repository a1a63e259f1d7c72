"""Hooks of page-table migration: counters a table page, updated with each entry, looked at when data move.

A table page is placed well on the node that most of its valid entries point to (vMitosis, section 3.2). It
is looked at when the path of data migration rewrites one of its entries; moving it changes its parent's
entry, and so on up to the root.
"""

from typing import NamedTuple

import numpy as np

from ..kernels.hooks import kernel
from ..kernels.replay import FAULT, IPI, PTE_WRITE, TABLE_FREE, TABLE_MOVED, TABLE_NEW, grow
from ..kernels.steps import CLEAR, DATA, FLUSH, FREE, HOST_DATA, MOVE, TABLE_DATA, UPDATE
from .base import GuestHooks, HostHooks, called_hook, hook

NOWHERE, NOT_MAPPED = -1, -2  # as in kernels.data_moves
ALL = -1


class State(NamedTuple):
    """
    home     int16[T]         node of each table, -1 until it is first made
    again    int16[T]         `home` of a table that is made again after it was freed
    count    int16[T, nodes]  valid entries of each table that point to each node
    data     int8[L, 512]     by row and slot (the guest's), by host_row and slot (the host's): node of the
                              data, negative where nothing is mapped, as in kernels.data_moves
    row      int32[T]         the host's host_row
    moved    int64[nodes, nodes]  tables put right before the first walk, from and to
    written  int64[nodes]         their parents' entries, by node of the parent
    """

    home: np.ndarray
    again: np.ndarray
    count: np.ndarray
    data: np.ndarray
    row: np.ndarray
    moved: np.ndarray
    written: np.ndarray


@hook
def locate(state, table, node):
    return state.home[table]


@hook
def on_walk(state, tables, leaf, row, slot, node, fault, counters):
    if fault:
        install(state, tables, leaf, row, slot, node, np.int64(fault) - 1, counters)
    return state.home[leaf]


@hook
def on_nested(state, tables, table, slot, node, counters):
    return state.home[table]


@called_hook
def install(state, tables, leaf, row, slot, node, made, counters):
    """A demand fault: new tables on the faulting node, the entry, and data where they are first touched."""
    make(state, tables, leaf, node, made, counters)
    home = state.home[leaf]
    counters.events[FAULT, node, home] += 1
    counters.events[PTE_WRITE, node, home] += 1
    there = np.int64(state.data[row, slot])
    if there < 0:
        there = node if there == NOWHERE else NOT_MAPPED - there
        state.data[row, slot] = there
        state.count[leaf, there] += 1


@hook
def make(state, tables, leaf, node, made, counters):
    for above in range(made - 1, -1, -1):
        table = np.int64(leaf)
        for _ in range(above):
            table = np.int64(tables.parent[table])
        if state.home[table] < 0:
            state.home[table] = node
        counters.events[TABLE_NEW, node, state.home[table]] += 1
        if tables.parent[table] >= 0:
            state.count[tables.parent[table], state.home[table]] += 1
    grow(counters.pages, made)


@called_hook
def on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
    kind, node, changed = steps.kind[step], np.int64(steps.node[step]), mapped.changed[step]
    if changed == 0:
        return
    if kind in (CLEAR, UPDATE, MOVE, DATA):
        counters.events[PTE_WRITE, node, state.home[rows.leaf[steps.row[step]]]] += changed
    if kind == MOVE:
        move_entries(state, tables, rows, steps, mapped, counters, step)
    if kind in (CLEAR, MOVE):
        clear(state, rows, steps.row[step], steps.lo[step], steps.hi[step])
    elif kind == FREE:
        free(state, tables, steps.other[step], node, counters)
    elif kind == FLUSH:
        live = shootdowns.live[steps.other[step]]
        for there in range(live.size):
            counters.events[IPI, node, there] += live[there]
    elif kind == DATA:
        leaf = np.int64(rows.leaf[steps.row[step]])
        change(state, leaf, steps.row[step], steps.lo[step], steps.to[step])
        put_right(state, tables, leaf, node, counters.events)
    elif kind == TABLE_DATA:
        carry(state, tables, np.int64(steps.other[step]), np.int64(steps.to[step]), counters.events)


@hook
def move_entries(state, tables, rows, steps, mapped, counters, step):
    """mremap: the target's table gets the entries; their data stay where they are."""
    row, target, lo = steps.row[step], steps.other[step], np.int64(steps.lo[step])
    leaf, node = np.int64(rows.leaf[target]), np.int64(steps.node[step])
    make(state, tables, leaf, node, np.int64(mapped.made[step]), counters)
    counters.events[PTE_WRITE, node, state.home[leaf]] += mapped.changed[step]
    for slot in range(lo, steps.hi[step]):
        there = np.int64(state.data[row, slot])
        if there >= 0:
            state.data[target, steps.to[step] + slot - lo] = there
            state.count[leaf, there] += 1


@hook
def clear(state, rows, row, lo, hi):
    leaf = rows.leaf[row]
    for slot in range(lo, hi):
        there = np.int64(state.data[row, slot])
        if there >= 0:
            state.count[leaf, there] -= 1
            state.data[row, slot] = NOWHERE


@hook
def free(state, tables, table, node, counters):
    home = state.home[table]
    counters.events[TABLE_FREE, node, home] += 1
    grow(counters.pages, -1)
    if tables.parent[table] >= 0:
        state.count[tables.parent[table], home] -= 1
    state.count[table] = 0
    state.home[table] = state.again[table]


@hook
def change(state, table, row, slot, to):
    """The data behind an entry are on node `to` now."""
    before = np.int64(state.data[row, slot])
    if before >= 0:
        state.count[table, before] -= 1
    state.count[table, to] += 1
    state.data[row, slot] = to


@hook
def put_right(state, tables, table, node, events):
    """Move `table` to the node that most of its entries point to, then look at its parent."""
    while table >= 0:
        home = np.int64(state.home[table])
        best = most(state.count, table, home)
        if best == home:
            return
        carry(state, tables, table, best, events)
        table = np.int64(tables.parent[table])
        if table >= 0:
            events[PTE_WRITE, node, state.home[table]] += 1


@hook
def most(count, table, home):
    """The node that most entries of `table` point to: `home` unless there are more on another one."""
    best = home
    for other in range(count.shape[1]):
        if count[table, other] > count[table, best]:
            best = other
    return best


@hook
def carry(state, tables, table, to, events):
    """The table page is on node `to` now."""
    home, parent = np.int64(state.home[table]), np.int64(tables.parent[table])
    if home >= 0 and home != to:
        events[TABLE_MOVED, home, to] += 1
        state.home[table] = to
        if parent >= 0:
            state.count[parent, home] -= 1
            state.count[parent, to] += 1


@called_hook
def on_host_step(state, tables, rows, steps, mapped, counters, step):
    kind, slot, to = steps.kind[step], np.int64(steps.hi[step]), np.int64(steps.to[step])
    if mapped.changed[step] == 0 or kind not in (DATA, HOST_DATA, TABLE_DATA):
        return
    table, node = np.int64(steps.other[step]), np.int64(steps.node[step])
    if kind == TABLE_DATA:
        table = np.int64(tables.host_leaf[table]) if steps.lo[step] else np.int64(-1)
    if table < 0:
        return
    if kind != DATA:
        counters.host_events[PTE_WRITE, node, state.home[table]] += 1
    row = state.row[table]
    if slot != ALL:
        change(state, table, row, slot, to)
    else:
        for each in range(512):
            if state.data[row, each] >= 0:
                change(state, table, row, each, to)
    put_right(state, tables, table, node, counters.host_events)


@kernel
def add_up(tables, first, last, exists, home, count, at_once, moved, written):
    """Count the tables that each one of first..last-1 points to, children first; `at_once`: put them right.

    exists bool[T]; home int16[T], count int16[T, nodes] with the data entries; changed. moved int64[nodes,
    nodes], written int64[nodes]: tables moved from and to, parents' entries written by node of the parent.
    """
    for table in range(last - 1, first - 1, -1):
        if not exists[table] or home[table] < 0:
            continue
        parent, there = np.int64(tables.parent[table]), np.int64(home[table])
        best = most(count, table, there) if at_once else there
        home[table] = best
        if parent >= 0:
            count[parent, best] += 1
        if best != there:
            moved[there, best] += 1
            if parent >= 0:
                written[home[parent]] += 1


GUEST = GuestHooks(locate, on_walk, on_step)
HOST = HostHooks(locate, on_nested, on_host_step)
