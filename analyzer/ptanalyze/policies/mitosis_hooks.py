"""Hooks of Mitosis: fixed copies, which mode = migrate replicates where the process goes."""

import numpy as np

from ..kernels.replay import TABLE_FREE, TABLE_MOVED, grow
from ..kernels.steps import RUN
from . import fixed_copies_hooks as fixed_copies
from .base import GuestHooks, called_hook

FOLLOW = 3  # fixed_copies_hooks.State.rule: the copy is where the process runs


@called_hook
def on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
    if steps.kind[step] != RUN:
        fixed_copies.on_step(state, tables, rows, steps, shootdowns, mapped, counters, step)
    elif state.rule[0] == FOLLOW:
        follow(state, np.int64(steps.to[step]), counters)


@called_hook
def follow(state, to, counters):
    """Replicate every table on `to`, switch the roots, free what was."""
    pages, before = counters.pages[0], np.int64(state.copies[0])
    grow(counters.pages, pages)
    counters.events[TABLE_MOVED, before, to] += pages
    counters.events[TABLE_FREE, to, before] += pages
    grow(counters.pages, -pages)
    state.copies[0] = to
    state.serve[:] = to


HOOKS = GuestHooks(fixed_copies.locate, fixed_copies.on_walk, on_step)
