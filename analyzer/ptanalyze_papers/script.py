"""A process scripted call by call (map, touch, protect, unmap), as Snapshot and Trace.

Traced from the start, its tables need not be in a Snapshot: they are made by the first touch. Time does not
pass: nothing that depends on it is validated this way.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

import ptanalyze as pt

from .bench import DESIGNS, Design

PAGE = 1 << pt.trace.PAGE_SHIFT
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
        """Nodes and CPUs of the threads, as a Scenario takes them."""
        return ",".join(map(str, self.node))

    def touch(self, thread: int, pages: ArrayLike, write: bool = True) -> None:
        """pages  int[n], page numbers (address >> 12), an access each."""
        self._chunks.append((thread, np.atleast_1d(np.asarray(pages, np.int64)), write))

    def mmap(self, thread: int, page: int, pages: int) -> None:
        self._event(
            thread,
            pt.trace.Event.MMAP,
            0,
            pages << pt.trace.PAGE_SHIFT,
            READ_WRITE,
            FIXED,
            result=page << pt.trace.PAGE_SHIFT,
        )

    def munmap(self, thread: int, page: int, pages: int) -> None:
        self._event(thread, pt.trace.Event.MUNMAP, page << pt.trace.PAGE_SHIFT, pages << pt.trace.PAGE_SHIFT)

    def mprotect(self, thread: int, page: int, pages: int, prot: int = READ) -> None:
        self._event(
            thread, pt.trace.Event.MPROTECT, page << pt.trace.PAGE_SHIFT, pages << pt.trace.PAGE_SHIFT, prot
        )

    def premapped(self) -> None:
        """Pages touched from now on were mapped before: use a Snapshot that has them."""
        self._event(0, pt.trace.Event.ROI_START)

    def mark(self) -> None:
        """The point at which before_and_after splits the script."""
        self._marked = len(self._chunks), len(self._events)

    def _event(
        self, thread: int, kind: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0, result: int = 0
    ) -> None:
        self._events.append((len(self._chunks), 0, a, b, c, d, result, kind, thread, -1))

    def replay(
        self,
        designs: Mapping[str, Design],
        machine: str = "hydra-haswell",
        costs: pt.machine.Costs | None = None,
    ) -> dict[str, pt.Result]:
        """{name: Result} of designs {name: (policy, {parameter: value})}; the first is the baseline."""
        target = pt.load_machine(machine)
        return self.replay_on(self.snapshot(target.nodes), designs, target, costs)

    def replay_on(
        self,
        snapshot: pt.Snapshot,
        designs: Mapping[str, Design],
        machine: pt.Machine,
        costs: pt.machine.Costs | None = None,
    ) -> dict[str, pt.Result]:
        """Replay with a Snapshot of the process and a Machine."""
        asked = list(designs.values())
        results = pt.analysis.replay_snapshot(
            snapshot,
            self.trace(),
            asked,
            pt.Setup.of(
                machine=machine, threads_on=self.placement, baseline=asked[0][0], costs=costs, cold=True
            ),
        )
        return dict(zip(designs, results, strict=True))

    def before_and_after(self, designs: Mapping[str, Design]) -> dict[str, tuple[pt.Result, pt.Result]]:
        """{name: (Result of the part before the mark, Result of everything)}."""
        begun = Script(self.node)
        begun._chunks, begun._events = self._chunks[: self._marked[0]], self._events[: self._marked[1]]
        before, after = begun.replay(designs), self.replay(designs)
        return {name: (before[name], after[name]) for name in designs}

    def trace(self) -> pt.Trace:
        """Trace of the script so far."""
        chunks = np.zeros(len(self._chunks), pt.trace.CHUNK_DTYPE)
        chunks["touches"] = chunks["accesses"] = [len(pages) for _, pages, _ in self._chunks]
        chunks["first"] = np.cumsum(chunks["touches"]) - chunks["touches"]
        chunks["thread"] = [thread for thread, _, _ in self._chunks]
        chunks["cpu"] = -1
        events = (
            np.array(self._events, pt.trace.EVENT_DTYPE)
            if self._events
            else np.zeros(0, pt.trace.EVENT_DTYPE)
        )
        threads = np.zeros(len(self.node), pt.trace.THREAD_DTYPE)
        threads["tid"], threads["parent"], threads["end"] = 1000 + np.arange(len(threads)), -1, -1
        pages = np.concatenate([pages for _, pages, _ in self._chunks])
        write = np.repeat([write for _, _, write in self._chunks], chunks["touches"])
        regions, dense = numbered(pages)
        return pt.Trace(
            chunks, events, threads, regions, lambda least: whole(chunks, dense, write, least), {}
        )

    def snapshot(self, nodes: int) -> pt.Snapshot:
        """Snapshot of the process after it unmapped everything: a root, on a machine of `nodes` nodes."""
        none = np.zeros((0, 2), np.int64)
        topology = pt.snapshot.Topology(tuple(pt.snapshot.Node(n, (n,), none) for n in range(nodes)))
        return pt.Snapshot(root(), np.zeros(0, pt.snapshot.VMA_DTYPE), (), topology)


def root() -> pt.snapshot.Tree:
    def column(value: int, kind: DTypeLike) -> np.ndarray:
        return np.array([value], kind)

    entries = np.zeros((1, 512), np.uint64)
    columns = (
        column(0, np.uint64),
        column(1, np.int64),
        column(pt.snapshot.NO_PARENT, np.int32),
        column(0, np.int16),
    )
    return pt.snapshot.Tree(entries, *columns, column(LEVELS, np.uint8), column(0, np.uint8), LEVELS)


def numbered(pages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(uint64[R] regions in order of first touch, uint32[n] pages as in Touches) of page numbers int64[n]."""
    regions, first, which = np.unique(pages >> pt.trace.SLOT_BITS, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(regions), np.int64)
    number[order] = np.arange(len(regions))
    dense = number[which.ravel()] << pt.trace.SLOT_BITS | pages & ((1 << pt.trace.SLOT_BITS) - 1)
    return regions[order].astype(np.uint64), dense.astype(np.uint32)


