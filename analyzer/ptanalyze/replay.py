"""Replay one walk stream under several policies at once: what they share is done once a batch."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from .kernels.faults import carry_out, mark_faults
from .kernels.replay import Counters, counters, replay_for
from .policies.base import Policy
from .walks import Placement


@dataclass
class Run:
    """One policy's replay: its hooks' state, the host table pages it takes, and what was counted so far."""

    policy: Policy
    params: Any
    state: Any
    host_pages: int
    counters: Counters
    step: int = 0

    def replay(self, world, placement, reads, fault, mapped, first):
        history = world.history
        loop = replay_for(*self.policy.hooks)
        self.step = loop(
            placement.cpu_node,
            reads,
            fault,
            world.space.tables,
            history.rows,
            history.steps,
            history.shootdowns,
            mapped,
            self.state,
            self.counters,
            first,
            self.step,
        )

    def finish(self, world, mapped, missing):
        """The steps after the last walk, then the tables that the kernel filled by itself."""
        history = world.history
        for step in range(self.step, len(history.steps.at)):
            self.policy.hooks.on_step(
                self.state,
                world.space.tables,
                history.rows,
                history.steps,
                history.shootdowns,
                mapped,
                self.counters,
                step,
            )
        pages = self.counters.pages
        pages[0] += self.policy.settle(self.state, world, missing)
        pages[1] = max(pages)


def start(policy, params, world):
    """A Run of a Policy before the first walk."""
    state, pages, host_pages = policy.start(world, params)
    count = counters(world.nodes)
    count.pages[:] = pages
    return Run(policy, params, state, host_pages, count)


def replay(runs, world, placement: Placement, batches, threads=1, progress=None):
    """Carry all runs through `batches`, an iterator of (chunk range, Reads), and the events between them.

    threads   runs of one batch are shared out among so many threads; counts do not depend on it
    progress  called with the number of walks done so far
    Returns kernels.faults.Mapped as it is in the end.
    """
    history, parent = world.history, world.space.tables.parent
    mapped = history.mapped()
    first = step = 0
    with ThreadPoolExecutor(max(threads, 1)) as pool:
        for _, reads in batches:
            fault = np.zeros(len(reads.page), np.uint8)
            step = mark_faults(
                reads.page, reads.slot, history.rows, parent, history.steps, mapped, first, step, fault
            )
            work = [pool.submit(run.replay, world, placement, reads, fault, mapped, first) for run in runs]
            for done in work:
                done.result()
            first += len(reads.page)
            if progress:
                progress(first)
    for late in range(step, len(history.steps.at)):
        carry_out(late, history.rows, parent, history.steps, mapped)
    missing = np.flatnonzero(~mapped.exists[: world.space.guest_tables] & world.space.program_tables)
    for run in runs:
        run.finish(world, mapped, missing)
    return mapped
