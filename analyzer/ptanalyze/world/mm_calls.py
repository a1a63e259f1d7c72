"""Memory-management events that did something, as rows for kernels.mm_steps, and what they mapped."""

import numpy as np

from ..core.trace import PAGE_SHIFT, Event
from ..kernels.steps import CLEAR, UPDATE

TOP = np.uint64(1 << 63)  # what lies above is no address but a wrapped length
LAST = np.uint64((1 << 63) - 1)
PAGE = np.uint64(1 << PAGE_SHIFT)
LAST_NODE = (1 << 15) - 1
MREMAP_DONTUNMAP = np.uint64(4)
# asm-generic/mman-common.h: DONTNEED, REMOVE, PAGEOUT, DONTNEED_LOCKED, HWPOISON, ...; FREE, COLD, COLLAPSE
ADVICE_THAT_CLEARS = np.array([4, 9, 21, 24, 100, 101, 102], np.uint64)
ADVICE_THAT_UPDATES = np.array([8, 20, 25], np.uint64)
ANONYMOUS_PRIVATE, MAP_GROWSDOWN = np.uint64(0x22), np.uint64(0x100)
VMA_FLAGS = np.uint64(0x46000)  # MAP_LOCKED, MAP_NORESERVE, MAP_HUGETLB tell VMAs apart
KINDS = (
    Event.MMAP, Event.MUNMAP, Event.MPROTECT, Event.MREMAP, Event.MADVISE, Event.BRK, Event.MOVE_PAGES,
)  # fmt: skip


def carried_out(events: np.ndarray) -> np.ndarray:
    """int64[C]: indices of the events that changed mappings, entries or data; failed calls did not."""
    kind, advice = events["kind"], events["c"]
    advised = np.isin(advice, np.concatenate([ADVICE_THAT_CLEARS, ADVICE_THAT_UPDATES]))
    done = np.isin(kind, KINDS) & (events["result"] >= 0) & (events["a"] < TOP) & (events["b"] < TOP)
    done &= (kind != Event.MMAP) | (events["result"] > 0)
    done &= (kind != Event.MADVISE) | advised
    return np.flatnonzero(done)


def addresses(events: np.ndarray) -> np.ndarray:
    """uint64[C, 5]: FROM, TO, CUT, THERE, THERE_TO of kernels.mm_steps of such events."""
    kind, result = events["kind"], events["result"].astype(np.uint64)
    start = np.where(kind == Event.MMAP, result, events["a"])
    brk, moved = kind == Event.BRK, kind == Event.MREMAP
    start = np.where(brk, page_up(result), start)
    end = np.where(brk, start, beyond(start, events["b"]))
    cut = np.where(moved, beyond(start, events["c"]), start)
    there = np.where(moved, result, start)
    return np.stack([start, end, cut, there, np.where(moved, beyond(result, events["c"]), start)], axis=1)


def numbers(events: np.ndarray) -> np.ndarray:
    """int64[C]: NUMBER of kernels.mm_steps of such events."""
    kind, c, d = events["kind"], events["c"], events["d"]
    advice = np.where(np.isin(c, ADVICE_THAT_CLEARS), CLEAR, UPDATE)
    stays = (d & MREMAP_DONTUNMAP > 0).astype(np.int64)
    node = np.minimum(c, np.uint64(LAST_NODE)).astype(np.int64)
    cases = [kind == Event.MADVISE, kind == Event.MREMAP, kind == Event.MOVE_PAGES]
    return np.select(cases, [advice, stays, node], c.view(np.int64))


def merging(events: np.ndarray) -> np.ndarray:
    """int64[C]: what of mmap's flags two mappings must share to be one VMA; -1: one that never merges."""
    flags = events["d"]
    private = (flags & ANONYMOUS_PRIVATE == ANONYMOUS_PRIVATE) & (flags & MAP_GROWSDOWN == 0)
    return np.where(private, (flags & VMA_FLAGS).astype(np.int64), -1)


def made(events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(starts, ends), uint64, apart from each other: all that mmap, mremap and brk events mapped."""
    kind, result = events["kind"], events["result"]
    done = np.isin(kind, (Event.MMAP, Event.MREMAP, Event.BRK)) & (result > 0)
    kind, result = kind[done], result[done].astype(np.uint64)
    a, b, c = (events[name][done] for name in "abc")
    grown = (kind == Event.MREMAP) & (result == a)
    starts = np.where(grown, beyond(result, b), result)
    ends = beyond(result, np.where(kind == Event.MREMAP, c, b))
    brk = np.flatnonzero(kind == Event.BRK)
    at = page_up(result[brk])
    starts[brk[1:]], ends[brk[1:]] = at[:-1], at[1:]
    ends[brk[:1]] = starts[brk[:1]]
    return merged(starts, ends)


def merged(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same bytes in ranges that are apart, in order."""
    some = ends > starts
    order = np.argsort(starts[some], kind="stable")
    starts, ends = starts[some][order], np.maximum.accumulate(ends[some][order])
    first = np.flatnonzero(np.append(True, starts[1:] > ends[:-1])[: len(starts)])
    return starts[first], ends[np.append(first[1:], len(ends)) - 1] if len(first) else ends


def beyond(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Where a mapping of `length` bytes ends, a whole number of pages, at most LAST."""
    ends: np.ndarray = np.minimum(np.minimum(start, LAST) + page_up(length), LAST)
    return ends


def page_up(length: np.ndarray) -> np.ndarray:
    """Bytes of whole pages, at most TOP."""
    whole: np.ndarray = (np.minimum(length, TOP) + (PAGE - np.uint64(1))) & ~(PAGE - np.uint64(1))
    return whole
