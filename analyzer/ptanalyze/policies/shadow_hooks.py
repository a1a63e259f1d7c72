"""Hooks of shadow paging: what another policy's do to the shadow table, and the VM exits that it takes."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..kernels.replay import VM_EXIT
from ..kernels.steps import CLEAR, DATA, FREE, MOVE, UPDATE
from .base import GuestHooks, called_hook, hook


class State(NamedTuple):
    """
    inner  the state of the policy that acts on the shadow table
    split  bool[T]  tables that stand for one huge leaf of the guest
    """

    inner: Any
    split: np.ndarray


@cache
def trapping(hooks):
    """GuestHooks that do what `hooks` do, and count the VM exits of it."""
    inner_locate, inner_walk, inner_step = hooks

    @hook
    def locate(state, table, node):
        return inner_locate(state.inner, table, node)

    @hook
    def on_walk(state, tables, leaf, row, slot, node, fault, counters):
        if fault:
            counters.events[VM_EXIT, node, node] += max(np.int64(fault) - state.split[leaf], 1)
        return inner_walk(state.inner, tables, leaf, row, slot, node, fault, counters)

    @called_hook
    def on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
        node = steps.node[step]
        counters.events[VM_EXIT, node, node] += written(state.split, rows, steps, mapped, step)
        inner_step(state.inner, tables, rows, steps, shootdowns, mapped, counters, step)

    return GuestHooks(locate, on_walk, on_step)


@called_hook
def written(split, rows, steps, mapped, step):
    """int64: entries of the guest's own table that a step writes."""
    kind, changed = steps.kind[step], np.int64(mapped.changed[step])
    if changed == 0:
        return np.int64(0)
    if kind == FREE:
        return np.int64(not split[steps.other[step]])
    if kind in (CLEAR, UPDATE, MOVE, DATA):
        entries = entries_of(split, rows.leaf[steps.row[step]], changed)
        if kind == MOVE:
            target = rows.leaf[steps.other[step]]
            entries += entries_of(split, target, changed) + np.int64(mapped.made[step])
            entries -= split[target] and mapped.made[step] > 0
        return entries
    return np.int64(0)


@hook
def entries_of(split, table, changed):
    return np.int64(1) if split[table] else changed
