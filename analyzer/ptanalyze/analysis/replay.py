"""Replay a walk stream under several policies at once: shared work is done once per batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import typeof

from ..core.columns import Finding
from ..core.errors import UsageError
from ..core.footprint import LINE_PAGES, heads, reads_per_walk
from ..core.machine import Cache
from ..core.process import Progress
from ..core.trace import GUEST_BIT, Event, Reads
from ..cost.counts import BROADCASTS, DRAM, FLUSHES, LLC, MADE, SHOOTDOWNS, Series
from ..cost.result import Result
from ..kernels import BALANCING, CALLS, OWN_CACHES, TABLE_MOVED, Counters
from ..kernels.data_migration import Pages, count_data
from ..kernels.jit import compile_together
from ..kernels.replay import (
    DATA,
    FLUSH,
    HOST_DATA,
    PteState,
    carry_out,
    counters,
    mark_faults,
    replay_for,
    wrong_node,
)
from ..policies import Plan
from ..policies.contract import wrong_return
from ..policies.registry import blame, check_nodes, check_placed, own_code
from ..world import cache_pass
from ..world.cache_pass import no_reads
from ..world.mm_events import region_of_interest
from ..world.page_homes import MOVES_MARKED, by_host
from ..world.scenario import Scenario

# Numbers of memory system calls in a trace, and of those that flushed TLBs.

MEMORY_CALLS = (Event.MMAP, Event.MUNMAP, Event.MPROTECT, Event.MREMAP, Event.MADVISE, Event.BRK)


def system_calls(scenario: Scenario, mapped: PteState, first: int = 0) -> np.ndarray:
    """int64[what, calls, nodes]: cost.counts.Counts.calls of a region of interest from chunk `first` on."""
    events, steps = scenario.trace.events, scenario.history.steps
    region = region_of_interest(events)
    node = scenario.placement.cpu_node[scenario.placement.event_cpu]
    done = np.isin(events["kind"], MEMORY_CALLS) & (events["result"] >= 0)
    done[: region.first] = done[region.end :] = False
    done &= events["chunk"] >= first
    flushed = (steps.kind == FLUSH) & (mapped.changed > 0)
    number, shot = steps.number[flushed], scenario.history.shootdowns
    call, caller = steps.call[flushed], steps.node[flushed]
    counts = np.zeros((4, len(CALLS), scenario.nodes), np.int64)
    np.add.at(counts[MADE], (events["kind"][done], node[done]), 1)
    np.add.at(counts[FLUSHES], (call, caller), 1)
    np.add.at(counts[SHOOTDOWNS], (call, caller), shot.live[number].any(axis=1))
    np.add.at(counts[BROADCASTS], (call, caller), shot.broadcast[number])
    return counts


# Reads at a share of the LLC.


def at_shares(reads: np.ndarray, llc: Cache, lines: Mapping[int, Lines] | None = None) -> np.ndarray:
    """int64[shares, ..., from]: Counters.reads, or DataReads.counts, the cache's own share first.

    lines  sampled_lines, where walks were sampled: between two samples lie walks that are none, so that
           replayed caches hold more than those of the program. Leaf entries come from DRAM as often as a
           closed form has it, the others from the LLC.
    """
    every = llc.every_share
    shares = sorted(range(len(every)), key=lambda k: every[k] != llc.share)
    own, behind = reads[..., :OWN_CACHES], np.cumsum(reads[..., OWN_CACHES:], axis=-1)
    cached = np.moveaxis(behind[..., shares], -1, 0)
    parts = [*np.broadcast_to(np.moveaxis(own, -1, 0)[:, None], (OWN_CACHES, *cached.shape)), cached]
    found = np.stack([*parts, behind[..., -1] - cached], axis=-1)
    for at, number in zip(found, shares if lines else (), strict=False):
        for node, by_server in enumerate(at[GUEST_BIT] if at.ndim == 4 else at):
            of, each = (lines or {}).get(node), by_server.sum(axis=-1)
            share = missed(of, llc.lines_at(every[number])) if of else 0.0
            by_server[:, DRAM] = np.rint(each * share).astype(np.int64)
            by_server[:, LLC], by_server[:, :LLC] = each - by_server[:, DRAM], 0
    return found


class Lines(NamedTuple):
    """Sampled walks of a node's CPUs: int64[N] by line of leaf entries, bursts counted once; walks: all."""

    counts: np.ndarray
    walks: int


