"""Synthetic captures: page tables as they must come out of a trace, and what programs touch."""

from collections import deque
from functools import cache
from itertools import count

# Page tables as they must come out of a trace: every fault, munmap and move of it done on dictionaries.

DATA, TABLE = "data", "table"
MASK = 0xFFFFFFFF
FIRST_TOUCH, INTERLEAVE = -1, -2
START = 1 << 46
THP, SMALL = 512, 1


def draw(key, n):
    x = n ^ key
    for _ in range(2):
        for _ in range(2):
            x = ((x >> 16) ^ x) * 0x45D9F3B % (MASK + 1)
        x = (((x >> 16) ^ x) + key) % (MASK + 1)
    return x


class Memory:
    """Free frames by node: whole pageblocks in order, those being handed out, and those given back."""

    def __init__(self, nodes, span, room, policy, key):
        self.nodes, self.span, self.policy, self.key, self.drawn = nodes, span, policy, key, 0
        self.blocks = [
            deque(range(n * span // 512 + 1, n * span // 512 + min(room[n], span) // 512))
            for n in range(nodes)
        ]
        self.open = {(n, kind): deque() for n in range(nodes) for kind in (DATA, TABLE)}
        self.freed = [[] for _ in range(nodes)]

    def choose(self, node):
        if self.policy == INTERLEAVE:
            self.drawn += 1
            return draw(self.key, self.drawn) * self.nodes >> 32
        return node if self.policy == FIRST_TOUCH else self.policy

    def take(self, node, kind):
        if kind == DATA and self.freed[node]:
            return self.freed[node].pop()
        for near in [*range(node, self.nodes), *range(node)]:
            frames = self.open[near, kind]
            if not frames and self.blocks[near]:
                block = self.blocks[near].popleft()
                frames.extend(range(block * 512, block * 512 + 512))
            if frames:
                return frames.popleft()
        raise MemoryError

    def take_block(self, node):
        for near in [*range(node, self.nodes), *range(node)]:
            if self.blocks[near]:
                return self.blocks[near].popleft() * 512
        raise MemoryError

    def rest_of_group(self, frame):
        frames = self.open[frame // self.span, DATA]
        if not frames or frames[0] != frame + 1:
            return []
        return [frames.popleft() for _ in range(7 - frame % 8)]


class Table:
    """A radix table: tables {(level, number of the span it maps): frame}, leaves {region or page: frame}."""

    def __init__(self, levels, memory, huge):
        self.levels, self.memory, self.huge = levels, memory, huge
        self.tables, self.leaves = {}, {}

    def missing(self, page):
        """Tables that are not there on the way to `page`, from the top."""
        lowest = 2 if self.huge(page >> 9) else 1
        way = [(level, page >> 9 * level) for level in range(self.levels, lowest - 1, -1)]
        return [at for at in way if at not in self.tables]

    def key(self, page):
        return (THP, page >> 9) if self.huge(page >> 9) else (SMALL, page)

    def frames(self, node):
        """Function that takes the frames of a leaf: key -> first frame."""
        return lambda key: self.memory.take_block(node) if key[0] == THP else self.memory.take(node, DATA)


class Machine:
    """guest: the process's Table; host: the nested one or None. bound: guest node n is host node n."""

    def __init__(self, guest, host=None, bound=False, share=0, key=0):
        self.guest, self.host, self.bound = guest, host, bound
        self.share, self.key, self.faults = share, key, 0

    def touch(self, page, node):
        guest = self.guest
        for at in guest.missing(page):
            guest.tables[at] = guest.memory.take(guest.memory.choose(node), TABLE)
            self.back([guest.tables[at]], node)
        key = guest.key(page)
        if key in guest.leaves:
            return
        frame = guest.leaves[key] = guest.frames(guest.memory.choose(node))(key)
        self.back(range(frame, frame + key[0]), node)
        if key[0] == SMALL:
            self.faults += 1
            if draw(self.key, self.faults) < self.share:
                self.back(guest.memory.rest_of_group(frame), node)

    def back(self, frames, node):
        host = self.host
        for frame in frames if host else ():
            for at in host.missing(frame):
                host.tables[at] = host.memory.take(host.memory.choose(node), TABLE)
            key = host.key(frame)
            if key not in host.leaves:
                wanted = frame // self.guest.memory.span if self.bound else host.memory.choose(node)
                host.leaves[key] = host.frames(wanted)(key)

    def unmap(self, page):
        frame = self.guest.leaves.pop((SMALL, page), None)
        if frame is not None:
            self.guest.memory.freed[frame // self.guest.memory.span].append(frame)

    def move(self, page, target):
        """The data of the leaf that begins at `page` get new memory, by the guest or behind its back."""
        key = self.guest.key(page)
        if self.host and not self.bound:
            first = self.guest.leaves[key]
            for frame in range(first, first + key[0]):
                self.host.leaves[SMALL, frame] = self.host.memory.take(target, DATA)
            return
        frame = self.guest.leaves[key] = self.guest.frames(target)(key)
        self.back(range(frame, frame + key[0]), target)


def run(machine, steps):
    """Steps as (what, page, node or target), pages counted from START."""
    for what, page, node in steps:
        if what == "touch":
            machine.touch(page, node)
        elif what == "unmap":
            machine.unmap(page)
        elif page % 512 == 0 or not machine.guest.huge(page >> 9):
            machine.move(page, node)


def contents(tree, first=0):
    """(tables, leaves) of a dumped Tree as a Table has them; addresses counted from byte `first`."""
    tables, leaves = {}, {}
    for row, base, level, frame in zip(tree.entries, tree.base, tree.level, tree.frame, strict=True):
        level, page = int(level), (max(int(base) - first, 0)) >> 12
        tables[level, page >> 9 * level] = int(frame)
        for slot, raw in enumerate(row.tolist()):
            if raw and (level == 1 or raw & 0x80):
                key = (SMALL, page + slot) if level == 1 else (THP, (page >> 9) + slot)
                leaves[key] = raw % (1 << 52) >> 12
    return tables, leaves


# What graph kernels, B-tree lookups and annealing touch, one access after another: (byte, written). Written
# from the algorithms: pull PageRank, Afforest's sampling (Sutton, Ben-Nun, Barak, IPDPS 2018), Brandes'
# betweenness (2001), R-MAT (Chakrabarti, Zhan, Faloutsos, 2004) with GAP's A = 0.57, B = C = 0.19 and degree
# 16 (Beamer, Asanovic, Patterson, The GAP Benchmark Suite, 2015).

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
            yield graph.byte("depths", v), draw(graph.word(u, k), 31) % 32 == 1
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
        path = [below(levels[-1], draw(key, thread), number)]
        for _ in levels[1:]:
            path.insert(0, path[0] // fan)
        for level, node in enumerate(path):
            yield (sum(levels[:level]) + scattered(node, levels[level], key ^ 4 * level)) * 16 * fan, False


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
