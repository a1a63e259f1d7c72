"""The page walker, for every tree: native or two-dimensional, any number of levels, any leaf sizes.

For each walk it marks the table entries that the hardware reads, and which of them miss each cache.
Page-walk caches hold non-leaf entries by prefix of the address, an array per level (array L of a bank knows
tables of level L: 1 is the PDE cache). A two-dimensional walk caches the combined mapping for the
guest: a hit also spares the nested walk to that guest table. The nested TLB and the host's own
paging-structure caches hold guest-physical mappings, which INVLPG leaves alone (Intel SDM 3C, 29.4).
"""

from typing import NamedTuple

import numpy as np

from . import OWN_CACHES
from .jit import hook, kernel
from .lru import EMPTY, RowBank, depth_in_row, find, line_row, llc_row, prefetch, shape_of, touch_line, within

# `core.snapshot` for a single raw entry, inlined into kernels.

X86, EPT, KVM = 0, 1, 2
CODES = {"x86": X86, "ept": EPT, "kvm": KVM}

PRESENT = np.uint64(1)
HUGE = np.uint64(1 << 7)
PROTNONE = np.uint64(1 << 8)
KVM_MAPPED = np.uint64(1 << 11)
EPT_ACCESS = np.uint64(7)
ADDRESS = np.uint64((1 << 52) - (1 << 12))
NONE = np.uint64(0)


@hook
def mapped(entry, level, code):
    """Something is behind the entry (uint64), whether or not a walker may use it."""
    if code == X86:
        hints = (PROTNONE | HUGE) if level > 1 else PROTNONE
        return (entry & (PRESENT | hints)) != NONE if (entry & PRESENT) == NONE else True
    if code == EPT:
        return (entry & EPT_ACCESS) != NONE
    return (entry & KVM_MAPPED) != NONE


@hook
def leaf(entry, level, code):
    """The entry maps a page of 4 KiB (level 1), 2 MiB (2) or 1 GiB (3)."""
    if level > 3 or not mapped(entry, level, code):
        return False
    return level == 1 or (entry & HUGE) != NONE


@hook
def frame(entry, level, code):
    """int64: page frame of a leaf entry, the first of a huge page."""
    if code == X86 and (entry & PRESENT) == NONE:
        entry = ~entry
    shift = np.uint64(9 * (level - 1))
    return np.int64((((entry & ADDRESS) >> np.uint64(12)) >> shift) << shift)


NO_TABLE = -1
PARENT, HOST_LEAF, FRAME, LEVEL = range(4)  # of Trees.table
PIECE = 1 << 15  # walks that take a step before the next
TOGETHER, AHEAD = 512, 32  # reads whose sets are asked for at once; walks that memory is asked for ahead
READS = 35  # at most, per walk
ONE = np.uint64(1)


class Caches(NamedTuple):
    """Caches of walks. The arrays of guest_pwc and host_pwc go by level of the table they lead to."""

    guest_pwc: RowBank  # per CPU
    host_pwc: RowBank  # per CPU
    nested: RowBank  # per CPU: guest frame -> host frame, an entry spans the host's leaf
    own: RowBank  # per CPU, lines of 8 entries: L1D, without ways where walks begin at L2, and L2
    llc: RowBank  # per node
    llc_ways: np.ndarray  # int64[shares, 2]: ways of each set, and sets with one more; shares ascend


class Scratch(NamedTuple):
    """Scratch space of up to PIECE walks, which take each of the three steps together.

    vpn, frame  int64[PIECE]  page number walked for, and its guest frame: -1 native or unmapped
    read        uint64[PIECE * READS]  entries read, in order: tag of the line << 32 | walk << 8 | bit
    """

    vpn: np.ndarray
    frame: np.ndarray
    read: np.ndarray