def sampled_lines(scenario: Scenario) -> dict[int, Lines]:
    """{number of a cache: Lines of the sampled walks through it}."""
    stream, placement = scenario.stream, scenario.placement
    chunk = np.searchsorted(stream.offset, np.arange(len(stream)), side="right") - 1
    line = np.asarray(stream.page[: len(stream)]).astype(np.int64) // LINE_PAGES
    node = placement.cpu_node[placement.chunk_cpu[chunk]]
    first = heads(line, scenario.trace.chunks["thread"][chunk].astype(np.int64))
    return {
        one: Lines(np.unique(line[first & (node == one)], return_counts=True)[1], int((node == one).sum()))
        for one in np.unique(node).tolist()
    }


def missed(of: Lines, held: int) -> float:
    """Share of the walks that read their leaf entry from DRAM, where caches hold this number of lines."""
    if len(of.counts) <= held:
        return 0.0
    return reads_per_walk(of.counts, held) * float(of.counts.sum()) / of.walks


# Policies that cannot run on a capture: they are named, and the others compared without them.


def label(plan: Plan, plans: Sequence[Plan]) -> str:
    """The plan's name, and of several of one name the parameters that differ."""
    alike = [other.params for other in plans if other.name == plan.name]
    differ = [f"{key}={own}" for key, own in plan.params.items() if any(p.get(key) != own for p in alike)]
    return ":".join([plan.name, *differ])


def refusal_lines(refused: Mapping[str, str]) -> list[str]:
    """A line per reason, of {policy: why}, with all policies that it holds for."""
    reasons: dict[str, list[str]] = {}
    for name, why in refused.items():
        reasons.setdefault(why, []).append(name)
    return [
        f"{'policy' if len(names) == 1 else 'policies'} {', '.join(names)}: {why}"
        for why, names in reasons.items()
    ]


def must_allow(refused: Mapping[str, str], asked: int) -> None:
    """UsageError, with the reasons, where all that was asked for is refused; asked as of `with_refusals`."""
    if refused and asked == 0:
        raise UsageError("; ".join(refusal_lines(refused)))


def with_refusals(results: Sequence[Result], refused: Mapping[str, str], asked: int) -> list[Result]:
    """The Results with a finding per reason to refuse policies.

    asked  how many of the Results were asked for if none is refused, an added baseline left out
    UsageError, with the reasons, where all that was asked for is refused.
    """
    must_allow(refused, asked)
    said = [Finding("refused", line) for line in refusal_lines(refused)]
    return [replace(result, findings=(*result.findings, *said)) for result in results]


# Where the data of the walks are while a Scenario is replayed: the same under every policy.


class DataReads:
    """Counts of walks by their data's node: `count` is called with all Reads of a Scenario, in order.

    counts  int64[nodes, nodes, 3 + shares]  so far, by [walker's node, node of the data page, how many caches
            miss their leaf entry, as Counters.reads]
    """

    def __init__(self, scenario: Scenario) -> None:
        data = scenario.data
        self.scenario, self.step = scenario, 0
        self.pages = Pages(data.guest.copy(), data.host.copy(), data.host_row, by_host(scenario))
        shares = len(scenario.machine.llc.every_share)
        self.counts = np.zeros((scenario.nodes, scenario.nodes, OWN_CACHES + shares + 1), np.int64)

    def count(self, reads: Reads, first: int) -> None:
        """Walks first, first + 1, ... of the stream."""
        self.step = count_data(*self.arguments(reads, first))

    def arguments(self, reads: Reads, first: int) -> tuple[Any, ...]:
        """Arguments of kernels.data_migration.count_data."""
        history = self.scenario.history
        where = self.scenario.placement.cpu_node, reads, history.rows.of_region, self.scenario.space.tables
        return (*where, history.steps, self.pages, first, self.step, self.counts)