def whole(chunks: np.ndarray, page: np.ndarray, write: np.ndarray, least: int) -> Iterator[pt.trace.Touches]:
    """Yield Touches of at least `least` touches, in whole chunks."""
    end = chunks["first"] + chunks["touches"]
    first = 0
    while first < len(chunks):
        start = int(chunks["first"][first])
        last = min(int(np.searchsorted(end, start + least)) + 1, len(chunks))
        part = slice(start, int(end[last - 1]))
        yield pt.trace.Touches(
            slice(first, last), page[part], write[part], np.ones(part.stop - start, np.uint32)
        )
        first = last


# A thread calls mprotect or munmap in a loop while others spin (Hydra, section 5.6.1).

TARGET, SPIN = 1 << 21, 1 << 22  # page numbers
SPINNING_REGION = 512  # pages
LOOPS = 3
ALONE, CROWDED = (0, 0), (35, 35)  # threads that spin on the caller's socket, and on each other socket
SPINNING_SOCKETS = 8


def calls(
    call: str,
    spinning: tuple[int, int] = ALONE,
    costs: pt.machine.Costs | None = None,
    sockets: int = SPINNING_SOCKETS,
) -> dict[str, float]:
    """{design: ns per call}, of a call that changes the entry of a 4 KiB page.

    call     "mprotect" or "munmap". A neighbour in the same leaf table keeps it from being freed; every
             thread has a page of its own, in a leaf table of its own.
    sockets  with threads, the caller's among them
    """
    near, far = spinning
    script = Script([0, *[0] * near, *[node for node in range(1, sockets) for _ in range(far)]])
    script.mmap(0, SPIN, SPINNING_REGION * len(script.node))
    for thread in range(len(script.node)):
        script.touch(thread, SPIN + SPINNING_REGION * thread)
    script.mmap(0, TARGET, SPINNING_REGION)
    script.touch(0, TARGET + SPINNING_REGION - 1)
    for turn in range(LOOPS):
        script.touch(0, TARGET)
        if call == "mprotect":  # read-only and writable by turns, so that each call changes something
            script.mprotect(0, TARGET, 1, prot=READ_WRITE if turn % 2 else READ)
        else:
            script.munmap(0, TARGET, 1)
            script.mmap(0, TARGET, 1)
    results = script.replay(DESIGNS, costs=costs)
    return {
        name: cost.ns for name, result in results.items() for cost in result.system_calls if cost.call == call
    }