class Trees(NamedTuple):
    """Both dimensions. host_levels 0: native. entries and host_of are only read when there is a host."""

    entries: np.ndarray  # uint64[guest tables, 512]
    table: np.ndarray  # uint32[T, 4]: PARENT, HOST_LEAF, FRAME, LEVEL of each table, four to a cache line
    host_of: np.ndarray  # int32[D], AddressSpace.host_of
    levels: int
    host_levels: int
    code: int  # of the guest's entries, kernels.walker.CODES


def scratch():
    """An empty Scratch."""
    return Scratch(*np.zeros((2, PIECE), np.int64), np.zeros(PIECE * READS, np.uint64))


def table_rows(tables, frame):
    """Trees.table of Tables and the frames of guest tables (int64), an unknown one as NO_TABLE."""
    rows = np.full((len(tables.level), 4), NO_TABLE, np.int32)
    rows[:, PARENT], rows[:, HOST_LEAF], rows[:, LEVEL] = tables.parent, tables.host_leaf, tables.level
    rows = rows.view(np.uint32)
    rows[: len(frame), FRAME] = frame.astype(np.uint32)
    return rows


@hook
def field(trees, table, what):
    """int64: PARENT or HOST_LEAF (NO_TABLE: there is none), FRAME or LEVEL of a table."""
    return np.int64(np.int32(trees.table[np.uint64(table), what]))


@kernel
def find_leaves(page, cpu, mine, regions, trees, scratch, out):
    """Where walks for page[i], i = 0..n-1, end: leaf, slot, host_leaf, host_slot of `out`, vpn and frame.

    mine  bool[cpus]: whose walks
    """
    va, leaf, level, nested = regions.va, regions.leaf, regions.level, trees.host_levels > 0
    for i in range(np.uint64(len(page))):
        if not mine[np.uint64(cpu[i])]:
            continue
        if nested:
            ask_for_entry(i + np.uint64(AHEAD), page, leaf, trees)
        region = page[i] >> np.uint32(9)
        vpn, of = np.int64(va[region]) << 9 | np.int64(page[i]) & 511, np.int64(level[region])
        table, slot = np.int64(leaf[region]), (vpn >> (9 * (of - 1))) & 511
        number, host, host_slot = np.int64(-1), np.int64(NO_TABLE), np.int64(-1)
        if nested:
            number = data_frame(trees.entries, table, slot, of, vpn, trees.code)
            host = host_of(trees.host_of, number)
            if host != NO_TABLE:
                host_slot = (number >> (9 * (field(trees, host, LEVEL) - 1))) & 511
        scratch.vpn[i], scratch.frame[i] = vpn, number
        out.leaf[i], out.slot[i], out.host_leaf[i], out.host_slot[i] = table, slot, host, host_slot


@hook
def ask_for_entry(i, page, leaf, trees):
    """Prefetch the leaf entry of page[i], if that is of 4 KiB."""
    if i < np.uint64(len(page)):
        table = np.int64(leaf[page[i] >> np.uint32(9)])
        if table < len(trees.entries):
            prefetch(trees.entries, np.uint64(table << 9 | np.int64(page[i]) & 511))


