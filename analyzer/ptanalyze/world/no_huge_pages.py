"""Memory that a program asks huge pages for, or forbids them, as far as a trace shows.

Linux gives a VMA with VM_NOHUGEPAGE none, whatever the administrator allows, and one with VM_HUGEPAGE some
unless he allows none (thp_vma_allowable_orders, vma_thp_disabled, include/linux/huge_mm.h, 6.12). madvise
sets one of these flags and clears the other (hugepage_madvise, mm/khugepaged.c), a new VMA is without, and
mremap gives the moved or grown VMA the flags of the old one. MADV_COLLAPSE makes huge pages at once, whatever
is allowed (madvise_collapse), until the memory is given back. After prctl(PR_SET_THP_DISABLE) a process gets
none at all. What is unmapped keeps its mark here until
something else is mapped there: page tables may have been read before that.
"""

from bisect import bisect_left, bisect_right
from typing import NamedTuple

import numpy as np

from ..core.snapshot import Snapshot
from ..core.trace import PAGE_SHIFT, Event, Trace

FORBIDDEN, PRCTL, ADVISED = "MADV_NOHUGEPAGE", "PR_SET_THP_DISABLE", "MADV_HUGEPAGE"  # in notes
MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLLAPSE = 14, 15, 25
GIVES_BACK = (4, 8, 9)  # MADV_DONTNEED, MADV_FREE, MADV_REMOVE
ADVICE = (MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLLAPSE)
DISABLED = "forbidden"
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


class Advice(NamedTuple):
    """uint64[n, 2] each: starts and ends, ascending, of memory that a program forbids huge pages
    (MADV_NOHUGEPAGE), asks them for (MADV_HUGEPAGE), and has made huge (MADV_COLLAPSE)."""

    forbidden: np.ndarray
    asked: np.ndarray
    collapsed: np.ndarray


def allowed(snapshot: Snapshot, trace: Trace) -> str | None:
    """Transparent huge pages that the process may have: "always", "madvise", "never" as the captured machine
    was set, DISABLED by prctl(PR_SET_THP_DISABLE), which QEMU does not pass on; None: not recorded."""
    asked = trace.events[trace.events["kind"] == Event.THP_DISABLE]
    if len(asked) and asked["a"][-1] and not asked["b"][-1]:
        return DISABLED
    known = snapshot.facts.get("huge_pages")
    return None if known is None else str(known)


def advice(events: np.ndarray) -> Advice:
    """Advice of Trace.events, as it stands after the last of them."""
    advised = (events["kind"] == Event.MADVISE) & np.isin(events["result"], DONE)
    if not (advised & np.isin(events["c"], ADVICE)).any():
        return Advice(*(np.zeros((0, 2), np.uint64) for _ in Advice._fields))
    advised &= np.isin(events["c"], (*ADVICE, *GIVES_BACK))
    made = np.isin(events["kind"], (Event.MMAP, Event.MREMAP, Event.BRK)) & (events["result"] > 0)
    forbidden, asked, collapsed = marks = Marks(), Marks(), Marks()
    brk = 0
    for event in events[advised | made]:
        kind, result, a, b, c = (int(event[name]) for name in ("kind", "result", "a", "b", "c"))
        if kind == Event.MADVISE:
            end = page_up(a + b)
            if c in (MADV_HUGEPAGE, MADV_NOHUGEPAGE):
                asked.set(a, end, c == MADV_HUGEPAGE)
                forbidden.set(a, end, c == MADV_NOHUGEPAGE)
            else:
                collapsed.set(a, end, c == MADV_COLLAPSE)
            continue
        for mark in marks:
            if kind == Event.MMAP:
                mark.set(result, page_up(result + b), False)
            elif kind == Event.BRK:
                mark.set(page_up(brk or result), page_up(result), False)
            else:
                remap(mark, a, page_up(b), result, page_up(c))
        brk = result if kind == Event.BRK else brk
    return Advice(*(np.array(mark.bounds, np.uint64).reshape(-1, 2) for mark in marks))


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


def within(bases: np.ndarray, length: int, ranges: np.ndarray) -> np.ndarray:
    """bool[n]: all of the `length` from each base (uint64[n]) on is in one of `ranges` (uint64[k, 2])."""
    ends = np.append(ranges[:, 1], np.uint64(0))
    starts = np.append(ranges[:, 0], np.uint64((1 << 64) - 1))
    first = np.searchsorted(ranges[:, 1], bases, side="right")
    found: np.ndarray = (starts[first] <= bases) & (ends[first] >= bases + np.uint64(length))
    return found
