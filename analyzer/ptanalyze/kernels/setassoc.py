"""A set-associative array with true LRU, for TLBs, page-walk caches, the nested TLB and data caches.

A set is a row of 32-bit tags, the most recently used first, EMPTY tags last. The caller chooses the set, so
the number of sets need not be a power of two. Banks hold arrays of several kinds for several owners.
"""

from typing import NamedTuple

import numpy as np

from .hooks import hook

EMPTY = np.uint32(0xFFFFFFFF)


class Bank(NamedTuple):
    """Arrays 0..k-1 of each owner, in order.

    tags    uint32[owners * stride]  set s of array k of owner o starts at o * stride + start[k] + s * ways[k]
    start, sets, ways  int64[k]      an array that the machine lacks has ways 0: everything misses it
    """

    tags: np.ndarray
    stride: int
    start: np.ndarray
    sets: np.ndarray
    ways: np.ndarray


def bank(owners, arrays):
    """An empty Bank; `arrays` are (sets, ways), or None for a missing array."""
    sets = np.array([array[0] if array else 1 for array in arrays], np.int64)
    ways = np.array([array[1] if array else 0 for array in arrays], np.int64)
    end = np.cumsum(sets * ways)
    stride = int(end[-1]) if len(end) else 0
    return Bank(np.full(owners * stride, EMPTY, np.uint32), stride, end - sets * ways, sets, ways)


@hook
def touch(tags, first, ways, tag):
    """True if set tags[first : first + ways] holds `tag`, now its most recent; on a miss the last goes."""
    carried = tag
    for way in range(
        np.uint64(first), np.uint64(first) + np.uint64(ways)
    ):  # unsigned: no check for negatives
        old = tags[way]
        tags[way] = carried
        if old == tag:
            return True
        carried = old
    return False


@hook
def drop(tags, first, ways, tag):
    """Remove `tag` from the set if it is there; the rest keeps its order."""
    passed = False
    for way in range(first, first + ways):
        passed = passed or tags[way] == tag
        if passed:
            tags[way] = tags[way + 1] if way + 1 < first + ways else EMPTY
