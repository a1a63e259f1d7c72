"""The second filter (kernels/second.py): which chunks it spares, and what is known of its error."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .interval import Interval

SETS, ONE_IN, RUN = 128, 16, 64  # PTT_SECOND_* of pintool/second.h: of so many runs of chunks one is spared


def spared(thread: np.ndarray | int, number: np.ndarray | int, one_in: int, run: int) -> np.ndarray:
    """bool[n]: whether chunk `number` of a thread, from 0 on, is in a run that is spared."""
    run_of = np.asarray(number, np.uint32) // np.uint32(run)
    mixed = (run_of // np.uint32(one_in) << np.uint32(16)) ^ np.asarray(thread, np.uint32)
    with np.errstate(over="ignore"):
        mixed = mixed + np.uint32(0x9E3779B9)
        mixed = (mixed ^ mixed >> np.uint32(16)) * np.uint32(0x7FEB352D)
        mixed = (mixed ^ mixed >> np.uint32(15)) * np.uint32(0x846CA68B)
    found: np.ndarray = run_of % np.uint32(one_in) == (mixed ^ mixed >> np.uint32(16)) % np.uint32(one_in)
    return found


def numbers(thread: np.ndarray) -> np.ndarray:
    """int64[n]: number of each chunk among those of its thread, from 0 on; thread int[n], in time order."""
    order = np.argsort(thread, kind="stable")
    begin = np.flatnonzero(np.diff(thread[order].astype(np.int64), prepend=-1))
    length = np.diff(np.append(begin, len(thread)))
    number = np.empty(len(thread), np.int64)
    number[order] = np.arange(len(thread)) - np.repeat(begin, length)
    return number


@dataclass(frozen=True)
class SecondFilter:
    """What it does to the number of walks, measured in the trace itself (world/second_filter.py).

    percent  walks that there are too many, in % of those of the whole trace, negative: too few; the 95 %
             interval; None: not known
    runs     of chunks that were spared, in which this was measured
    settles  whether they have walks enough for the TLBs to settle; else the interval may be off
    """

    percent: Interval | None
    runs: int
    settles: bool = True

    @property
    def most(self) -> float:
        """The largest error that the interval holds, %."""
        return max(abs(self.percent.low), abs(self.percent.high)) if self.percent else 100.0

    def row(self) -> dict[str, Any]:
        low, middle, high = self.percent or (None, None, None)
        return {"walks_error": middle, "walks_error_low": low, "walks_error_high": high}
