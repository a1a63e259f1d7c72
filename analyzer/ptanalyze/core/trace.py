"""A trace: the pages that threads touched and the memory calls they made; and the stream of TLB misses that
every policy replays, computed once per trace, TLB shape and placement.
"""

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

import numpy as np

# Read-only views of arrays, and cutting long arrays into batches.


AT_ONCE = 1 << 20  # walks that are looked at together


def chunk_runs(offset: np.ndarray, batch: int = AT_ONCE) -> list[tuple[int, int]]:
    """[(first, last)]: runs of whole chunks with at least `batch` walks each, except the last run."""
    chunks, first, runs = len(offset) - 1, 0, []
    while first < chunks:
        last = int(np.searchsorted(offset, offset[first] + batch))
        runs.append((first, min(max(last, first + 1), chunks)))
        first = runs[-1][1]
    return runs


def read_only(array: np.ndarray) -> np.ndarray:
    """A plain read-only view: memory-mapped or not, kernels are compiled once for it."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


# Reading mapped files front to back without keeping them: what was read is given back to the kernel.

AROUND = 1 << 21  # bytes: the largest piece of a file that is cached, and mapped, as one


def give_back(*parts: np.ndarray) -> None:
    """Let go of mapped files' pages below `parts` and shortly before each: the process holds them no more.

    They stay in the kernel's cache of files; who reads them again maps them again. madvise(2), MADV_DONTNEED.
    Before it, because a page fault maps what the cache has around the page (do_fault_around in mm/memory.c).
    Arrays that are no mapped file, or that can be written to, are left alone.
    """
    for part in parts:
        mapped = _mapping(part)
        if mapped is None or not part.flags.c_contiguous:
            continue
        whole = np.frombuffer(mapped, np.uint8)
        if whole.flags.writeable:
            continue
        start = part.ctypes.data - whole.ctypes.data
        first, last = max(start - AROUND, 0) // mmap.PAGESIZE, (start + part.nbytes) // mmap.PAGESIZE
        if last > first:
            mapped.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)


def blocks(array: np.ndarray, size: int = AT_ONCE) -> Iterator[np.ndarray]:
    """Iterate read-only views of at most `size` elements, in order; each is given back before the next."""
    for first in range(0, len(array), size):
        block = read_only(array[first : first + size])
        yield block
        give_back(block)


def _mapping(array: np.ndarray) -> mmap.mmap | None:
    """The mapping below an array, or None."""
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.obj if isinstance(base, memoryview) else base.base
    return base if isinstance(base, mmap.mmap) else None


# Arrays that a thread uses for one batch after the other: new ones would be new pages, each a page fault.


class Scratch:
    """Arrays by name; each is valid until the next of its name is asked for. once: for a single pass."""

    def __init__(self, once: bool = False) -> None:
        self._arrays: dict[str, np.ndarray] = {}
        self.once = once

    def empty(self, n: int, **dtypes: type) -> list[np.ndarray]:
        """Arrays of n elements of any contents, by name and dtype; a name always has the same dtype."""
        for name, dtype in dtypes.items():
            if name not in self._arrays or len(self._arrays[name]) < n:
                self._arrays[name] = np.empty(n + n // 8, dtype)
        return [self._arrays[name][:n] for name in dtypes]


PAGE_SHIFT = 12
REGION_SHIFT = 21  # a region is 2 MiB, the range of one leaf table
SLOT_BITS = 9
MOST_THREADS = "a trace has room for 2,048 threads at once, and 65,536 in all"


class Event(IntEnum):
    """Kinds of trace events; the arguments a, b, c, d of each are listed beside it (bytes, addresses)."""

    THREAD_START = 1  # a = tid, b = parent's thread index
    THREAD_EXIT = 2
    MMAP = 3  # a = requested address, b = length, c = prot, d = flags; result = address or -errno
    MUNMAP = 4  # a = address, b = length
    MPROTECT = 5  # a = address, b = length, c = prot
    MREMAP = 6  # a = old address, b = old length, c = new length, d = flags; result = new address
    MADVISE = 7  # a = address, b = length, c = advice
    BRK = 8  # a = requested end; result = new end
    ROI_START = 9
    ROI_END = 10
    MOVE_PAGES = 11  # a = address, b = length, c = NUMA node their data is on from now on
    FIRST_TOUCH = 12  # a = address of a 2 MiB region that the thread was the first to touch before ROI_START
    TRACER_MAP = 14  # a = address, b = length: memory of the tracer itself, mapped before the program began
    THP_DISABLE = 15  # prctl(PR_SET_THP_DISABLE): a = 1 no huge pages from now on, 0 again; b = flags


CHUNK_DTYPE = np.dtype(
    [
        ("first", np.int64),  # index of the chunk's first touch in the trace
        ("touches", np.int64),  # merged touch records in the chunk
        ("accesses", np.int64),  # loads and stores they stand for
        ("instructions", np.int64),  # instructions the thread executed in the chunk, 0 unknown
        ("time", np.int64),  # nanoseconds since the trace began, at the chunk's start
        ("thread", np.uint16),  # index into Trace.threads
        ("cpu", np.int16),  # CPU of the recording machine, -1 unknown
    ]
)

EVENT_DTYPE = np.dtype(
    [
        ("chunk", np.int64),  # the event happened before this chunk (len(chunks): after the last)
        ("time", np.int64),  # nanoseconds since the trace began
        *((name, np.uint64) for name in "abcd"),
        ("result", np.int64),
        ("kind", np.uint8),  # Event
        ("thread", np.uint16),
        ("cpu", np.int16),
    ]
)

THREAD_DTYPE = np.dtype(
    [
        ("tid", np.int32),
        ("parent", np.int32),  # index of the thread that started it, -1 unknown
        ("start", np.int64),  # nanoseconds since the trace began
        ("end", np.int64),  # -1: still running when the trace ended
    ]
)


@dataclass(frozen=True)
class Touches:
    """A run of consecutive whole chunks, decoded; of a Piece, `page` and `write` are read-only.

    chunks  slice into Trace.chunks
    page    uint32[n]  region id << 9 | slot: Trace.regions[page >> 9] << 9 | page & 511 is the page number
    write   bool[n]    the merged accesses include a store
    count   uint32[n]  consecutive accesses of the same page merged into this touch
    """

    chunks: slice
    page: np.ndarray
    write: np.ndarray
    count: np.ndarray


class Piece(NamedTuple):
    """A run of whole chunks and what decodes it, on any thread, whatever was decoded before.

    decode  its Touches, whose arrays may be of the Scratch
    """

    chunks: slice
    decode: Callable[[Scratch], Touches]


class Batches(Iterator[Touches]):
    """Touches of Pieces, each decoded into new arrays when it is its turn; see `pieces`."""

    def __init__(self, left: Iterator[Piece]) -> None:
        self.left = left

    def __next__(self) -> Touches:
        return next(self.left).decode(Scratch(once=True))


def pieces(batches: Iterator[Touches]) -> Iterator[Piece]:
    """Iterate Pieces of what is left of batches; those of other kinds than Batches are decoded already."""
    if isinstance(batches, Batches):
        return batches.left
    return (Piece(touches.chunks, partial(_decoded, touches)) for touches in batches)


def _decoded(touches: Touches, _: Scratch) -> Touches:
    return replace(touches, page=read_only(touches.page), write=read_only(touches.write))


@dataclass(frozen=True)
class Trace:
    """Chunks of all threads in time order; a chunk is a thread's run of touches between two events.

    regions  uint64[R]  address >> 21 of each region, in order of first touch
    batches  called with the least number of touches of a batch; decodes the trace front to back
    again    called with a chunk: the Trace as a further run from that chunk on finds it; None: as this run
    """

    chunks: np.ndarray
    events: np.ndarray
    threads: np.ndarray
    regions: np.ndarray
    batches: Callable[[int], Iterator[Touches]]
    facts: dict[str, Any]
    again: "Callable[[int], Trace] | None" = None

    def __repr__(self) -> str:
        threads, events = f"threads: {len(self.threads)}", f"events: {len(self.events):,}"
        return f"Trace({self.accesses:,} accesses, {threads}, {events})"

    @property
    def sampled_walks(self) -> bool:
        """Whether it holds samples of walks alone, as perf takes them of TLB misses."""
        return bool(self.facts.get("sampled") and self.facts.get("walks"))

    @property
    def touches(self) -> int:
        return int(self.chunks["touches"].sum())

    @property
    def accesses(self) -> int:
        return int(self.chunks["accesses"].sum())

    def pieces(self, least: int, first: int, last: int) -> Iterator[Piece]:
        """Iterate Pieces of chunks first..last-1, of about `least` touches each; no others are decoded but
        those of a piece that is cut."""
        for piece in pieces(self.batches(least)):
            inside = slice(max(piece.chunks.start, first), min(piece.chunks.stop, last))
            if inside == piece.chunks:
                yield piece
            elif inside.start < inside.stop:
                yield Piece(inside, partial(self._cut, piece, inside))

    def _cut(self, piece: Piece, inside: slice, scratch: Scratch) -> Touches:
        count = self.chunks["touches"]
        begin = int(count[piece.chunks.start : inside.start].sum())
        touches, kept = piece.decode(scratch), slice(begin, begin + int(count[inside].sum()))
        return Touches(inside, touches.page[kept], touches.write[kept], touches.count[kept])


PAGE_LINES = 64
SEEN_AGAIN = 16  # sampled pages; fewer tell nothing


def lines_per_page(trace: Trace) -> float:
    """Cache lines that the program uses of a page, 1 to 64; 64 if its tracer did not see pages again.

    Of lines one half of the chunks saw a, the other b, both c: there are a b / c, seen or not (Lincoln and
    Petersen's index); of pages, the same.
    """
    pages, pages_again, lines, lines_again = trace.facts.get("lines", (0, 0, 0, 0))
    if pages_again < SEEN_AGAIN or not lines_again:
        return PAGE_LINES
    every = (lines + lines_again) ** 2 / lines_again
    return float(min(max(every / ((pages + pages_again) ** 2 / pages_again), lines / pages), PAGE_LINES))


GUEST_BIT = 8  # bit of a read mask: GUEST_BIT * guest level + host level (docs/data-path.md)


@dataclass(frozen=True)
class Placement:
    """Placement of the trace's threads on the replaying machine.

    chunk_cpu  int32[chunks]  CPU index of each chunk; CPUs are numbered densely, one TLB each
    cpu_node   int16[cpus]    NUMA node of each CPU
    event_cpu  int32[events]  CPU index that each event happened on
    how        description for people: "recorded: 4 CPUs on 4 nodes", "round-robin over 4 nodes", ...
    """

    chunk_cpu: np.ndarray
    cpu_node: np.ndarray
    event_cpu: np.ndarray
    how: str


ONE_THREAD = "one thread"  # begins the `how` of a Placement where threads are no plural


def threads_placed(how: str) -> str:
    """ "threads round-robin over 4 nodes", "threads on nodes 0,1", "one thread, on node 0" of a `how`."""
    if how.isdigit():
        return f"{ONE_THREAD}, on node {how}"
    return how if how.startswith(ONE_THREAD) else f"threads {'on nodes ' * how[:1].isdigit()}{how}"


@dataclass(frozen=True)
class WalkStream:
    """Touches that missed every TLB level, in trace order.

    page      uint32[W]          as Touches.page, usually memory-mapped
    write     bool[W]
    offset    int64[chunks + 1]  walks of chunk c are page[offset[c]:offset[c + 1]]
    hits      int64[cpus, 3]     accesses that hit L1, hit L2, or walked; merged accesses count as L1 hits
    flushes   int64[F]           chunks, sorted, before which calls took translations away from every CPU
    """

    page: np.ndarray
    write: np.ndarray
    offset: np.ndarray
    hits: np.ndarray
    flushes: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.page)


NO_WALKS = WalkStream(
    np.zeros(0, np.uint32), np.zeros(0, bool), np.zeros(1, np.int64), np.zeros((0, 3), np.int64)
)


class Reads(NamedTuple):
    """The walker's reads for each walk of a batch: the input of every policy's replay.

    cpu        int32[n]   CPU that walked (Placement.cpu_node gives its node)
    page       uint32[n]  as Touches.page
    write      bool[n]
    leaf       int32[n]   flat id of the guest table that holds the leaf entry
    slot       int16[n]   entry within `leaf`
    host_leaf  int32[n]   flat id of the host table that maps the data page, -1 native
    host_slot  int16[n]   entry within `host_leaf`, -1 where host_leaf is -1
    read       uint64[n]  bit 8 * g + h: read at guest level g, host level h (see docs/data-path.md)
    missed     uint64[n, planes]  bit planes, the lowest first: how many caches each read of `read` misses, of
                          L1D (all: walks begin at L2), L2, and the LLC at each share for tables, ascending
    """

    cpu: np.ndarray
    page: np.ndarray
    write: np.ndarray
    leaf: np.ndarray
    slot: np.ndarray
    host_leaf: np.ndarray
    host_slot: np.ndarray
    read: np.ndarray
    missed: np.ndarray


class Tables(NamedTuple):
    """Flat ids: guest tables, then host tables, then inferred tables (touched, but gone from the snapshot).

    parent     int32[T]   -1 for roots
    node       int16[T]   where the snapshot has it, UNKNOWN_NODE for inferred tables or where unknown
    level      uint8[T]
    base       uint64[T]  first address mapped, bytes
    host_leaf  int32[T]   for guest tables: the host table whose leaf entry maps this table's frame; -1 native
    host_slot  int16[T]   entry within `host_leaf`
    """

    parent: np.ndarray
    node: np.ndarray
    level: np.ndarray
    base: np.ndarray
    host_leaf: np.ndarray
    host_slot: np.ndarray


class Regions(NamedTuple):
    """Location of the translations of each 2 MiB region touched by the trace, by region id.

    va         uint64[R]  address >> 21; one that comes twice is first that of a huge entry, then of the leaf
                          table which maps it when that is split
    leaf       int32[R]   flat id of the guest table that holds the region's leaf entries
    level      uint8[R]   level of `leaf`: 1 = 4 KiB pages, 2 = a 2 MiB page, 3 = part of a 1 GiB page
    slot       int16[R]   entry within `leaf` when level > 1, else -1 (the page's own low 9 bits)
    tlb_level  uint8[R]   page size the TLB holds: the smaller of guest's and host's leaf
    """

    va: np.ndarray
    leaf: np.ndarray
    level: np.ndarray
    slot: np.ndarray
    tlb_level: np.ndarray

    @property
    def twice(self) -> np.ndarray:
        """uint64[B], sorted: `va` that come twice."""
        va, count = np.unique(self.va, return_counts=True)
        return va[count > 1]


class Joined(NamedTuple):
    """Pages of 4 KiB that share a TLB entry with their neighbours, 2^shift from a multiple of that on.

    They are seen as pages of their own, by number of such pages, of further regions behind the R.

    shift   int
    groups  bool[R, 512 >> shift]  whether the pages of each group are joined
    region  uint32[R]              region in which the groups of each are seen
    first   uint32[R]              number of its first group there
    va      uint64[...]            address >> 21 >> shift of these regions
    """

    shift: int
    groups: np.ndarray
    region: np.ndarray
    first: np.ndarray
    va: np.ndarray

    def of(self, page: np.ndarray) -> np.ndarray:
        """uint32[n]: what is seen in place of these pages."""
        region, group = page >> np.uint32(9), (page & np.uint32(511)) >> np.uint32(self.shift)
        seen = self.region[region] << np.uint32(9) | self.first[region] + group
        return np.where(self.groups[region, group], seen, page)


class Fold(NamedTuple):
    """How caches and TLBs see memory that does not grow with the run that a capture stands for.

    first  int64[R]     where the pages of each region begin in `to`; -1: they are seen as they are
    to     uint32[...]  as Touches.page: what is seen in place of each
    """

    first: np.ndarray
    to: np.ndarray

    def of(self, page: np.ndarray) -> np.ndarray:
        """uint32[n]: the pages that are seen in place of these."""
        at, place = self.folded(page)
        seen = page.copy()
        seen[at] = self.to[place]
        return seen

    def folded(self, page: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(int64[k] which of the pages are of folded regions, int64[k] their places in `to`)."""
        first = self.first[page >> np.uint32(9)]
        at = np.flatnonzero(first >= 0)
        return at, first[at] + (page[at] & 511)
