"""A guest's allocator that reserves aligned blocks of frames (PTEMagnet, section 4), over a trace's faults.

Page p is entry p & 511 of leaf table p >> 9 (level 1; the order of tables is the caller's); group g is the
aligned run of pages g << shift ... and a block an aligned run of as many guest frames. A reservation gives
a block to a group, until all its pages are mapped, the program has freed all mapped pages, or it is
reclaimed. Mapped pages keep their frames when the reservation ends.
"""

from typing import NamedTuple

import numpy as np

from .jit import called_hook, hook, kernel
from .replay import CLEAR, MOVE, move_target, slot_range

NONE = -1
SPECIAL = np.uint32(0xFFFFFFFC)  # values of Guest.frame from here on are no frames:
WAITING = np.uint32(0xFFFFFFFC)  # not mapped; a walk will fault it in
FREE = np.uint32(0xFFFFFFFD)  # not mapped
SINGLE = np.uint32(0xFFFFFFFE)  # mapped though no block was left: it gets its frame in the end
KEPT = np.uint32(0xFFFFFFFF)  # not this allocator's: keeps the frame it was captured with

COUNTS = (
    "reservations",  # made, ever
    "reclaimed",  # released with unused frames because there were too many
    "split",  # released because mremap moved one of their pages away
    "served",  # faults in a reservation
    "fallbacks",  # faults without a block left
    "live",  # reservations now
    "unused",  # reserved frames that no page uses, now
    "mapped",  # pages mapped now
    "peak",  # the most unused frames, ever
    "peak_mapped",  # pages mapped when it was last reached
    "unused_walks",  # unused frames, summed over walks
)
RESERVATIONS, RECLAIMED, SPLIT, SERVED, FALLBACKS, LIVE, UNUSED, MAPPED, PEAK, PEAK_MAPPED, UNUSED_WALKS = (
    range(len(COUNTS))
)


class Guest(NamedTuple):
    """The allocator's state, for P pages, B blocks, N of them to give out, in K pools (one per node).

    frame        uint32[P]  frame of each mapped page, or FREE ... KEPT
    block        int32[P >> shift]  block reserved for a group, NONE
    group        int32[B]  group that a block is reserved for, NONE
    used         int16[B]  pages whose frame is in the block
    older, newer int32[B + 1]  live reservations in the order they were made; [B] is both ends
    pool         int32[N]  blocks of pool k are pool[first[k]:first[k + 1]]; none before next[k] is free
    at           int32[B]  index of each block in `pool`, NONE where it is not given out
    first        int64[K + 1]
    next         int64[K]
    pool_of      uint8[D]  pool of the blocks in each 2 MiB of guest memory
    count        int64[len(COUNTS)]
    last         int64[1]  block of the last reservation
    shift        log2 of the pages of a group
    limit        unused reserved frames that are allowed, NONE: any number
    """

    frame: np.ndarray
    block: np.ndarray
    group: np.ndarray
    used: np.ndarray
    older: np.ndarray
    newer: np.ndarray
    pool: np.ndarray
    at: np.ndarray
    first: np.ndarray
    next: np.ndarray
    pool_of: np.ndarray
    count: np.ndarray
    last: np.ndarray
    shift: int
    limit: int


@kernel
def run(page, region_base, captured, first, steps, row_base, step, guest):
    """Walks first, first + 1, ... and the steps due before them; returns the first step not yet done.

    page         uint32[n]  as WalkStream.page
    region_base  int64[R]   number of the first page of each region, NONE where it has no 4 KiB pages
    captured     uint32[P]  frame each page was captured with, FREE where it was not mapped
    row_base     int64[L]   number of the first page of each row of `steps` (kernels.replay.Rows)
    """
    count = guest.count
    for i in range(len(page)):
        walk = first + i
        while step < len(steps.at) and steps.at[step] <= walk:
            carry_out(step, steps, row_base, guest)
            step += 1
        base = region_base[page[i] >> np.uint32(9)]
        if base >= 0:
            number = base + np.int64(page[i] & np.uint32(511))
            if guest.frame[number] == FREE:
                fault(number, captured[number], guest)
        count[UNUSED_WALKS] += count[UNUSED]
    return step


@kernel
def fault_all(captured, early, guest):
    """Map the captured pages that are FREE, by address; `early`: before the trace, WAITING becomes FREE."""
    for number in range(len(captured)):
        if guest.frame[number] == FREE and captured[number] < SPECIAL:
            fault(number, captured[number], guest)
        elif early and guest.frame[number] == WAITING:
            guest.frame[number] = FREE


