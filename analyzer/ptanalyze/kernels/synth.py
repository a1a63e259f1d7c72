"""Page faults of a modelled kernel, one by one: the frames they take and the entries they write.

Frames come from pageblocks of 2 MiB in ascending order, page tables and data from different blocks, as Linux
keeps unmovable and movable pages apart (mm/page_alloc.c, gfp_migratetype; page tables are GFP_PGTABLE_USER).
"""

from typing import NamedTuple

import numpy as np

from .draws import MASK, draw
from .hooks import called_hook, hook, kernel

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


@hook
def choose(memory, node):
    """Node that the policy asks for a page that a CPU on `node` faults in."""
    if memory.policy == FIRST_TOUCH:
        return node
    if memory.policy >= 0:
        return memory.policy
    memory.drawn[0] += 1
    return draw(memory.key, memory.drawn[0] & MASK) * len(memory.block) >> 32


@hook
def take_block(memory, node):
    """First frame of a free pageblock on `node` or the next node with any; -1: none left."""
    nodes = len(memory.block)
    for near in range(node, node + nodes):
        near = near - nodes if near >= nodes else near
        if memory.block[near] < memory.end[near]:
            memory.block[near] += 1
            return (memory.block[near] - 1) << 9
    return -1


@hook
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


@called_hook
def topmost_missing(tree, table):
    """The highest table that is still to be made above or at `table`."""
    while tree.parent[table] >= 0 and tree.frame[tree.parent[table]] < 0:
        table = tree.parent[table]
    return table


@kernel
def make(tree, memory, table, node):
    """Make a table page whose parent exists; False: memory is full."""
    frame = take(memory, choose(memory, node), UNMOVABLE)
    tree.frame[table] = frame
    if frame >= 0 and tree.parent[table] >= 0:
        tree.entries[tree.parent[table], tree.slot[table]] = np.uint64(frame << 12) | tree.link
    return frame >= 0


@hook
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


@hook
def back_all(space, first, last, node):
    done = True
    if space.nested:
        for frame in range(first, last):
            done = done and back_frame(space, frame, node)
    return done


@hook
def corun(space, frame, node):
    """A co-runner's faults take the rest of the 8 frames (a line of ePT entries) that `frame` is in."""
    memory, end = space.memory, (frame | (GROUP - 1)) + 1
    home = frame // memory.span
    if memory.fill[home, MOVABLE] != frame + 1:
        return True
    memory.fill[home, MOVABLE] = end
    return back_all(space, frame + 1, end, node)


@hook
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


@kernel
def touch(space, pages, node):
    """Fault in pages (int64[n], in order) from `node`; returns their number, fewer when memory is full."""
    for i in range(len(pages)):
        if not fault(space, pages[i], node):
            return i
    return len(pages)


@kernel
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
