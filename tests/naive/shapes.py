"""What graph kernels, B-tree lookups and annealing touch, one access after another: (byte, written).

Written from the algorithms: pull PageRank, Afforest's sampling (Sutton, Ben-Nun, Barak, IPDPS 2018), Brandes'
betweenness (2001), R-MAT (Chakrabarti, Zhan, Faloutsos, 2004) with GAP's A = 0.57, B = C = 0.19 and degree 16
(Beamer, Asanovic, Patterson, The GAP Benchmark Suite, 2015).
"""

from functools import cache
from itertools import count

from .synth import draw

WORD = 1 << 32
DEGREE = 32
SCATTER, QUEUE = 100, 104


def scattered(x, n, key):
    """A permutation of 0..n-1: four Feistel rounds on an even number of bits, again until it is below n."""
    bits = 1
    while 4**bits < n:
        bits += 1
    while True:
        left, right = divmod(x, 2**bits)
        for turn in range(4):
            left, right = right, left ^ (draw(key ^ turn, right) % 2**bits)
        x = left * 2**bits + right
        if x < n:
            return x


class Graph:
    """arrays: {name: bytes per vertex} in the order they lie in."""

    def __init__(self, kind, scale, skewed, key):
        own = {
            "pr": {"scores": 4, "contributions": 4},
            "cc": {"components": 4},
            "bc": {"depths": 4, "paths": 8, "dependencies": 4, "scores": 4, "successors": 4, "queue": 4},
        }
        self.width = {"offsets": 8, "neighbours": 4 * DEGREE} | own[kind]
        self.vertices, self.scale, self.skewed, self.key = 2**scale, scale, skewed, key

    def byte(self, array, vertex, within=0):
        before = list(self.width)[: list(self.width).index(array)]
        return sum(self.width[name] for name in before) * self.vertices + self.width[array] * vertex + within

    def word(self, u, k):
        high, low = divmod(DEGREE * u + k, WORD)
        return draw(draw(self.key, high), low)

    def neighbour(self, u, k):
        word = self.word(u, k)
        if not self.skewed:
            return word % self.vertices
        halves = [h for n in range(self.scale) for h in (draw(word, n) % 65536, draw(word, n) >> 16)]
        label = 0
        for half in halves[: self.scale]:
            label = 2 * label + (half < round(0.24 * 65536))
        return scattered(label, self.vertices, self.key ^ SCATTER)

    def successor(self, u, k):
        return draw(self.word(u, k), 31) % 2 == 1

    def discovers(self, u, k):
        return draw(self.word(u, k), 31) % 32 == 1


def page_rank(graph, part):
    while True:
        for u in part:
            yield graph.byte("offsets", u), False
            for k in range(DEGREE):
                yield graph.byte("neighbours", u, 4 * k), False
                yield graph.byte("contributions", graph.neighbour(u, k)), False
            yield graph.byte("scores", u), True
            yield graph.byte("contributions", u), True


def components(graph, part):
    for turn in count():
        for u in part:
            v = graph.neighbour(u, turn % 2)
            yield graph.byte("offsets", u), False
            yield graph.byte("neighbours", u, 4 * (turn % 2)), False
            yield graph.byte("components", u), False
            yield graph.byte("components", v), False
            yield graph.byte("components", max(u, v)), True


def found(graph, part):
    while True:
        for place in part:
            u = scattered(place, graph.vertices, graph.key ^ QUEUE)
            yield u, [("queue", place), ("offsets", u), ("paths", u)]


def search(graph, part):
    for u, first in found(graph, part):
        yield from ((graph.byte(*at), False) for at in first)
        for k in range(DEGREE):
            v = graph.neighbour(u, k)
            yield graph.byte("neighbours", u, 4 * k), False
            yield graph.byte("depths", v), graph.discovers(u, k)
            if graph.successor(u, k):
                yield graph.byte("successors", u, k // 8), True
                yield graph.byte("paths", v), True


def dependencies(graph, part):
    for u, first in found(graph, part):
        yield from ((graph.byte(*at), False) for at in first)
        for k in range(DEGREE):
            yield graph.byte("successors", u, k // 8), False
            if graph.successor(u, k):
                v = graph.neighbour(u, k)
                yield graph.byte("neighbours", u, 4 * k), False
                yield graph.byte("paths", v), False
                yield graph.byte("dependencies", v), False
        yield graph.byte("dependencies", u), True
        yield graph.byte("scores", u), True


def below(n, key, i):
    high, low = divmod(2 * i, WORD)
    inner = draw(key, high)
    return (draw(inner, low) * 2**30 + draw(inner, low + 1) // 4) % n


@cache
def tree_levels(size, fan):
    """Nodes by level, the root's first: the most leaves whose tree fits into `size` bytes."""

    def above(leaves):
        counts = [leaves]
        while counts[0] > 1:
            counts.insert(0, (counts[0] + fan - 1) // fan)
        return counts

    room = size // (16 * fan)
    leaves = room
    while sum(above(leaves)) > room:
        leaves -= 1
    return above(leaves)


def lookups(size, fan, key, thread):
    levels = tree_levels(size, fan)
    for number in count():
        leaf = below(levels[-1], draw(key, thread), number)
        path = [leaf]
        for _ in levels[1:]:
            path.insert(0, path[0] // fan)
        for level, node in enumerate(path):
            place = scattered(node, levels[level], key ^ 4 * level)
            yield (sum(levels[:level]) + place) * 16 * fan, False


def swaps(size, key, thread):
    elements = size // 128
    for number in count():
        two = [below(elements, draw(key, thread), 2 * number + which) for which in (0, 1)]
        for element in two:
            yield 128 * element, False
            for k in range(10):
                yield 128 * below(elements, key, 10 * element + k), False
        if number % 2:
            yield from ((128 * element, True) for element in two)
