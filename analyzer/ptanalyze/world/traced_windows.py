"""A trace of windows of time (`record --every`): which walks count, and what they stand for.

Between windows the trace holds each thread's first touch of a page alone, and counts all accesses. TLBs and
caches keep what they held when a window ended; the first half of a window brings them up to date and is not
counted (Kessler, Hill, Wood, "A comparison of trace-sampling techniques for multi-megabyte caches", IEEE
Transactions on Computers 43(6), 1994: HALF, but with what was held before).
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import numpy as np

from ..core.errors import UsageError
from ..core.sample import Sample, windows_sample
from ..core.trace import Event, Trace
from ..core.walks import WalkStream
from .moves import Moves
from .part import Part

GROUPS = 16  # of windows that follow each other
WARM = 0.5  # of a window: what it does not count


@dataclass(frozen=True)
class TracedWindows(Part):
    """Windows of a trace, as a Part of it.

    group     int16[chunks]
    accesses  int64[chunks]
    inside    bool[chunks]  in a window, counted or not
    """

    least: ClassVar[int] = 4

    group: np.ndarray
    accesses: np.ndarray
    inside: np.ndarray

    @property
    def unread(self) -> int:
        return -1  # what a window does not count warms its caches

    def groups_of(self, stream: WalkStream, begin: int, end: int) -> np.ndarray:
        first = int(np.searchsorted(stream.offset, begin, side="right")) - 1
        last = int(np.searchsorted(stream.offset, end, side="left"))
        ends = np.clip(stream.offset[first : last + 1], begin, end)
        return np.repeat(self.group[first:last], np.diff(ends))

    def held(self, walks: np.ndarray, stream: WalkStream) -> tuple[np.ndarray, np.ndarray]:
        """Accesses, from the first chunk that the stream is of."""
        first = _begin(stream)
        accesses = self.accesses[first:]
        own = np.bincount(self.group[first:], accesses, minlength=self.outside + 1)[:-1]
        return own[:, None], np.array([float(accesses.sum())])

    def hits(self, stream: WalkStream) -> np.ndarray:
        first, walks = _begin(stream), self.weights(stream).estimate()
        accesses, traced = (
            int(self.accesses[first:].sum()),
            int(self.accesses[first:][self.inside[first:]].sum()),
        )
        second = round(int(stream.hits[:, 1].sum()) * accesses / max(traced, 1))
        return np.array([max(accesses - second - walks, 0), second, walks], np.int64)


def _begin(stream: WalkStream) -> int:
    """First chunk with a walk: of a further run the first that was run at all."""
    return int(np.searchsorted(stream.offset, 0, side="right")) - 1 if len(stream) else 0


def traced_windows(sample: Sample, trace: Trace, moves: Moves) -> TracedWindows:
    """TracedWindows of a trace that has them. UsageError where data move by accesses: not all are here."""
    if moves.autonuma:
        raise UsageError(
            f"sample = {sample}: NUMA balancing moves each page that is touched, not only those of windows; "
            "leave it out, or record the whole time"
        )
    window = window_of_chunks(trace)
    used = np.unique(window[window > 0])
    groups = min(len(used), GROUPS)
    rank = np.searchsorted(used, window)
    counted = (window > 0) & (trace.chunks["time"] >= _counts_from(trace)[window])
    group = np.where(counted, rank * groups // max(len(used), 1), groups)
    return TracedWindows(sample, groups, group.astype(np.int16), trace.chunks["accesses"], window > 0)


def window_of_chunks(trace: Trace) -> np.ndarray:
    """int64[chunks]: number of the window that each chunk is in, 0 between windows."""
    turns, thread = trace.events[trace.events["kind"] == Event.WINDOW], trace.chunks["thread"]
    window = np.zeros(len(trace.chunks), np.int64)
    for one in np.unique(turns["thread"]):
        own, mine = turns[turns["thread"] == one], np.flatnonzero(thread == one)
        latest = np.searchsorted(own["chunk"], mine, side="right")
        window[mine] = np.concatenate([[0], own["a"].astype(np.int64)])[latest]
    return window


def _counts_from(trace: Trace) -> np.ndarray:
    """int64[windows + 1]: ns from which each window counts."""
    turns = trace.events[trace.events["kind"] == Event.WINDOW]
    number = turns["a"].astype(np.int64)
    begin = np.full(int(number.max(initial=0)) + 1, np.iinfo(np.int64).max // 2)
    np.minimum.at(begin, number, turns["time"])
    return begin + int(WARM * trace.facts["window_ns"])


def sample_of_windows(trace: Trace) -> Sample:
    """The Sample that a trace with windows is: 1 in as many accesses as its windows hold of all."""
    accesses = trace.chunks["accesses"]
    held = int(accesses[window_of_chunks(trace) > 0].sum())
    one_in = max(ceil(int(accesses.sum()) / held), 2) if held else 2
    return windows_sample(trace.facts["every_ns"], trace.facts["window_ns"], one_in)
