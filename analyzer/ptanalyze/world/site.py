"""A capture on a machine before any event is examined: its address space, and the walks of its trace."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import NamedTuple, Self

import numpy as np

from ..core.machine import Machine
from ..core.sample import Sample
from ..core.second import SecondFilter
from ..core.snapshot import Snapshot
from ..core.trace import Trace
from ..core.walks import Placement, WalkStream
from .address_space import AddressSpace, address_space
from .chosen_regions import chosen_regions, of_regions
from .moves import NOTHING_MOVES, Moves
from .part import Part, Weights
from .passed_regions import regions_with_passed
from .region_walks import RegionWalks, region_walks
from .sampling import Sampling, chosen_sets, must_allow, recorded_sets
from .second_filter import filtered_throughout, measured
from .steady_part import SteadyPart, steady_part
from .thinned_walks import ThinnedWalks
from .tlb_filter import TlbFilter
from .traced_windows import traced_windows


class Effort(NamedTuple):
    """Settings of passes; results do not depend on them."""

    threads: int = 1
    cache_dir: str | PathLike[str] | None = None  # where walk streams are kept
    progress: Callable[[int], None] | None = None  # called with the touches of each batch of the TLB filter
    again: Callable[[int], None] | None = None  # the same when the steady part is filtered once more


DEFAULT_EFFORT = Effort()


LEFT_OUT = "the trace is left out, as asked: with --weight walks it is taken"


@dataclass(frozen=True)
class Site:
    """A Snapshot and a Trace on a Machine whose CPUs the threads were placed on.

    domains  NUMA nodes of `machine` on one socket: replicas and shootdowns go by node, locality by socket
    moves    moves of data pages while the trace runs
    sample   part of the trace that stands for all of it, None: all
    origin   the Site from which this was reshaped
    left_out  whether the capture has a trace that was left out, as asked
    begin    first chunk that is run: that of the steady part in a further run
    """

    snapshot: Snapshot
    trace: Trace
    machine: Machine
    placement: Placement
    effort: Effort = DEFAULT_EFFORT
    domains: int = 1
    moves: Moves = NOTHING_MOVES
    sample: Sample | None = None
    origin: Self | None = None
    left_out: bool = False
    begin: int = 0

    @property
    def captured(self) -> Self:
        """The Site before any reshaping."""
        return self if self.origin is None else self.origin.captured

    @property
    def refiltered(self) -> bool:
        """Whether TLB misses differ from those of the Site from which this was reshaped."""
        return self.traced and self.origin is not None and not self._same_touches(self.origin)

    @property
    def nodes(self) -> int:
        return self.machine.nodes

    @property
    def sockets(self) -> int:
        return self.machine.nodes // self.domains

    @property
    def traced(self) -> bool:
        """Whether there is a trace at all; without one every mapped page counts once for each node."""
        return bool(self.placement.how)

    @cached_property
    def readers(self) -> tuple[int, ...]:
        """Sorted nodes on which threads run."""
        return tuple(sorted(set(self.placement.cpu_node[self.placement.chunk_cpu].tolist())))

    @cached_property
    def space(self) -> AddressSpace:
        if self.origin is not None and self.origin.snapshot is self.snapshot:
            return self.origin.space
        return address_space(self.snapshot, regions_with_passed(self.trace))

    @cached_property
    def sampling(self) -> Part | None:
        """What the sample holds, None where the whole trace is looked at."""
        if self.sample is None:
            return None
        if self.sample.unit == "windows":
            return traced_windows(self.sample, self.trace, self.moves)
        must_allow(self.sample, self.trace, self.moves)
        regions = self.space.regions
        if "sample" in self.trace.facts:
            return recorded_sets(self.sample, regions, self.machine.tlb)
        if self.sample.unit == "sets":
            return chosen_sets(self.sample, regions)
        if self.origin is not None:
            return of_regions(self.captured._chosen, self.captured.space.regions.va, regions.va)
        return self._chosen

    @cached_property
    def _chosen(self) -> Sampling:
        """The regions of the sample, by the walks of the whole trace."""
        assert self.sample is not None
        regions, node = self.space.regions, self.space.tables.node
        return chosen_regions(self.sample, regions.va, node[regions.leaf], self._walked)

    @cached_property
    def _walked(self) -> RegionWalks:
        return region_walks(self._unthinned, self.placement, len(self.space.regions.va))

    @cached_property
    def _unthinned(self) -> WalkStream:
        return self._filter.first()

    @cached_property
    def _thinned(self) -> ThinnedWalks | None:
        """Of a sample of walks: all touches go through the TLBs."""
        if not isinstance(self.sampling, Sampling) or self._recorded:
            return None
        return ThinnedWalks(self.trace, self.space.regions, self.placement, self.sampling)

    @cached_property
    def _recorded(self) -> Sampling | None:
        """The sampling of a trace that was recorded as a sample: before the TLBs."""
        known = self.sampling if "sample" in self.trace.facts else None
        return known if isinstance(known, Sampling) else None

    @cached_property
    def weights(self) -> Weights | None:
        """What the stream's walks in the sample stand for."""
        return self.sampling.weights(self.stream) if self.sampling else None

    @cached_property
    def walks_by_chunk(self) -> np.ndarray:
        """int64 or, estimated from a sample, float64[chunks]."""
        return self._by_chunk(self.stream)

    @property
    def again_walks_by_chunk(self) -> np.ndarray:
        """The same of the further run."""
        return self._by_chunk(self.again_stream)

    def _by_chunk(self, stream: WalkStream) -> np.ndarray:
        if self.sampling:
            return self.sampling.by_chunk(stream)
        walks: np.ndarray = np.diff(stream.offset)
        return walks

    @property
    def hits(self) -> np.ndarray:
        """int64[3] as WalkStream.hits: of all CPUs, counted or estimated."""
        hits: np.ndarray = (
            self.stream.hits.sum(axis=0) if self.sampling is None else self.sampling.hits(self.stream)
        )
        return hits

    @property
    def walks(self) -> int:
        """Walks of the whole trace, counted or estimated."""
        return len(self.stream) if self.weights is None else self.weights.estimate()

    @cached_property
    def stream(self) -> WalkStream:
        """WalkStream, of a sample what it holds; that of the original Site where page sizes are the same."""
        if not self.traced:
            return WalkStream(
                np.zeros(0, np.uint32), np.zeros(0, bool), np.zeros(1, np.int64), np.zeros((0, 3))
            )
        if self.origin is not None and self._same_touches(self.origin):
            return self.origin.stream
        if self._recorded:
            return replace(self._unthinned, pages=self._recorded.pages(self._unthinned.page))
        return self._thinned.first(self._unthinned) if self._thinned else self._unthinned

    @cached_property
    def again_stream(self) -> WalkStream:
        """WalkStream of the steady part once more, with the TLBs as the stream left them."""
        if self.origin is not None and self._same_touches(self.origin):
            return self.origin.again_stream
        self._filter.progress = self.effort.again
        begin = self.steady.chunk
        walks = self._filter.again(begin)
        if self._recorded:
            return replace(walks, pages=self.stream.pages)
        return self._thinned.again(walks, begin) if self._thinned else walks

    @cached_property
    def steady(self) -> SteadyPart:
        """The part of the trace that `again_stream` is of: that of the Site before any reshaping, so that all
        policies are compared over the same work."""
        if self.origin is not None:
            return self.captured.steady
        return steady_part(self.trace, self.stream, self.space.regions, self.walks_by_chunk)

    def second_filter(self, begin: int = 0) -> SecondFilter | None:
        """What a second filter did to the walks from chunk `begin` on, None where there was none."""
        if not self.traced or "second" not in self.trace.facts:
            return None
        walks, entries = (self.walks_by_chunk, self._walks_throughout), self.machine.tlb.l2.entries
        return measured(self.trace, *walks, begin, entries)

    @cached_property
    def _walks_throughout(self) -> np.ndarray:
        """As walks_by_chunk, of the trace as if the second filter had spared no chunk."""
        walks: np.ndarray = np.diff(self._filter_of(filtered_throughout(self.trace)).first().offset)
        return walks

    @cached_property
    def _filter(self) -> TlbFilter:
        return self._filter_of(self.trace, self.effort.progress)

    def _filter_of(self, trace: Trace, progress: Callable[[int], None] | None = None) -> TlbFilter:
        where = trace, self.space, self.placement, self.machine.tlb
        threads, cache_dir = self.effort.threads, self.effort.cache_dir
        return TlbFilter(*where, threads, cache_dir, progress=progress, sampling=self._recorded)

    def _same_touches(self, before: "Site") -> bool:
        same = before.trace is self.trace and before.machine.tlb == self.machine.tlb
        same = same and before.placement.chunk_cpu is self.placement.chunk_cpu
        return same and np.array_equal(before.space.regions.tlb_level, self.space.regions.tlb_level)
