"""Nodes of leaf entries, counted over the mapped pages of a snapshot or the walks of a trace."""

from typing import NamedTuple

import numpy as np

from .jit import called_hook, hook, kernel
from .walker import ADDRESS, PRESENT, X86, frame, leaf, mapped


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
def count_nested(entries, segments, host, hist):
    """hist[row, class] (int64) += 1 for each x86 guest entry, by the class of its host leaf entry."""
    of_region, closer = host.of_region, np.uint8(host.closer)
    regions = np.uint64(len(of_region))
    for s in range(len(segments.table)):
        run, row = entries[segments.table[s]][segments.lo[s] : segments.hi[s]], np.uint64(segments.row[s])
        for i in range(np.uint64(len(run))):
            # nearly all entries are present, in a region that the host maps as a whole: one look at a byte
            region, kind = (run[i] & ADDRESS) >> np.uint64(21), closer
            if run[i] & PRESENT and region < regions:
                kind = of_region[region]
            if kind == closer:
                kind = np.uint8(host.absent)
                if mapped(run[i], 1, X86):
                    kind = np.uint8(frame_class(frame(run[i], 1, X86), host))
            hist[row, kind] += 1


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


# Number of cache lines of ePT leaf entries for the eight gPTEs of a gPT cache line. Without reference
# counting (_nrt=False), which would be atomic and cost ten times the rest.

LINE, EVERY = 8, 0xFF  # entries of 8 bytes in a cache line of 64, and the mask of all of them
FRAGMENTATION_BLOCK = ADDRESS & ~np.uint64((1 << 15) - 1)  # of an entry: its aligned block of eight frames
NOTHING = np.uint64(0)
NO_LINE = np.int64(-1)


class Runs(NamedTuple):
    """Runs of gPT cache lines of leaf tables (level 1), and their row of the result.

    A line that belongs to several rows is a run of its own in each, with the slots that count in `mask`.
    """

    table: np.ndarray  # int32[R]
    first: np.ndarray  # int16[R]  line 0..63
    last: np.ndarray  # int16[R]  one past the last
    mask: np.ndarray  # uint8[R]  bit k: slot k of each line counts
    row: np.ndarray  # int64[R]


@kernel
def count_lines(entries, runs, host, line_at, hist, unresolved):
    """hist[row, pages, ePT lines] (int64[rows, 9, 9]) += 1 for each gPT line that maps a page.

    entries     uint64[T, 512], x86
    host        Host, whose classes are the levels of leaf entries
    pages       gPTEs of the line whose frame the host maps; those of others: unresolved[row] (int64[rows])
    line_at     int64[8], scratch space
    """
    for r in range(len(runs.table)):
        table, mask, row = runs.table[r], np.int64(runs.mask[r]), runs.row[r]
        for at in range(LINE * runs.first[r], LINE * runs.last[r], LINE):
            if mask == EVERY and in_one_block(entries, table, at) and plain(entries[table, at], host):
                hist[row, LINE, 1] += 1
                continue
            present = 0
            for k in range(LINE):
                entry = entries[table, at + k]
                line_at[k] = NO_LINE
                if (mask >> k) & 1 and mapped(entry, 1, X86):
                    present += 1
                    line_at[k] = line_of(frame(entry, 1, X86), host)
            pages, lines = distinct(line_at)
            hist[row, pages, lines] += pages > 0
            unresolved[row] += present - pages


@hook
def in_one_block(entries, table, at):
    """The eight entries from slot `at` on are present, and their frames are in an aligned block of eight."""
    differ, present, first = NOTHING, PRESENT, entries[table, at]
    for k in range(LINE):
        entry = entries[table, at + k]
        differ |= entry ^ first
        present &= entry
    return present == PRESENT and differ & FRAGMENTATION_BLOCK == NOTHING


@hook
def plain(entry, host):
    """The host maps all around the frame of a present entry: none of its entries need be read."""
    region = (entry & ADDRESS) >> np.uint64(21)
    return region < np.uint64(len(host.of_region)) and host.of_region[region] < host.unmapped


@hook
def distinct(line_at):
    """(number of lines, of different lines) of int64[8], NO_LINE where there is none."""
    pages, lines = 0, 0
    for k in range(LINE):
        new = line_at[k] != NO_LINE
        pages += new
        for j in range(k):
            new &= line_at[j] != line_at[k]
        lines += new
    return pages, lines


@hook
def line_of(number, host):
    """The ePT cache line with the leaf entry of guest frame `number`, its level in the low bits."""
    level = frame_class(number, host)
    return NO_LINE if level == host.unmapped else (number >> (9 * level - 6)) << 2 | level
