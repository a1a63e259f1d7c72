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
from .setassoc import EMPTY
from .setrows import RowBank, find

NO_TABLE = -1
BLOCK = 512  # walks that take each step together
READS = 35  # at most, by one walk
ONE = np.uint64(1)


class Caches(NamedTuple):
    """What walks hit or miss. The arrays of guest_pwc and host_pwc go by level of the table they lead to."""

    guest_pwc: RowBank  # per CPU
    host_pwc: RowBank  # per CPU
    nested: RowBank  # per CPU: guest frame -> host frame, an entry spans the host's leaf
    l2: RowBank  # per CPU: lines of 8 entries
    llc: RowBank  # per node


class Block(NamedTuple):
    """Room for what BLOCK walks look at: written and read again by the three steps of `walk`.

    vpn, frame  int64[BLOCK]  page number walked for, and its guest frame: -1 native or where there is none
    line        uint32[BLOCK * READS]  tags of the lines read, in order
    walk, bit   int64[BLOCK * READS]   which walk of the block reads it, as which bit of its mask
    missed      int64[BLOCK * READS]   reads that missed the CPU's L2
    chain       int64[2, 8]   tables on the way of one walk, by level: the guest's, the host's
    """

    vpn: np.ndarray
    frame: np.ndarray
    line: np.ndarray
    walk: np.ndarray
    bit: np.ndarray
    missed: np.ndarray
    chain: np.ndarray


class Trees(NamedTuple):
    """Both dimensions. host_levels 0: native. entries, frame, host_of are only read when there is a host."""

    entries: np.ndarray  # uint64[guest tables, 512]
    frame: np.ndarray  # int64[guest tables]
    host_of: np.ndarray  # int32[D], AddressSpace.host_of
    levels: int
    host_levels: int
    code: int  # of the guest's entries, kernels.entries.CODES


def block():
    """An empty Block."""
    walks, reads = np.zeros((2, BLOCK), np.int64), np.zeros((3, BLOCK * READS), np.int64)
    return Block(*walks, np.zeros(BLOCK * READS, np.uint32), *reads, np.zeros((2, 8), np.int64))


@njit(cache=True, nogil=True, _nrt=False)
def walk(cpu, page, flushes, cpu_node, tables, regions, trees, caches, block, out):
    """Walk for page[i] on cpu[i], i = 0..n-1 in order.

    out      Reads; all columns but cpu, page and write are written
    flushes  int64[k], sorted: before walk flushes[j] every CPU drops its guest paging-structure caches
    block    Block

    A block of walks takes one step after the other: where they end, which entries they read, which of those
    are cached. No step depends on a later one, so that reads from memory overlap.
    """
    flushed = 0
    for first in range(0, len(page), BLOCK):
        last = min(first + BLOCK, len(page))
        locate(page, first, last, tables.level, regions, trees, block, out)
        flushed, reads = descend(cpu, flushes, flushed, first, last, tables, trees, caches, block, out)
        fetch(cpu, cpu_node, first, reads, caches, block, out)


@njit(cache=True, nogil=True, _nrt=False)
def locate(page, first, last, table_level, regions, trees, block, out):
    """Where each walk ends: leaf, slot, host_leaf, host_slot of `out`, vpn and frame of `block`."""
    va, leaf, region_level = regions.va, regions.leaf, regions.level
    out_leaf, out_slot, out_host, out_host_slot = out.leaf, out.slot, out.host_leaf, out.host_slot
    for i in range(first, last):
        region = np.int64(page[i]) >> 9
        level, vpn = np.int64(region_level[region]), np.int64(va[region]) << 9 | np.int64(page[i]) & 511
        table, slot = np.int64(leaf[region]), (vpn >> (9 * (level - 1))) & 511
        number, host, host_slot = np.int64(-1), np.int64(NO_TABLE), np.int64(-1)
        if trees.host_levels > 0:
            number = data_frame(trees.entries, table, slot, level, vpn, trees.code)
            host = host_of(trees.host_of, number)
            if host != NO_TABLE:
                host_slot = (number >> (9 * (np.int64(table_level[host]) - 1))) & 511
        block.vpn[i - first], block.frame[i - first] = vpn, number
        out_leaf[i], out_slot[i], out_host[i], out_host_slot[i] = table, slot, host, host_slot


