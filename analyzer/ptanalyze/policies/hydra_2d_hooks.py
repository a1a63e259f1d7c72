"""Hooks of hydra-2d's host part: a nested entry is copied to a node when that node first needs it.

A node's CPUs walk that node's own nested table, so upper levels are always local. A leaf entry that is not
there yet is an ePT violation: it is fetched from the owner of its table page, one remote read, every later
one local.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from ..kernels.entries import leaf
from ..kernels.replay import PTE_COPY, PTE_FANOUT, PTE_WRITE, REPLICA_FAULT, TABLE_NEW, grow
from ..kernels.steps import HOST_DATA, TABLE_DATA
from .base import HostHooks, hook

ONE = np.uint64(1)
DEGREE, ONLY_FIRST, CODE, FIRST, ROWS = range(5)  # of State.options


class State(NamedTuple):
    """T flat tables, H host tables, rows of which are given out as walks reach them.

    row      int32[T]             row of each host table in `entries` and `sharers`; -1: not reached yet
    entries  uint64[H, nodes, 8]  bit map of the leaf entries that each node's copy has; the owner's: all
    sharers  uint64[H]            bit n: node n has copied an entry, its copy is linked to the owner's
    owner    int16[T]             node of each host table as captured
    tables   uint64[T]            bit n: node n has this host table page
    raw      uint64[H, 512]       entries as captured, read for what a block of them maps
    options  int64[5]             prefetch degree; 1: only with a table's first copy; kernels.entries.CODES;
                                  flat id of the first host table; rows given out
    """

    row: np.ndarray
    entries: np.ndarray
    sharers: np.ndarray
    owner: np.ndarray
    tables: np.ndarray
    raw: np.ndarray
    options: np.ndarray


@hook
def locate(state, table, node):
    return node


@hook
def on_walk(state, tables, table, slot, node, counters):
    row = np.int64(state.row[table])
    if row >= 0 and (state.entries[row, node, slot >> 6] >> np.uint64(slot & 63)) & ONE:
        return node
    return violate(state, tables, table, slot, node, counters)


@njit(cache=True, nogil=True, _nrt=False)
def violate(state, tables, table, slot, node, counters):
    """The node lacks the entry. Returns the owner, whose entry is read to copy it."""
    owner, bit = np.int64(state.owner[table]), ONE << np.uint64(node)
    row = reach(state, table, owner)
    if node == owner:
        return owner
    events = counters.host_events
    events[REPLICA_FAULT, node, owner] += 1
    above = table
    while above >= 0 and not state.tables[above] & bit:
        state.tables[above] |= bit
        events[TABLE_NEW, node, node] += 1
        grow(counters.host_pages, 1)
        above = np.int64(tables.parent[above])
    events[PTE_COPY, node, owner] += copy(state, tables.level[table], table, row, slot, node)
    state.sharers[row] |= bit
    return owner


@hook
def reach(state, table, owner):
    """Row of a host table, given out if it has none yet."""
    row = np.int64(state.row[table])
    if row < 0:
        row = state.options[ROWS]
        state.options[ROWS] += 1
        state.row[table] = row
        state.entries[row, owner] = ~np.uint64(0)
        state.sharers[row] = ONE << np.uint64(owner)
    return row


@hook
def copy(state, level, table, row, slot, node):
    """Copy the entry, and the leaf entries of its aligned block of 2^degree; returns how many."""
    degree, known = state.options[DEGREE], (state.sharers[row] >> np.uint64(node)) & ONE
    if state.options[ONLY_FIRST] and known:
        degree = 0
    raw, begin = state.raw[table - state.options[FIRST]], slot >> degree << degree
    copied = 0
    for at in range(begin, begin + (1 << degree)):
        bit = ONE << np.uint64(at & 63)
        there = at == slot or leaf(raw[at], np.int64(level), state.options[CODE])
        if there and state.entries[row, node, at >> 6] & bit == 0:
            state.entries[row, node, at >> 6] |= bit
            copied += 1
    return copied


@njit(cache=True, nogil=True, _nrt=False)
def on_host_step(state, tables, rows, steps, mapped, counters, step):
    kind, table = steps.kind[step], np.int64(-1)
    if kind == HOST_DATA:
        table = np.int64(steps.other[step])
    elif kind == TABLE_DATA and steps.lo[step]:
        table = np.int64(tables.host_leaf[steps.other[step]])
    if table >= 0 and mapped.changed[step]:
        update(state, table, steps.node[step], counters.host_events)


@hook
def update(state, table, node, events):
    """Write an entry of the owner's copy and of every linked copy, whether it has the entry or not."""
    owner, row = state.owner[table], np.int64(state.row[table])
    events[PTE_WRITE, node, owner] += 1
    if row >= 0:
        for sharer in range(state.entries.shape[1]):
            if sharer != owner and (state.sharers[row] >> np.uint64(sharer)) & ONE:
                events[PTE_FANOUT, node, sharer] += 1


HOOKS = HostHooks(locate, on_walk, on_host_step)
