"""The page walker: one for every tree, native or two-dimensional, any number of levels, any leaf sizes.

For each walk it marks the table entries that the hardware reads, and those of them that come from DRAM.
Page-walk caches hold non-leaf entries by prefix of the address, one array a level (array L of a bank knows
tables of level L: 1 is the PDE cache). What a two-dimensional walk caches for the guest is the combined
mapping: a hit also spares the nested walk to that guest table. The nested TLB and the host's own
paging-structure caches hold guest-physical mappings, which INVLPG leaves alone (Intel SDM 3C, 29.4).
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from .entries import frame, leaf
from .setassoc import EMPTY, Bank, touch

NO_TABLE = -1


class Caches(NamedTuple):
    """What walks hit or miss. The arrays of guest_pwc and host_pwc go by level of the table they lead to."""

    guest_pwc: Bank  # per CPU
    host_pwc: Bank  # per CPU
    nested: Bank  # per CPU: guest frame -> host frame, an entry spans the host's leaf
    l2: Bank  # per CPU: lines of 8 entries
    llc: Bank  # per node


class Trees(NamedTuple):
    """Both dimensions. host_levels 0: native. entries, frame, host_of are only read when there is a host."""

    entries: np.ndarray  # uint64[guest tables, 512]
    frame: np.ndarray  # int64[guest tables]
    host_of: np.ndarray  # int32[D], AddressSpace.host_of
    levels: int
    host_levels: int
    code: int  # of the guest's entries, kernels.entries.CODES


@njit(cache=True, nogil=True)
def walk(cpu, page, flushes, cpu_node, tables, regions, trees, caches, out):
    """Walk for page[i] on cpu[i], i = 0..n-1 in order; returns how many data pages lead nowhere in the host.

    out      Reads; leaf, slot, host_leaf, read and dram are written
    flushes  int64[k], sorted: before walk flushes[j] every CPU drops its guest paging-structure caches
    """
    parent, table_level, guest_host = tables.parent, tables.level, tables.host_leaf
    region_va, region_leaf, region_level = regions.va, regions.leaf, regions.level
    entries, frames, host_tables, levels, host_levels, code = trees
    pwc, pwc_stride, pwc_start, pwc_sets, pwc_ways = caches.guest_pwc
    host_pwc, host_stride, host_start, host_sets, host_ways = caches.host_pwc
    nested, nested_stride, _, nested_sets, nested_ways = caches.nested
    l2, l2_stride, _, l2_sets, l2_ways = caches.l2
    llc, llc_stride, _, llc_sets, llc_ways = caches.llc
    chain, host_chain = np.zeros(8, np.int64), np.zeros(8, np.int64)  # tables on the way, by level
    lines, bits = np.zeros(64, np.uint32), np.zeros(64, np.uint64)  # entries read, in order
    l2_size, llc_size = np.uint32(l2_sets[0]), np.uint32(llc_sets[0])
    out_leaf, out_slot, out_host, out_read, out_dram = out[3:]
    unresolved = flushed = 0
    for i in range(len(page)):
        if flushed < len(flushes) and flushes[flushed] <= i:
            pwc[:] = EMPTY
            while flushed < len(flushes) and flushes[flushed] <= i:
                flushed += 1
        c = np.int64(cpu[i])
        region = np.int64(page[i]) >> 9
        level = np.int64(region_level[region])
        vpn = np.int64(region_va[region]) << 9 | np.int64(page[i]) & 511
        slot = (vpn >> (9 * (level - 1))) & 511
        table, g, known = np.int64(region_leaf[region]), level, False
        chain[g] = table
        while g < levels and not known:
            first = c * pwc_stride + pwc_start[g] + set_of(vpn >> (9 * g), pwc_sets[g], pwc_ways[g])
            known = touch(pwc, first, pwc_ways[g], np.uint32(table))
            if not known:
                table = np.int64(parent[table])
                g += 1
                chain[g] = table
        reads, host_table = 0, np.int64(NO_TABLE)
        while g >= 0:
            if host_levels > 0 and not known:
                if g > 0:
                    host_table = np.int64(guest_host[chain[g]])
                    number = frames[chain[g]] if host_table != NO_TABLE else np.int64(-1)
                else:
                    number = data_frame(entries, chain[level], slot, level, vpn, code)
                    host_table = host_of(host_tables, number)
                    unresolved += host_table == NO_TABLE
                low = np.int64(table_level[host_table]) if host_table != NO_TABLE else np.int64(1)
                span = 9 * (low - 1)
                first = c * nested_stride + set_of(number >> span, nested_sets[0], nested_ways[0])
                tag = np.uint32(max(number, 0) >> span << span)
                if host_table != NO_TABLE and not touch(nested, first, nested_ways[0], tag):
                    table, h = host_table, low
                    host_chain[h] = table
                    while h < host_levels:
                        first = set_of(number >> (9 * h), host_sets[h], host_ways[h])
                        first += c * host_stride + host_start[h]
                        if touch(host_pwc, first, host_ways[h], np.uint32(table)):
                            break
                        table = np.int64(parent[table])
                        h += 1
                        host_chain[h] = table
                    while h >= low:
                        lines[reads] = line_of(host_chain[h], number >> (9 * (h - 1)))
                        bits[reads] = np.uint64(8 * g + h)
                        reads += 1
                        h -= 1
            known = False
            if g > 0:
                lines[reads] = line_of(chain[g], vpn >> (9 * (g - 1)))
                bits[reads] = np.uint64(8 * g)
                reads += 1
            g = g - 1 if g > level else np.int64(0) if g > 0 and host_levels > 0 else np.int64(-1)
        read, dram = np.uint64(0), np.uint64(0)
        for k in range(reads):
            bit, line = np.uint64(1) << bits[k], lines[k]
            read |= bit
            first = c * l2_stride + np.int64(line % l2_size) * l2_ways[0]
            if not touch(l2, first, l2_ways[0], line):
                first = np.int64(cpu_node[c]) * llc_stride + np.int64(line % llc_size) * llc_ways[0]
                if not touch(llc, first, llc_ways[0], line):
                    dram |= bit
        out_leaf[i], out_slot[i], out_host[i] = chain[level], slot, host_table
        out_read[i], out_dram[i] = read, dram
    return unresolved


@njit(inline="always")
def set_of(index, sets, ways):
    """Where in its array the set begins that `index` falls into."""
    return np.int64(np.uint64(index) % np.uint64(sets)) * ways


@njit(inline="always")
def line_of(table, index):
    """Tag of the 64-byte line with the entry for `index`, whose low 9 bits are the slot."""
    return np.uint32(table << 6 | (index >> 3) & 63)


@njit(inline="always")
def data_frame(entries, table, slot, level, vpn, code):
    """int64 guest frame of the page walked for, -1 where the snapshot no longer has its entry."""
    if table >= len(entries):
        return np.int64(-1)
    entry = entries[table, slot]
    if not leaf(entry, level, code):
        return np.int64(-1)
    return frame(entry, level, code) + (vpn & ((np.int64(1) << (9 * (level - 1))) - 1))


@njit(inline="always")
def host_of(host_tables, number):
    """int64 flat id of the host table that maps a guest frame, NO_TABLE outside the VM's memory."""
    if number < 0 or number >> 9 >= len(host_tables):
        return np.int64(NO_TABLE)
    return np.int64(host_tables[number >> 9])
