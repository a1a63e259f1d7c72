"""Replay one walk stream under several policies at once: what they share is done once a batch."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from .kernels.faults import carry_out, mark_faults
from .kernels.replay import Counters, counters, replay_for
from .policies import Plan
from .world.cache_pass import no_reads


@dataclass
class Run:
    """One plan's replay: its hooks' states and what was counted so far."""

    plan: Plan
    states: tuple[Any, Any]
    counters: Counters
    step: int = 0

    def replay(self, world, reads, fault, mapped, first, last=False):
        history = world.history
        loop = replay_for(self.plan.guest[0].hooks, self.plan.host[0].hooks)
        self.step = loop(
            world.placement.cpu_node,
            socket_of(world),
            reads,
            fault,
            world.space.tables,
            history.rows,
            history.steps,
            history.shootdowns,
            mapped,
            *self.states,
            self.counters,
            first,
            self.step,
            last,
        )

    def settle(self, world, missing):
        """The tables that the kernel filled by itself."""
        pages = self.counters.pages
        part, _ = self.plan.guest
        if part.settle:
            pages[0] += part.settle(self.states[0], world, missing)
        pages[1] = max(pages)

    def facts(self, world):
        """{name: number}: what reshaping and the replay found."""
        found, sides = dict(world.facts), (self.plan.guest, self.plan.host)
        both = self.counters.pages, self.counters.host_pages
        for (part, params), state, pages in zip(sides, self.states, both, strict=True):
            found |= part.facts(state, world, params, pages) if part.facts else {}
        return found


def socket_of(world):
    """int16[nodes]: which nodes are one place."""
    return (np.arange(world.nodes) // world.domains).astype(np.int16)


def by_socket(counters, domains):
    """Counters of sockets with `domains` nodes each: what happens between nodes of one socket is local."""

    def folded(array, axis):
        nodes = array.shape[axis] // domains
        shape = *array.shape[:axis], nodes, domains, nodes, domains, *array.shape[axis + 2 :]
        return array.reshape(shape).sum(axis=(axis + 1, axis + 3))

    return counters._replace(
        reads=folded(counters.reads, 1),
        events=folded(counters.events, 2),
        host_events=folded(counters.host_events, 2),
    )


def start(plan, world):
    """A Run of a Plan before the first walk."""
    count = counters(world.nodes, world.sockets)
    states = [None, np.zeros(0)]
    for side, (part, params) in enumerate((plan.guest, plan.host)):
        states[side], pages = part.start(world, params)
        (count.host_pages if side else count.pages)[:] = pages
    return Run(plan, tuple(states), count)


def replay(runs, world, batches, progress=None):
    """Carry all runs through `batches`, an iterator of (chunk range, Reads), and the events between them.

    Runs of one batch are shared out among world.effort.threads threads; counts do not depend on it.
    `progress` is called with the number of walks done so far. Returns kernels.faults.Mapped as it is in the
    end.
    """
    history, parent = world.history, world.space.tables.parent
    mapped = history.mapped()
    first = step = 0
    with ThreadPoolExecutor(max(world.effort.threads, 1)) as pool:

        def everyone(*now):
            for job in [pool.submit(run.replay, world, *now) for run in runs]:
                job.result()

        for _, reads in batches:
            fault = np.zeros(len(reads.page), np.uint8)
            step = mark_faults(
                reads.page, reads.slot, history.rows, parent, history.steps, mapped, first, step, fault
            )
            everyone(reads, fault, mapped, first)
            first += len(reads.page)
            if progress:
                progress(first)
        for late in range(step, len(history.steps.at)):
            carry_out(late, history.rows, parent, history.steps, mapped)
        everyone(no_reads(), np.zeros(0, np.uint8), mapped, first, True)
    missing = np.flatnonzero(~mapped.exists[: world.space.guest_tables] & world.space.program_tables)
    for run in runs:
        run.settle(world, missing)
    return mapped