# Time of a workload of system calls whose threads share a lock on the mappings of their process.


class Work(NamedTuple):
    """ns per unit of work (an allocation and its freeing, a request): `busy` in a thread, of which `locked`
    while no other thread of the process may map, unmap or fault."""

    busy: float
    locked: float

    def ns(self, threads: int) -> float:
        """Time between two units of all threads together, which do nothing outside the kernel.

        Threads work side by side until the lock is always held: the bound of a closed queueing network.
        """
        return max(self.busy / threads, self.locked)


def work(before: pt.Result, after: pt.Result, units: int, ghz: float) -> Work:
    """Work of threads that did `units` units between two Results of the same process and policy.

    `busy` includes the time that shootdowns take from interrupted threads, which would have done other units.
    """
    busy = (spent(after) - spent(before)) / ghz
    return Work(
        busy / units, (pt.counts.held_ns(after.system_calls) - pt.counts.held_ns(before.system_calls)) / units
    )


def spent(result: pt.Result) -> float:
    """Cycles of all CPUs for page tables: management and walks."""
    return result.management_cycles + result.walk_cycles


# malloc by mmap: segments of random size are mapped, written and unmapped (Hydra, section 5.6.2).

MEAN_BYTES = 3.3e6  # published
SHAPE = 2.0  # of the Gamma distribution: assumed
LIVE = 256  # segments of each thread, where the benchmark is stateful: published
UNITS = 24  # allocations of each thread that are measured
TOP = 1 << 34  # page number below which the kernel maps, downwards


class Holes:
    """The kernel maps into the highest hole that is large enough (vm_unmapped_area, top down)."""

    def __init__(self) -> None:
        self.holes = [(0, TOP)]

    def take(self, pages: int) -> int:
        for k in range(len(self.holes) - 1, -1, -1):
            start, end = self.holes[k]
            if end - start >= pages:
                self.holes[k : k + 1] = [(start, end - pages)] if end - start > pages else []
                return end - pages
        raise AssertionError("no hole is large enough")

    def give(self, start: int, pages: int) -> None:
        insort(self.holes, (start, start + pages))
        merged: list[tuple[int, int]] = []
        for hole in self.holes:
            if merged and merged[-1][1] == hole[0]:
                hole = merged.pop()[0], hole[1]
            merged.append(hole)
        self.holes = merged


def allocations(sockets: int, stateful: bool) -> dict[str, Work]:
    """{design: Work} per allocation, every page of it written, with a thread on each of `sockets` sockets."""
    script, holes = Script(range(sockets)), Holes()
    sizes = np.random.default_rng(0)
    held: list[deque[tuple[int, int]]] = [deque() for _ in range(sockets)]

    def allocate(thread: int) -> None:
        pages = int(np.ceil(sizes.gamma(SHAPE, MEAN_BYTES / SHAPE) / PAGE)) or 1
        at = holes.take(pages)
        script.mmap(thread, at, pages)
        script.touch(thread, at + np.arange(pages))
        held[thread].append((at, pages))

    def free(thread: int) -> None:
        at, pages = held[thread].popleft()
        script.munmap(thread, at, pages)
        holes.give(at, pages)

    for thread in range(sockets):
        for _ in range(LIVE if stateful else 0):
            allocate(thread)
    for thread in range(sockets):
        script.touch(thread, TOP + thread)  # its stack
    script.mark()
    for _ in range(UNITS):
        for thread in range(sockets):
            for step in (free, allocate) if stateful else (allocate, free):
                step(thread)
    ghz, done = pt.load_machine("hydra-haswell").ghz, UNITS * sockets
    return {name: work(*both, done, ghz) for name, both in script.before_and_after(DESIGNS).items()}


