"""Replay a walk stream under several policies at once: shared work is done once per batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.walks import Reads
from ..cost.result import Series
from ..kernels.hooks import check_types, compile_together
from ..kernels.replay import Counters, carry_out, counters, marking, replay_for, wrong_node
from ..kernels.steps import BALANCING
from ..policies import Plan
from ..policies.combine import check_nodes, check_placed, own_code
from ..world import cache_pass
from ..world.cache_pass import no_reads
from .sockets import socket_of
from .windows import SoFar, Spend, Windows

if TYPE_CHECKING:
    from ..kernels.replay import Mapped
    from ..world.world import World


@dataclass
class Run:
    """Replay of a plan: its hooks' states and counts so far.

    before  what the policy does before the first walk, to get from the captured state to its own
    first   counts of the first run, once the second has begun
    """

    plan: Plan
    states: tuple[Any, Any]
    counters: Counters
    before: Counters
    first: Counters | None = None
    step: int = 0
    series: Series | None = None

    def replay(
        self, world: World, reads: Reads, fault: np.ndarray, mapped: Mapped, first: int, last: bool = False
    ) -> None:
        with own_code(self.plan):
            step = self.loop(world)(*self.arguments(world, reads, fault, mapped, first, last))
        node = wrong_node(step)
        if node is not None:
            check_nodes(self.plan.name, "a hook returned", np.array([node]), world.machine)
        self.step = step

    def loop(self, world: World) -> Any:
        with own_code(self.plan):
            return replay_for(self.plan.guest[0].hooks, self.plan.host[0].hooks, any_steps(world))

    def arguments(
        self, world: World, reads: Reads, fault: np.ndarray, mapped: Mapped, first: int, last: bool
    ) -> tuple[Any, ...]:
        """Those of the loop."""
        history = world.history
        return (
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

    @property
    def so_far(self) -> SoFar:
        return SoFar(self.counters, self.before, self.step)

    def begin_again(self) -> None:
        """Let the policy do what it does between two runs; then count anew, with the tables there are."""
        for side, (part, _) in enumerate((self.plan.guest, self.plan.host)):
            count = self.counters
            if part.between:
                happened = (count.host_events if side else count.events)[BALANCING]
                with own_code(self.plan):
                    part.between(self.states[side], happened, count.host_pages if side else count.pages)
        self.first, self.step = self.counters, 0
        self.counters = self.first._replace(
            **{name: np.zeros_like(getattr(self.first, name)) for name in self.first._fields}
        )
        self.counters.pages[:], self.counters.host_pages[:] = self.first.pages, self.first.host_pages

    def settle(self, world: World, missing: np.ndarray) -> None:
        """Account for the tables that the kernel filled by itself."""
        pages = (self.first or self.counters).pages
        part, _ = self.plan.guest
        if part.settle:
            with own_code(self.plan):
                pages[0] += part.settle(self.states[0], world, missing)
        pages[1] = max(pages)

    def facts(self, world: World) -> dict[str, Any]:
        """{name: number} from reshaping and the replay."""
        facts, sides = dict(world.facts), (self.plan.guest, self.plan.host)
        both = self.counters.pages, self.counters.host_pages
        with own_code(self.plan):
            for (part, params), state, pages in zip(sides, self.states, both, strict=True):
                facts |= part.facts(state, world, params, pages) if part.facts else {}
        return facts


def any_steps(world: World) -> bool:
    return len(world.history.steps.at) > 0


def start(plan: Plan, world: World) -> Run:
    """A Run of a Plan before the first walk."""
    count, before = (counters(world.nodes, world.sockets) for _ in range(2))
    states: list[Any] = [None, None]
    for side, (part, params) in enumerate((plan.guest, plan.host)):
        happened = (before.host_events if side else before.events)[BALANCING]
        with own_code(plan):
            states[side], (count.host_pages if side else count.pages)[:] = part.start(world, params)
            check_types(states[side])
            check_placed(plan.name, states[side], world.machine)
            if part.at_once:
                part.at_once(states[side], world, happened)
    return Run(plan, (states[0], states[1]), count, before)


def replay_walks(
    runs: Sequence[Run],
    world: World,
    batches: Iterable[tuple[slice, Reads]],
    progress: Callable[[int], None] | None = None,
    windows: int = 0,
    more: bool = False,
    spend: Spend | None = None,
) -> Mapped:
    """Carry all runs through `batches`, (slice of the stream, Reads) each, and the events between them.

    more   replay_again follows, which then accounts for the tables that the kernel filled by itself
    spend  cycles to keep of each window

    Runs of a batch are shared out among world.effort.threads threads; counts do not depend on it.
    `progress` is called with the number of walks done so far. With `windows` each run gets a Series of that
    length. Returns the final kernels.faults.Mapped.
    """
    mapped = world.history.mapped()
    compile_together(first_calls(runs, world, mapped))
    cut = Windows(world, windows, spend)
    _carry(runs, world, batches, mapped, progress, cut)
    if windows:
        every = cut.series([run.so_far for run in runs], mapped)
        for run, series in zip(runs, every, strict=True):
            run.series = series
    if not more:
        _settle(runs, world, mapped)
    return mapped


def _settle(runs: Sequence[Run], world: World, mapped: Mapped) -> None:
    """Account for the tables that are in the snapshot, although the trace's events freed them."""
    missing = np.flatnonzero(~mapped.exists[: world.space.guest_tables] & world.space.program_tables)
    for run in runs:
        run.settle(world, missing)


