"""Samples that count different numbers of events, written so that each stands for as many."""

from os import PathLike

import numpy as np

from ..core.errors import CaptureError

NOT_PRINTED = -1
MOST_PERIOD = 1 << 40  # 2**21 samples of a block add up to less than 2**63
MOST_COPIES = 1 << 10  # of one sample


class Periods:
    """How often each sample is written, over the blocks of one text.

    unit  events that a written sample stands for: 99 in 100 of the first samples have at most this period, so
          that few are written twice, and one that is out of proportion costs no others; 0 before them, and
          where no period is printed: each sample is written once then
    Systematic resampling: every sample adds period / unit to a credit that begins at one half, and takes
    what is whole of it. A period of 0 is 1.
    """

    def __init__(self, name: str | PathLike[str]) -> None:
        self.name = name
        self.unit = 0
        self.credit = 0  # in events, below unit
        self.printed: bool | None = None

    def copies(self, period: np.ndarray, thread: np.ndarray, page: np.ndarray) -> np.ndarray:
        """int64[n]: how often each sample is written.

        period  int64[n], NOT_PRINTED without one; thread, page  int64[n]
        The credit goes through each thread's pages, and through a page's samples in the order of the text: in
        that of the text alone, two pages that take turns at half of a unit would be one.
        CaptureError for periods that only some samples have, and for those out of proportion.
        """
        if not len(period):
            return np.zeros(0, np.int64)
        printed = period != NOT_PRINTED
        if self.printed is None:
            self.printed = bool(printed[0])
        if (printed != self.printed).any():
            raise self.bad("only some samples have one", "print all with the same fields")
        if not self.printed:
            return np.ones(len(period), np.int64)
        most = int(period.max())
        if most > MOST_PERIOD:
            raise self.bad(
                most, f"at most 2**{MOST_PERIOD.bit_length() - 1}; print the samples without periods"
            )
        if not self.unit:
            usual = len(period) - 1 - (len(period) - 1) // 100
            self.unit = max(int(np.partition(period, usual)[usual]), most // MOST_COPIES + 1)
            self.credit = self.unit // 2
        if most >= self.unit * MOST_COPIES:
            why = f"{MOST_COPIES} times those before it ({self.unit}); print the samples without periods"
            raise self.bad(most, why)
        return self.systematic(np.maximum(period, 1), np.lexsort((page, thread)))

    def systematic(self, period: np.ndarray, order: np.ndarray) -> np.ndarray:
        reached = np.cumsum(period[order]) + self.credit
        copies = np.empty(len(period), np.int64)
        copies[order] = np.diff(reached // self.unit, prepend=0)
        self.credit = int(reached[-1]) % self.unit
        return copies

    def bad(self, value: object, why: str) -> CaptureError:
        return CaptureError(self.name, "period", value, why)
