"""Number of cache lines of ePT leaf entries for the eight gPTEs of a gPT cache line.

Without reference counting (_nrt=False), which would be atomic and cost ten times the rest.
"""

from typing import NamedTuple

import numpy as np

from .entries import ADDRESS, PRESENT, X86, frame, mapped
from .hooks import called_hook, hook, kernel

LINE, EVERY = 8, 0xFF  # entries of 8 bytes in a cache line of 64, and the mask of all of them
BLOCK = ADDRESS & ~np.uint64((1 << 15) - 1)  # of an entry: its aligned block of eight frames
NOTHING = np.uint64(0)
NO_LINE = np.int64(-1)
UNMAPPED, CLOSER = 0, 4  # of Host.kind


class Runs(NamedTuple):
    """Runs of gPT cache lines of leaf tables (level 1), and their row of the result.

    A line that belongs to several rows is a run of its own in each, with the slots that count in `mask`.
    """

    table: np.ndarray  # int32[R]
    first: np.ndarray  # int16[R]  line 0..63
    last: np.ndarray  # int16[R]  one past the last
    mask: np.ndarray  # uint8[R]  bit k: slot k of each line counts
    row: np.ndarray  # int64[R]


class HostTables(NamedTuple):
    """Places of the ePT leaf entries of guest frames, by frame >> 9.

    kind     uint8[D]  UNMAPPED, 1..3 the level of the leaf entry, or CLOSER: level 1, its entry must be read
    table    int32[D]  host table (counted from 0) with the leaf entries, -1 none
    entries  uint64[H, 512]
    code     their encoding
    """

    kind: np.ndarray
    table: np.ndarray
    entries: np.ndarray
    code: int


@kernel
def count_lines(entries, runs, host, line_at, hist, unresolved):
    """hist[row, pages, ePT lines] (int64[rows, 9, 9]) += 1 for each gPT line that maps a page.

    entries     uint64[T, 512], x86
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
    return present == PRESENT and differ & BLOCK == NOTHING


@hook
def plain(entry, host):
    """The host maps all around the frame of a present entry: none of its entries need be read."""
    region = (entry & ADDRESS) >> np.uint64(21)
    return region < np.uint64(len(host.kind)) and UNMAPPED < host.kind[region] < CLOSER


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
    region = number >> 9
    if region >= len(host.kind):
        return NO_LINE
    level = np.int64(host.kind[region])
    if level == CLOSER:
        level = look_closer(number, host.table, host.entries, host.code)
    if level == UNMAPPED:
        return NO_LINE
    return (number >> (9 * level - 6)) << 2 | level


@called_hook
def look_closer(number, table, entries, code):
    """1 if the host's leaf table has an entry for the guest frame, else UNMAPPED."""
    return np.int64(mapped(entries[table[number >> 9], number & 511], 1, code))
