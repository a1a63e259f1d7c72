"""Regions that pages only passed through: mremap moved them there, and away again before any touch."""

from bisect import bisect_left, insort
from collections.abc import Iterable

import numpy as np

from ..core.trace import REGION_SHIFT, Event, Trace
from .mm_calls import TOP, page_up

MOVES_AT_ONCE = 4096
SHIFT = np.uint64(REGION_SHIFT)


def regions_with_passed(trace: Trace) -> np.ndarray:
    """uint64[R]: address >> 21 of the touched regions, in their order, then of those mremap moved them to.

    A growing realloc moves its buffer again before it uses it: without the regions in between, its pages
    would be lost on the way, and be demand faults once more.
    """
    moves, found = _moves(trace.events), list[int]()
    known = np.sort(trace.regions)
    for first in range(0, len(moves), MOVES_AT_ONCE):
        some = moves[first : first + MOVES_AT_ONCE]
        if not _may_find(some, known):
            continue
        before = len(found)
        _find(some.tolist(), known.tolist(), found)
        known = np.sort(np.append(known, np.array(found[before:], np.uint64)))
    return np.concatenate([trace.regions, np.array(found, np.uint64)])


def _moves(events: np.ndarray) -> np.ndarray:
    """uint64[n, 3] (from, to, bytes) of the mremaps that moved something."""
    moved = events[(events["kind"] == Event.MREMAP) & (events["result"] > 0)]
    to, size = moved["result"].astype(np.uint64), page_up(np.minimum(moved["b"], moved["c"]))
    some = (to != moved["a"]) & (moved["a"] < TOP) & (size > 0) & (size < TOP)
    moves: np.ndarray = np.stack([moved["a"], to, size], axis=1)[some]
    return moves


def _may_find(moves: np.ndarray, known: np.ndarray) -> bool:
    """Whether any of the moves takes a known region to where not all regions are known."""
    start, to, size = moves.T
    last = size - np.uint64(1)
    sources = _count(known, start >> SHIFT, start + last >> SHIFT)
    targets = _count(known, to >> SHIFT, to + last >> SHIFT)
    return bool(np.any((sources > 0) & (targets <= (to + last >> SHIFT) - (to >> SHIFT))))


def _count(known: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Number of known regions from `first` to `last`."""
    counted = np.searchsorted(known, last, side="right") - np.searchsorted(known, first)
    return counted.astype(np.uint64)


def _find(moves: Iterable[tuple[int, int, int]], known: list[int], found: list[int]) -> None:
    """Append to `found` the regions that the moves take a known one to; they are known from then on."""
    done: dict[tuple[int, int, int], int] = {}  # moves that found nothing, and what had been found by then
    for source, target, size in moves:
        move = source, target, size
        if done.get(move) == len(found):
            continue
        before, first, last = len(found), source >> REGION_SHIFT, (source + size - 1) >> REGION_SHIFT
        for region in known[bisect_left(known, first) : bisect_left(known, last + 1)]:
            start = max(region << REGION_SHIFT, source) - source + target
            end = min((region + 1) << REGION_SHIFT, source + size) - source + target
            for there in range(start >> REGION_SHIFT, (end - 1 >> REGION_SHIFT) + 1):
                at = bisect_left(known, there)
                if at == len(known) or known[at] != there:
                    insort(known, there)
                    found.append(there)
        if len(found) == before:
            done[move] = before
