"""Hooks of the policies that keep every table page in a fixed set of copies, whoever asks for it.

One copy at a home node: linux, first-touch, interleave, bind, ideal. A copy on each node of a set: mitosis,
vmitosis-replicate.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from ..kernels.replay import FAULT, IPI, PTE_FANOUT, PTE_WRITE, TABLE_FREE, TABLE_NEW, grow
from ..kernels.steps import CLEAR, FLUSH, FREE, MOVE, UPDATE
from .base import Hooks, captured_nodes, hook

NOWHERE = -1
FIRST_TOUCH, INTERLEAVE, BIND = 0, 1, 2


class State(NamedTuple):
    """
    home     int16[T]         node of the single copy; NOWHERE: placed by `rule` when it is first needed
    again    int16[T]         `home` of a table that is made again after it was freed
    serve    int16[2, nodes]  [dimension, reader's node] -> node whose copy it reads; NOWHERE: its home
    copies   int16[k]         nodes that hold a copy of every guest table; empty: only the home does
    rule     int64[2]         FIRST_TOUCH, INTERLEAVE or BIND; next node (INTERLEAVE) or the node (BIND)
    """

    home: np.ndarray
    again: np.ndarray
    serve: np.ndarray
    copies: np.ndarray
    rule: np.ndarray


@njit(cache=True, nogil=True, _nrt=False)
def place(state, table, node):
    """Give a table without a home one, needed by a CPU of `node`."""
    if state.rule[0] != FIRST_TOUCH:
        node = state.rule[1]
    if state.rule[0] == INTERLEAVE:
        state.rule[1] = (state.rule[1] + 1) % state.serve.shape[1]
    state.home[table] = node
    return node


@hook
def locate(state, table, dimension, node):
    server = state.serve[dimension, node]
    if server < 0:
        server = state.home[table]
        if server < 0:
            server = place(state, table, node)
    return server


@hook
def on_walk(state, tables, leaf, row, slot, node, fault, counters):
    if fault:
        install(state, tables, leaf, node, np.int64(fault) - 1, counters)
    return locate(state, leaf, 0, node)


@njit(cache=True, nogil=True, _nrt=False)
def install(state, tables, leaf, node, made, counters):
    """A demand fault: make `made` tables from the top down, then write the entry into every copy."""
    make(state, tables, leaf, node, made, counters)
    counters.events[FAULT, node, locate(state, leaf, 0, node)] += 1
    write(state, leaf, node, 1, counters)


@hook
def make(state, tables, leaf, node, made, counters):
    for above in range(made - 1, -1, -1):
        table = leaf
        for _ in range(above):
            table = tables.parent[table]
        if state.copies.size == 0:
            counters.events[TABLE_NEW, node, locate(state, table, 0, node)] += 1
        for copy in state.copies:
            counters.events[TABLE_NEW, node, copy] += 1
    grow(counters.pages, made * max(state.copies.size, 1))


@hook
def write(state, leaf, node, entries, counters):
    """Write `entries` entries of `leaf` from a CPU of `node`, in every copy."""
    first = locate(state, leaf, 0, node)
    counters.events[PTE_WRITE, node, first] += entries
    for copy in state.copies:
        if copy != first:
            counters.events[PTE_FANOUT, node, copy] += entries


@njit(cache=True, nogil=True, _nrt=False)
def on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
    kind, node, changed = steps.kind[step], steps.node[step], mapped.changed[step]
    if changed == 0:
        return
    if kind in (CLEAR, UPDATE, MOVE):
        write(state, rows.leaf[steps.row[step]], node, changed, counters)
    if kind == MOVE:
        target = rows.leaf[steps.other[step]]
        make(state, tables, target, node, np.int64(mapped.made[step]), counters)
        write(state, target, node, changed, counters)
    elif kind == FREE:
        free(state, steps.other[step], node, counters)
    elif kind == FLUSH:
        live = shootdowns.live[steps.other[step]]
        for there in range(live.size):
            counters.events[IPI, node, there] += live[there]


@hook
def free(state, table, node, counters):
    if state.copies.size == 0:
        counters.events[TABLE_FREE, node, locate(state, table, 0, node)] += 1
    for copy in state.copies:
        counters.events[TABLE_FREE, node, copy] += 1
    grow(counters.pages, -max(state.copies.size, 1))
    state.home[table] = state.again[table]


HOOKS = Hooks(locate, on_walk, on_step)


def captured_homes(world, guest=True, host=True):
    """int16[T]: where the tables of the dimensions asked for were captured, NOWHERE for all others.

    Tables that were gone when the snapshot was taken are placed by first touch, as Linux had done.
    """
    space = world.space
    home = np.full(len(space.tables.level), NOWHERE, np.int16)
    if guest:
        home[: space.guest_tables] = captured_nodes(world, 0)
    if host and not space.native:
        home[space.guest_tables :][: space.host_tables] = captured_nodes(world, 1)
    return home


def start(
    world,
    home,
    again,
    *,
    serve_guest=NOWHERE,
    serve_host=NOWHERE,
    copies=(),
    host_copies=1,
    rule=(FIRST_TOUCH, 0),
):
    """(State, guest table pages, host table pages) at the start, from per-table homes and what differs."""
    serve = np.full((2, world.nodes), NOWHERE, np.int16)
    serve[0], serve[1] = serve_guest, serve_host
    state = State(home, again, serve, np.array(copies, np.int16), np.array(rule, np.int64))
    guest_pages = int(np.count_nonzero(guest_exists(world))) * max(len(copies), 1)
    return state, guest_pages, world.space.host_tables * host_copies


def settle(state, world, tables):
    """Tables that the kernel filled on the program's behalf take one page a copy."""
    return len(tables) * max(len(state.copies), 1)


def guest_exists(world):
    """bool[T]: guest tables (inferred ones included) that exist at the start."""
    space = world.space
    exists = world.history.exists.copy()
    exists[space.guest_tables : space.guest_tables + space.host_tables] = False
    return exists