# Windows of a replay: counts of each run where they end, made into Series.

# float64[3] of Counters: cycles as in cost.throughput.spent
Spend: TypeAlias = Callable[[Counters], np.ndarray]
# Counts so far, as in Series: classes, dram, tables_moved; the number of steps taken; cycles.
Mark: TypeAlias = tuple[np.ndarray, np.ndarray, int, int, np.ndarray]


class Windows:
    """`number` windows of equal time or, without times, of equal walks; `spend`: what to keep of cycles;
    `data`: count where data are even without windows."""

    def __init__(
        self, scenario: Scenario, number: int, spend: Spend | None = None, data: bool = False
    ) -> None:
        self.scenario, self.number, self.spend, self.counts_data = scenario, number, spend, data or number > 0
        self.times, self.ends, self.chunks = windows_of(scenario, number)
        self.marks: list[list[Mark]] = []
        self.data: list[np.ndarray] = []

    @cached_property
    def reads(self) -> DataReads:
        return DataReads(self.scenario)

    def pieces(self, batches: Iterable[tuple[slice, Reads]]) -> Iterator[Reads]:
        """Iterate Reads: the batches, cut where windows end."""
        first, ends = 0, self.ends
        for _, reads in batches:
            count = len(reads.page)
            cuts = np.unique([0, *(ends[(ends > first) & (ends < first + count)] - first), count])
            for begin, end in itertools.pairwise(cuts.tolist()):
                yield Reads(*(column[begin:end] for column in reads))
            first += count

    def count(self, reads: Reads, first: int) -> None:
        """Count where the data of walks first, first + 1, ... are."""
        if self.counts_data:
            self.reads.count(reads, first)

    def mark(self, runs: Sequence[PolicyRun], walk: int) -> None:
        """Mark the windows that end before `walk`."""
        while (k := len(self.marks)) < self.number and self.ends[k] <= walk < len(self.scenario.stream):
            self._mark(runs)

    def _mark(self, runs: Sequence[PolicyRun]) -> None:
        self.marks.append([self._of(run) for run in runs])
        self.data.append(self.reads.counts.sum(axis=-1))

    def _of(self, run: PolicyRun) -> Mark:
        now = run.counters
        own = now._replace(reads=at_shares(now.reads, self.scenario.machine.llc)[0])
        dram = own.reads[..., DRAM]
        guest = dram[::GUEST_BIT].sum(axis=0)
        every = own.events, own.host_events, run.before.events, run.before.host_events
        moved = sum(int(events[:, TABLE_MOVED].sum()) for events in every)
        both = np.stack([guest, dram.sum(axis=0) - guest])
        cycles = np.zeros(3) if self.spend is None else self.spend(own)
        return own.classes.copy(), both, moved, run.step, cycles

    def series(self, runs: Sequence[PolicyRun], mapped: PteState) -> list[Series]:
        """[Series], one per run, when all is done."""
        while len(self.marks) < self.number:
            self._mark(runs)
        return [self._series(marks, mapped) for marks in zip(*self.marks, strict=True)]

    def _series(self, marks: Sequence[Mark], mapped: PteState) -> Series:
        classes, dram, moved, step, cycles = [np.array(column) for column in zip(*marks, strict=True)]
        scenario, steps = self.scenario, self.scenario.history.steps
        page = ((steps.kind == DATA) | (steps.kind == HOST_DATA)) & (mapped.changed > 0)
        data = np.concatenate([[0], np.cumsum(page)])
        so_far = classes, dram, cycles, np.array(self.data)
        classes, dram, cycles, reads = (np.diff(column, axis=0, prepend=0) for column in so_far)
        chunks = scenario.trace.chunks
        accesses, instructions = (self._by_window(chunks[name]) for name in ("accesses", "instructions"))
        return Series(
            time_ns=self.times,
            walks=classes.sum(axis=(1, 2)),
            classes=classes,
            dram=dram,
            tables_moved=moved,
            data_moved=data[step],
            data=reads,
            data_remote=reads.sum(axis=(1, 2)) - np.trace(reads, axis1=1, axis2=2),
            pages=int(np.bitwise_count(mapped.valid).sum()),
            cycles=cycles,
            accesses=accesses,
            instructions=instructions,
            cpus=self._cpus(),
            scale=round(scenario.snapshot.scale * scenario.growth.factor),
            host_shoots=scenario.moves.autonuma and by_host(scenario) and scenario.linux < MOVES_MARKED,
            pace=scenario.pace,
        )

    def _by_window(self, column: np.ndarray) -> np.ndarray:
        """int64[N]: sums of a column of the trace's chunks; chunks after the last window's are the last's."""
        return np.diff(np.concatenate([[0], np.cumsum(column, dtype=np.int64)])[self.chunks], prepend=0)

    def _cpus(self) -> np.ndarray:
        """int64[N]: CPUs that run at a time in each window: of threads that change CPUs, only one each."""
        used, thread = self.scenario.placement.chunk_cpu, self.scenario.trace.chunks["thread"]
        spans = [slice(*span) for span in itertools.pairwise([0, *self.chunks.tolist()])]
        distinct = [(len(np.unique(used[span])), len(np.unique(thread[span]))) for span in spans]
        return np.array([min(both) for both in distinct], np.int64)


