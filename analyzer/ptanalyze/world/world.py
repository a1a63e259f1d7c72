"""What a policy is tried on: a capture on a machine, and the passes over it, made when first asked for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from ..core.machine import Machine
from ..core.snapshot import Snapshot
from ..core.trace import CHUNK_DTYPE, EVENT_DTYPE, THREAD_DTYPE, Trace
from ..core.walks import Placement, Reads, WalkStream
from .address_space import AddressSpace, address_space
from .cache_pass import cache_pass
from .data_moves import NOTHING_MOVES, Moves, with_data_moves
from .data_nodes import DataNodes, data_nodes
from .history import History, history
from .tlb_filter import filter_trace


class Effort(NamedTuple):
    """How passes are made; results do not depend on it."""

    threads: int = 1
    cache_dir: str | PathLike[str] | None = None  # where walk streams are kept
    progress: Callable[[int], None] | None = None  # called with the touches of each batch of the TLB filter


DEFAULT_EFFORT = Effort()


@dataclass(frozen=True)
class World:
    """A Snapshot and a Trace on a Machine whose CPUs the threads were placed on.

    domains      NUMA nodes of `machine` on one socket: replicas and shootdowns go by node, locality by socket
    facts        what reshaping found, for the Result: {name: number}
    notes        what a reader of the results should know, one line each
    aside_pages  table pages that walks no longer go through: a guest's own under shadow paging
    origin       the World this one was reshaped from
    moves        how data pages move while the trace runs
    """

    snapshot: Snapshot
    trace: Trace
    machine: Machine
    placement: Placement
    effort: Effort = DEFAULT_EFFORT
    domains: int = 1
    facts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    aside_pages: int = 0
    origin: "World | None" = None
    moves: Moves = NOTHING_MOVES

    def reshaped(
        self, *, facts: dict[str, Any] | None = None, notes: tuple[str, ...] = (), **changes: Any
    ) -> "World":
        """The World with other fields; facts and notes are added to those there are."""
        facts, notes = {**self.facts, **(facts or {})}, (*self.notes, *notes)
        return replace(self, facts=facts, notes=notes, origin=self, **changes)

    def noted(self, *notes: str) -> "World":
        """The same World with further notes; the passes that were made are kept."""
        again = replace(self, notes=(*self.notes, *notes))
        made = ("space", "stream", "history", "_past", "data")
        vars(again).update({name: vars(self)[name] for name in made if name in vars(self)})
        return again

    @property
    def captured(self) -> "World":
        """The World before any reshaping."""
        return self if self.origin is None else self.origin.captured

    @property
    def refiltered(self) -> bool:
        """Whether touches miss the TLB otherwise than in the World that this one was reshaped from."""
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
        return address_space(self.snapshot, self.trace.regions)

    @cached_property
    def stream(self) -> WalkStream:
        """WalkStream; that of the World it was reshaped from where page sizes are the same."""
        if not self.traced:
            return WalkStream(
                np.zeros(0, np.uint32), np.zeros(0, bool), np.zeros(1, np.int64), np.zeros((0, 3))
            )
        if self.origin is not None and self._same_touches(self.origin):
            return self.origin.stream
        threads, cache_dir, progress = self.effort
        return filter_trace(
            self.trace,
            self.space,
            self.placement,
            self.machine.tlb,
            threads=threads,
            cache_dir=cache_dir,
            progress=progress,
        )

    def _same_touches(self, before: "World") -> bool:
        same = before.trace is self.trace and before.machine.tlb == self.machine.tlb
        same = same and before.placement.chunk_cpu is self.placement.chunk_cpu
        return same and np.array_equal(before.space.regions.tlb_level, self.space.regions.tlb_level)

    @cached_property
    def _past(self) -> History:
        """History, data that move left out."""
        return history(self.snapshot, self.trace, self.space, self.placement, self.stream)

    @cached_property
    def history(self) -> History:
        return with_data_moves(self, self._past)

    @cached_property
    def data(self) -> DataNodes:
        """DataNodes: where the data are when the trace begins."""
        return data_nodes(self, self._past)

    def reads(self, batch: int = 1 << 20) -> Iterator[tuple[slice, Reads]]:
        """Iterate (chunks, Reads): the cache pass, made anew each time."""
        sockets = replace(self.placement, cpu_node=(self.placement.cpu_node // self.domains).astype(np.int16))
        return cache_pass(
            self.space, sockets, self.machine, self.stream, events=self.trace.events, batch=batch
        )


def untouched(snapshot: Snapshot, machine: Machine) -> World:
    """The World of a snapshot in which nothing was touched and nothing happened."""
    none = np.zeros(0, np.int32)
    trace = Trace(
        np.zeros(0, CHUNK_DTYPE), np.zeros(0, EVENT_DTYPE), np.zeros(0, THREAD_DTYPE), np.zeros(0, np.uint64),
        lambda least: iter(()), {},
    )  # fmt: skip
    placement = Placement(none, np.arange(machine.nodes, dtype=np.int16), none, "")
    return World(snapshot, trace, machine, placement)