@njit(cache=True, nogil=True, _nrt=False)
def descend(cpu, flushes, flushed, first, last, tables, trees, caches, block, out):
    """Which entries each walk reads, past the paging-structure caches: `read` of `out`, the lines of `block`.

    Returns (flushes done, lines in `block`).
    """
    parent, table_level, guest_host = tables.parent, tables.level, tables.host_leaf
    pwc, chain, frames = caches.guest_pwc, block.chain[0], trees.frame
    levels, nested = trees.levels, trees.host_levels > 0
    out_leaf, out_host, out_read, out_dram = out.leaf, out.host_leaf, out.read, out.dram
    reads = 0
    for i in range(first, last):
        if flushed < len(flushes) and flushes[flushed] <= i:
            pwc.tags[:] = EMPTY
            while flushed < len(flushes) and flushes[flushed] <= i:
                flushed += 1
        c, begin, vpn, table = np.int64(cpu[i]), reads, block.vpn[i - first], np.int64(out_leaf[i])
        level = np.int64(table_level[table])
        g, known = level, False
        chain[g] = table
        while g < levels and not known:
            known = find(pwc, c, g, vpn >> (9 * g), np.uint32(table))
            if not known:
                table = np.int64(parent[table])
                g += 1
                chain[g] = table
        while g >= level:
            if nested and not known:
                host = np.int64(guest_host[chain[g]])
                if host != NO_TABLE:
                    reads = translate(c, g, frames[chain[g]], host, reads, tables, trees, caches, block)
            known = False
            block.line[reads], block.bit[reads] = line_of(chain[g], vpn >> (9 * (g - 1))), 8 * g
            reads += 1
            g -= 1
        if nested and out_host[i] != NO_TABLE:
            host, number = np.int64(out_host[i]), block.frame[i - first]
            reads = translate(c, 0, number, host, reads, tables, trees, caches, block)
        read = np.uint64(0)
        for k in range(begin, reads):
            block.walk[k] = i - first
            read |= ONE << np.uint64(block.bit[k])
        out_read[i], out_dram[i] = read, 0
    return flushed, reads


@njit(inline="always")
def translate(c, g, number, table, reads, tables, trees, caches, block):
    """The nested walk to guest frame `number`, whose host leaf is in `table`; the new number of reads."""
    parent, chain, low = tables.parent, block.chain[1], np.int64(tables.level[table])
    span = 9 * (low - 1)
    if find(caches.nested, c, 0, number >> span, np.uint32(number >> span << span)):
        return reads
    h = low
    chain[h] = table
    while h < trees.host_levels:
        if find(caches.host_pwc, c, h, number >> (9 * h), np.uint32(table)):
            break
        table = np.int64(parent[table])
        h += 1
        chain[h] = table
    while h >= low:
        block.line[reads], block.bit[reads] = line_of(chain[h], number >> (9 * (h - 1))), 8 * g + h
        reads += 1
        h -= 1
    return reads


@njit(cache=True, nogil=True, _nrt=False)
def fetch(cpu, cpu_node, first, reads, caches, block, out):
    """Which of the lines come from DRAM: `dram` of `out`."""
    missed, dram = 0, out.dram
    for k in range(reads):
        line = block.line[k]
        block.missed[missed] = k
        missed += not find(caches.l2, np.int64(cpu[first + block.walk[k]]), 0, line, line)
    for m in range(missed):
        k = block.missed[m]
        line, i = block.line[k], first + block.walk[k]
        found = find(caches.llc, np.int64(cpu_node[cpu[i]]), 0, line, line)
        dram[i] |= np.uint64(not found) << np.uint64(block.bit[k])


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
