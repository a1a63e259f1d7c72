"""Where bytes of the address space are among the leaf entries that a trace touches."""

from typing import NamedTuple

import numpy as np

from ..core.trace import PAGE_SHIFT, SLOT_BITS
from ..core.walks import Regions


class Spans(NamedTuple):
    """A part of a region each: which range it is of, region id, first slot, one past the last (int64[n])."""

    of: np.ndarray
    region: np.ndarray
    lo: np.ndarray
    hi: np.ndarray


class Slots:
    """Finds the regions that a trace touched, and slots in them; order: region ids by address."""

    def __init__(self, regions: Regions) -> None:
        self.order = np.argsort(regions.va, kind="stable")
        self.va = regions.va[self.order]

    def spans(self, starts: np.ndarray, ends: np.ndarray) -> Spans:
        """Spans of byte ranges (uint64[k]) in the touched regions, range by range, each by address."""
        one, slots = np.uint64(1), np.uint64(SLOT_BITS)
        first = starts >> np.uint64(PAGE_SHIFT)
        past = (np.maximum(ends, one) - one >> np.uint64(PAGE_SHIFT)) + one
        low = np.searchsorted(self.va, first >> slots)
        count = np.searchsorted(self.va, past - one >> slots, side="right") - low
        count = np.where(ends > starts, count, 0)
        of = np.repeat(np.arange(len(starts)), count)
        at = np.arange(len(of)) + np.repeat(low - (np.cumsum(count) - count), count)
        base = self.va[at] << slots
        lo, hi = np.maximum(first[of], base) - base, np.minimum(past[of] - base, np.uint64(512))
        return Spans(of, self.order[at], lo.astype(np.int64), hi.astype(np.int64))
