"""Programs of a known shape: graph kernels, B-tree lookups, annealing (kernels/synth.py)."""

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...kernels import synth as kernels
from .parameters import PAGE, refused

GRAPHS = ("pr", "cc", "bc")
SCALES = range(14, 33)
FANS = (4, 8, 16, 32, 64, 128, 256)
ENTRY = 16  # bytes of a key and a pointer
KINDS = "pr:GRAPH, cc:GRAPH, bc:GRAPH (GRAPH as kron27 or uni27, 14 to 32), btree, btree:FAN, anneal"
BLOCK = 4096  # accesses made at a time

# bytes per vertex of each array, as kernels/synth.py orders them: offsets, neighbours, the kernel's own
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

    kind     "pr", "cc", "bc", "btree" or "anneal"
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


def graph_of(shape: Shape, key: int) -> kernels.Graph:
    """The arrays of a graph's kernel, one after another from byte 0 on."""
    each = np.array((*ROWS, *OWN[shape.kind]), np.int64) << shape.scale
    return kernels.Graph(np.cumsum(each) - each, shape.scale, shape.skewed, key)


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
            self.data = graph_of(shape, key)
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
        pages: np.ndarray = self.pages[piece].copy()
        return pages

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
