"""Nodes of the data that leaf entries map, by table and slot: read off the frames, or counted by table."""

from typing import NamedTuple

import numpy as np

from .entries import frame, leaf
from .hooks import hook, kernel

UNKNOWN = -1


class Frames(NamedTuple):
    """Nodes of frames. start, end int64[K], node int16[K]: half-open ranges, sorted, disjoint.

    For guest frames: host_of int32[D] as in AddressSpace with host tables counted from 0, entries
    uint64[H, 512], level uint8[H] and code of the host tree; D is 0 where frames are the host's own.
    """

    start: np.ndarray
    end: np.ndarray
    node: np.ndarray
    host_of: np.ndarray
    entries: np.ndarray
    level: np.ndarray
    code: int


@kernel
def read_nodes(entries, tables, level, code, frames, out):
    """out[i, k] (int8[n, 512]) = node behind entry k of table tables[i], or UNKNOWN.

    entries uint64[T, 512], level uint8[T], code of the tree whose tables are read
    """
    near = 0
    for i in range(len(tables)):
        table = tables[i]
        for k in range(512):
            node, near = node_behind(entries[table, k], np.int64(level[table]), code, frames, near)
            out[i, k] = node


@kernel
def count_nodes(entries, level, code, frames, skip, counts):
    """counts[t, n] (int16[T, nodes]) += leaf entries of table t with data on node n, where not skip[t].

    Neighbours mostly have their data in a single range of frames: they are counted together.
    """
    near, low, high, node = 0, np.int64(0), np.int64(0), np.int64(UNKNOWN)
    for table in range(len(level)):
        own, seen = np.int64(level[table]), 0
        if skip[table] or own > 3:
            continue
        for k in range(512):
            number = host_frame(entries[table, k], own, code, frames)
            if number < low or number >= high:
                if number < 0:
                    continue
                if node >= 0 and seen:
                    counts[table, node] += seen
                near = range_of(number, frames)
                low, high, node = bounds(number, near, frames, counts.shape[1])
                seen = 0
            seen += 1
        if node >= 0 and seen:
            counts[table, node] += seen


@hook
def bounds(number, near, frames, nodes):
    """(first frame, one past the last, node) of the range of a frame; outside all, of the frame alone."""
    if near < len(frames.start) and frames.start[near] <= number < frames.end[near]:
        node = np.int64(frames.node[near])
        return frames.start[near], frames.end[near], node if node < nodes else np.int64(UNKNOWN)
    return number, number + 1, np.int64(UNKNOWN)


@kernel
def first_touch(page, offset, chunk_node, of_region, region_slot, node):
    """node[row, slot] (int8[L, 512]) = node of the first walk to it, where it is below 0.

    page uint32[n], offset int64[chunks + 1] as WalkStream; chunk_node int16[chunks]; of_region int32[R],
    region_slot int16[R]: row of each region, and slot of its huge entry or -1
    """
    for chunk in range(len(chunk_node)):
        for w in range(offset[chunk], offset[chunk + 1]):
            region = page[w] >> np.uint32(9)
            slot = np.int64(region_slot[region])
            if slot < 0:
                slot = np.int64(page[w]) & 511
            row = of_region[region]
            if node[row, slot] < 0:
                node[row, slot] = chunk_node[chunk]


@kernel
def take_back(entries, code, leaves, level, host_of, host_row, moved, node, host):
    """Host entries behind the guest pages `moved` (bool[L, 512]) are on node[row, slot], where that is known.

    entries  uint64[G, 512] of the guest tables; leaves int32[L], level uint8[T], host_of int32[D], host_row
             int32[T] by flat id; host int8[H, 512], changed. Pages of a larger host page stay.
    """
    for row in range(len(leaves)):
        table = leaves[row]
        if table >= len(entries):
            continue
        own = np.int64(level[table])
        for slot in range(512):
            entry = entries[table, slot]
            if not moved[row, slot] or node[row, slot] < 0 or not leaf(entry, own, code):
                continue
            number = frame(entry, own, code)
            behind = host_of[number >> 9] if number >> 9 < len(host_of) else -1
            if behind < 0 or level[behind] > own:
                continue
            first, last = 0, 512
            if level[behind] == own:
                first = (number >> (9 * (own - 1))) & 511
                last = first + 1
            for k in range(first, last):
                if host[host_row[behind], k] >= 0:
                    host[host_row[behind], k] = node[row, slot]


@hook
def node_behind(entry, level, code, frames, near):
    """(node of a leaf entry's first frame, its range); `near`: range of the previous frame."""
    node, number = np.int64(UNKNOWN), host_frame(entry, level, code, frames)
    if number >= 0 and len(frames.start) > 0:
        if number < frames.start[near] or number >= frames.end[near]:
            near = range_of(number, frames)
        if number >= frames.start[near] and number < frames.end[near]:
            node = np.int64(frames.node[near])
    return node, near


@hook
def host_frame(entry, level, code, frames):
    """First frame of the host's memory behind a leaf entry, -1 where there is none."""
    if not leaf(entry, level, code):
        return np.int64(-1)
    number = frame(entry, level, code)
    return through_host(number, frames) if len(frames.level) > 0 else number


@hook
def through_host(number, frames):
    """Host frame behind a guest frame, -1 where there is none."""
    if number >> 9 >= len(frames.host_of) or frames.host_of[number >> 9] < 0:
        return np.int64(-1)
    table = frames.host_of[number >> 9]
    level = np.int64(frames.level[table])
    shift = 9 * (level - 1)
    entry = frames.entries[table, (number >> shift) & 511]
    if not leaf(entry, level, frames.code):
        return np.int64(-1)
    return frame(entry, level, frames.code) + (number & ((np.int64(1) << shift) - 1))


@hook
def range_of(number, frames):
    """Position of the last range that starts at or below a frame, 0 if none does."""
    lo, hi = 0, len(frames.start)
    while lo < hi:
        middle = (lo + hi) >> 1
        if frames.start[middle] <= number:
            lo = middle + 1
        else:
            hi = middle
    return max(lo - 1, 0)
