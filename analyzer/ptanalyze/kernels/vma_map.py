"""Which VMA holds which bytes: an interval map whose ends are all known beforehand.

A VMA begins and ends at addresses of the snapshot or of the trace's calls. These are the edges, numbered by
address. A bit map tells at which of them a piece begins, and bit maps of its words, and of theirs, which are
not 0: the piece before an edge or after it is found in a few steps, however many pieces there are.
"""

from typing import NamedTuple

import numpy as np

from .hooks import either

NONE = -1
BYTE, END, LINEAGE, PROT, HELD_FROM, HELD_TO, HELD_OF, EDGE_COLUMNS = range(8)
ONE, ALL = np.uint64(1), ~np.uint64(0)


class VmaMap(NamedTuple):
    """Disjoint pieces of VMAs over K edges; pieces of one VMA that touch are one.

    begins  uint64[levels, W]  level 0: bit e says that a piece begins at edge e; above: bit w says that word
                               w of the level below is not 0
    edges   int64[K, 7]        BYTE (address), of the piece that begins there END (an edge), LINEAGE, PROT;
                               HELD_FROM, HELD_TO, HELD_OF are for scratch
    """

    begins: np.ndarray
    edges: np.ndarray


def vma_map(byte):
    """An empty VmaMap over edges at these addresses, sorted."""
    words, levels = max(len(byte) + 63 >> 6, 1), 1
    while words >> 6 * levels:
        levels += 1
    edges = np.zeros((len(byte), EDGE_COLUMNS), np.int64)
    edges[:, BYTE] = byte
    return VmaMap(np.zeros((levels + 1, words), np.uint64), edges)


@either
def mark(vmas, edge):
    """A piece begins at `edge`."""
    for level in range(vmas.begins.shape[0]):
        was = vmas.begins[level, edge >> 6]
        vmas.begins[level, edge >> 6] = was | ONE << np.uint64(edge & 63)
        if was:
            return
        edge >>= 6


@either
def unmark(vmas, edge):
    """None begins there any more."""
    for level in range(vmas.begins.shape[0]):
        vmas.begins[level, edge >> 6] &= ~(ONE << np.uint64(edge & 63))
        if vmas.begins[level, edge >> 6]:
            return
        edge >>= 6


@either
def highest(word):
    """Number of the highest bit of a uint64 that is not 0."""
    bit = 0
    for shift in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(shift):
            word >>= np.uint64(shift)
            bit += shift
    return bit


@either
def lowest(word):
    return highest(word & (~word + ONE))


@either
def latest(vmas, edge):
    """The last edge up to `edge` at which a piece begins, NONE before the first."""
    for level in range(vmas.begins.shape[0]):
        if edge < 0:
            break
        word = vmas.begins[level, edge >> 6] & ALL >> np.uint64(63 - (edge & 63))
        if word:
            found = edge >> 6 << 6 | highest(word)
            for below in range(level - 1, -1, -1):
                found = found << 6 | highest(vmas.begins[below, found])
            return found
        edge = (edge >> 6) - 1
    return NONE


@either
def earliest(vmas, edge):
    """The first edge from `edge` on at which a piece begins; without one K."""
    for level in range(vmas.begins.shape[0]):
        if edge >> 6 >= vmas.begins.shape[1]:
            break
        word = vmas.begins[level, edge >> 6] & ALL << np.uint64(edge & 63)
        if word:
            found = edge >> 6 << 6 | lowest(word)
            for below in range(level - 1, -1, -1):
                found = found << 6 | lowest(vmas.begins[below, found])
            return found
        edge = (edge >> 6) + 1
    return vmas.edges.shape[0]


@either
def piece_at(vmas, edge):
    """The piece (its first edge) that holds the byte at `edge`, or NONE."""
    piece = latest(vmas, edge)
    return piece if piece != NONE and vmas.edges[piece, END] > edge else NONE


@either
def stretch(vmas, edge, stop):
    """(where the piece or the gap that holds the byte at `edge` ends, at most `stop`; the piece or NONE)."""
    piece = piece_at(vmas, edge)
    end = vmas.edges[piece, END] if piece != NONE else earliest(vmas, edge)
    return min(end, stop), piece


@either
def put(vmas, start, end, lineage, prot):
    """Add a piece where nothing is; it is one with those of its VMA that it touches: (start, end) of all."""
    before = latest(vmas, start)
    if end < vmas.edges.shape[0] and latest(vmas, end) == end and same(vmas, end, lineage, prot):
        unmark(vmas, end)
        end = vmas.edges[end, END]
    if before != NONE and vmas.edges[before, END] == start and same(vmas, before, lineage, prot):
        start = before
    else:
        mark(vmas, start)
    vmas.edges[start, END], vmas.edges[start, LINEAGE], vmas.edges[start, PROT] = end, lineage, prot
    return start, end


@either
def same(vmas, piece, lineage, prot):
    return vmas.edges[piece, LINEAGE] == lineage and vmas.edges[piece, PROT] == prot


@either
def carve(vmas, start, end):
    """Remove what lies in start..end."""
    if start >= end:
        return
    split(vmas, start)
    split(vmas, end)
    piece = earliest(vmas, start)
    while piece < end:
        unmark(vmas, piece)
        piece = earliest(vmas, piece + 1)


@either
def split(vmas, edge):
    """A piece that goes on beyond `edge` ends there, and another begins."""
    piece = latest(vmas, edge - 1)
    if piece != NONE and vmas.edges[piece, END] > edge:
        for column in (END, LINEAGE, PROT):
            vmas.edges[edge, column] = vmas.edges[piece, column]
        vmas.edges[piece, END] = edge
        mark(vmas, edge)
