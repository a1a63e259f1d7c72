"""Leaves out the pages of a trace that a sample does not hold, all but what memory management needs of them.

A page outside the sample stays where a CPU touches it for the first time, and for the first time after an
event took its translation away: such a touch misses every TLB, and is the only one that can be a fault or
copy an entry. Faults, first touches, updates and copies are so those of the whole trace.
"""

from typing import NamedTuple

import numpy as np

from .hooks import called_hook, hook, kernel


class Groups(NamedTuple):
    """The sample's groups of pages; number `outside` is what it does not hold."""

    region: np.ndarray  # int16[R]  of all pages of a region; -1 - k: by slot, k groups further
    slot: np.ndarray  # int16[512]  of a page of 4 KiB, by its place in the region
    outside: int


class Forgotten(NamedTuple):
    """K ranges of pages whose translations events took away, sorted by chunk."""

    chunk: np.ndarray  # int64[K]  before this chunk
    first: np.ndarray  # int64[K]  page number
    end: np.ndarray  # int64[K]  one past the last
    va: np.ndarray  # int64[R]  regions' addresses >> 21, sorted
    region: np.ndarray  # int64[R]  their numbers


class Seen(NamedTuple):
    """What a CPU has touched of the pages outside the sample."""

    bits: np.ndarray  # uint64[R * 8]
    done: np.ndarray  # int64[1]: ranges forgotten so far
    kept: np.ndarray  # int64[1]: touches outside the sample that stayed


@hook
def group_of(page, groups):
    """int64 group of a dense page number."""
    group = np.int64(groups.region[page >> np.uint32(9)])
    if group < 0:
        of_slot = np.int64(groups.slot[page & np.uint32(511)])
        group = of_slot if of_slot == groups.outside else (of_slot - 1 - group) % groups.outside
    return group


@kernel
def group_pages(page, groups, out):
    """out[i] (int16) = group of page[i]."""
    for i in range(len(page)):
        out[i] = group_of(page[i], groups)


@kernel
def thin(page, chunks, size, groups, forgotten, seen, stays):
    """Thin chunks of a CPU: stays[i] (bool) becomes False where touch i is left out.

    chunks  int64[m, 3]: number, first, count of each; size  uint8[R], page sizes of the TLB
    """
    bits = seen.bits
    for k in range(len(chunks)):
        forget(chunks[k, 0], size, forgotten, seen)
        for i in range(chunks[k, 1], chunks[k, 1] + chunks[k, 2]):
            p = page[i]
            if stays[i] and group_of(p, groups) == groups.outside:
                at = np.int64(p) if size[p >> np.uint32(9)] == 1 else np.int64(p) >> 9 << 9
                bit = np.uint64(1) << np.uint64(at & 63)
                if bits[at >> 6] & bit:
                    stays[i] = False
                else:
                    bits[at >> 6] |= bit
                    seen.kept[0] += 1


@called_hook
def forget(chunk, size, forgotten, seen):
    """Forget the ranges due before a chunk."""
    k = seen.done[0]
    while k < len(forgotten.chunk) and forgotten.chunk[k] <= chunk:
        first, end = forgotten.first[k], forgotten.end[k]
        at, above = 0, len(forgotten.va)
        while at < above:
            middle = (at + above) >> 1
            if forgotten.va[middle] < first >> 9:
                at = middle + 1
            else:
                above = middle
        while at < len(forgotten.va) and forgotten.va[at] << 9 < end:
            region = forgotten.region[at]
            start = forgotten.va[at] << 9
            if size[region] > 1 or (first <= start and start + 512 <= end):
                seen.bits[region * 8 : region * 8 + 8] = 0
            else:
                for number in range(max(first, start), min(end, start + 512)):
                    place = number - start
                    seen.bits[region * 8 + (place >> 6)] &= ~(np.uint64(1) << np.uint64(place & 63))
            at += 1
        k += 1
    seen.done[0] = k
