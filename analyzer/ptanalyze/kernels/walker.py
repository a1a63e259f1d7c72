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
    """Walk for page[i] on cpu[i], i = 0..n-1 in this order; fills `out`, returns data pages unresolved.

    out      Reads; leaf, slot, host_leaf, read and dram are written

    flushes  int64[k], sorted: before walk flushes[j] every CPU drops its guest paging-structure caches.
    """
    parent, table_level = tables.parent, tables.level
    pwc_tags, pwc_stride, pwc_start, pwc_sets, pwc_ways = caches.guest_pwc
    host_tags, host_stride, host_start, host_sets, host_ways = caches.host_pwc
    nested_tags, nested_stride = caches.nested.tags, caches.nested.stride
    nested_sets, nested_ways = caches.nested.sets[0], caches.nested.ways[0]
    region_va, region_leaf, region_level = regions.va, regions.leaf, regions.level
    out_leaf, out_slot, out_host_leaf, out_read, out_dram = (
        out.leaf,
        out.slot,
        out.host_leaf,
        out.read,
        out.dram,
    )
    levels, host_levels = trees.levels, trees.host_levels
    chain, host_chain = np.zeros(8, np.int64), np.zeros(8, np.int64)
    l2, llc = caches.l2.tags, caches.llc.tags
    l2_stride, llc_stride = caches.l2.stride, caches.llc.stride
    l2_sets, l2_ways = np.uint32(caches.l2.sets[0]), caches.l2.ways[0]
    llc_sets, llc_ways = np.uint32(caches.llc.sets[0]), caches.llc.ways[0]
    unresolved = flushed = 0
    for i in range(len(page)):
        if flushed < len(flushes) and flushes[flushed] <= i:
            pwc_tags[:] = EMPTY
            while flushed < len(flushes) and flushes[flushed] <= i:
                flushed += 1
        c = np.int64(cpu[i])
        node = np.int64(cpu_node[c])
        region = np.int64(page[i]) >> 9
        pwc_first, host_first = c * pwc_stride, c * host_stride
        l2_first, llc_first = c * l2_stride, node * llc_stride
        level = np.int64(region_level[region])
        vpn = np.int64(region_va[region]) << 9 | np.int64(page[i]) & 511
        slot = (vpn >> (9 * (level - 1))) & 511
        table = np.int64(region_leaf[region])
        known = False
        top = level
        chain[top] = table
        while top < levels and not known:
            first = pwc_first + pwc_start[top] + set_of(vpn >> (9 * top), pwc_sets[top], pwc_ways[top])
            known = touch(pwc_tags, first, pwc_ways[top], np.uint32(table))
            if not known:
                table = np.int64(parent[table])
                top += 1
                chain[top] = table
        read, dram = np.uint64(0), np.uint64(0)
        host_table = np.int64(NO_TABLE)
        g = top
        while True:
            if host_levels > 0 and not known:
                number = np.int64(0)
                if g > 0:
                    host_table = np.int64(tables.host_leaf[chain[g]])
                    if host_table != NO_TABLE:
                        number = trees.frame[chain[g]]
                else:
                    number = data_frame(trees, chain[level], slot, level, vpn)
                    host_table = host_of(trees, number)
                    unresolved += host_table == NO_TABLE
                if host_table != NO_TABLE:
                    low = np.int64(table_level[host_table])
                    span = 9 * (low - 1)
                    first = c * nested_stride + set_of(number >> span, nested_sets, nested_ways)
                    if not touch(nested_tags, first, nested_ways, np.uint32(number >> span << span)):
                        table, h = host_table, low
                        host_chain[h] = table
                        while h < host_levels:
                            first = (
                                host_first
                                + host_start[h]
                                + set_of(number >> (9 * h), host_sets[h], host_ways[h])
                            )
                            if touch(host_tags, first, host_ways[h], np.uint32(table)):
                                break
                            table = np.int64(parent[table])
                            h += 1
                            host_chain[h] = table
                        while h >= low:
                            bit = np.uint64(1) << np.uint64(8 * g + h)
                            read |= bit
                            if from_dram(
                                l2,
                                llc,
                                l2_sets,
                                l2_ways,
                                llc_sets,
                                llc_ways,
                                l2_first,
                                llc_first,
                                host_chain[h],
                                (number >> (9 * (h - 1))) & 511,
                            ):
                                dram |= bit
                            h -= 1
            if g == 0:
                break
            known = False
            bit = np.uint64(1) << np.uint64(8 * g)
            read |= bit
            if from_dram(
                l2,
                llc,
                l2_sets,
                l2_ways,
                llc_sets,
                llc_ways,
                l2_first,
                llc_first,
                chain[g],
                (vpn >> (9 * (g - 1))) & 511,
            ):
                dram |= bit
            g = g - 1 if g > level else np.int64(0)
            if g == 0 and host_levels == 0:
                break
        out_leaf[i], out_slot[i], out_host_leaf[i] = chain[level], slot, host_table
        out_read[i], out_dram[i] = read, dram
    return unresolved


@njit(inline="always")
def set_of(index, sets, ways):
    """Where in its array the set begins that `index` falls into."""
    return np.int64(np.uint64(index) % np.uint64(sets)) * ways


@njit(inline="always")
def from_dram(l2, llc, l2_sets, l2_ways, llc_sets, llc_ways, l2_first, llc_first, table, slot):
    """Read an entry: whether its line is in neither the CPU's L2 nor the node's LLC; then both have it."""
    line = np.uint32(table << 6 | slot >> 3)
    if touch(l2, l2_first + np.int64(line % l2_sets) * l2_ways, l2_ways, line):
        return False
    return not touch(llc, llc_first + np.int64(line % llc_sets) * llc_ways, llc_ways, line)


@njit
def data_frame(trees, table, slot, level, vpn):
    """int64 guest frame of the page walked for, -1 where the snapshot no longer has its entry."""
    if table >= len(trees.frame):
        return np.int64(-1)
    entry = trees.entries[table, slot]
    if not leaf(entry, level, trees.code):
        return np.int64(-1)
    return frame(entry, level, trees.code) + (vpn & ((np.int64(1) << (9 * (level - 1))) - 1))


@njit
def host_of(trees, number):
    """int64 flat id of the host table that maps a guest frame, NO_TABLE outside the VM's memory."""
    if number < 0 or number >> 9 >= len(trees.host_of):
        return np.int64(NO_TABLE)
    return np.int64(trees.host_of[number >> 9])
