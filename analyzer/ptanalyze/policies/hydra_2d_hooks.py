"""Hooks of hydra-2d's host part: a nested entry is copied to a node when that node first needs it.

A node's CPUs walk that node's own nested table, so upper levels are always local. A leaf entry that is not
there yet is an ePT violation: it is fetched from the owner of its table page, one remote read, every later
one local.
"""

from typing import NamedTuple

import numpy as np

from ..kernels.entries import leaf
from ..kernels.replay import PTE_COPY, PTE_FANOUT, PTE_WRITE, REPLICA_FAULT, TABLE_NEW, grow
from ..kernels.steps import HOST_DATA, TABLE_DATA, popcount, word_mask
from .base import HostHooks, called_hook, hook

ONE = np.uint64(1)
DEGREE, ONLY_FIRST, CODE, FIRST, ROWS = range(5)  # of State.options
WHOLE_TABLE = 9  # degree whose block is the table page


class State(NamedTuple):
    """T flat tables, H host tables, rows of which are given out as walks reach them.

    whole    uint64[T]            bit n: node n's copy of this host table has every leaf entry, as the owner,
                                  even those that are used but were not mapped at the dump
    row      int32[T]             row of each host table in `entries`; -1: only its owner has read it
    entries  uint64[H, nodes, 8]  bit map of the leaf entries that each node's copy has
    sharers  uint64[T]            bit n: node n has copied an entry, its copy is linked to the owner's
    owner    int16[T]             node of each host table as captured
    tables   uint64[T]            bit n: node n has this host table page
    raw      uint64[H, 512]       entries as captured: what the owner has
    options  int64[5]             prefetch degree; 1: only with a table's first copy; kernels.entries.CODES;
                                  flat id of the first host table; rows given out
    """

    whole: np.ndarray
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
    if (state.whole[table] >> np.uint64(node)) & ONE:
        return node
    return use(state, tables, table, slot, node, counters)


@called_hook
def use(state, tables, table, slot, node, counters):
    """Node that serves an entry of a table that `node` may have only in part."""
    row = np.int64(state.row[table])
    if row >= 0 and (state.entries[row, node, slot >> 6] >> np.uint64(slot & 63)) & ONE:
        return node
    return violate(state, tables, table, slot, node, counters)


@called_hook
def violate(state, tables, table, slot, node, counters):
    """The node lacks the entry. Returns the owner, whose entry is read to copy it."""
    owner, bit, events = np.int64(state.owner[table]), ONE << np.uint64(node), counters.host_events
    events[REPLICA_FAULT, node, owner] += 1
    above = table
    while above >= 0 and not state.tables[above] & bit:
        state.tables[above] |= bit
        events[TABLE_NEW, node, node] += 1
        grow(counters.host_pages, 1)
        above = np.int64(tables.parent[above])
    row = reach(state, np.int64(tables.level[table]), table, owner)
    degree = state.options[DEGREE]
    if state.options[ONLY_FIRST] and state.sharers[table] & bit:
        degree = 0
    elif degree == WHOLE_TABLE:
        state.whole[table] |= bit
    events[PTE_COPY, node, owner] += copy(state, row, slot, degree, node, owner)
    state.sharers[table] |= bit
    return owner


@hook
def reach(state, level, table, owner):
    """Row of a host table, given out if it has none yet: then the owner's entries are looked up."""
    row = np.int64(state.row[table])
    if row < 0:
        row = state.options[ROWS]
        state.options[ROWS] += 1
        state.row[table] = row
        raw, code = state.raw[table - state.options[FIRST]], state.options[CODE]
        for slot in range(raw.size):
            if leaf(raw[slot], level, code):
                state.entries[row, owner, slot >> 6] |= ONE << np.uint64(slot & 63)
    return row


@hook
def copy(state, row, slot, degree, node, owner):
    """Copy the entry, and those of its aligned block of 2^degree that the owner has; returns how many."""
    state.entries[row, node, slot >> 6] |= ONE << np.uint64(slot & 63)
    lo = slot >> degree << degree
    hi, copied = lo + (1 << degree), 1
    for word in range(lo >> 6, (hi + 63) >> 6):
        new = state.entries[row, owner, word] & word_mask(lo, hi, word) & ~state.entries[row, node, word]
        state.entries[row, node, word] |= new
        copied += popcount(new)
    return copied


@called_hook
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
    owner = state.owner[table]
    events[PTE_WRITE, node, owner] += 1
    for sharer in range(state.entries.shape[1]):
        if sharer != owner and (state.sharers[table] >> np.uint64(sharer)) & ONE:
            events[PTE_FANOUT, node, sharer] += 1


HOOKS = HostHooks(locate, on_walk, on_host_step)
