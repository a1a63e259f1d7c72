"""Addresses that programs of a known shape touch: computed one by one, no data structure is built.

A kernel goes on with its work from number `done` and fills pages (int64[n], from the dataset's first) and
wrote (bool[n]) with whole pieces of it. It returns (pieces done, accesses filled). n is at least MOST.
"""

from typing import NamedTuple

import numpy as np

from .draws import MASK, draw, permuted
from .hooks import hook, kernel

PAGE_SHIFT = 12
DEGREE = 32  # edges of a vertex, both directions of 16 (GAP, -g and -u: average degree 16)
ONE = 15729  # of 65,536: a bit of an R-MAT target is 1 with probability B + D = 0.19 + 0.05
WORD, COUNT = 4, 8  # bytes of a vertex id, a float, a depth; of an offset, a number of paths
ORDER, FRONTIER = (
    100,
    104,
)  # mixed into the keys of vertex numbers, and of the order in which a search finds them
COIN = 31
FAN = 10  # neighbours of an element
RECORD = 128  # bytes of an element
MOST = 256  # accesses of a piece of work at most

OFFSETS, NEIGHBOURS, FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH = range(8)


class Graph(NamedTuple):
    """2 ** scale vertices in compressed rows. base  int64[arrays]: first byte of each, in the order above.

    skewed  targets by R-MAT (A 0.57, B and C 0.19), their numbers scattered; else uniform
    """

    base: np.ndarray
    scale: int
    skewed: bool
    key: int


class Index(NamedTuple):
    """A B-tree. nodes int64[levels], base int64[levels]: of each level, the root's first; base in bytes."""

    nodes: np.ndarray
    base: np.ndarray
    node_bytes: int
    fan: int
    key: int


class Netlist(NamedTuple):
    """Elements of RECORD bytes, each with FAN neighbours anywhere."""

    elements: int
    key: int


@hook
def put(pages, wrote, at, byte, write):
    pages[at] = byte >> PAGE_SHIFT
    wrote[at] = write
    return at + 1


@hook
def word_of(graph, edge):
    return draw(draw(graph.key, edge >> 32), edge & MASK)


@hook
def target(graph, word):
    """Vertex that an edge leads to, of its 32 drawn bits."""
    if not graph.skewed:
        return word & ((1 << graph.scale) - 1)
    label, bits = 0, 0
    for level in range(graph.scale):
        bits = bits >> 16 if level & 1 else draw(word, level >> 1)
        label = label << 1 | (1 if bits & 0xFFFF < ONE else 0)
    return permuted(label, 1 << graph.scale, (graph.scale + 1) >> 1, graph.key ^ ORDER)


@kernel
def page_rank(graph, first, last, done, pages, wrote):
    """Pull: every vertex of first..last-1 reads the contributions of its neighbours, in the order of rows."""
    at, base = 0, graph.base
    while at + MOST <= len(pages):
        u = first + done % (last - first)
        at = put(pages, wrote, at, base[OFFSETS] + COUNT * u, False)
        for edge in range(DEGREE * u, DEGREE * (u + 1)):
            at = put(pages, wrote, at, base[NEIGHBOURS] + WORD * edge, False)
            v = target(graph, word_of(graph, edge))
            at = put(pages, wrote, at, base[SECOND] + WORD * v, False)
        at = put(pages, wrote, at, base[FIRST] + WORD * u, True)
        at = put(pages, wrote, at, base[SECOND] + WORD * u, True)
        done += 1
    return done, at


