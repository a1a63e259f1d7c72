"""Replay a walk stream under several policies at once: shared work is done once per batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..core.walks import GUEST_BIT, Reads
from ..cost.result import Series
from ..kernels.faults import carry_out, marking
from ..kernels.first_use import compile_together
from ..kernels.replay import TABLE_MOVED, Counters, counters, replay_for
from ..kernels.steps import BALANCING, DATA, HOST_DATA
from ..kernels.walker import walk
from ..policies import Plan
from ..world.cache_pass import first_arguments, no_reads

if TYPE_CHECKING:
    from ..kernels.faults import Mapped
    from ..world.world import World


Mark: TypeAlias = tuple[np.ndarray, np.ndarray, int, int]  # classes, DRAM reads, tables moved, steps taken


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
    marks: list[Mark] = field(default_factory=list)
    series: Series | None = None

    def replay(
        self, world: World, reads: Reads, fault: np.ndarray, mapped: Mapped, first: int, last: bool = False
    ) -> None:
        self.step = self.loop(world)(*self.arguments(world, reads, fault, mapped, first, last))

    def loop(self, world: World) -> Any:
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

    def mark(self, domains: int) -> None:
        """Keep the counts so far."""
        now = by_socket(self.counters, domains)
        dram = now.reads[..., 1]
        guest = dram[::GUEST_BIT].sum(axis=0)
        so_far = now.events, now.host_events, self.before.events, self.before.host_events
        moved = sum(int(events[:, TABLE_MOVED].sum()) for events in so_far)
        both = np.stack([guest, dram.sum(axis=0) - guest])
        self.marks.append((now.classes.copy(), both, moved, self.step))

    def begin_again(self) -> None:
        """Let the policy do what it does between two runs; then count anew, with the tables there are."""
        for side, (part, _) in enumerate((self.plan.guest, self.plan.host)):
            count = self.counters
            if part.between:
                happened = (count.host_events if side else count.events)[BALANCING]
                part.between(self.states[side], happened, count.host_pages if side else count.pages)
        self.first, self.step = self.counters, 0
        nodes, sockets = self.counters.reads.shape[1], len(self.counters.classes)
        self.counters = counters(nodes, sockets)
        self.counters.pages[:], self.counters.host_pages[:] = self.first.pages, self.first.host_pages

    def settle(self, world: World, missing: np.ndarray) -> None:
        """Account for the tables that the kernel filled by itself."""
        pages = (self.first or self.counters).pages
        part, _ = self.plan.guest
        if part.settle:
            pages[0] += part.settle(self.states[0], world, missing)
        pages[1] = max(pages)

    def facts(self, world: World) -> dict[str, Any]:
        """{name: number} from reshaping and the replay."""
        facts, sides = dict(world.facts), (self.plan.guest, self.plan.host)
        both = self.counters.pages, self.counters.host_pages
        for (part, params), state, pages in zip(sides, self.states, both, strict=True):
            facts |= part.facts(state, world, params, pages) if part.facts else {}
        return facts


def any_steps(world: World) -> bool:
    return len(world.history.steps.at) > 0


def socket_of(world: World) -> np.ndarray:
    """int16[nodes]: socket of each node."""
    return (np.arange(world.nodes) // world.domains).astype(np.int16)


def by_socket(counters: Counters, domains: int) -> Counters:
    """Counters of sockets with `domains` nodes each: events between nodes of the same socket are local."""

    def folded(array: np.ndarray, axis: int) -> np.ndarray:
        nodes = array.shape[axis] // domains
        shape = *array.shape[:axis], nodes, domains, nodes, domains, *array.shape[axis + 2 :]
        sums: np.ndarray = array.reshape(shape).sum(axis=(axis + 1, axis + 3))
        return sums

    return counters._replace(
        reads=folded(counters.reads, 1),
        events=folded(counters.events, 2),
        host_events=folded(counters.host_events, 2),
    )


def start(plan: Plan, world: World) -> Run:
    """A Run of a Plan before the first walk."""
    count, before = (counters(world.nodes, world.sockets) for _ in range(2))
    states: list[Any] = [None, None]
    for side, (part, params) in enumerate((plan.guest, plan.host)):
        states[side], pages = part.start(world, params)
        (count.host_pages if side else count.pages)[:] = pages
        if part.at_once:
            part.at_once(states[side], world, (before.host_events if side else before.events)[BALANCING])
    return Run(plan, (states[0], states[1]), count, before)


def replay_walks(
    runs: Sequence[Run],
    world: World,
    batches: Iterable[tuple[slice, Reads]],
    progress: Callable[[int], None] | None = None,
    windows: int = 0,
    more: bool = False,
) -> Mapped:
    """Carry all runs through `batches`, (slice of the stream, Reads) each, and the events between them.

    more  replay_again follows, which then accounts for the tables that the kernel filled by itself

    Runs of a batch are shared out among world.effort.threads threads; counts do not depend on it.
    `progress` is called with the number of walks done so far. With `windows` each run gets a Series of that
    length. Returns the final kernels.faults.Mapped.
    """
    mapped = world.history.mapped()
    compile_together(first_calls(runs, world, mapped))
    times, ends = _windows(world, windows)
    _carry(runs, world, batches, mapped, progress, ends)
    if windows:
        for run in runs:
            run.series = _series(run, world, mapped, times, ends)
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
    _carry(runs, again, batches, now, progress, np.zeros(0, np.int64))
    _settle(runs, again, mapped)
    return now


def _carry(
    runs: Sequence[Run],
    world: World,
    batches: Iterable[tuple[slice, Reads]],
    mapped: Mapped,
    progress: Callable[[int], None] | None,
    ends: np.ndarray,
) -> None:
    """Carry runs through all walks and steps of a World; ends: of windows, where they mark their counts."""
    history, parent = world.history, world.space.tables.parent
    mark_faults = marking(any_steps(world))
    first = step = 0
    with ThreadPoolExecutor(max(world.effort.threads, 1)) as pool:

        def everyone(reads: Reads, fault: np.ndarray, last: bool = False) -> None:
            jobs = [pool.submit(run.replay, world, reads, fault, mapped, first, last) for run in runs]
            for job in jobs:
                job.result()

        for reads in _pieces(batches, ends):
            _mark(runs, world, ends, first)
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
    yield walk, partial(first_arguments, world.space, world.placement, world.machine)
    for run in runs:
        yield run.loop(world), partial(run.arguments, world, reads, fault, mapped, 0, False)
    rows, steps, parent = history.rows, history.steps, world.space.tables.parent
    yield (
        marking(any_steps(world)),
        lambda: (reads.page, reads.slot, rows, parent, steps, mapped, 0, 0, fault),
    )


def _windows(world: World, windows: int) -> tuple[np.ndarray, np.ndarray]:
    """(int64[N] ns, int64[N] walks): ends of windows of equal time or, without times, of equal walks."""
    stream, time = world.stream, world.trace.chunks["time"]
    if not len(time) or time[0] == time[-1]:
        ends = np.arange(1, windows + 1) * len(stream) // max(windows, 1)
        return np.zeros(windows, np.int64), ends
    times = np.arange(1, windows + 1) * int(time[-1] - time[0]) // max(windows, 1)
    ends = stream.offset[np.searchsorted(time, times + time[0])]
    ends[-1:] = len(stream)
    return times, ends


def _pieces(batches: Iterable[tuple[slice, Reads]], ends: np.ndarray) -> Iterator[Reads]:
    """Iterate Reads: the batches, cut where windows end."""
    first = 0
    for _, reads in batches:
        count = len(reads.page)
        cuts = np.unique([0, *(ends[(ends > first) & (ends < first + count)] - first), count])
        for begin, end in itertools.pairwise(cuts.tolist()):
            yield Reads(*(column[begin:end] for column in reads))
        first += count


def _mark(runs: Sequence[Run], world: World, ends: np.ndarray, walk: int) -> None:
    """Mark the windows that end before `walk`."""
    for run in runs:
        while len(run.marks) < len(ends) and ends[len(run.marks)] <= walk < len(world.stream):
            run.mark(world.domains)


def _series(run: Run, world: World, mapped: Mapped, times: np.ndarray, ends: np.ndarray) -> Series:
    while len(run.marks) < len(ends):
        run.mark(world.domains)
    classes, dram, moved, step = (np.array(column) for column in zip(*run.marks, strict=True))
    kind = world.history.steps.kind
    page = ((kind == DATA) | (kind == HOST_DATA)) & (mapped.changed > 0)
    data = np.concatenate([[0], np.cumsum(page)])
    classes, dram = (np.diff(column, axis=0, prepend=0) for column in (classes, dram))
    return Series(times, classes.sum(axis=(1, 2)), classes, dram, moved, data[step])