# A server that changes its mappings with every request (Hydra, section 5.6.3).

SOCKETS = 4  # with threads
ROUNDS = 4
PAGES = 3  # of a web page's buffer: assumed
BASE, REGION = 1 << 22, 512  # pages
KEPT = 256  # pages from a buffer to the page of its thread that stays
THREADS = (4, 8, 16, 32)


def web_server(threads: int) -> dict[str, tuple[Work, float]]:
    """{design: (Work, IPIs)} per request: each thread maps a buffer, writes and unmaps it (section 5.6.3).

    Buffers of all threads lie side by side, in a leaf table where each has a page that stays mapped.
    """
    script = Script(np.arange(threads) % SOCKETS)
    buffers = BASE + PAGES * np.arange(threads)
    for thread, at in enumerate(buffers.tolist()):
        script.mmap(thread, BASE - REGION * (thread + 1), REGION)  # its stack
        script.touch(thread, BASE - REGION * (thread + 1))
        script.mmap(thread, at + KEPT, 1)
        script.touch(thread, at + KEPT)
    script.mark()
    for _ in range(ROUNDS):
        for thread, at in enumerate(buffers.tolist()):
            script.mmap(thread, at, PAGES)
            script.touch(thread, at + np.arange(PAGES))
            script.munmap(thread, at, PAGES)
    ghz, requests = pt.load_machine("hydra-haswell").ghz, ROUNDS * threads
    return {
        name: (work(before, after, requests, ghz), (after.count("ipis") - before.count("ipis")) / requests)
        for name, (before, after) in script.before_and_after(DESIGNS).items()
    }


# Cost of a system call of a micro-benchmark, from counts of its changes.


def million_entries_per_second(machine: pt.Machine, call: str, entries: int, copies: int) -> float:
    """Entries changed, in millions per second, by a call over `entries` 4 KiB pages under `copies` tables.

    call  "mmap" (populated, its pages zeroed), "mprotect" or "munmap", as the micro-benchmark of vMitosis,
    section 4.4; a mapping of one page leaves its table page in place
    """
    count, tables, costs = pt.analysis.counters(machine.nodes), entries // 512, pt.machine.load_costs(machine)
    at = pt.kernels.CALLS.index("walk" if call == "mmap" else call)
    for node in range(copies):
        stores = 2 * entries if call == "mprotect" else entries
        count.events[at, pt.kernels.PTE_FANOUT if node else pt.kernels.PTE_WRITE, 0, node] = stores
        if call != "mprotect":
            count.events[at, pt.kernels.TABLE_NEW if call == "mmap" else pt.kernels.TABLE_FREE, 0, node] = (
                tables
            )
    made = np.zeros((4, len(pt.kernels.CALLS), machine.nodes), np.int64)
    made[pt.counts.MADE, pt.kernels.CALLS.index(call), 0] = made[pt.counts.FLUSHES, at, 0] = 1
    populated = 0
    if call == "mmap":  # faults that never trap, and zero their pages
        count.events[at, [pt.kernels.FAULT, pt.kernels.PAGES_ZEROED], 0, 0] = populated = entries
    ns = float(pt.counts.busy_ns(np.stack([count.events, count.host_events]), machine, costs, made).sum())
    return 1e3 * entries / (ns - costs.fault_ns * populated)
