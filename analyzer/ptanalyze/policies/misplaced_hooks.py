"""Hooks of replicas some of whose pages are on the wrong node (vMitosis, sections 3.3.4 and 4.2.2).

A misplaced table page has as many copies on the same nodes as any other, but each node's CPUs are served by
another node's.
"""

from typing import NamedTuple

import numpy as np

from ..kernels.replay import FAULT
from ..kernels.steps import CLEAR, DATA, MOVE, UPDATE
from . import fixed_copies_hooks as fixed_copies
from .base import GuestHooks, called_hook, hook


class State(NamedTuple):
    """
    here, away  fixed_copies.State  of well placed table pages and of misplaced ones: `serve` differs
    misplaced   bool[T]
    """

    here: fixed_copies.State
    away: fixed_copies.State
    misplaced: np.ndarray


@hook
def locate(state, table, node):
    if state.misplaced[table]:
        return state.away.serve[node]
    return state.here.serve[node]


@hook
def on_walk(state, tables, leaf, row, slot, node, fault, counters):
    if fault:
        install(state, tables, leaf, node, np.int64(fault) - 1, counters)
    return locate(state, leaf, node)


@called_hook
def install(state, tables, leaf, node, made, counters):
    fixed_copies.make(state.here, tables, leaf, node, made, counters)
    counters.events[FAULT, node, locate(state, leaf, node)] += 1
    write(state, leaf, node, 1, counters.events)


@hook
def write(state, table, node, entries, events):
    if state.misplaced[table]:
        fixed_copies.write(state.away, table, node, entries, events)
    else:
        fixed_copies.write(state.here, table, node, entries, events)


@called_hook
def on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
    kind, row, node, changed = steps.kind[step], steps.row[step], steps.node[step], mapped.changed[step]
    if kind in (CLEAR, UPDATE, MOVE, DATA):
        if changed:
            write(state, rows.leaf[row], node, changed, counters.events)
            if kind == MOVE:
                target = rows.leaf[steps.other[step]]
                fixed_copies.make(state.here, tables, target, node, np.int64(mapped.made[step]), counters)
                write(state, target, node, changed, counters.events)
    else:
        fixed_copies.on_step(state.here, tables, rows, steps, shootdowns, mapped, counters, step)


HOOKS = GuestHooks(locate, on_walk, on_step)
