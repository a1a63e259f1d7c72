"""Nodes of leaf entries, counted over the mapped pages of a snapshot or the walks of a trace."""

from typing import NamedTuple

import numpy as np

from .jit import called_hook, kernel
from .walker import ADDRESS, NONE, PRESENT, PROTNONE, X86, frame, leaf, mapped


class Host(NamedTuple):
    """Class of the host leaf entry by guest frame: 0..N-1 are nodes, N an unknown node, and those below.

    of_region   uint8[D]   class by frame >> 9
    of_table    uint8[H]   by host table: the class of its node
    table       int32[D]   host table (counted from 0) with the leaf entry, -1 none
    entries     uint64[H, 512]
    code        their encoding
    unmapped    class: no host leaf
    absent      class: the guest entry maps nothing
    closer      class: the host table has holes, its entry must be read
    """

    of_region: np.ndarray
    of_table: np.ndarray
    table: np.ndarray
    entries: np.ndarray
    code: int
    unmapped: int
    absent: int
    closer: int


@kernel
def count_nested(entries, segments, host, kinds, hist):
    """hist[row, class] (int64) += 1 for each x86 guest entry, by the class of its host leaf entry.

    kinds  uint8[512], scratch space. Loops without branches, which LLVM turns into vector code, leave to the
           last those few whose entry in the host's tables must be read, or whose frame is inverted.
    """
    of_region, regions = host.of_region, np.uint64(len(host.of_region))
    closer, absent = np.uint8(host.closer), np.uint8(host.absent)
    for s in range(len(segments.table)):
        run, row = entries[segments.table[s]][segments.lo[s] : segments.hi[s]], segments.row[s]
        every, most, length = PRESENT, NONE, np.uint64(len(run))
        for i in range(length):
            every &= run[i]
            most = max(most, run[i] & ADDRESS & (NONE - (run[i] & PRESENT)))
        inside = most >> np.uint64(21) < regions
        for i in range(length):  # nearly all in a region that the host maps as a whole: one look at a byte
            address = run[i] & ADDRESS & (NONE - (run[i] & PRESENT))
            kinds[i] = of_region[address >> np.uint64(21)] if inside else closer
        if every == NONE:
            for i in range(length):
                other = closer if run[i] & PROTNONE != NONE else absent
                kinds[i] = kinds[i] if run[i] & PRESENT != NONE else other
        if of_kind(kinds, closer, length) > 0:
            for i in range(length):
                if kinds[i] == closer:
                    kinds[i] = frame_class(frame(run[i], 1, X86), host)
        left, kind = np.int64(length), 0
        while left > 0:
            count = of_kind(kinds, np.uint8(kind), length)
            hist[row, kind] += count
            left, kind = left - count, kind + 1


@called_hook
def of_kind(kinds, kind, length):
    """How many of the first `length` are of a kind, 128 at a time in bytes: a register holds many."""
    total = np.int64(0)
    for first in range(np.uint64(0), length, np.uint64(128)):
        count = np.uint8(0)
        for i in range(first, min(first + np.uint64(128), length)):
            count = np.uint8(count + np.uint8(kinds[i] == kind))
        total += np.int64(count)
    return total


@called_hook
def frame_class(number, host):
    """Class of the host leaf entry of a guest frame, its presence checked."""
    region = number >> 9
    if region >= len(host.of_region):
        return np.int64(host.unmapped)
    kind = np.int64(host.of_region[region])
    if kind != host.closer:
        return kind
    table = host.table[region]
    if mapped(host.entries[table, number & 511], 1, host.code):
        return np.int64(host.of_table[table])
    return np.int64(host.unmapped)


@kernel
def classify_frames(frames, host, out):
    """out[i] (int64) = class of the host leaf entry of guest frame frames[i] (int64, >= 0)."""
    for i in range(len(frames)):
        out[i] = frame_class(frames[i], host)


@kernel
def count_walks(page, row, region_row, page_row, regions, of_table, guest, host, hist):
    """hist[row of the walk + row of its page, class of guest leaf, class of host leaf] (int64) += 1 per walk.

    row         int64[n]       by walk: added to the row for its CPU and thread
    region_row  int64[R]       by region: added for its VMA; -1 leaves it out; -2 - k: page_row[k] by slot
    page_row    int64[k, 512]
    of_table    uint8[T]       class of the node of each table
    guest       uint64[G, 512] entries of the guest tables (2D); length 0: native, the host's class is 0
    """
    leaf_table, leaf_level, leaf_slot, va = regions.leaf, regions.level, regions.slot, regions.va
    for i in range(len(page)):
        region, slot = np.int64(page[i]) >> 9, np.int64(page[i]) & 511
        of_page = region_row[region]
        if of_page < -1:
            of_page = page_row[-2 - of_page, slot]
        if of_page < 0:
            continue
        table, level = np.int64(leaf_table[region]), np.int64(leaf_level[region])
        kind = np.int64(0)
        if len(guest) > 0:
            kind = np.int64(host.absent)
            if table < len(guest):
                entry = guest[table, np.int64(leaf_slot[region]) if level > 1 else slot]
                if leaf(entry, level, X86):
                    within = (np.int64(va[region]) << 9 | slot) & ((np.int64(1) << (9 * (level - 1))) - 1)
                    kind = frame_class(frame(entry, level, X86) + within, host)
        hist[row[i] + of_page, of_table[table], kind] += 1
