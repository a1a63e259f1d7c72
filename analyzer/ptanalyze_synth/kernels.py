"""Page faults of a modelled kernel, one by one: the frames they take and the entries they write.

Frames come from pageblocks of 2 MiB in ascending order, page tables and data from different blocks, as Linux
keeps unmovable and movable pages apart (mm/page_alloc.c, gfp_migratetype; page tables are GFP_PGTABLE_USER).
"""

from typing import NamedTuple

import numpy as np

import ptanalyze as pt

# Seeded numbers that need no memory: the n-th of a sequence, a permutation of n places.

MASK = (1 << 32) - 1
FACTOR = 0x45D9F3B
ROUNDS = 4


@pt.jit.kernel
def draw(key, n):
    """The n-th number of a sequence of 32-bit numbers; key, n int64 in 0..2^32-1. Never beyond 63 bits."""
    x = n ^ key
    for _ in range(2):
        x = ((x >> 16) ^ x) * FACTOR & MASK
        x = ((x >> 16) ^ x) * FACTOR & MASK
        x = ((x >> 16) ^ x) + key & MASK
    return x


@pt.jit.hook
def permuted(x, n, bits, key):
    """The image of x under a permutation of 0..n-1; n <= 4 ** bits.

    A Feistel network on 2 * bits bits, walked until it is back below n (Black and Rogaway, 2002).
    """
    half = (1 << bits) - 1
    inside = False
    while not inside:
        left, right = x >> bits, x & half
        for turn in range(ROUNDS):
            left, right = right, left ^ (draw(key ^ turn, right) & half)
        x = left << bits | right
        inside = x < n
    return x


@pt.jit.kernel
def permute(places, n, bits, key, out):
    """out[i] = the image of places[i] (int64) under a permutation of 0..n-1; n <= 4 ** bits."""
    for i in range(len(out)):
        out[i] = permuted(places[i], n, bits, key)


FIRST_TOUCH, INTERLEAVE = -1, -2  # policies; from 0 on: the node
MOVABLE, UNMOVABLE = 0, 1
ADDRESS = np.uint64((1 << 52) - (1 << 12))
NONE = np.uint64(0)
GROUP = 8  # entries of a cache line


class Memory(NamedTuple):
    """Page frames of a machine (host or guest) of N nodes, node n having frames n * span ... .

    block  int64[N]     next free pageblock (frame >> 9); end  int64[N]  past the last
    fill   int64[N, 2]  next frame for movable, unmovable pages; a multiple of 512: their block is used up
    freed  int64[N, K]  movable frames given back, the last is used first; back  int64[N]  their number
    drawn  int64[1]     nodes drawn so far
    policy int64        FIRST_TOUCH, INTERLEAVE or the node; key  int64  of its draws
    """

    block: np.ndarray
    end: np.ndarray
    fill: np.ndarray
    freed: np.ndarray
    back: np.ndarray
    drawn: np.ndarray
    span: int
    policy: int
    key: int


class Radix(NamedTuple):
    """A page table under construction, T table pages depth first, R regions of 2 MiB.

    entries uint64[T, 512]; frame int64[T], -1 not made; parent int32[T]; slot int16[T] in the parent
    leaf    int32[R]  table with the leaf entries of a region; huge  bool[R]
    link, small, big  uint64: flags of an entry that points to a table, a 4 KiB page, a 2 MiB page
    """

    entries: np.ndarray
    frame: np.ndarray
    parent: np.ndarray
    slot: np.ndarray
    leaf: np.ndarray
    huge: np.ndarray
    link: np.uint64
    small: np.uint64
    big: np.uint64


class Space(NamedTuple):
    """guest: the process's table and its memory (native: of the machine itself); host: the nested table.

    nested   there is a host; bound  guest node n's memory is host node n's
    corun    number of 2^32 faults after which a co-runner takes the rest of the 8 frames
    key      int64, of those draws; faults  int64[1], 4 KiB faults so far
    """

    guest: Radix
    memory: Memory
    host: Radix
    host_memory: Memory
    nested: bool
    bound: bool
    corun: int
    key: int
    faults: np.ndarray


@pt.jit.hook
def choose(memory, node):
    """Node that the policy asks for a page that a CPU on `node` faults in."""
    if memory.policy == FIRST_TOUCH:
        return node
    if memory.policy >= 0:
        return memory.policy
    memory.drawn[0] += 1
    return draw(memory.key, memory.drawn[0] & MASK) * len(memory.block) >> 32


@pt.jit.hook
def take_block(memory, node):
    """First frame of a free pageblock on `node` or the next node with any; -1: none left."""
    nodes = len(memory.block)
    for near in range(node, node + nodes):
        near = near - nodes if near >= nodes else near
        if memory.block[near] < memory.end[near]:
            memory.block[near] += 1
            return (memory.block[near] - 1) << 9
    return -1


