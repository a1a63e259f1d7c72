"""How far a further value may lie from those that were seen: 90 % prediction intervals from few values."""

from collections.abc import Callable, Sequence
from math import exp, hypot, log, sqrt

import numpy as np

from ..core.interval import Interval

# Student's t, 95th percentile, by degrees of freedom from 1 (any table of the distribution)
T_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761)
T_MANY = 1.70


def t_95(freedom: int) -> float:
    """Half of a 90 % interval in standard deviations, estimated with `freedom` degrees of freedom."""
    return T_95[max(freedom, 1) - 1] if freedom <= len(T_95) else T_MANY


def factor(groups: Sequence[Sequence[float]]) -> float:
    """Factor up or down from a group's geometric mean that holds a further member with 90 %.

    groups  positive values; they have means of their own and scatter alike
    """
    members = [np.log(np.asarray(group, np.float64)) for group in groups if len(group)]
    freedom = sum(len(group) - 1 for group in members)
    if freedom < 1:
        return 2.0
    deviation = sqrt(sum(float(((group - group.mean()) ** 2).sum()) for group in members) / freedom)
    size = len(members[0])
    return exp(t_95(freedom) * deviation * sqrt(1 + 1 / size))


def around(values: Sequence[float], times: float) -> Interval:
    """Interval of the geometric mean of positive values, `times` up and down."""
    middle = exp(sum(log(value) for value in values) / len(values))
    return Interval(middle / times, middle, middle * times)


def deviation(values: Sequence[float]) -> float:
    """Root mean square of deviations from 0."""
    return float(np.sqrt(np.mean(np.square(values))))


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