@kernel
def descend(cpu, mine, flushes, trees, caches, scratch, chain, out):
    """Which entries each walk reads, past the paging-structure caches: `read` of `out` and of `scratch`.

    cpu      int32[n] of each walk
    mine     bool[cpus]: whose walks
    flushes  int64[k], sorted: before walk flushes[j] they drop their guest paging-structure caches
    chain    int64[2, 8]   scratch: tables on the way of a walk, by level: the guest's, the host's

    Returns the number of reads in `scratch`.
    """
    pwc, own = caches.guest_pwc, chain[0]
    levels, nested = trees.levels, trees.host_levels > 0
    out_leaf, out_host, out_read = out.leaf, out.host_leaf, out.read
    reads, flushed = np.int64(0), np.int64(0)
    for i in range(np.uint64(len(cpu))):
        if not mine[np.uint64(cpu[i])]:
            continue
        ask_for_tables(i + np.uint64(AHEAD), trees, out)
        if flushed < len(flushes) and flushes[flushed] <= np.int64(i):
            drop_all(pwc, mine)
            while flushed < len(flushes) and flushes[flushed] <= np.int64(i):
                flushed += 1
        c, vpn, table, read = np.int64(cpu[i]), scratch.vpn[i], np.int64(out_leaf[i]), np.uint64(0)
        level = field(trees, table, LEVEL)
        g, known = level, False
        own[np.uint64(g)] = table
        while g < levels and not known:
            known = find(pwc, c, g, vpn >> (9 * g), np.uint32(table))
            if not known:
                table = field(trees, table, PARENT)
                g += 1
                own[np.uint64(g)] = table
        while g >= level:
            if nested and not known:
                host = field(trees, own[g], HOST_LEAF)
                if host != NO_TABLE:
                    to = np.int64(i), c, g, np.int64(trees.table[np.uint64(own[g]), FRAME]), host
                    reads, bits = translate(to, reads, trees, caches, scratch, chain)
                    read |= bits
            known = False
            scratch.read[np.uint64(reads)] = one_read(own[g], vpn >> (9 * (g - 1)), np.int64(i), 8 * g)
            read |= ONE << np.uint64(8 * g)
            reads += 1
            g -= 1
        if nested and out_host[i] != NO_TABLE:
            to = np.int64(i), c, np.int64(0), scratch.frame[i], np.int64(out_host[i])
            reads, bits = translate(to, reads, trees, caches, scratch, chain)
            read |= bits
        out_read[i] = read
    if flushed < len(flushes):
        drop_all(pwc, mine)
    return reads


@hook
def drop_all(bank, mine):
    """Empty the arrays of the owners that are mine."""
    for owner in range(len(mine)):
        if mine[owner]:
            bank.tags[owner * bank.stride : (owner + 1) * bank.stride] = EMPTY


@hook
def ask_for_tables(i, trees, out):
    """Prefetch the rows of the tables that walk i ends in."""
    if i < np.uint64(len(out.leaf)):
        prefetch(trees.table, np.uint64(np.int64(out.leaf[i]) << 2))
        if trees.host_levels > 0 and out.host_leaf[i] != NO_TABLE:
            prefetch(trees.table, np.uint64(np.int64(out.host_leaf[i]) << 2))


@hook
def translate(to, reads, trees, caches, scratch, chains):
    """The nested walk to guest frame `number`, whose host leaf is in `table`: (reads so far, their bits)."""
    walk, c, g, number, table = to
    chain, low = chains[1], field(trees, table, LEVEL)
    span = 9 * (low - 1)
    if find(caches.nested, c, 0, number >> span, np.uint32(number >> span << span)):
        return reads, np.uint64(0)
    h = low
    chain[h] = table
    while h < trees.host_levels:
        if find(caches.host_pwc, c, h, number >> (9 * h), np.uint32(table)):
            break
        table = field(trees, table, PARENT)
        h += 1
        chain[h] = table
    bits = ((ONE << np.uint64(h + 1)) - (ONE << np.uint64(low))) << np.uint64(8 * g)
    while h >= low:
        scratch.read[np.uint64(reads)] = one_read(chain[h], number >> (9 * (h - 1)), walk, 8 * g + h)
        reads += 1
        h -= 1
    return reads, bits


