"""Intervals of what is estimated from G groups of samples: delete one group at a time.

A group is a part of the time, so that phases of the program count as what they are.
Kott, "Using the delete-a-group jackknife variance estimator in practice" (ASA, 1998): with the estimates x(g)
that leave out group g, the variance is (G - 1) / G times the sum of (x(g) - mean)^2.
"""

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
    half: np.ndarray = student * np.sqrt((groups - 1) / groups * spread)
    return half