def windows_of(scenario: Scenario, windows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(int64[N] ns, int64[N] walks, int64[N] chunks): ends of windows."""
    stream, time = scenario.stream, scenario.trace.chunks["time"]
    if not len(time) or time[0] == time[-1]:
        ends = np.arange(1, windows + 1) * len(stream) // max(windows, 1)
        chunks = np.searchsorted(stream.offset, ends)
        chunks[-1:] = len(time)
        return np.zeros(windows, np.int64), ends, chunks
    times = np.arange(1, windows + 1) * int(time[-1] - time[0]) // max(windows, 1)
    chunks = np.searchsorted(time, times + time[0])
    chunks[-1:] = len(time)
    return times, stream.offset[chunks], chunks


@dataclass
class PolicyRun:
    """Replay of a plan: its hooks' states and counts so far.

    before  what the policy does before the first walk, to get from the captured state to its own
    first   counts of the first run, once the second has begun
    data    DataReads.counts of the run that is counted, where asked for
    """

    plan: Plan
    states: tuple[Any, Any]
    counters: Counters
    before: Counters
    first: Counters | None = None
    step: int = 0
    series: Series | None = None
    data: np.ndarray | None = None

    def replay(
        self,
        scenario: Scenario,
        reads: Reads,
        fault: np.ndarray,
        mapped: PteState,
        first: int,
        last: bool = False,
    ) -> None:
        try:
            step = self.loop(scenario)(*self.arguments(scenario, reads, fault, mapped, first, last))
        except Exception as error:
            blame(self.plan, error)
            raise
        if step < 0:
            check_nodes(self.plan.name, "a hook returned", np.array([wrong_node(step)]), scenario.machine)
        self.step = step

    def loop(self, scenario: Scenario) -> Any:
        hooks = self.plan.guest[0].hooks, self.plan.host[0].hooks
        return replay_for(*hooks, any_steps=len(scenario.history.steps.at) > 0)

    def arguments(
        self, scenario: Scenario, reads: Reads, fault: np.ndarray, mapped: PteState, first: int, last: bool
    ) -> tuple[Any, ...]:
        """Those of the loop."""
        history = scenario.history
        where = scenario.placement.cpu_node, reads, fault, scenario.space.tables
        steps = history.rows, history.steps, history.shootdowns
        return (*where, *steps, mapped, *self.states, self.counters, first, self.step, last)

    def begin_steady_state(self) -> None:
        """Let the policy do what it does between two runs; then reset the counts, keeping the tables."""
        for side, (part, _) in enumerate((self.plan.guest, self.plan.host)):
            count = self.counters
            if part.between_runs:
                happened = (count.host_events if side else count.events)[BALANCING]
                with own_code(self.plan):
                    part.between_runs(self.states[side], happened, count.host_pages if side else count.pages)
        self.first, self.step = self.counters, 0
        self.counters = Counters(*map(np.zeros_like, self.first))
        self.counters.pages[:], self.counters.host_pages[:] = self.first.pages, self.first.host_pages

    def take_uncounted(self, scenario: Scenario, mapped: PteState) -> None:
        """Take all steps of a Scenario: states change, counts do not."""
        counted = self.counters
        self.counters = Counters(*(array.copy() for array in counted))
        self.replay(scenario, no_reads(), np.zeros(0, np.uint8), mapped, 0, last=True)
        self.counters, self.step = counted, 0

    def account_implicit_tables(self, scenario: Scenario, missing: np.ndarray) -> None:
        """Account for the tables that the kernel filled by itself."""
        pages = (self.first or self.counters).pages
        count = self.plan.guest[0].implicit_tables
        with own_code(self.plan):
            pages[0] += count(self.states[0], scenario, missing) if count else len(missing)
        pages[1] = max(pages)

    def facts(self, scenario: Scenario) -> dict[str, Any]:
        """{name: number} from reshaping and the replay."""
        facts, sides = dict(scenario.facts), (self.plan.guest, self.plan.host)
        both = self.counters.pages, self.counters.host_pages
        with own_code(self.plan):
            for (part, params), state, pages in zip(sides, self.states, both, strict=True):
                facts |= part.facts(state, scenario, params, pages) if part.facts else {}
        return facts


def start(plan: Plan, scenario: Scenario) -> PolicyRun:
    """A PolicyRun of a Plan before the first walk."""
    nodes, shares = scenario.nodes, len(scenario.machine.llc.every_share)
    count, before = counters(nodes, shares), counters(nodes, shares)
    states: list[Any] = [None, None]
    with own_code(plan):
        for side, (part, params) in enumerate((plan.guest, plan.host)):
            begun = part.start(scenario, params)
            if not (isinstance(begun, tuple) and len(begun) == 2):
                raise wrong_return(part.start, "a state and a number of table pages", begun)
            states[side], (count.host_pages if side else count.pages)[:] = begun
            typeof(states[side])  # raises what Numba says of a state that compiled code cannot take
            check_placed(plan.name, states[side], scenario.machine)
            if part.setup_events:
                happened = before.host_events if side else before.events
                part.setup_events(states[side], scenario, happened[BALANCING])
    return PolicyRun(plan, (states[0], states[1]), count, before)


def replay_walks(
    runs: Sequence[PolicyRun],
    scenario: Scenario,
    batches: Iterable[tuple[slice, Reads]],
    progress: Progress = None,
    windows: int = 0,
    more: bool = False,
    spend: Spend | None = None,
    data: bool = False,
) -> PteState:
    """Carry all runs through `batches`, (slice of the stream, Reads) each, and the events between them.

    more   replay_steady_state follows, which then accounts for the tables that the kernel filled by itself
    spend  cycles to keep of each window
    data   count where the data of walks are: PolicyRun.data

    Runs of a batch are shared out among scenario.effort.threads threads; counts do not depend on it.
    `progress` is called with walks; with `windows` each run gets such a Series. Returns the final PteState.
    """
    mapped = scenario.history.mapped()
    compile_together(first_calls(runs, scenario, mapped, data))
    cut = Windows(scenario, windows, spend, data and not more)
    _carry(runs, scenario, batches, mapped, progress, cut)
    if windows:
        for run, series in zip(runs, cut.series(runs, mapped), strict=True):
            run.series = series
    if not more:
        _account_implicit_tables(runs, scenario, mapped)
    return mapped


def _account_implicit_tables(runs: Sequence[PolicyRun], scenario: Scenario, mapped: PteState) -> None:
    """Account for the tables that are in the snapshot, although the trace's events freed them."""
    missing = np.flatnonzero(~mapped.exists[: scenario.space.guest_tables] & scenario.space.program_tables)
    for run in runs:
        run.account_implicit_tables(scenario, missing)


def replay_steady_state(
    runs: Sequence[PolicyRun],
    steady: Scenario,
    batches: Iterable[tuple[slice, Reads]],
    mapped: PteState,
    progress: Progress = None,
    data: bool = False,
) -> PteState:
    """Carry all runs through Scenario.steady_state, from the states in which `replay_walks` left them.

    mapped  as replay_walks returned it. Counters restart at zero; PolicyRun.first has those of the first run.
    """
    for run in runs:
        run.begin_steady_state()
    steps = len(steady.history.steps.at)
    now = mapped._replace(
        valid=mapped.valid.copy(),
        exists=mapped.exists.copy(),
        changed=np.zeros(steps, np.int32),
        made=np.zeros(steps, np.uint8),
    )
    _undo(runs, steady, now)
    _carry(runs, steady, batches, now, progress, Windows(steady, 0, data=data), "replaying walks again")
    _account_implicit_tables(runs, steady, mapped)
    return now


def _undo(runs: Sequence[PolicyRun], steady: Scenario, mapped: PteState) -> None:
    """Take History.undone, which no program waits for: states change, counts do not."""
    undone = steady.history.undone
    if undone is None:
        return
    before, pending, steps = steady.keeping(history=undone), mapped.pending.copy(), undone.steps
    count = len(steps.at)
    now = mapped._replace(changed=np.zeros(count, np.int32), made=np.zeros(count, np.uint8))
    carry_out(0, count, undone.rows, steady.space.tables.parent, steps, now)
    mapped.pending[:] = pending
    for run in runs:
        run.take_uncounted(before, now)


def _carry(
    runs: Sequence[PolicyRun],
    scenario: Scenario,
    batches: Iterable[tuple[slice, Reads]],
    mapped: PteState,
    progress: Progress,
    cut: Windows,
    what: str = "replaying walks",
) -> None:
    """Carry runs through all walks and steps of a Scenario; cut: at its ends their counts are marked."""
    history, parent = scenario.history, scenario.space.tables.parent
    first, step, walks = 0, 0, len(scenario.stream)
    with ThreadPoolExecutor(max(scenario.effort.threads, 1)) as pool:

        def everyone(reads: Reads, fault: np.ndarray, last: bool = False) -> None:
            jobs = [pool.submit(run.replay, scenario, reads, fault, mapped, first, last) for run in runs]
            jobs.append(pool.submit(cut.count, reads, first))
            for job in jobs:
                job.result()

        for reads in cut.pieces(batches):
            cut.mark(runs, first)
            fault = np.zeros(len(reads.page), np.uint8)
            steps = history.rows, parent, history.steps, mapped, first, step
            step = mark_faults(reads.page, reads.slot, *steps, fault)
            everyone(reads, fault)
            first += len(reads.page)
            if progress:
                progress(first, walks, what)
        carry_out(step, len(history.steps.at), history.rows, parent, history.steps, mapped)
        everyone(no_reads(), np.zeros(0, np.uint8), last=True)
    if cut.counts_data:
        for run in runs:
            run.data = cut.reads.counts


def first_calls(
    runs: Sequence[PolicyRun], scenario: Scenario, mapped: PteState, data: bool
) -> Iterator[tuple[Any, Callable[[], tuple[Any, ...]]]]:
    """Iterate (kernel, what returns its arguments for no walks), the longest to compile first."""
    reads, fault, history = no_reads(), np.zeros(0, np.uint8), scenario.history
    for run in runs:
        with own_code(run.plan):
            loop = run.loop(scenario)
        yield loop, partial(run.arguments, scenario, reads, fault, mapped, 0, False)
    yield from cache_pass.first_calls(scenario.space, scenario.placement, scenario.machine)
    if data:
        yield count_data, lambda: DataReads(scenario).arguments(reads, 0)
    rows, steps, parent = history.rows, history.steps, scenario.space.tables.parent
    yield (mark_faults, lambda: (reads.page, reads.slot, rows, parent, steps, mapped, 0, 0, fault))