def replay_again(
    runs: Sequence[Run],
    again: World,
    batches: Iterable[tuple[slice, Reads]],
    mapped: Mapped,
    progress: Callable[[int], None] | None = None,
) -> Mapped:
    """Carry all runs through World.again, from the states in which `replay_walks` left them.

    mapped  as replay_walks returned it. Run.counters begin anew; Run.first are those of the first run.
    """
    for run in runs:
        run.begin_again()
    steps = len(again.history.steps.at)
    now = mapped._replace(
        valid=mapped.valid.copy(),
        exists=mapped.exists.copy(),
        changed=np.zeros(steps, np.int32),
        made=np.zeros(steps, np.uint8),
    )
    _carry(runs, again, batches, now, progress, Windows(again, 0))
    _settle(runs, again, mapped)
    return now


def _carry(
    runs: Sequence[Run],
    world: World,
    batches: Iterable[tuple[slice, Reads]],
    mapped: Mapped,
    progress: Callable[[int], None] | None,
    cut: Windows,
) -> None:
    """Carry runs through all walks and steps of a World; cut: at its ends their counts are marked."""
    history, parent = world.history, world.space.tables.parent
    mark_faults = marking(any_steps(world))
    first = step = 0
    with ThreadPoolExecutor(max(world.effort.threads, 1)) as pool:

        def everyone(reads: Reads, fault: np.ndarray, last: bool = False) -> None:
            jobs = [pool.submit(run.replay, world, reads, fault, mapped, first, last) for run in runs]
            for job in jobs:
                job.result()

        for reads in cut.pieces(batches):
            cut.mark([run.so_far for run in runs], first)
            cut.count(reads, first)
            fault = np.zeros(len(reads.page), np.uint8)
            step = mark_faults(
                reads.page, reads.slot, history.rows, parent, history.steps, mapped, first, step, fault
            )
            everyone(reads, fault)
            first += len(reads.page)
            if progress:
                progress(first)
        for late in range(step, len(history.steps.at)):
            carry_out(late, history.rows, parent, history.steps, mapped)
        everyone(no_reads(), np.zeros(0, np.uint8), last=True)


def first_calls(
    runs: Sequence[Run], world: World, mapped: Mapped
) -> Iterator[tuple[Any, Callable[[], tuple[Any, ...]]]]:
    """Iterate (kernel, what returns its arguments for no walks), the longest to compile first."""
    reads, fault, history = no_reads(), np.zeros(0, np.uint8), world.history
    yield from cache_pass.first_calls(world.space, world.placement, world.machine)
    for run in runs:
        yield run.loop(world), partial(run.arguments, world, reads, fault, mapped, 0, False)
    rows, steps, parent = history.rows, history.steps, world.space.tables.parent
    yield (
        marking(any_steps(world)),
        lambda: (reads.page, reads.slot, rows, parent, steps, mapped, 0, 0, fault),
    )
