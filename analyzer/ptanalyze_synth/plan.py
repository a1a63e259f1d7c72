"""Parameters turned into numbers; contradictions are refused."""

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

import ptanalyze as pt

from . import kernels
from .kernels import FIRST_TOUCH, INTERLEAVE
from .parameters import PAGE, Parameters

LEAST, MOST = 2 << 20, 4 << 40
GUESTS = ("native", "visible", "oblivious")
INITS = ("parallel", "single")
MAPPERS = ("main", "threads")


def check_ranges(asked: Parameters) -> None:
    """UsageError, naming the option and what it allows, for the first value out of range."""
    shares = {name: getattr(asked, name) for name in ("fragmentation", "thp", "host_thp", "writes")}
    for name, value in shares.items():
        if value is not None and not 0 <= value <= 1:
            raise refused(name, value, "a share, 0 to 1")
    counts = {
        "nodes": (1, 60),
        "threads": (1, 256),
        "accesses": (1, 1 << 40),
        "mprotect_every": (1, 1 << 40),
        "munmap_every": (1, 1 << 40),
        "seed": (0, (1 << 32) - 1),
        "scale": (1, pt.snapshot.MOST_SCALED),
    }
    for name, (low, high) in counts.items():
        value = getattr(asked, name)
        if value is not None and not low <= value <= high:
            raise refused(name, value, f"{low} to {high}")
    words = {"levels": (4, 5), "guest": GUESTS, "mapped_by": MAPPERS, "init": INITS}
    for name, choices in words.items():
        if getattr(asked, name) not in choices:
            raise refused(name, getattr(asked, name), f"one of {', '.join(map(str, choices))}")
    size = asked.size or 0
    if not LEAST <= size <= MOST or size % PAGE:
        raise refused(
            "size",
            pt.errors.show_size(size),
            f"{pt.errors.show_size(LEAST)} to {pt.errors.show_size(MOST)}, whole pages",
        )
    for name, most in (("instructions_per_access", 1e6), ("rate", 1e12)):
        if not 0 < getattr(asked, name) <= most:
            raise refused(name, getattr(asked, name), f"above 0, at most {most:g}")
    if asked.guest == "native" and (asked.host_placement is not None or asked.host_thp is not None):
        name = "host_placement" if asked.host_placement is not None else "host_thp"
        raise refused(name, getattr(asked, name), "needs a VM: --guest visible or --guest oblivious")


def refused(name: str, value: object, allowed: str) -> pt.UsageError:
    return pt.UsageError(f"--{name.replace('_', '-')} {value}: {allowed}")


# The CPU, node and part of the dataset of each thread.


@dataclass(frozen=True)
class Threads:
    """T threads, a CPU each; CPU numbers are those of the machine, or of the VM (vCPUs).

    node      int16[T]      at first
    cpu       int16[T]      at first; moved_cpu  int16[T]  after the move, the same where a thread stays
    cpu_node  int16[CPUs]   every node has as many CPUs
    part      int64[T + 1]  thread t's own pages are part[t]..part[t + 1] - 1
    """

    node: np.ndarray
    cpu: np.ndarray
    moved_cpu: np.ndarray
    cpu_node: np.ndarray
    part: np.ndarray

    def __len__(self) -> int:
        return len(self.node)


