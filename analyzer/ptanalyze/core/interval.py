"""A number that is not known exactly: the best guess, and its bounds."""

from collections.abc import Callable, Iterator
from itertools import product
from math import hypot
from typing import Self

import msgspec


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
        first, middle, last = (function(value) for value in self)
        return Interval(min(first, last), middle, max(first, last))


def over_corners(function: Callable[..., float], *intervals: Interval) -> Interval:
    """Interval of function(number, ...): its extremes over all corners, for functions monotone in each
    argument, and its value at the middles."""
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
        ends = [
            function(*middles[:at], end, *middles[at + 1 :]) - middle for end in (unknown.low, unknown.high)
        ]
        below, above = hypot(below, min(*ends, 0.0)), hypot(above, max(*ends, 0.0))
    return Interval(middle - below, middle, middle + above)
