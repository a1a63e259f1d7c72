"""A number that is not known exactly: the best guess, and its bounds."""

from collections.abc import Callable, Iterator
from itertools import product
from math import hypot, inf
from typing import Self

import msgspec
import numpy as np


class Interval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`middle` is the best guess; low <= middle <= high."""

    low: float
    middle: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Self:
        return cls(value, value, value)

    def __iter__(self) -> Iterator[float]:
        return iter((self.low, self.middle, self.high))

    def through(self, function: Callable[[float], float]) -> "Interval":
        """Interval of function(number), for a function that only rises or only falls."""
        first, middle, last = map(function, self)
        return Interval(min(first, last), middle, max(first, last))


def over_corners(function: Callable[..., float], *intervals: Interval) -> Interval:
    """Interval of function(number, ...), monotone in each: extremes over corners, value at the middles."""
    corners = [function(*corner) for corner in product(*({i.low, i.high} for i in intervals))]
    middle = function(*(i.middle for i in intervals))
    return Interval(min(*corners, middle), middle, max(*corners, middle))


def combined(function: Callable[..., float], *unknowns: Interval) -> Interval:
    """Interval of function(number, ...) at 90 %, for independent unknowns that are each known at 90 %: the
    effects of one at a time, added as the legs of a right angle."""
    middles = [unknown.middle for unknown in unknowns]
    middle = function(*middles)
    below = above = 0.0
    for at, unknown in enumerate(unknowns):
        bounds = unknown.low, unknown.high
        ends = [function(*middles[:at], end, *middles[at + 1 :]) - middle for end in bounds]
        below, above = hypot(below, min(*ends, 0.0)), hypot(above, max(*ends, 0.0))
    return Interval(middle - below, middle, middle + above)


def less_sure(speedup: Interval, part: float) -> Interval:
    """The Interval if its effect may also be less or more by a part of it; a loss is an inverse gain."""
    low, high = (
        1 + (ratio - 1) * (1 + more) if ratio > 1 else 1 / (1 + (1 / ratio - 1) * (1 - more))
        for ratio, more in ((speedup.low, -part), (speedup.high, part))
    )
    return Interval(low, speedup.middle, high)


def less_sure_share(share: Interval, part: float) -> Interval:
    """The share of a run whose effect, share / (1 - share), is `less_sure`: no speed-up by it is more."""
    low, high = (s * (1 + m) / max(1 + s * m, 1e-9) for s, m in ((share.low, -part), (share.high, part)))
    return Interval(low, share.middle, high)


# What counts as a gain, and how speed-ups are written: decisions are taken on the numbers that are read.

NEVER = inf  # runs until what is never earned back is
PLACES = 3  # at most
NOTICED = 1.02  # speed-up, with mid-range assumptions, below which nothing is gained that limits a run
CLOSE = 0.005  # this close to 1, two decimals say nothing
FROM_DRAM = "if every leaf entry is read from DRAM"  # what a bound on walk cycles takes for granted


def gains(speedup: Interval) -> bool:
    """Whether it is faster under all assumptions."""
    return faster(speedup.low)


def faster(ratio: float) -> bool:
    """Whether a single estimate is written as more than 1."""
    return round(ratio, PLACES) > 1


def slower(ratio: float) -> bool:
    return round(ratio, PLACES) < 1


def differs(ratio: float) -> bool:
    """Whether it is faster or slower."""
    return faster(ratio) or slower(ratio)


def digits(*ratios: float) -> int:
    """Decimals that show which of them differ from 1."""
    return PLACES if any(differs(ratio) and abs(ratio - 1) < CLOSE for ratio in ratios) else 2


def shown(*ratios: float) -> list[str]:
    """Ratios written alike: with three decimals if one is close to 1, else with two."""
    places = digits(*ratios)
    return [f"{ratio:.{places}f}" if ratio < 10 else f"{ratio:,.1f}" for ratio in ratios]


def as_read(ratio: float, *beside: float) -> float:
    """The number that `shown` writes for the first of these ratios: what policies are compared by."""
    return float(shown(ratio, *beside)[0].replace(",", ""))


def interval(speedup: Interval) -> str:
    """ "1.22x (1.06-1.42)"."""
    middle, low, high = shown(speedup.middle, speedup.low, speedup.high)
    return f"{middle}x ({low}-{high})"


def share(of_run: Interval) -> str:
    """A share of the run: "21-30 %", "0.3-1.2 %"."""
    low, high = (f"{100 * end:.{0 if of_run.high >= 0.1 else 1}f}" for end in (of_run.low, of_run.high))
    return f"{low} %" if low == high else f"{low}-{high} %"


# Intervals of estimates from G groups of samples, deleting one group at a time: a group is a part of the
# time, so that phases of the program count as what they are. Kott, "Using the delete-a-group jackknife
# variance estimator in practice" (ASA, 1998): with the estimates x(g) that leave out group g, the variance is
# (G - 1) / G times the sum of (x(g) - mean)^2.

# Student's t, 97.5 %, by degrees of freedom from 1
STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
)  # fmt: skip


def share_bounds(whole: np.ndarray, left_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of shares, 95 %: `whole` any shape, `left_out` float64[groups, *shape], clipped to 0..1.

    0 and 1 where a share without one of the groups is not known (nan).
    """
    half = np.nan_to_num(margins(left_out), nan=1.0)
    return np.clip(whole - half, 0, 1), np.clip(whole + half, 0, 1)


def margins(left_out: np.ndarray) -> np.ndarray:
    """float64[...] half the width of the 95 % interval of each of many estimates.

    left_out  float64[groups, ...] estimates without each of the groups, at least two
    """
    groups = len(left_out)
    student = STUDENT[min(groups - 1, len(STUDENT)) - 1]
    spread = ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    return student * np.sqrt((groups - 1) / groups * spread)
