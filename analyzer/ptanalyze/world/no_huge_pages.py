"""Memory that a program forbids huge pages: madvise(MADV_NOHUGEPAGE), as far as a trace shows.

Linux gives a VMA with VM_NOHUGEPAGE none, whatever the administrator allows (vma_thp_disabled,
include/linux/huge_mm.h, Linux 6.12). madvise sets and clears that flag (hugepage_madvise, mm/khugepaged.c), a
new VMA is without it, and mremap gives the moved or grown VMA the flags of the old one. What is unmapped
keeps its mark here until something else is mapped there: page tables may have been read before that.
"""

from bisect import bisect_left, bisect_right

import numpy as np

from ..core.trace import PAGE_SHIFT, Event

FORBIDDEN = "MADV_NOHUGEPAGE"  # in notes
MADV_HUGEPAGE, MADV_NOHUGEPAGE = 14, 15
DONE = (0, -12)  # with ENOMEM part of the range was not mapped, and the rest is advised
PAGE = 1 << PAGE_SHIFT


class Marks:
    """Marked ranges of addresses: `bounds`, ascending, where marked and unmarked addresses take turns."""

    def __init__(self) -> None:
        self.bounds: list[int] = []

    def set(self, start: int, end: int, marked: bool) -> None:
        if start >= end:
            return
        first, last = bisect_left(self.bounds, start), bisect_right(self.bounds, end)
        left, right = first % 2 == 1, last % 2 == 1
        self.bounds[first:last] = [start] * (left != marked) + [end] * (right != marked)

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """The marked ranges from start to end."""
        first, last = bisect_right(self.bounds, start), bisect_left(self.bounds, end)
        cut = [start] * (first % 2) + self.bounds[first:last] + [end] * (last % 2)
        return list(zip(cut[::2], cut[1::2], strict=True))


def forbidden(events: np.ndarray) -> np.ndarray:
    """uint64[n, 2]: starts and ends, ascending, of memory that Trace.events forbid huge pages."""
    advice = (events["kind"] == Event.MADVISE) & np.isin(events["result"], DONE)
    if not (advice & (events["c"] == MADV_NOHUGEPAGE)).any():
        return np.zeros((0, 2), np.uint64)
    advice &= np.isin(events["c"], (MADV_HUGEPAGE, MADV_NOHUGEPAGE))
    made = np.isin(events["kind"], (Event.MMAP, Event.MREMAP, Event.BRK)) & (events["result"] > 0)
    marks, brk = Marks(), 0
    for event in events[advice | made]:
        kind, result, a, b, c = (int(event[name]) for name in ("kind", "result", "a", "b", "c"))
        if kind == Event.MADVISE:
            marks.set(a, page_up(a + b), c == MADV_NOHUGEPAGE)
        elif kind == Event.MMAP:
            marks.set(result, page_up(result + b), False)
        elif kind == Event.BRK:
            marks.set(page_up(brk or result), page_up(result), False)
            brk = result
        else:
            remap(marks, a, page_up(b), result, page_up(c))
    return np.array(marks.bounds, np.uint64).reshape(-1, 2)


def remap(marks: Marks, old: int, length: int, new: int, new_length: int) -> None:
    """mremap: what the pages had they keep, and what is added is as the last of them."""
    kept = marks.within(old, old + min(length, new_length))
    grows = length > 0 and marks.within(old + length - PAGE, old + length) != []
    marks.set(new, new + new_length, False)
    for start, end in kept:
        marks.set(new + start - old, new + end - old, True)
    if grows:
        marks.set(new + length, new + new_length, True)


def page_up(address: int) -> int:
    return -(-address // PAGE) * PAGE


def overlap(bases: np.ndarray, length: int, ranges: np.ndarray) -> np.ndarray:
    """bool[n]: some byte of the `length` from each base (uint64[n]) on is in `ranges` (uint64[k, 2])."""
    ends = np.append(ranges[:, 1], np.uint64(0))
    starts = np.append(ranges[:, 0], np.uint64((1 << 64) - 1))
    first = np.searchsorted(ranges[:, 1], bases, side="right")
    found: np.ndarray = (starts[first] < bases + np.uint64(length)) & (ends[first] > bases)
    return found
