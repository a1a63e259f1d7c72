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

from .hooks import called_hook, kernel
from .setassoc import EMPTY, Bank, drop, touch

L1_4K, L1_2M, L1_1G, L2, L2_1G, NO_ARRAY = range(6)  # arrays of State.bank
ROW = 16  # ways of a second-level set in filter_common, padded: a cache line of tags
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
    """The TLB of a CPU."""

    bank: Bank  # a single owner, arrays L1_4K ... NO_ARRAY
    level2: np.ndarray  # int64[4]: array of the bank behind pages of size 1, 2, 3
    tag: np.ndarray  # uint32[sets * ROW], filter_common only
    age: np.ndarray  # uint32[sets * ROW], filter_common only: time of last use * ROW + way, time 0: empty
    sets: int  # of tag and age; 0: filter_any
    now: np.ndarray  # uint32[1], filter_common only: as age, of way 0
    done: np.ndarray  # int64[1]: shootdowns seen so far
    hits: np.ndarray  # int64[3]: touches that hit L1, hit L2, missed


@kernel
def filter_any(page, write, chunks, pages, shootdowns, state, out_page, out_write, misses):
    """Filter chunks of a CPU: misses[k] misses of chunk k go to out_page, out_write from chunks[k, 1] on.

    page, write  uint32[n], bool[n]: a run of the trace; chunks  int64[m, 3]: number, first touch, touches
    of each
    """
    tags, _, start, sets, ways = state.bank
    level2, hits = state.level2, state.hits
    va, size, gig = pages.va, pages.size, pages.gig
    for k in range(len(chunks)):
        shoot_down(chunks[k, 0], pages, shootdowns, state)
        n = chunks[k, 1]
        for i in range(chunks[k, 1], chunks[k, 1] + chunks[k, 2]):
            p = page[i]
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
            if hit == 2:
                out_page[n], out_write[n] = p, write[i]
                n += 1
        misses[k] = n - chunks[k, 1]


@kernel
def filter_common(page, write, chunks, pages, shootdowns, state, out_page, out_write, misses):
    """As filter_any, for shapes that `is_common` accepts."""
    tags, _, start, sets, ways = state.bank
    tag2, age2 = state.tag, state.age
    mask1, mask2 = np.uint32(sets[L1_4K] - 1), np.uint32(state.sets - 1)
    any_huge = pages.any_huge
    va, size, gig = pages.va, pages.size, pages.gig
    now = state.now[0]
    hit1 = hit2 = miss = 0
    for k in range(len(chunks)):
        shoot_down(chunks[k, 0], pages, shootdowns, state)
        first, last = chunks[k, 1], chunks[k, 1] + chunks[k, 2]
        run, run_write = page[first:last], write[first:last]
        out_p, out_w = out_page[first:last], out_write[first:last]
        n = np.uint64(0)
        for i in range(len(run)):
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
                    out_p[n], out_w[n] = p, run_write[i]
                    n += np.uint64(1)
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
            out_p[n], out_w[n] = p, run_write[i]
            n += np.uint64(1)
        misses[k] = n
        miss += misses[k]
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


@kernel
def close_gaps(page, write, first, misses):
    """Move misses[k] elements from first[k] on to the front, chunk after chunk; returns their number."""
    n = 0
    for k in range(len(first)):
        for i in range(first[k], first[k] + misses[k]):
            page[n], write[n] = page[i], write[i]
            n += 1
    return n
