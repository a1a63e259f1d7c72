"""Intervals of what is estimated from G groups of a sample: delete one group at a time.

A group is a part of the pages, or a part of the time, so that phases of the program count as what they are.
Kott, "Using the delete-a-group jackknife variance estimator in practice" (ASA, 1998): with the estimates x(g)
that leave out group g, the variance is (G - 1) / G times the sum of (x(g) - mean)^2. A sample of 1/n of a
finite whole knows that part exactly: its variance is 1 - 1/n of that.
"""

import math
from collections.abc import Sequence

import numpy as np

# Student's t, 97.5 %, by degrees of freedom from 1
STUDENT = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
)


def margin(left_out: Sequence[float], one_in: float = math.inf) -> float:
    """Half the width of the 95 % interval of what was estimated.

    left_out  estimates without each of the groups, at least two; one_in: the sample is one of so many;
              infinite: a part of the whole too small to count
    """
    return float(margins(np.array(left_out, np.float64), one_in))


def margins(left_out: np.ndarray, one_in: float = math.inf) -> np.ndarray:
    """float64[...] margin of each of many estimates; left_out  float64[groups, ...]."""
    groups = len(left_out)
    student = STUDENT[min(groups - 1, len(STUDENT)) - 1]
    spread = ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    half: np.ndarray = student * np.sqrt((groups - 1) / groups * spread * (1 - 1 / one_in))
    return half


def share_bounds(
    whole: np.ndarray, left_out: np.ndarray, one_in: float = math.inf
) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of shares, 95 %: `whole` any shape, `left_out` float64[groups, *shape], clipped to 0..1.

    0 and 1 where a share without one of the groups is not known (nan).
    """
    half = np.nan_to_num(margins(left_out, one_in), nan=1.0)
    return np.clip(whole - half, 0, 1), np.clip(whole + half, 0, 1)
