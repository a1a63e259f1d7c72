"""Touches in, TLB misses out: split first-level arrays by page size over a second level, true LRU, per CPU.

The set is always that of the real page number. Tags are dense page numbers (region id << 9 |
slot; a huge page's tag is its first touched region's, slot 0): no region has entries of two sizes, so that
tags of several sizes may share an array. `filter_common` takes the shape of most x86 cores, where 4 KiB
pages have 4-way first-level sets and at most 512 sets, a power of two, at both levels: the low bits of a
dense number select the right set, too. It keeps ages in the second level instead of moving tags: twice as
fast on hits. `filter_any` takes every other shape.
"""

from typing import NamedTuple

import numpy as np

from .hooks import called_hook, hook, kernel
from .setassoc import EMPTY, Bank, drop, touch

L1_4K, L1_2M, L1_1G, L2, L2_1G, NO_ARRAY = range(6)  # arrays of State.bank
ROW = 16  # ways of a second-level set in filter_common, padded: a cache line of tags
BLOCK = 4096  # touches that are looked through for those of a part together
PAD = np.uint32(0xFFFFFFFF)  # age of a way that does not exist: never the oldest


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

    bank: Bank  # a single owner, arrays L1_4K ... NO_ARRAY
    level2: np.ndarray  # int64[4]: array of the bank behind pages of size 1, 2, 3
    tag: np.ndarray  # uint32[sets * ROW], filter_common only
    age: np.ndarray  # uint32[sets * ROW], filter_common only: time of last use * ROW + way, time 0: empty
    sets: int  # of tag and age; 0: filter_any
    now: np.ndarray  # uint32[1], filter_common only: as age, of way 0
    done: np.ndarray  # int64[1]: shootdowns seen so far
    hits: np.ndarray  # int64[3]: touches that hit L1, hit L2, missed
    mask: int  # parts - 1: the TLB is shared out by set, a power of two of parts
    part: int  # this one has the entries whose number of a page of their size has these low bits
    where: np.ndarray  # uint32[BLOCK], scratch


@kernel
def filter_any(page, chunks, pages, shootdowns, state, missed):
    """Filter chunks of a CPU: missed[i] becomes True where touch i is of this part and misses.

    page  uint32[n]: a run of the trace; chunks  int64[m, 3]: number, first touch, touches of each;
    missed  bool[n]
    """
    tags, _, start, sets, ways = state.bank
    level2, hits = state.level2, state.hits
    va, size, gig = pages.va, pages.size, pages.gig
    for k in range(len(chunks)):
        shoot_down(chunks[k, 0], pages, shootdowns, state)
        end = chunks[k, 1] + chunks[k, 2]
        for begin in range(chunks[k, 1], end, BLOCK):
            stop = min(begin + BLOCK, end)
            run, out = page[begin:stop], missed[begin:stop]
            for j in range(mine(run, pages, state)):
                i = np.uint64(state.where[j])
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
                    first = start[a] + np.int64(index % np.uint64(sets[a])) * ways[a]
                    if touch(tags, first, ways[a], tag):
                        hit = level
                        break
                hits[hit] += 1
                out[i] = hit == 2


@kernel
def filter_common(page, chunks, pages, shootdowns, state, missed):
    """As filter_any, for shapes that `is_common` accepts."""
    tags, _, start, sets, ways = state.bank
    tag2, age2 = state.tag, state.age
    mask1, mask2 = np.uint32(sets[L1_4K] - 1), np.uint32(state.sets - 1)
    any_huge = pages.any_huge
    va, size, gig = pages.va, pages.size, pages.gig
    where, now = state.where, state.now[0]
    hit1 = hit2 = miss = 0
    for k in range(len(chunks)):
        shoot_down(chunks[k, 0], pages, shootdowns, state)
        end = chunks[k, 1] + chunks[k, 2]
        for begin in range(chunks[k, 1], end, BLOCK):
            stop = min(begin + BLOCK, end)
            run, out = page[begin:stop], missed[begin:stop]
            for j in range(mine(run, pages, state)):
                i = np.uint64(where[j])
                p = run[i]
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
                        out[i] = True
                        miss += 1
                        continue
                    row = np.uint32(number & np.uint64(mask2)) * np.uint32(ROW)
                else:
                    tag = p
                    b = (p & mask1) * np.uint32(4)
                    x0 = tags[b]
                    if x0 == p:
                        hit1 += 1
                        continue
                    x1 = tags[b + np.uint32(1)]
                    x2 = tags[b + np.uint32(2)]
                    x3 = tags[b + np.uint32(3)]
                    tags[b] = p
                    tags[b + np.uint32(1)] = x0
                    if x1 == p:
                        hit1 += 1
                        continue
                    tags[b + np.uint32(2)] = x1
                    if x2 == p:
                        hit1 += 1
                        continue
                    tags[b + np.uint32(3)] = x2
                    if x3 == p:
                        hit1 += 1
                        continue
                    row = (p & mask2) * np.uint32(ROW)
                at = -1
                for way in range(ROW):
                    if tag2[row + np.uint32(way)] == tag:
                        at = way
                now = np.uint32(now + np.uint32(ROW))
                if at >= 0:
                    age2[row + np.uint32(at)] = now | np.uint32(at)
                    hit2 += 1
                    continue
                oldest = PAD
                for way in range(ROW):
                    if age2[row + np.uint32(way)] < oldest:
                        oldest = age2[row + np.uint32(way)]
                way = oldest & np.uint32(ROW - 1)
                tag2[row + way], age2[row + way] = tag, now | way
                out[i] = True
                miss += 1
    state.now[0] = now
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
            state.tag[:] = EMPTY
            for way in range(len(state.age)):
                if state.age[way] != PAD:
                    state.age[way] = way % ROW
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
        first = start[a] + np.int64(index % np.uint64(sets[a])) * ways[a]
        drop(state.bank.tags, first, ways[a], tag)
    if state.sets > 0:
        row = np.int64(index % np.uint64(state.sets)) * ROW
        for way in range(row, row + ROW):
            if state.tag[way] == tag:
                state.tag[way], state.age[way] = EMPTY, way % ROW


@hook
def mine(run, pages, state):
    """Number of the touches of `run` that are of this part; state.where: which they are, in order."""
    where, mask, part = state.where, state.mask, state.part
    n = np.uint64(0)
    if mask == 0:
        for i in range(len(run)):
            where[i] = i
        return len(run)
    if pages.any_huge:
        for i in range(len(run)):
            where[n] = i
            n += np.uint64(((entry_number(np.int64(run[i]), pages) ^ part) & mask) - 1) >> np.uint64(63)
    else:
        for i in range(len(run)):
            where[n] = i
            n += np.uint64(((np.int64(run[i]) ^ part) & mask) - 1) >> np.uint64(63)
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
