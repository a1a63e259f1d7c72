"""A process scripted call by call (map, touch, protect, unmap), as Snapshot and Trace.

Traced from the start, its tables need not be in a Snapshot: they are made by the first touch. Time does not
pass: nothing that depends on it is validated this way.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ..analysis.setup import Setup
from ..analysis.whatif import replay_snapshot
from ..core.machine import Costs, Machine, load_machine
from ..core.snapshot import NO_PARENT, VMA_DTYPE, Node, Snapshot, Topology, Tree
from ..core.trace import (
    CHUNK_DTYPE,
    EVENT_DTYPE,
    PAGE_SHIFT,
    SLOT_BITS,
    THREAD_DTYPE,
    Event,
    Touches,
    Trace,
)
from ..cost.result import Result
from .designs import Design

PAGE = 1 << PAGE_SHIFT
FIXED = 0x32  # MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED
READ, READ_WRITE = 1, 3
LEVELS = 4


class Script:
    """node: int of each thread, in their order; all run from the beginning to the end."""

    def __init__(self, node: Iterable[int]) -> None:
        self.node = tuple(node)
        self._chunks: list[tuple[int, np.ndarray, bool]] = []
        self._events: list[tuple[int, ...]] = []
        self._marked = 0, 0

    @property
    def placement(self) -> str:
        """As placement.place takes it."""
        return ",".join(map(str, self.node))

    def touch(self, thread: int, pages: ArrayLike, write: bool = True) -> None:
        """pages  int[n], page numbers (address >> 12), an access each."""
        self._chunks.append((thread, np.atleast_1d(np.asarray(pages, np.int64)), write))

    def mmap(self, thread: int, page: int, pages: int) -> None:
        self._event(thread, Event.MMAP, 0, pages << PAGE_SHIFT, READ_WRITE, FIXED, result=page << PAGE_SHIFT)

    def munmap(self, thread: int, page: int, pages: int) -> None:
        self._event(thread, Event.MUNMAP, page << PAGE_SHIFT, pages << PAGE_SHIFT)

    def mprotect(self, thread: int, page: int, pages: int, prot: int = READ) -> None:
        self._event(thread, Event.MPROTECT, page << PAGE_SHIFT, pages << PAGE_SHIFT, prot)

    def premapped(self) -> None:
        """Pages touched from now on were mapped before: use a Snapshot that has them."""
        self._event(0, Event.ROI_START)

    def mark(self) -> None:
        """The point at which before_and_after splits the script."""
        self._marked = len(self._chunks), len(self._events)

    def _event(
        self, thread: int, kind: Event, a: int = 0, b: int = 0, c: int = 0, d: int = 0, result: int = 0
    ) -> None:
        self._events.append((len(self._chunks), 0, a, b, c, d, result, int(kind), thread, -1))

    def replay(
        self, designs: Mapping[str, Design], machine: str = "hydra-haswell", costs: Costs | None = None
    ) -> dict[str, Result]:
        """{name: Result} of designs {name: (policy, {parameter: value})}; the first is the baseline."""
        target = load_machine(machine)
        return self.replay_on(self.snapshot(target.nodes), designs, target, costs)

    def replay_on(
        self,
        snapshot: Snapshot,
        designs: Mapping[str, Design],
        machine: Machine,
        costs: Costs | None = None,
    ) -> dict[str, Result]:
        """As replay, with a Snapshot of the process and a Machine."""
        asked = list(designs.values())
        results = replay_snapshot(
            snapshot,
            self.trace(),
            asked,
            Setup.of(
                machine=machine, threads_on=self.placement, baseline=asked[0][0], costs=costs, cold=True
            ),
        )
        return dict(zip(designs, results, strict=True))

    def before_and_after(self, designs: Mapping[str, Design]) -> dict[str, tuple[Result, Result]]:
        """{name: (Result of the part before the mark, Result of everything)}."""
        begun = Script(self.node)
        begun._chunks, begun._events = self._chunks[: self._marked[0]], self._events[: self._marked[1]]
        before, after = begun.replay(designs), self.replay(designs)
        return {name: (before[name], after[name]) for name in designs}

    def trace(self) -> Trace:
        """Trace of the script so far."""
        chunks = np.zeros(len(self._chunks), CHUNK_DTYPE)
        chunks["touches"] = chunks["accesses"] = [len(pages) for _, pages, _ in self._chunks]
        chunks["first"] = np.cumsum(chunks["touches"]) - chunks["touches"]
        chunks["thread"] = [thread for thread, _, _ in self._chunks]
        chunks["cpu"] = -1
        events = np.array(self._events, EVENT_DTYPE) if self._events else np.zeros(0, EVENT_DTYPE)
        threads = np.zeros(len(self.node), THREAD_DTYPE)
        threads["tid"], threads["parent"], threads["end"] = 1000 + np.arange(len(threads)), -1, -1
        pages = np.concatenate([pages for _, pages, _ in self._chunks])
        write = np.repeat([write for _, _, write in self._chunks], chunks["touches"])
        regions, dense = numbered(pages)
        return Trace(chunks, events, threads, regions, lambda least: whole(chunks, dense, write, least), {})

    def snapshot(self, nodes: int) -> Snapshot:
        """Snapshot of the process after it unmapped everything: a root, on a machine of `nodes` nodes."""
        none = np.zeros((0, 2), np.int64)
        topology = Topology(tuple(Node(n, (n,), none) for n in range(nodes)))
        return Snapshot(root(), np.zeros(0, VMA_DTYPE), (), topology)


def root() -> Tree:
    def column(value: int, kind: DTypeLike) -> np.ndarray:
        return np.array([value], kind)

    entries = np.zeros((1, 512), np.uint64)
    columns = column(0, np.uint64), column(1, np.int64), column(NO_PARENT, np.int32), column(0, np.int16)
    return Tree(entries, *columns, column(LEVELS, np.uint8), column(0, np.uint8), LEVELS)


def numbered(pages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(uint64[R] regions in order of first touch, uint32[n] pages as in Touches) of page numbers int64[n]."""
    regions, first, which = np.unique(pages >> SLOT_BITS, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(regions), np.int64)
    number[order] = np.arange(len(regions))
    dense = number[which.ravel()] << SLOT_BITS | pages & ((1 << SLOT_BITS) - 1)
    return regions[order].astype(np.uint64), dense.astype(np.uint32)


def whole(chunks: np.ndarray, page: np.ndarray, write: np.ndarray, least: int) -> Iterator[Touches]:
    """Yield Touches of at least `least` touches, in whole chunks."""
    end = chunks["first"] + chunks["touches"]
    first = 0
    while first < len(chunks):
        start = int(chunks["first"][first])
        last = min(int(np.searchsorted(end, start + least)) + 1, len(chunks))
        part = slice(start, int(end[last - 1]))
        yield Touches(slice(first, last), page[part], write[part], np.ones(part.stop - start, np.uint32))
        first = last