@kernel
def fetch(cpu, cpu_node, reads, caches, scratch, behind, out):
    """Which of the first `reads` entries of `scratch` miss each cache: `missed` of `out`, zeros.

    An LLC holds what it does at the largest share; how deep a line is in its set says which shares have it.

    behind  uint64[2, TOGETHER]  scratch: entries that no L2 has, and where their sets in the LLC begin
    """
    l1, l2, llc = shape_of(caches.own, 0), shape_of(caches.own, 1), shape_of(caches.llc, 0)
    tags, ways, missed = caches.own.tags, caches.llc_ways, out.missed
    most = np.uint64(len(ways) - 1)
    for first in range(0, reads, TOGETHER):
        n = np.uint64(0)
        for k in range(np.uint64(first), np.uint64(min(first + TOGETHER, reads))):
            read = scratch.read[k]
            line, walk, bit = parts(read)
            if touch_line(tags, l1, line_row(l1, cpu[walk], line), line):
                continue
            if touch_line(tags, l2, line_row(l2, cpu[walk], line), line):
                missed[walk, 0] |= ONE << bit
                continue
            row = llc_row(llc, cpu_node[cpu[walk]], line)
            for tag in range(np.uint64(0), np.uint64(llc[4]), np.uint64(16)):
                prefetch(caches.llc.tags, row + tag)
            behind[0, n], behind[1, n] = read, row
            n += np.uint64(1)
        for m in range(n):
            line, walk, bit = parts(behind[0, m])
            of = within(llc, cpu_node[cpu[walk]], behind[1, m])
            depth = depth_in_row(caches.llc.tags, llc[4], ways_of(ways, most, of, llc[4]), behind[1, m], line)
            misses = np.uint64(OWN_CACHES)
            for share in range(most + np.uint64(1)):
                misses += np.uint64(depth >= ways_of(ways, share, of, llc[4]))
            missed[walk, 0] |= (misses & ONE) << bit
            missed[walk, 1] |= (misses >> ONE & ONE) << bit
            if missed.shape[1] > 2:
                missed[walk, 2] |= (misses >> np.uint64(2)) << bit


@hook
def ways_of(ways, share, of, row):
    """uint32 ways of a set of the LLC at a share; of: lru.within."""
    return np.uint32(ways[share, 0] + (of < np.uint64(ways[share, 1] * row)))


@hook
def one_read(table, index, walk, bit):
    """Element of Scratch.read: the entry of `table` for `index`, whose low 9 bits are the slot."""
    line = np.uint64(table << 6 | (index >> 3) & 63)  # of 64 bytes, 8 entries
    return line << np.uint64(32) | np.uint64(walk << 8 | bit)


@hook
def parts(read):
    """(tag of the line, walk of the piece, bit) of an element of Scratch.read."""
    walk = read >> np.uint64(8) & np.uint64(0xFFFFFF)
    return np.uint32(read >> np.uint64(32)), walk, read & np.uint64(63)


@hook
def data_frame(entries, table, slot, level, vpn, code):
    """int64 guest frame of the page walked for, -1 where the snapshot no longer has its entry."""
    if table >= len(entries):
        return np.int64(-1)
    entry = entries[table, slot]
    if not leaf(entry, level, code):
        return np.int64(-1)
    return frame(entry, level, code) + (vpn & ((np.int64(1) << (9 * (level - 1))) - 1))


@hook
def host_of(host_tables, number):
    """int64 flat id of the host table that maps a guest frame, NO_TABLE outside the VM's memory."""
    if number < 0 or number >> 9 >= len(host_tables):
        return np.int64(NO_TABLE)
    return np.int64(host_tables[number >> 9])


# Mapped pages of parts of leaf tables.


class Segments(NamedTuple):
    """S runs of entries lo..hi-1 of a leaf table (level 1), and their row of the result."""

    table: np.ndarray  # int32[S]
    lo: np.ndarray  # int16[S]
    hi: np.ndarray  # int16[S]
    row: np.ndarray  # int64[S]


@kernel
def count_mapped(entries, segments, code, counts):
    """counts[s] (int64[S]) = entries of segment s of uint64[T, 512] that map a 4 KiB page."""
    for s in range(len(segments.table)):
        run = entries[segments.table[s]][segments.lo[s] : segments.hi[s]]
        n = np.uint64(0)
        if code == X86:
            for i in range(len(run)):
                n += (run[i] | (run[i] >> np.uint64(8))) & np.uint64(1)
        else:
            for i in range(len(run)):
                n += np.uint64(mapped(run[i], 1, code))
        counts[s] = np.int64(n)