@pt.jit.hook
def take(memory, node, kind):
    """A frame on `node`, or the next node with any; -1: none left."""
    if kind == MOVABLE and memory.back[node] > 0:
        memory.back[node] -= 1
        return memory.freed[node, memory.back[node]]
    nodes = len(memory.block)
    for near in range(node, node + nodes):
        near = near - nodes if near >= nodes else near
        at = memory.fill[near, kind]
        if at & 511 == 0:
            if memory.block[near] == memory.end[near]:
                continue
            at = memory.block[near] << 9
            memory.block[near] += 1
        memory.fill[near, kind] = at + 1
        return at
    return -1


@pt.jit.called_hook
def topmost_missing(tree, table):
    """The highest table that is still to be made above or at `table`."""
    while tree.parent[table] >= 0 and tree.frame[tree.parent[table]] < 0:
        table = tree.parent[table]
    return table


@pt.jit.kernel
def make(tree, memory, table, node):
    """Make a table page whose parent exists; False: memory is full."""
    frame = take(memory, choose(memory, node), UNMOVABLE)
    tree.frame[table] = frame
    if frame >= 0 and tree.parent[table] >= 0:
        tree.entries[tree.parent[table], tree.slot[table]] = np.uint64(frame << 12) | tree.link
    return frame >= 0


@pt.jit.hook
def back_frame(space, frame, node):
    """The host maps guest frame `frame`, which a vCPU on `node` touches (an EPT violation the first time)."""
    host, memory = space.host, space.host_memory
    region = frame >> 9
    table, huge = host.leaf[region], host.huge[region]
    while host.frame[table] < 0:
        if not make(host, memory, topmost_missing(host, table), node):
            return False
    slot = region & 511 if huge else frame & 511
    if host.entries[table, slot] != NONE:
        return True
    wanted = frame // space.memory.span if space.bound else choose(memory, node)
    behind = take_block(memory, wanted) if huge else take(memory, wanted, MOVABLE)
    if behind >= 0:
        host.entries[table, slot] = np.uint64(behind << 12) | (host.big if huge else host.small)
    return behind >= 0


@pt.jit.hook
def back_all(space, first, last, node):
    done = True
    if space.nested:
        for frame in range(first, last):
            done = done and back_frame(space, frame, node)
    return done


@pt.jit.hook
def corun(space, frame, node):
    """A co-runner's faults take the rest of the 8 frames (a line of ePT entries) that `frame` is in."""
    memory, end = space.memory, (frame | (GROUP - 1)) + 1
    home = frame // memory.span
    if memory.fill[home, MOVABLE] != frame + 1:
        return True
    memory.fill[home, MOVABLE] = end
    return back_all(space, frame + 1, end, node)


@pt.jit.hook
def fault(space, page, node):
    """A CPU on `node` touches a page (4 KiB, counted from the first); False: memory is full.

    handle_mm_fault (mm/memory.c): missing tables from the top, then the data page.
    """
    guest, memory = space.guest, space.memory
    region = page >> 9
    table, huge = guest.leaf[region], guest.huge[region]
    while guest.frame[table] < 0:
        top = topmost_missing(guest, table)
        if not make(guest, memory, top, node) or not back_all(
            space, guest.frame[top], guest.frame[top] + 1, node
        ):
            return False
    slot = region & 511 if huge else page & 511
    if guest.entries[table, slot] != NONE:
        return True
    wanted = choose(memory, node)
    frame = take_block(memory, wanted) if huge else take(memory, wanted, MOVABLE)
    if frame < 0:
        return False
    guest.entries[table, slot] = np.uint64(frame << 12) | (guest.big if huge else guest.small)
    if not back_all(space, frame, frame + (512 if huge else 1), node):
        return False
    if huge:
        return True
    space.faults[0] += 1
    if space.corun > 0 and draw(space.key, space.faults[0] & MASK) < space.corun:
        return corun(space, frame, node)
    return True


@pt.jit.kernel
def touch(space, pages, node):
    """Fault in pages (int64[n], in order) from `node`; returns their number, fewer when memory is full."""
    for i in range(len(pages)):
        if not fault(space, pages[i], node):
            return i
    return len(pages)


@pt.jit.kernel
def unmap(space, first, last):
    """munmap of 4 KiB pages first..last-1: their frames are free again; host frames behind them stay."""
    guest, memory = space.guest, space.memory
    for page in range(first, last):
        table = guest.leaf[page >> 9]
        entry = guest.entries[table, page & 511]
        if entry != NONE:
            frame = np.int64((entry & ADDRESS) >> np.uint64(12))
            home = frame // memory.span
            memory.freed[home, memory.back[home]] = frame
            memory.back[home] += 1
            guest.entries[table, page & 511] = NONE


# Data pages that a modelled kernel moves to another node; page tables stay (Linux moves none).


@pt.jit.kernel
def home(space, frame):
    """Node of the memory behind the guest (or native) frame."""
    if not space.nested or space.bound:
        return frame // space.memory.span
    return behind(space, frame) // space.host_memory.span


