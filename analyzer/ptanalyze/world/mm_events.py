"""Which translations the memory-management events of a trace take away."""

import numpy as np

from ..core.trace import PAGE_SHIFT, Event
from .region_of_interest import region_of_interest

MAP_FIXED = 0x10
MAP_FIXED_NOREPLACE = 0x100000
MREMAP_FIXED = 2

# include/uapi/asm-generic/mman-common.h: DONTNEED, FREE, REMOVE, COLD, PAGEOUT, DONTNEED_LOCKED, COLLAPSE,
# HWPOISON, SOFT_OFFLINE, GUARD_INSTALL
ADVICE_THAT_UNMAPS = (4, 8, 9, 20, 21, 24, 25, 100, 101, 102)

LAST_ADDRESS = np.uint64((1 << 64) - (1 << PAGE_SHIFT))

INVALIDATION_DTYPE = np.dtype(
    [
        ("event", np.int64),  # index into Trace.events
        ("chunk", np.int64),  # happens before this chunk
        ("start", np.uint64),  # first byte, page-aligned
        ("end", np.uint64),  # one past the last byte, page-aligned
    ]
)


def invalidations(events: np.ndarray) -> np.ndarray:
    """INVALIDATION_DTYPE[n]: the ranges whose translations events of the region may change, in event order.

    Events outside the region of interest have no row: TLBs and walk caches are empty when it begins, a
    further run finds them as its end left them, and no walk comes later.
    munmap, mprotect, data that moved to another node, madvise that unmaps or ages, what mremap moves away
    from, cuts off or lands on, mmap with MAP_FIXED, and a shrinking brk (against the brk event before it).
    Failed calls change nothing. An event has no row, one, or (mremap with MREMAP_FIXED) two.
    """
    kind, result = events["kind"], events["result"]
    a, b, c, d = (events[name] for name in "abcd")
    address = result.astype(np.uint64)
    done = result >= 0
    moved = (kind == Event.MREMAP) & (result > 0) & (address != a)
    cut = (kind == Event.MREMAP) & (result > 0) & (address == a) & (c < b)
    fixed = ((d & np.uint64(MAP_FIXED)) != 0) & ((d & np.uint64(MAP_FIXED_NOREPLACE)) == 0)
    shrunk, old_brk = _shrinking_brks(events)
    advised = (kind == Event.MADVISE) & np.isin(c, np.array(ADVICE_THAT_UNMAPS, np.uint64))
    plain = np.isin(kind, (Event.MUNMAP, Event.MPROTECT, Event.MOVE_PAGES)) | advised
    parts = [
        _rows(events, plain & done, a, b),
        _rows(events, (kind == Event.MMAP) & (result > 0) & fixed, address, b),
        _rows(events, moved, a, b),
        _rows(events, moved & ((d & np.uint64(MREMAP_FIXED)) != 0), address, c),
        _rows(events, cut, _page_up(a + c), b - c),
        _rows(events, shrunk, _page_up(address), old_brk - address),
    ]
    rows = np.concatenate(parts)
    region = region_of_interest(events)
    inside = (rows["event"] >= region.first) & (rows["event"] < region.end)
    rows = rows[inside & (rows["end"] > rows["start"])]
    return rows[np.argsort(rows["event"], kind="stable")]


def _shrinking_brks(events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """bool[n] of the brk events that lowered the break, and uint64[n] the break before each of them."""
    before = np.zeros(len(events), np.uint64)
    at = np.flatnonzero((events["kind"] == Event.BRK) & (events["result"] > 0))
    before[at[1:]] = events["result"][at[:-1]].astype(np.uint64)
    return before > events["result"].astype(np.uint64), before


def _rows(events: np.ndarray, chosen: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
    at = np.flatnonzero(chosen)
    rows = np.zeros(len(at), INVALIDATION_DTYPE)
    rows["event"], rows["chunk"] = at, events["chunk"][at]
    first, size = start[at], length[at]
    last = np.where(size > LAST_ADDRESS - np.minimum(first, LAST_ADDRESS), LAST_ADDRESS, first + size)
    rows["start"], rows["end"] = first >> np.uint64(PAGE_SHIFT) << np.uint64(PAGE_SHIFT), _page_up(last)
    return rows


def _page_up(address: np.ndarray) -> np.ndarray:
    below = np.uint64((1 << PAGE_SHIFT) - 1)
    found: np.ndarray = (np.minimum(address, LAST_ADDRESS) + below) & ~below
    return found