@kernel
def components(graph, first, last, done, pages, wrote):
    """Afforest's two sampling rounds: every vertex is linked to its first, then its second neighbour."""
    at, base = 0, graph.base
    while at + MOST <= len(pages):
        u = first + done % (last - first)
        edge = DEGREE * u + (done // (last - first) & 1)
        v = target(graph, word_of(graph, edge))
        at = put(pages, wrote, at, base[OFFSETS] + COUNT * u, False)
        at = put(pages, wrote, at, base[NEIGHBOURS] + WORD * edge, False)
        at = put(pages, wrote, at, base[FIRST] + WORD * u, False)
        at = put(pages, wrote, at, base[FIRST] + WORD * v, False)
        at = put(pages, wrote, at, base[FIRST] + WORD * max(u, v), True)
        done += 1
    return done, at


@hook
def found(graph, place, pages, wrote, at):
    """The vertex at a place of the queue: (vertex, accesses so far)."""
    u = permuted(place, 1 << graph.scale, (graph.scale + 1) >> 1, graph.key ^ FRONTIER)
    at = put(pages, wrote, at, graph.base[SIXTH] + WORD * place, False)
    at = put(pages, wrote, at, graph.base[OFFSETS] + COUNT * u, False)
    at = put(pages, wrote, at, graph.base[SECOND] + COUNT * u, False)
    return u, at


@kernel
def search(graph, first, last, done, pages, wrote):
    """Brandes forward: a vertex reads its neighbours' depths and adds to the paths of its successors."""
    at, base = 0, graph.base
    while at + MOST <= len(pages):
        u, at = found(graph, first + done % (last - first), pages, wrote, at)
        for edge in range(DEGREE * u, DEGREE * (u + 1)):
            word = word_of(graph, edge)
            v, coin = target(graph, word), draw(word, COIN)
            at = put(pages, wrote, at, base[NEIGHBOURS] + WORD * edge, False)
            at = put(pages, wrote, at, base[FIRST] + WORD * v, coin & 31 == 1)
            if coin & 1:
                at = put(pages, wrote, at, base[FIFTH] + (edge >> 3), True)
                at = put(pages, wrote, at, base[SECOND] + COUNT * v, True)
        done += 1
    return done, at


@kernel
def dependencies(graph, first, last, done, pages, wrote):
    """Brandes backward: a vertex reads paths and dependencies of its successors, writes its own and score."""
    at, base = 0, graph.base
    while at + MOST <= len(pages):
        u, at = found(graph, first + done % (last - first), pages, wrote, at)
        for edge in range(DEGREE * u, DEGREE * (u + 1)):
            word = word_of(graph, edge)
            at = put(pages, wrote, at, base[FIFTH] + (edge >> 3), False)
            if draw(word, COIN) & 1:
                v = target(graph, word)
                at = put(pages, wrote, at, base[NEIGHBOURS] + WORD * edge, False)
                at = put(pages, wrote, at, base[SECOND] + COUNT * v, False)
                at = put(pages, wrote, at, base[THIRD] + WORD * v, False)
        at = put(pages, wrote, at, base[THIRD] + WORD * u, True)
        at = put(pages, wrote, at, base[FOURTH] + WORD * u, True)
        done += 1
    return done, at


@hook
def number_below(n, key, i):
    """The i-th number of a sequence of numbers in 0..n-1; n may exceed 32 bits."""
    i = i << 1
    high = draw(draw(key, i >> 32), i & MASK)
    low = draw(draw(key, i >> 32), (i & MASK) | 1)
    return (high << 30 | low >> 2) % n


@kernel
def lookups(index, first, last, done, pages, wrote):
    """Lookups of random keys, from the root down; `first` is the thread, which has a sequence of its own."""
    at, key = 0, draw(index.key, first)
    while at + MOST <= len(pages):
        leaf = number_below(index.nodes[-1], key, done)
        for level in range(len(index.nodes)):
            node = leaf // index.fan ** (len(index.nodes) - 1 - level)
            nodes, bits = index.nodes[level], 1
            while 1 << 2 * bits < nodes:
                bits += 1
            place = permuted(node, nodes, bits, index.key ^ (level << 2))
            at = put(pages, wrote, at, index.base[level] + place * index.node_bytes, False)
        done += 1
    return done, at


@kernel
def swaps(netlist, first, last, done, pages, wrote):
    """Moves of annealing: two random elements and their neighbours are read, every second move is made.

    `first` is the thread, which has a sequence of its own; elements have the same neighbours each time.
    """
    at, key = 0, draw(netlist.key, first)
    while at + MOST <= len(pages):
        one = number_below(netlist.elements, key, 2 * done)
        other = number_below(netlist.elements, key, 2 * done + 1)
        for element in (one, other):
            at = put(pages, wrote, at, element * RECORD, False)
            for k in range(FAN):
                near = number_below(netlist.elements, netlist.key, FAN * element + k)
                at = put(pages, wrote, at, near * RECORD, False)
        if done & 1:
            at = put(pages, wrote, at, one * RECORD, True)
            at = put(pages, wrote, at, other * RECORD, True)
        done += 1
    return done, at