@called_hook
def fault(page, captured, guest):
    """Map a FREE page; a reservation for it is as near as possible to its captured frame, if it has one."""
    count, group = guest.count, page >> guest.shift
    block = np.int64(guest.block[group])
    count[MAPPED] += 1
    if block == NONE:
        block = take(captured, guest)
        if block == NONE:
            guest.frame[page] = SINGLE
            count[FALLBACKS] += 1
            return
        reserve(block, group, guest)
    else:
        count[SERVED] += 1
    pages = np.int64(1) << guest.shift
    guest.frame[page] = np.uint32(block << guest.shift | page & (pages - 1))
    guest.used[block] += 1
    count[UNUSED] -= 1
    if guest.used[block] == pages:
        end(block, guest)
    while guest.limit != NONE and count[UNUSED] > guest.limit:
        oldest = np.int64(guest.newer[len(guest.group)])
        count[RECLAIMED] += 1
        end(oldest, guest)
    if count[UNUSED] >= count[PEAK]:
        count[PEAK], count[PEAK_MAPPED] = count[UNUSED], count[MAPPED]


@called_hook
def take(captured, guest):
    """A free block, or NONE: that of the captured frame (without: of the last reservation), the next in its
    2 MiB, the next of its pool, the next of any.
    """
    near = np.int64(captured) >> guest.shift if captured < SPECIAL else guest.last[0]
    blocks = 512 >> guest.shift
    region = near // blocks
    for k in range(blocks):
        block = region * blocks + (near + k) % blocks
        if is_free(block, guest):
            guest.last[0] = block
            return block
    for turn in range(len(guest.next) + 1):
        k = np.int64(guest.pool_of[region]) if turn == 0 else turn - 1
        while guest.next[k] < guest.first[k + 1]:
            block = np.int64(guest.pool[guest.next[k]])
            guest.next[k] += 1
            if is_free(block, guest):
                guest.last[0] = block
                return block
    return np.int64(NONE)


@hook
def is_free(block, guest):
    return guest.at[block] != NONE and guest.group[block] == NONE and guest.used[block] == 0


@called_hook
def reserve(block, group, guest):
    """The newest reservation: all of the block's frames, unused."""
    ends = len(guest.group)
    newest = guest.older[ends]
    guest.newer[newest], guest.older[block] = block, newest
    guest.newer[block], guest.older[ends] = ends, block
    guest.block[group], guest.group[block] = block, group
    guest.count[RESERVATIONS] += 1
    guest.count[LIVE] += 1
    guest.count[UNUSED] += np.int64(1) << guest.shift


@called_hook
def end(block, guest):
    """A reservation leaves the table; its unused frames are reserved no longer."""
    older, newer = guest.older[block], guest.newer[block]
    guest.newer[older], guest.older[newer] = newer, older
    guest.block[guest.group[block]] = NONE
    guest.group[block] = NONE
    guest.count[LIVE] -= 1
    guest.count[UNUSED] -= (np.int64(1) << guest.shift) - guest.used[block]


@called_hook
def carry_out(step, steps, row_base, guest):
    """CLEAR and MOVE change mapped pages; the other steps do not."""
    kind = steps.kind[step]
    if kind not in (CLEAR, MOVE):
        return
    row, lo, hi = slot_range(steps, step)
    base = row_base[row]
    if base < 0:
        return
    to = base
    if kind == MOVE:
        target, first, _ = move_target(steps, step)
        to = row_base[target] + first - lo
    for slot in range(lo, hi):
        if guest.frame[base + slot] in (FREE, KEPT):
            continue
        if kind == CLEAR:
            clear(base + slot, guest)
        else:
            move(base + slot, to + slot, guest)


@called_hook
def clear(page, guest):
    """The program frees a mapped page."""
    frame = guest.frame[page]
    guest.frame[page] = FREE
    guest.count[MAPPED] -= 1
    if frame == SINGLE:
        return
    block = np.int64(frame) >> guest.shift
    guest.used[block] -= 1
    if guest.group[block] != NONE:
        guest.count[UNUSED] += 1
    if guest.used[block] == 0:
        if guest.group[block] != NONE:
            end(block, guest)
        give_back(block, guest)


@called_hook
def give_back(block, guest):
    """A block that its pool had passed is the next again."""
    k, at = guest.pool_of[block << guest.shift >> 9], guest.at[block]
    if at < guest.next[k]:
        guest.next[k] -= 1
        other = guest.pool[guest.next[k]]
        guest.pool[at], guest.at[other] = other, at
        guest.pool[guest.next[k]], guest.at[block] = block, guest.next[k]


@called_hook
def move(page, target, guest):
    """mremap: the page keeps its frame, which leaves the reservation it came from with a foreign page."""
    frame = guest.frame[page]
    if guest.frame[target] == KEPT:
        clear(page, guest)
        return
    if guest.frame[target] != FREE:
        clear(target, guest)
    guest.frame[page], guest.frame[target] = FREE, frame
    if frame == SINGLE:
        return
    block = np.int64(frame) >> guest.shift
    if guest.group[block] != NONE:
        guest.count[SPLIT] += 1
        end(block, guest)


SEVERAL, MOVABLE = 2, 3  # of the users of a frame, below that its number of pages
NO_POOL = 0xFF  # of `pool_of`: the host maps nothing there
