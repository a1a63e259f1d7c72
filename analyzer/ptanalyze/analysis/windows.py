"""Windows of a replay: counts of each run where they end, made into Series."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from ..core.walks import GUEST_BIT, Reads
from ..cost.result import Series
from ..kernels.replay import TABLE_MOVED, Counters
from ..kernels.steps import DATA, HOST_DATA
from ..world.data_moves import by_host
from ..world.data_reads import DataReads
from .sockets import by_socket, folded

if TYPE_CHECKING:
    from ..kernels.replay import Mapped
    from ..world.world import World

# float64[3] of Counters: cycles as in cost.throughput.spent
Spend: TypeAlias = Callable[[Counters], np.ndarray]


class SoFar(NamedTuple):
    """A run's Counters, those of what is done before its first walk, and the number of steps taken."""

    counters: Counters
    before: Counters
    step: int


class Mark(NamedTuple):
    """Counts so far, as in Series; step: the number of steps taken."""

    classes: np.ndarray
    dram: np.ndarray
    tables_moved: int
    step: int
    cycles: np.ndarray


class Windows:
    """`number` windows of equal time or, without times, of equal walks; `spend`: what to keep of cycles."""

    def __init__(self, world: World, number: int, spend: Spend | None = None) -> None:
        self.world, self.number, self.spend = world, number, spend
        self.times, self.ends, self.chunks = windows_of(world, number)
        self.marks: list[list[Mark]] = []
        self.data: list[np.ndarray] = []

    @cached_property
    def reads(self) -> DataReads:
        return DataReads(self.world)

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
        if self.number:
            self.reads.count(reads, first)

    def mark(self, runs: Sequence[SoFar], walk: int) -> None:
        """Mark the windows that end before `walk`."""
        while len(self.marks) < self.number and self.ends[len(self.marks)] <= walk < len(self.world.stream):
            self._mark(runs)

    def _mark(self, runs: Sequence[SoFar]) -> None:
        self.marks.append([self._of(run) for run in runs])
        self.data.append(self.reads.counts.copy())

    def _of(self, run: SoFar) -> Mark:
        now = by_socket(run.counters, self.world.domains)
        dram = now.reads[..., 1]
        guest = dram[::GUEST_BIT].sum(axis=0)
        so_far = now.events, now.host_events, run.before.events, run.before.host_events
        moved = sum(int(events[:, TABLE_MOVED].sum()) for events in so_far)
        both = np.stack([guest, dram.sum(axis=0) - guest])
        cycles = np.zeros(3) if self.spend is None else self.spend(run.counters)
        return Mark(now.classes.copy(), both, moved, run.step, cycles)

    def series(self, runs: Sequence[SoFar], mapped: Mapped) -> list[Series]:
        """[Series], one per run, when all is done."""
        while len(self.marks) < self.number:
            self._mark(runs)
        return [self._series(marks, mapped) for marks in zip(*self.marks, strict=True)]

    def _series(self, marks: Sequence[Mark], mapped: Mapped) -> Series:
        columns = [np.array(column) for column in zip(*marks, strict=True)]
        classes, dram, moved, step, cycles = columns
        world, steps = self.world, self.world.history.steps
        page = ((steps.kind == DATA) | (steps.kind == HOST_DATA)) & (mapped.changed > 0)
        data = np.concatenate([[0], np.cumsum(page)])
        classes, dram, cycles, reads = (
            np.diff(column, axis=0, prepend=0) for column in (classes, dram, cycles, np.array(self.data))
        )
        chunks = world.trace.chunks
        accesses, instructions = (self._by_window(chunks[name]) for name in ("accesses", "instructions"))
        sockets = folded(reads, 1, world.domains)
        return Series(
            time_ns=self.times,
            walks=classes.sum(axis=(1, 2)),
            classes=classes,
            dram=dram,
            tables_moved=moved,
            data_moved=data[step],
            data=reads,
            data_remote=reads.sum(axis=(1, 2)) - np.trace(sockets, axis1=1, axis2=2),
            pages=int(np.bitwise_count(mapped.valid).sum()),
            cycles=cycles,
            accesses=accesses,
            instructions=instructions,
            cpus=self._cpus(),
            scale=world.snapshot.scale,
            by_host=world.moves.autonuma and by_host(world),
        )

    def _by_window(self, column: np.ndarray) -> np.ndarray:
        """int64[N]: sums of a column of the trace's chunks; chunks after the last window's are the last's."""
        so_far = np.concatenate([[0], np.cumsum(column, dtype=np.int64)])
        return np.diff(so_far[self.chunks], prepend=0)

    def _cpus(self) -> np.ndarray:
        """int64[N]: CPUs that run at a time in each window: of threads that change CPUs, only one each."""
        used, thread = self.world.placement.chunk_cpu, self.world.trace.chunks["thread"]
        spans = [slice(*span) for span in itertools.pairwise([0, *self.chunks.tolist()])]
        distinct = [(len(np.unique(used[span])), len(np.unique(thread[span]))) for span in spans]
        return np.array([min(both) for both in distinct], np.int64)


def windows_of(world: World, windows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(int64[N] ns, int64[N] walks, int64[N] chunks): ends of windows."""
    stream, time = world.stream, world.trace.chunks["time"]
    if not len(time) or time[0] == time[-1]:
        ends = np.arange(1, windows + 1) * len(stream) // max(windows, 1)
        chunks = np.searchsorted(stream.offset, ends)
        chunks[-1:] = len(time)
        return np.zeros(windows, np.int64), ends, chunks
    times = np.arange(1, windows + 1) * int(time[-1] - time[0]) // max(windows, 1)
    chunks = np.searchsorted(time, times + time[0])
    chunks[-1:] = len(time)
    return times, stream.offset[chunks], chunks
