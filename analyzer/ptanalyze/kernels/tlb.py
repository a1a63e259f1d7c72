"""Touches in, TLB misses out: split first-level arrays by page size over a second level, true LRU, per CPU.

The set is always that of the real page number. Tags are dense page numbers (region id << 9 |
slot; a huge page's tag is its first touched region's, slot 0): no region has entries of two sizes, so that
tags of several sizes may share an array. `filter_common` takes the shape of x86 cores whose 4 KiB pages have
at most 512 sets of up to 16 ways, a power of two, at both levels: the low bits of a dense number select the
right set, too. `filter_any` takes every other shape. Both touch sets as vectors (kernels.lru).
"""

from typing import NamedTuple

import numpy as np

from .jit import called_hook, hook, kernel
from .lru import EMPTY, SETS, START, WAYS, Bank, RowBank, drop, find, row_of, touch, touch_16

L1_4K, L1_2M, L1_1G, L2, L2_1G, NO_ARRAY = range(6)  # arrays of State.rows, of filter_common of State.bank
FIRST, SECOND = range(2)  # arrays of State.rows of filter_common
IN_BANK = -1
TAGS = 16  # in each of its rows
BLOCK = 4096  # touches that are looked through for those of a part together


class Pages(NamedTuple):
    """Page sizes of regions, by region id."""

    va: np.ndarray  # uint64[R]  address >> 21
    size: np.ndarray  # uint8[R]  1, 2, 3: 4 KiB, 2 MiB, 1 GiB
    gig: np.ndarray  # uint32[R]  first touched region of the same GiB
    any_huge: bool  # some size is not 1


class Shootdowns(NamedTuple):
    """K invalidations, sorted by chunk. Number k drops tag[first[k] : first[k + 1]], or all entries."""

    chunk: np.ndarray  # int64[K]  before this chunk
    all: np.ndarray  # bool[K]
    first: np.ndarray  # int64[K + 1]
    tag: np.ndarray  # uint32[...]


class State(NamedTuple):
    """The TLB of a CPU, or a part of it."""

    level2: np.ndarray  # int64[4]: array behind pages of size 1, 2, 3
    rows: RowBank  # a single owner, arrays L1_4K ... NO_ARRAY; of filter_common FIRST for 4 KiB pages, SECOND
    bank: Bank  # of filter_common: arrays L1_4K ... NO_ARRAY, ways 0 of those that are in rows
    where: np.ndarray  # int64[6]: number in rows of each array, or IN_BANK
    done: np.ndarray  # int64[1]: shootdowns seen so far
    hits: np.ndarray  # int64[3]: touches that hit L1, hit L2, missed
    mask: int  # parts - 1: the TLB is shared out by set, a power of two of parts
    part: int  # this one has the entries whose number of a page of their size has these low bits
    picked: np.ndarray  # uint32[BLOCK], scratch


@kernel
def filter_any(page, chunks, pages, shootdowns, state, missed):
    """Filter chunks of a CPU: missed[i] becomes True where touch i is of this part and misses.

    page  uint32[n]: a run of the trace; chunks  int64[m, 3]: number, first touch, touches of each;
    missed  bool[n]
    """
    level2, hits = state.level2, state.hits
    va, size, gig = pages.va, pages.size, pages.gig
    for k in range(len(chunks)):
        shoot_down(chunks[k, 0], pages, shootdowns, state)
        end = chunks[k, 1] + chunks[k, 2]
        for begin in range(chunks[k, 1], end, BLOCK):
            stop = min(begin + BLOCK, end)
            run, out = page[begin:stop], missed[begin:stop]
            for j in range(mine(run, pages, state)):
                i = np.uint64(state.picked[j])
                p = run[i]
                region = np.int64(p) >> 9
                s = np.int64(size[region])
                tag, index = p, np.uint64(np.int64(va[region]) << 9 | np.int64(p) & 511)
                if s == 2:
                    tag, index = np.uint32(region << 9), va[region]
                elif s == 3:
                    tag, index = np.uint32(np.int64(gig[region]) << 9), va[region] >> np.uint64(9)
                hit = 2
                for level, a in enumerate((s - 1, level2[s])):
                    if find(state.rows, 0, a, index, tag):
                        hit = level
                        break
                hits[hit] += 1
                out[i] = hit == 2


