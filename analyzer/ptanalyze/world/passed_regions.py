"""Regions that pages only passed through: mremap moved them there, and away again before any touch."""

from bisect import bisect_left, insort

import numpy as np

from ..core.trace import PAGE_SHIFT, REGION_SHIFT, Event, Trace

TOP = 1 << 63  # what lies above is no address but a wrapped length


def regions_with_passed(trace: Trace) -> np.ndarray:
    """uint64[R]: address >> 21 of the touched regions, in their order, then of those mremap moved them to.

    A growing realloc moves its buffer again before it uses it: without the regions in between, its pages
    would be lost on the way, and be demand faults once more.
    """
    touched: list[int] = trace.regions.tolist()
    known, found = sorted(touched), list[int]()
    done: dict[tuple[int, int, int], int] = {}  # moves that found nothing, and what had been found by then
    for move in _moves(trace.events):
        source, target, size = move
        if source >= TOP or size >= TOP or not size or done.get(move) == len(found):
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
    return np.concatenate([trace.regions, np.array(found, np.uint64)])


def _moves(events: np.ndarray) -> list[tuple[int, int, int]]:
    """[(from, to, bytes)] of the mremaps that moved something."""
    moved = events[(events["kind"] == Event.MREMAP) & (events["result"] > 0)]
    moved = moved[moved["result"].astype(np.uint64) != moved["a"]]
    page = (1 << PAGE_SHIFT) - 1
    columns = (moved[name].tolist() for name in ("a", "result", "b", "c"))
    return [(a, to, min(old, new) + page & ~page) for a, to, old, new in zip(*columns, strict=True)]