def threads_of(asked: Parameters, count: int, pages: int, move: tuple[int, int, float] | None) -> Threads:
    """Threads of Parameters; move  (source, target, when) nodes or None.

    UsageError for unknown nodes, and for more threads than there are 2 MiB regions.
    """
    node, regions = spread(asked.threads_to_nodes, count, asked.nodes), pages >> 9
    if count > regions:
        raise refused("threads", count, f"at most {regions}, one per 2 MiB region of the dataset")
    part = (np.arange(count + 1) * regions // count) << 9
    part[-1] = pages
    later = node if move is None else np.where(node == move[0], move[1], node)
    if move is not None and (node == later).all():
        raise refused("move", asked.move, f"no thread runs on node {move[0]}")
    used, moves = np.zeros(asked.nodes, np.int64), later != node
    at_first = places(node, used)
    place = at_first.copy()
    place[moves] = places(later[moves], used)
    each = int(used.max())
    cpu_node = np.repeat(np.arange(asked.nodes, dtype=np.int16), each)
    cpu, moved = (
        (n.astype(np.int64) * each + k).astype(np.int16) for n, k in ((node, at_first), (later, place))
    )
    return Threads(node, cpu, moved, cpu_node, part)


def places(nodes: np.ndarray, used: np.ndarray) -> np.ndarray:
    """int64[n]: for each of `nodes` the next free place on it; `used` (int64[N]) counts them."""
    places_on = np.zeros(len(nodes), np.int64)
    for i, node in enumerate(nodes.tolist()):
        places_on[i] = used[node]
        used[node] += 1
    return places_on


def spread(how: str, count: int, nodes: int) -> np.ndarray:
    """int16[count]: "round-robin", "block", or a node for each thread as in "0,0,1,1"."""
    order = np.arange(count)
    if how == "round-robin":
        return (order % nodes).astype(np.int16)
    if how == "block":
        return (order * nodes // count).astype(np.int16)
    parts = how.split(",")
    if not all(pt.errors.is_whole(part.strip()) and int(part) < nodes for part in parts):
        allowed = f'round-robin, block, or a node of 0..{nodes - 1} for each thread as in "0,0,1,1"'
        raise refused("threads_to_nodes", how, allowed)
    if len(parts) != count:
        raise refused("threads_to_nodes", how, f"{len(parts)} nodes for {count} threads")
    return np.array([int(part) for part in parts], np.int16)


# The table pages that a set of 2 MiB regions needs, in the order of a tables file: depth first.


@dataclass(frozen=True)
class Layout:
    """T tables: base uint64[T] first byte mapped, level uint8[T], parent int32[T], slot int16[T] in parent.

    leaf  int32[R], by region: the table with its leaf entries: level 1, or 2 where the region is huge
    """

    base: np.ndarray
    level: np.ndarray
    parent: np.ndarray
    slot: np.ndarray
    leaf: np.ndarray

    def __len__(self) -> int:
        return len(self.level)


def lay_out(regions: np.ndarray, huge: np.ndarray, levels: int) -> Layout:
    """Layout for `regions` (int64[R], address >> 21, ascending); huge  bool[R]."""
    bases, heights = [np.zeros(1, np.int64)], [np.array([levels], np.uint8)]
    for here in range(levels - 1, 0, -1):
        shift = 9 * (here - 1)
        covered = (regions if here > 1 else regions[~huge]) >> shift
        new = np.ones(len(covered), bool)
        new[1:] = covered[1:] != covered[:-1]
        bases.append(covered[new] << (21 + shift))
        heights.append(np.full(np.count_nonzero(new), here, np.uint8))
    base, level = np.concatenate(bases), np.concatenate(heights)
    order = np.lexsort((-level.astype(np.int8), base))
    base, level = base[order], level[order]
    parent = pt.formats.enclosing_tables(level.astype(np.int64), levels).astype(np.int32)
    slot = np.where(parent < 0, 0, base >> (12 + 9 * level.astype(np.int64)) & 511).astype(np.int16)
    leaf = np.empty(len(regions), np.int32)
    leaf[~huge] = np.flatnonzero(level == 1)
    upper = np.flatnonzero(level == 2)
    leaf[huge] = upper[np.searchsorted(base[upper], (regions[huge] >> 9) << 30)]
    return Layout(base.astype(np.uint64), level, parent, slot, leaf)


# Programs of a known shape: graph kernels, B-tree look-ups, annealing (kernels.py).

GRAPHS = ("pr", "cc", "bc")
SCALES = range(14, 33)
FANS = (4, 8, 16, 32, 64, 128, 256)
ENTRY = 16  # bytes of a key and a pointer
KINDS = "pr:GRAPH, cc:GRAPH, bc:GRAPH (GRAPH as kron27 or uni27, 14 to 32), btree, btree:FAN, anneal"
BLOCK = 4096  # accesses made at a time

# bytes per vertex of each array, as kernels.py orders them: offsets, neighbours, the kernel's own
ROWS = (kernels.COUNT, kernels.WORD * kernels.DEGREE)
OWN = {
    "pr": (4, 4),  # scores, contributions
    "cc": (4,),  # components
    "bc": (4, 8, 4, 4, kernels.DEGREE // 8, 4),  # depths, paths, dependencies, scores, successors, queue
}


# a kernel: (data, first, last, done, pages, wrote) -> (pieces done, accesses filled)
Fill: TypeAlias = "Callable[..., Any]"
BACKWARD: Fill = kernels.dependencies
FILLS: dict[str, Fill] = {
    "pr": kernels.page_rank,
    "cc": kernels.components,
    "bc": kernels.search,
    "btree": kernels.lookups,
    "anneal": kernels.swaps,
}


@dataclass(frozen=True)
class Shape:
    """A pattern that says what the dataset holds.

    kind     of FILLS
    skewed, scale  of a graph of 2 ** scale vertices; fan  entries of a B-tree's node
    """

    kind: str
    skewed: bool = False
    scale: int = 0
    fan: int = 0

    @property
    def size(self) -> int | None:
        """Bytes of the dataset, None where it may have any size."""
        return sum((*ROWS, *OWN[self.kind])) << self.scale if self.kind in GRAPHS else None


def shape_of(pattern: str) -> Shape | None:
    """Shape of a pattern, None for patterns without. UsageError for a scale or fan out of range."""
    kind, _, argument = pattern.partition(":")
    if kind in GRAPHS:
        graph = re.fullmatch(r"(kron|uni)(\d{1,2})", argument)
        if graph is None or int(graph[2]) not in SCALES:
            raise refused("pattern", pattern, KINDS)
        return Shape(kind, graph[1] == "kron", int(graph[2]))
    if kind == "btree":
        if argument not in ("", *map(str, FANS)):
            raise refused("pattern", pattern, f"btree or btree:FAN, FAN one of {', '.join(map(str, FANS))}")
        return Shape(kind, fan=int(argument or 16))
    return Shape(kind) if pattern == "anneal" else None


def index_of(shape: Shape, size: int, key: int) -> kernels.Index:
    """The B-tree of as many full nodes as fit into `size` bytes: its levels one after another."""
    node = ENTRY * shape.fan
    room = size // node
    leaves = bisect_right(range(1, room + 1), room, key=lambda leaves: sum(levels(leaves, shape.fan)))
    nodes = np.array(levels(leaves, shape.fan), np.int64)
    return kernels.Index(nodes, (np.cumsum(nodes) - nodes) * node, node, shape.fan, key)


def levels(leaves: int, fan: int) -> list[int]:
    """Nodes of each level above `leaves`, the root's first."""
    counts = [leaves]
    while counts[0] > 1:
        counts.insert(0, -(-counts[0] // fan))
    return counts


class Shaped:
    """The accesses of a thread of a Shape: called with n, the next pages (int64[<= n]); `wrote` says of the
    last of them which were written (bool).

    part      (first vertex, past the last) of a graph, else (thread, any)
    accesses  that the thread will make: bc turns from forward to backward half-way
    """

    def __init__(self, shape: Shape, size: int, key: int, part: tuple[int, int], accesses: int) -> None:
        self.shape, self.part, self.half = shape, part, accesses // 2
        self.data: kernels.Graph | kernels.Index | kernels.Netlist
        if shape.kind in GRAPHS:
            each = np.array((*ROWS, *OWN[shape.kind]), np.int64) << shape.scale  # one after another
            self.data = kernels.Graph(np.cumsum(each) - each, shape.scale, shape.skewed, key)
        elif shape.kind == "btree":
            self.data = index_of(shape, size, key)
        else:
            self.data = kernels.Netlist(size // kernels.RECORD, key)
        self.pages, self.writes = np.empty(BLOCK, np.int64), np.empty(BLOCK, bool)
        self.done = self.at = self.end = self.made = 0
        self.wrote = self.writes[:0]

    def __call__(self, n: int) -> np.ndarray:
        if self.at == self.end:
            self.done, self.end = self.kernel(self.data, *self.part, self.done, self.pages, self.writes)
            self.at = 0
        piece = slice(self.at, min(self.at + n, self.end))
        self.made += piece.stop - piece.start
        self.at, self.wrote = piece.stop, self.writes[piece].copy()
        return self.pages[piece].copy()

    @property
    def kernel(self) -> Fill:
        if self.shape.kind == "bc" and self.made >= self.half:
            return BACKWARD
        return FILLS[self.shape.kind]


def part_of(shape: Shape, thread: int, threads: int) -> tuple[int, int]:
    """(first, past the last) vertex of a thread: static parts; of what has no vertices (thread, threads)."""
    if shape.kind not in GRAPHS:
        return thread, threads
    vertices = 1 << shape.scale
    return vertices * thread // threads, vertices * (thread + 1) // threads


def size_of(shape: Shape | None, pattern: str, size: int | None) -> int:
    """Bytes of the dataset; UsageError where none are said, or others than the graph has."""
    known = None if shape is None else shape.size
    if size is None and known is None:
        raise refused("pattern", pattern, "give the size of the dataset with --size")
    if size is not None and known is not None and size != known:
        raise refused("size", size, f"{pattern} has {known} bytes ({known // PAGE} pages): leave --size out")
    return known or size or 0


TRACED_INIT = 4 << 20  # pages: an init phase of more is not traced unless asked for
ACCESSES = 1 << 20
RANGE = 16  # pages that an mprotect or munmap of the access phase covers
PLACEMENTS = "first-touch, interleave, or bind:NODE"
PATTERNS = f"uniform, zipf:S (S above 0, at most 8), sequential, once, once:THREAD, {KINDS}"
WRITES = 0.3


@dataclass(frozen=True)
class Plan:
    """pages of 4 KiB in `regions` of 2 MiB, the last of which may be a remainder of small pages.

    huge      bool[regions]  the (guest) kernel maps the region by one 2 MiB page
    policy, host_policy      FIRST_TOUCH, INTERLEAVE or a node (ptanalyze_synth/kernels.py)
    anywhere  share of accesses that do not keep to the thread's own part
    pattern   its name; exponent  of zipf, else 0; shape  of patterns that say what the dataset holds
    writes    share of accesses that write, but for shapes
    active    threads that take part in the access phase
    move      (number of accesses before it, source, target) or None
    data      (number of accesses before it, pages per million accesses) or None
    """

    asked: Parameters
    pages: int
    huge: np.ndarray
    threads: Threads
    policy: int
    host_policy: int
    anywhere: float
    pattern: str
    exponent: float
    active: tuple[int, ...]
    accesses: int
    init_traced: bool
    move: tuple[int, int, int] | None
    data: tuple[int, float] | None
    shape: Shape | None
    writes: float

    @property
    def regions(self) -> int:
        return len(self.huge)

    @property
    def nested(self) -> bool:
        return self.asked.guest != "native"

    def rng(self, *stream: int) -> np.random.Generator:
        """A NumPy generator of its own for each purpose, so that no option shifts the others."""
        return np.random.default_rng([self.asked.seed, *stream])


def plan(asked: Parameters) -> Plan:
    """Plan of Parameters; UsageError naming option, value and the allowed values."""
    shape = shape_of(asked.pattern)
    size = size_of(shape, asked.pattern, asked.size)
    asked = replace(asked, size=size)
    check_ranges(asked)
    pages = size // PAGE
    count = asked.nodes if asked.threads is None else asked.threads
    move = moved_threads(asked)
    threads = threads_of(asked, count, pages, move)
    if asked.guest == "oblivious" and asked.placement not in ("first-touch", "bind:0"):
        allowed = "the guest sees one node; say where the host puts its memory with --host-placement"
        raise refused("placement", asked.placement, allowed)
    pattern, exponent, only = (shape.kind, 0.0, None) if shape else pattern_of(asked, count)
    active = tuple(range(count)) if only is None else (only,)
    anywhere = sharing_of(asked, pattern, only)
    if shape:
        check_shape(asked)
    accesses = accesses_of(asked, pattern, only, threads, anywhere)
    policy = policy_of("placement", asked.placement, asked.nodes)
    traced = pages <= TRACED_INIT if asked.init_trace is None else asked.init_trace
    host_policy = policy_of("host_placement", asked.host_placement or "first-touch", asked.nodes)
    draws = np.random.default_rng([asked.seed, 1]).random((pages + 511) >> 9)  # of 2 MiB regions
    draws[pages >> 9 :] = 1  # a remainder stays small
    made = Plan(
        asked, pages, draws < asked.thp, threads, 0 if asked.guest == "oblivious" else policy,
        host_policy, anywhere, pattern, exponent, active, accesses, traced,
        move and (int(move[2] * accesses), *move[:2]), moved_data(asked, accesses), shape,
        WRITES if asked.writes is None else asked.writes,
    )  # fmt: skip
    if asked.munmap_every is not None and made.huge[: pages >> 9].all():
        raise refused("munmap_every", asked.munmap_every, "--thp leaves no 4 KiB pages to unmap")
    return made


SPREAD = 32  # leaf tables per node: fewer that are interleaved are spread by chance


def left_to_chance(plan: Plan) -> str:
    """A line where few leaf tables are drawn for many nodes, so that shares of nodes are chance; else ""."""
    nodes = plan.asked.nodes
    tables = int(np.count_nonzero(~plan.huge)) or -(-plan.pages >> 18)
    drawn = INTERLEAVE in (plan.policy, plan.host_policy if plan.nested else plan.policy)
    if not drawn or nodes < 2 or tables >= SPREAD * nodes:
        return ""
    enough = pt.errors.show_size(SPREAD * nodes * plan.asked.size // tables) if plan.asked.size else ""
    return (
        f"{tables} leaf tables are interleaved over {nodes} nodes: how many each node gets is chance; "
        f"--size {enough} has {SPREAD} for each"
    )


def policy_of(name: str, text: str, nodes: int) -> int:
    if text == "first-touch":
        return FIRST_TOUCH
    if text == "interleave":
        return INTERLEAVE
    bind, _, node = text.partition(":")
    if bind != "bind" or not pt.errors.is_whole(node) or int(node) >= nodes:
        raise refused(name, text, f"{PLACEMENTS}, NODE of 0..{nodes - 1}")
    return int(node)


def pattern_of(asked: Parameters, threads: int) -> tuple[str, float, int | None]:
    """(name, zipf's exponent or 0, the only thread of once or None: every thread)."""
    name, _, argument = asked.pattern.partition(":")
    try:
        if asked.pattern in ("uniform", "sequential", "once"):
            return name, 0.0, None
        if name == "zipf" and 0 < float(argument) <= 8:
            return name, float(argument), None
        if name == "once" and 0 <= int(argument) < threads:
            return name, 0.0, int(argument)
    except ValueError:
        pass
    raise refused("pattern", asked.pattern, f"{PATTERNS}, THREAD of 0..{threads - 1}")


def check_shape(asked: Parameters) -> None:
    """UsageError for what a shape says itself."""
    if asked.sharing != "shared":
        raise refused(
            "sharing", asked.sharing, f"shared with --pattern {asked.pattern}, which shares its data"
        )
    if asked.writes is not None:
        raise refused(
            "writes", asked.writes, f"leave it out: --pattern {asked.pattern} has writes of its own"
        )


def sharing_of(asked: Parameters, pattern: str, thread: int | None) -> float:
    """Share of accesses that go anywhere. A lone thread of `once` goes everywhere."""
    if asked.sharing in ("shared", "private"):
        if asked.sharing == "private" and thread is not None:
            raise refused("sharing", asked.sharing, "one thread is to touch every page once: shared")
        return float(asked.sharing == "shared")
    if pattern in ("sequential", "once"):
        raise refused("sharing", asked.sharing, f"shared or private with --pattern {pattern}")
    try:
        share = float(asked.sharing)
    except ValueError:
        share = -1
    if not 0 <= share <= 1:
        raise refused("sharing", asked.sharing, "shared, private, or a share, 0 to 1")
    return share


def accesses_of(
    asked: Parameters, pattern: str, thread: int | None, threads: Threads, anywhere: float
) -> int:
    """Number of accesses; `once` fixes it: all pages per thread, or each thread's own."""
    if pattern != "once":
        return ACCESSES if asked.accesses is None else asked.accesses
    if asked.accesses is not None:
        raise refused("accesses", asked.accesses, "--pattern once makes as many as there are pages")
    pages = int(threads.part[-1])
    return pages * len(threads) if anywhere and thread is None else pages


def moved_threads(asked: Parameters) -> tuple[int, int, float] | None:
    """(source, target, fraction) of --move T:A:B, or None."""
    if asked.move is None:
        return None
    fraction, source, target = fields("move", asked.move, "T:A:B", 3)
    if source not in range(asked.nodes) or target not in range(asked.nodes) or source == target:
        raise refused("move", asked.move, f"two different nodes of 0..{asked.nodes - 1}")
    return int(source), int(target), fraction


def moved_data(asked: Parameters, accesses: int) -> tuple[int, float] | None:
    """(accesses before, pages per million accesses) of --move-data T:RATE, or None."""
    if asked.move_data is None:
        return None
    if asked.move is None:
        raise refused("move_data", asked.move_data, "data follow threads: give --move as well")
    if asked.guest == "oblivious" and asked.host_thp:
        raise refused("move_data", asked.move_data, "not with --host-thp in an oblivious guest")
    fraction, rate = fields("move_data", asked.move_data, "T:RATE", 2)
    if not 0 < rate <= 1e6:
        raise refused("move_data", asked.move_data, "RATE above 0, at most 1e6 pages per million accesses")
    return int(fraction * accesses), rate


def fields(name: str, text: str, form: str, count: int) -> list[float]:
    """The numbers of a text like 0.5:0:1; the first is a fraction of the access phase."""
    try:
        numbers = [float(part) for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) != count or not 0 <= numbers[0] <= 1:
        raise refused(name, text, f"{form}, T a fraction of the access phase, 0 to 1")
    return numbers