@kernel
def filter_common(page, chunks, pages, shootdowns, state, missed):
    """As filter_any, for shapes that `is_common` accepts, in one part."""
    tags, _, start, sets, ways = state.bank
    rows, one, two = state.rows.tags, place(state.rows, FIRST), place(state.rows, SECOND)
    ways_one, ways_two = np.uint32(state.rows.shape[FIRST, WAYS]), np.uint32(state.rows.shape[SECOND, WAYS])
    any_huge = pages.any_huge
    va, size, gig = pages.va, pages.size, pages.gig
    hit1 = hit2 = miss = 0
    for k in range(len(chunks)):
        shoot_down(chunks[k, 0], pages, shootdowns, state)
        begin, end = np.uint64(chunks[k, 1]), np.uint64(chunks[k, 1] + chunks[k, 2])
        for i in range(begin, end):
            p = page[i]
            if any_huge and size[p >> np.uint32(9)] > 1:
                region = np.int64(p) >> 9
                s = np.int64(size[region])
                number = va[region] if s == 2 else va[region] >> np.uint64(9)
                tag = np.uint32((region if s == 2 else np.int64(gig[region])) << 9)
                first = start[s - 1] + np.int64(number % np.uint64(sets[s - 1])) * ways[s - 1]
                if touch(tags, first, ways[s - 1], tag):
                    hit1 += 1
                    continue
                a = state.level2[s]
                if a != L2:
                    first = start[a] + np.int64(number % np.uint64(sets[a])) * ways[a]
                    if touch(tags, first, ways[a], tag):
                        hit2 += 1
                        continue
                    missed[i] = True
                    miss += 1
                    continue
            else:
                tag, number = p, np.uint64(p)
                if touch_16(rows, row_by_bits(one, number), ways_one, tag):
                    hit1 += 1
                    continue
            hit = touch_16(rows, row_by_bits(two, number), ways_two, tag)
            hit2 += hit
            miss += not hit
            missed[i] = not hit
    state.hits[0] += hit1
    state.hits[1] += hit2
    state.hits[2] += miss


@kernel
def shoot_down(chunk, pages, shootdowns, state):
    """Apply the shootdowns due before a chunk that this CPU has not seen yet."""
    k = state.done[0]
    while k < len(shootdowns.chunk) and shootdowns.chunk[k] <= chunk:
        if shootdowns.all[k]:
            state.bank.tags[:] = EMPTY
            state.rows.tags[:] = EMPTY
        else:
            for t in range(shootdowns.first[k], shootdowns.first[k + 1]):
                drop_tag(shootdowns.tag[t], pages, state)
        k += 1
    state.done[0] = k


@called_hook
def drop_tag(tag, pages, state):
    """Remove a translation from both levels."""
    _, _, start, sets, ways = state.bank
    region = np.int64(tag) >> 9
    s = np.int64(pages.size[region])
    index = np.uint64(np.int64(pages.va[region]) << 9 | np.int64(tag) & 511) >> np.uint64(9 * (s - 1))
    for a in (s - 1, state.level2[s]):
        row = state.where[a]
        if row == IN_BANK:
            first = start[a] + np.int64(index % np.uint64(sets[a])) * ways[a]
            drop(state.bank.tags, first, ways[a], tag)
        else:
            first = np.int64(row_of(state.rows, 0, row, index))
            drop(state.rows.tags, first, state.rows.shape[row, WAYS], tag)


@hook
def place(bank, array):
    """(START, SETS - 1) of an array with a power of two of sets: what row_by_bits takes."""
    return np.uint64(bank.shape[array, START]), np.uint64(bank.shape[array, SETS] - 1)


@hook
def row_by_bits(where, number):
    """uint64: first position of the set of `number`."""
    start, mask = where
    return start + (number & mask) * np.uint64(TAGS)


@hook
def mine(run, pages, state):
    """Number of the touches of `run` that are of this part; state.picked: which they are, in order."""
    picked, mask, part = state.picked, np.uint32(state.mask), np.uint32(state.part)
    n = np.uint64(0)
    if mask == 0:
        for i in range(len(run)):
            picked[i] = i
        return len(run)
    if pages.any_huge:
        for i in range(len(run)):
            picked[n] = i
            n += np.uint64(np.uint32(entry_number(np.int64(run[i]), pages)) & mask == part)
    else:
        for i in range(len(run)):
            picked[n] = i
            n += np.uint64(run[i] & mask == part)
    return np.int64(n)


@hook
def entry_number(page, pages):
    """int64: low bits of the number of the TLB entry's page, in pages of its size."""
    region = page >> 9
    if pages.size[region] == 1:
        return page
    return np.int64(pages.va[region] >> np.uint64(0 if pages.size[region] == 2 else 9))


@kernel
def gather(page, write, missed, chunks, out_page, out_write, misses):
    """Touches that missed, in their order, to the start of out_page and out_write; misses[k] of chunk k.

    Arrays as in filter_any, chunks one after the other without gaps. Returns their number.
    """
    n = np.uint64(0)
    for k in range(len(chunks)):
        before = n
        for i in range(chunks[k, 1], chunks[k, 1] + chunks[k, 2]):
            out_page[n], out_write[n] = page[i], write[i]
            n += np.uint64(missed[i])
        misses[k] = np.int64(n - before)
    return np.int64(n)
