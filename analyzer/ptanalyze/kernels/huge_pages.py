"""Summaries of 2 MiB of small pages: their number, flags, frame and node."""

from typing import NamedTuple

import numpy as np

from .entries import KVM, NONE, PRESENT, X86, frame, mapped
from .hooks import hook, kernel

UNKNOWN = -1


class Ranges(NamedTuple):
    """Half-open ranges of frames, sorted, and their nodes; frames elsewhere are on node UNKNOWN."""

    start: np.ndarray  # int64[K]
    end: np.ndarray  # int64[K]
    node: np.ndarray  # int64[K]


@kernel
def summarise(entries, tables, code, ranges, on_node, pages, raw, first):
    """Of each leaf table tables[i] (int64[n], level 1) of `entries` (uint64[T, 512]):

    pages[i]  int64   mapped pages
    raw[i]    uint64  the first entry that a walker follows, else the first mapped entry
    first[i]  int64   frame of the first mapped page on the node of most of them, the lowest of equals
    on_node   int64[largest node + 2], room for counting; without ranges all frames are on the same node
    """
    for i in range(len(tables)):
        run = entries[tables[i]]
        on_node[:] = 0
        near, liked = 0, False
        pages[i] = 0
        for slot in range(512):
            entry = run[slot]
            if not mapped(entry, 1, code):
                continue
            if pages[i] == 0 or (not liked and followed(entry, code)):
                raw[i], liked = entry, followed(entry, code)
            near = range_of(frame(entry, 1, code), ranges, near)
            on_node[node_at(frame(entry, 1, code), ranges, near) + 1] += 1
            pages[i] += 1
        main, slot = np.argmax(on_node) - 1, 0
        while pages[i] > 0:
            if mapped(run[slot], 1, code):
                first[i] = frame(run[slot], 1, code)
                near = range_of(first[i], ranges, near)
                if node_at(first[i], ranges, near) == main:
                    break
            slot += 1


@kernel
def count_blocks(entries, tables, code, used):
    """used[f >> 9] (int64[D]) += 1 for each frame f below D << 9 that an entry of a leaf table maps."""
    for i in range(len(tables)):
        for slot in range(512):
            entry = entries[tables[i], slot]
            if mapped(entry, 1, code):
                block = frame(entry, 1, code) >> 9
                if block < len(used):
                    used[block] += 1


@hook
def followed(entry, code):
    """A walker follows the mapped entry (entries.present)."""
    if code == X86:
        return (entry & PRESENT) != NONE
    return code != KVM or (entry & PRESENT) != NONE


@hook
def range_of(number, ranges, near):
    """The last range that begins at or below a frame, 0 where none does; searched from `near` on."""
    while near > 0 and number < ranges.start[near]:
        near -= 1
    while near + 1 < len(ranges.start) and number >= ranges.start[near + 1]:
        near += 1
    return near


@hook
def node_at(number, ranges, at):
    if len(ranges.start) == 0 or number < ranges.start[at] or number >= ranges.end[at]:
        return np.int64(UNKNOWN)
    return ranges.node[at]
