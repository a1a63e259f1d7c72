"""A capture on a machine before any event is examined: its address space, the walks of its trace, and the
part of it whose steady state is asked for (--from, --to)."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from ..core.columns import CAREFUL, FILLS, Finding, noted
from ..core.errors import UNKNOWN_NODE
from ..core.machine import NOTHING_MOVES, Machine, Moves
from ..core.process import Progress
from ..core.snapshot import INFERRED, NO_PARENT, VMA_DTYPE, Node, Snapshot, Topology, Tree
from ..core.trace import NO_WALKS, SLOT_BITS, Fold, Joined, Placement, Regions, Trace, WalkStream, blocks
from .address_space import AddressSpace, address_space
from .mm_events import UNNAMED, Linux, regions_with_passed, undoing
from .scaling import AS_IT_IS, Growth, fold, must_say_something
from .tlb_filter import TlbFilter, far_tlb, joined_pages, missed_trace, near_tlb

FIRST_TOUCHES = 0.999  # of the pages: the share that is touched before what follows counts as work
WORTH_SAYING = 0.005  # of the accesses, before and after: a fault takes as long as hundreds of them
ONCE = 0.8  # of the walks
SELDOM = 0.2  # first touches per access after that, to those before: else memory just grows


def first_walks(stream: WalkStream, regions: Regions, joined: Joined | None = None) -> np.ndarray:
    """int64[chunks]: walks of each chunk that are the first to their page, of whatever size.

    joined  pages that share a TLB entry, which count as one: the first touch of any of them walks
    """
    more = np.ones(0 if joined is None else len(joined.va), regions.level.dtype)
    level = np.concatenate([regions.level, more])
    seen, huge = np.zeros(len(level) << SLOT_BITS, bool), (level > 1).any()
    walk = np.empty(len(seen), np.uint32)  # the first to a page in a block: the last that is assigned stays
    counts, begin = np.zeros(len(stream.offset) - 1, np.int64), 0
    for block in blocks(stream.page):
        page = (block if joined is None else joined.of(block)).astype(np.int64)
        if huge:
            page = np.where(level[page >> SLOT_BITS] > 1, page >> SLOT_BITS << SLOT_BITS, page)
        new = np.flatnonzero(~seen[page])
        walk[page[new[::-1]]] = new[::-1]
        first = new[walk[page[new]] == new]
        seen[page[first]] = True
        chunk = np.searchsorted(stream.offset, begin + first, side="right") - 1
        counts += np.bincount(chunk, minlength=len(counts))
        begin += len(block)
    return counts


# Page tables for a trace without any: all are inferred from the pages it touches.

ASSUMED = "no page tables were captured: 4 KiB pages, tables placed by first touch, one owner for all memory"
FOUR_LEVELS = np.uint64(1 << (48 - 21))  # 2 MiB regions that four levels map


def bare_snapshot(trace: Trace) -> Snapshot:
    """Snapshot of an empty root table on one node; the regions of the trace all lack their tables."""
    levels = 4 if (trace.regions < FOUR_LEVELS).all() else 5
    root = Tree(
        np.zeros((1, 512), np.uint64),
        np.zeros(1, np.uint64),
        np.full(1, -1, np.int64),
        np.full(1, NO_PARENT, np.int32),
        np.full(1, UNKNOWN_NODE, np.int16),
        np.full(1, levels, np.uint8),
        np.full(1, INFERRED, np.uint8),
        levels,
    )
    topology = Topology((Node(0, (), np.zeros((0, 2), np.int64)),))
    return Snapshot(root, np.zeros(0, VMA_DTYPE), (), topology, facts={"assumed": ASSUMED})


class Effort(NamedTuple):
    """Settings of passes; results do not depend on them."""

    threads: int = 1
    progress: Progress = None  # of the TLB filter


SYNTHETIC = "synth"  # in the tracer's name
LEFT_OUT = "the trace is left out, as asked: with --weight walks it is taken"


@dataclass(frozen=True)
class TracedProgram:
    """A Snapshot and a Trace on a Machine whose CPUs the threads were placed on.

    moves    moves of data pages while the trace runs
    growth   of the memory, in the run that the capture stands for; `machine` is scaled already
    origin   the TracedProgram from which this was reshaped
    left_out  whether the capture has a trace that was left out, as asked
    after    the run that this one follows, of the steady part once more; None: the run as traced
    linux    whose memory manager carries out the trace's calls
    steady_from  first chunk of the steady part: of what a further run repeats
    """

    snapshot: Snapshot
    trace: Trace
    machine: Machine
    placement: Placement
    effort: Effort = field(default=Effort())
    moves: Moves = NOTHING_MOVES
    growth: Growth = AS_IT_IS
    origin: Self | None = None
    left_out: bool = False
    after: Self | None = None
    steady_from: int = 0
    linux: Linux = UNNAMED

    @property
    def captured(self) -> Self:
        """The TracedProgram before any reshaping."""
        return self if self.origin is None else self.origin.captured

    @property
    def refiltered(self) -> bool:
        """Whether TLB misses differ from those of the TracedProgram from which this was reshaped."""
        return self.traced and self.origin is not None and not self._same_touches(self.origin)

    @property
    def nodes(self) -> int:
        return self.machine.nodes

    @property
    def traced(self) -> bool:
        """Whether there is a trace at all; without one every mapped page counts once for each node."""
        return bool(self.placement.how)

    @property
    def begin(self) -> int:
        """First chunk that is run."""
        return 0 if self.after is None else self.steady_from

    @cached_property
    def pace(self) -> float:
        """Native time per time of the trace's clock, which runs on while a tracer slows the program: by the
        instructions of the busiest thread, at the rate of the timed run, else one a cycle. 1 where none are
        counted, and of `synth`, whose clock is the program's (--rate).

        Linux's scan periods are of a thread's CPU time (task_tick_numa, kernel/sched/fair.c).
        """
        chunks, timed = self.trace.chunks, self.captured.snapshot.facts.get("native")
        executed = chunks["instructions"]
        own = chunks["thread"] == np.bincount(chunks["thread"], executed, 1).argmax()
        span = float(np.ptp(chunks["time"][own])) if own.any() else 0.0
        if not span or not executed.any() or SYNTHETIC in str(self.trace.facts.get("tracer")):
            return 1.0
        cycles = timed["user_seconds"] * timed["ghz"] * 1e9 / timed["instructions"] if timed else 1.0
        until_last = float(executed[np.flatnonzero(own)[:-1]].sum())
        return min(until_last * cycles / self.machine.ghz / span, 1.0)

    @cached_property
    def space(self) -> AddressSpace:
        if self.origin is not None and self.origin.snapshot is self.snapshot:
            return self.origin.space
        return address_space(self.snapshot, regions_with_passed(self.trace))

    @property
    def hits(self) -> np.ndarray:
        """int64[3] as WalkStream.hits, of all CPUs."""
        return self.stream.hits.sum(axis=0)

    @cached_property
    def stream(self) -> WalkStream:
        """WalkStream; that of the original TracedProgram where page sizes are the same."""
        if self.after is not None:
            return self.after.steady_stream
        if not self.traced:
            return NO_WALKS
        if self.origin is not None and self._same_touches(self.origin):
            return self.origin.stream
        return self._filter.first()

    @property
    def walks_by_node(self) -> np.ndarray:
        """int64[nodes]: page walks of each node's CPUs in the trace, from --from on; 0 without one."""
        node = self.placement.cpu_node[self.placement.chunk_cpu[self.steady_from :]]
        return np.bincount(node, np.diff(self.stream.offset[self.steady_from :]), self.nodes).astype(np.int64)

    @cached_property
    def steady_stream(self) -> WalkStream:
        """WalkStream of the steady part once more, with the TLBs as the stream left them."""
        if self.origin is not None and self._same_touches(self.origin):
            return self.origin.steady_stream
        return self._filter.again(self.steady_from, self.undone)

    @cached_property
    def undone(self) -> np.ndarray:
        """mm_events.undoing before the steady part runs once more."""
        if self.origin is not None and self.origin.trace is self.trace:
            return self.origin.undone
        return undoing(self.trace.events, self.steady_from)

    @cached_property
    def filling(self) -> list[Finding]:
        """Finding: a whole run touches its memory for the first time in its first part alone: up to where
        pages are furthest ahead of accesses, or where it has nearly all."""
        joined = joined_pages(self.space, self.machine.tlb.joins)
        first, accesses = first_walks(self.stream, self.space.regions, joined), self.trace.chunks["accesses"]
        if not first.any():
            return []
        held = self.machine.tlb.l2.entries * len(np.unique(self.placement.chunk_cpu))
        if first.sum() > max(ONCE * len(self.stream), held):
            return [noted("touched-once", CAREFUL, share=first.sum() / len(self.stream))]
        pages, spent = (np.cumsum(each) / each.sum() for each in (first, accesses.astype(np.int64)))
        for end in (np.argmax(pages - spent), np.searchsorted(pages, FIRST_TOUCHES)):
            share, seldom = float(spent[end]), SELDOM * pages[end] * (1 - spent[end])
            if (1 - pages[end]) * share <= seldom and WORTH_SAYING <= share <= 1 - WORTH_SAYING:
                steps = 100 if 0.05 <= share <= 0.95 else 1000
                return [noted(FILLS, share=share, percent=100 * float(np.ceil(steps * share)) / steps)]
        return []

    @property
    def times_captured(self) -> float:
        """Times the captured memory that the run has: as asked for, and as it was made smaller (scale)."""
        return self.growth.memory * self.snapshot.scale

    @cached_property
    def fold(self) -> Fold | None:
        """How caches and TLBs see memory that does not grow; None where all grows, or nothing does."""
        if self.growth.factor == 1 or not self.traced:
            return None
        if self.origin is not None and self._same_touches(self.origin):
            return self.origin.fold
        if not self._is_split:
            return None
        regions = self.space.regions
        if self.origin is None:
            pages = int(first_walks(self._missed, regions).sum())
            must_say_something(self.growth, self.machine.tlb, regions, pages)
        return fold(self.growth, regions, self._missed)

    @property
    def _is_split(self) -> bool:
        """Whether the levels of the TLB run one after the other: one first level for runs of all sizes."""
        return self.growth.factor > 1 and not self.trace.facts.get("walks")

    @cached_property
    def _near(self) -> TlbFilter:
        """The first level of the TLB alone."""
        tlb = near_tlb(self.machine.tlb, np.unique(self.space.regions.tlb_level).tolist())
        return TlbFilter(self.trace, self.space, self.placement, tlb, **self.effort._asdict())

    @cached_property
    def _missed(self) -> WalkStream:
        """What misses the first level."""
        return self._near.first()

    @cached_property
    def _filter(self) -> TlbFilter:
        where = self.space, self.placement
        if not self._is_split:
            return TlbFilter(self.trace, *where, self.machine.tlb, **self.effort._asdict())
        trace, fold = missed_trace(self._near, self._missed, self.undone), self.fold
        tlb, mapped = far_tlb(self.machine.tlb), self._near.mapped
        return TlbFilter(trace, *where, tlb, self.effort.threads, fold=fold, mapped=mapped)

    def _same_touches(self, before: "TracedProgram") -> bool:
        same = before.trace is self.trace and before.machine.tlb == self.machine.tlb
        same = same and before.placement.chunk_cpu is self.placement.chunk_cpu
        return same and np.array_equal(before.space.regions.tlb_level, self.space.regions.tlb_level)