@pt.jit.kernel
def behind(space, frame):
    """Host frame of a guest frame that a host maps by 4 KiB."""
    return np.int64((space.host.entries[space.host.leaf[frame >> 9], frame & 511] & ADDRESS) >> np.uint64(12))


@pt.jit.called_hook
def move_one(space, region, slot, frame, target):
    """Give an entry new memory on `target`: its own kernel does (new frame), or the hypervisor, unseen."""
    guest, huge = space.guest, space.guest.huge[region]
    pages = 512 if huge else 1
    if space.nested and not space.bound:
        for part in range(frame, frame + pages):
            new = take(space.host_memory, target, MOVABLE)
            if new < 0:
                return False
            table = space.host.leaf[part >> 9]
            space.host.entries[table, part & 511] = np.uint64(new << 12) | space.host.small
        return True
    new = take_block(space.memory, target) if huge else take(space.memory, target, MOVABLE)
    if new < 0:
        return False
    guest.entries[guest.leaf[region], slot] = np.uint64(new << 12) | (guest.big if huge else guest.small)
    return back_all(space, new, new + pages, target)


@pt.jit.kernel
def move_pages(space, page, last, budget, source, target, moved):
    """Go through pages from `page` on (below `last`) and move those with data on `source` to `target`.

    moved  int64[>= budget + 511], filled: the 4 KiB pages that moved, in address order; at most `budget` and
    the rest of a huge page
    Returns (next page, pages moved); -1 for the page when memory is full.
    """
    done = 0
    while page < last and done < budget:
        region = page >> 9
        huge = space.guest.huge[region]
        slot = region & 511 if huge else page & 511
        entry = space.guest.entries[space.guest.leaf[region], slot]
        size = 512 if huge else 1
        frame = np.int64((entry & ADDRESS) >> np.uint64(12))
        if entry != NONE and home(space, frame) == source:
            if not move_one(space, region, slot, frame, target):
                return -1, done
            for part in range(page, page + size):
                moved[done] = part
                done += 1
        page += size
    return page, done


# Addresses that programs of a known shape touch: computed one by one, no data structure is built.
#
# A kernel goes on with its work from number `done` and fills pages (int64[n], from the dataset's first) and
# wrote (bool[n]) with whole pieces of it. It returns (pieces done, accesses filled). n is at least MOST.

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


@pt.jit.hook
def put(pages, wrote, at, byte, write):
    pages[at] = byte >> PAGE_SHIFT
    wrote[at] = write
    return at + 1


@pt.jit.hook
def word_of(graph, edge):
    return draw(draw(graph.key, edge >> 32), edge & MASK)


@pt.jit.hook
def target(graph, word):
    """Vertex that an edge leads to, of its 32 drawn bits."""
    if not graph.skewed:
        return word & ((1 << graph.scale) - 1)
    label, bits = 0, 0
    for level in range(graph.scale):
        bits = bits >> 16 if level & 1 else draw(word, level >> 1)
        label = label << 1 | (1 if bits & 0xFFFF < ONE else 0)
    return permuted(label, 1 << graph.scale, (graph.scale + 1) >> 1, graph.key ^ ORDER)


@pt.jit.kernel
def page_rank(graph, first, last, done, pages, wrote):
    """Pull: every vertex of first..last-1 reads the contributions of its neighbours, in the order of rows."""
    at, base = 0, graph.base
    while at + MOST <= len(pages):
        u = first + done % (last - first)
        at = put(pages, wrote, at, base[OFFSETS] + COUNT * u, False)
        for edge in range(DEGREE * u, DEGREE * (u + 1)):
            at = put(pages, wrote, at, base[NEIGHBOURS] + WORD * edge, False)
            at = put(pages, wrote, at, base[SECOND] + WORD * target(graph, word_of(graph, edge)), False)
        at = put(pages, wrote, at, base[FIRST] + WORD * u, True)
        at = put(pages, wrote, at, base[SECOND] + WORD * u, True)
        done += 1
    return done, at


@pt.jit.kernel
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


@pt.jit.hook
def found(graph, place, pages, wrote, at):
    """The vertex at a place of the queue: (vertex, accesses so far)."""
    u = permuted(place, 1 << graph.scale, (graph.scale + 1) >> 1, graph.key ^ FRONTIER)
    at = put(pages, wrote, at, graph.base[SIXTH] + WORD * place, False)
    at = put(pages, wrote, at, graph.base[OFFSETS] + COUNT * u, False)
    at = put(pages, wrote, at, graph.base[SECOND] + COUNT * u, False)
    return u, at


@pt.jit.kernel
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


@pt.jit.kernel
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


@pt.jit.hook
def number_below(n, key, i):
    """The i-th number of a sequence of numbers in 0..n-1; n may exceed 32 bits."""
    i = i << 1
    return (draw(draw(key, i >> 32), i & MASK) << 30 | draw(draw(key, i >> 32), (i & MASK) | 1) >> 2) % n


@pt.jit.kernel
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


@pt.jit.kernel
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
