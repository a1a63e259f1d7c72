"""Models of run time from walk cycles, as other papers use them.

They predict the cycles of a run from its walk cycles, which a simulation is to give. After Agbarya et al.,
Predicting Execution Times With Partial Simulations in Virtual Memory Research (MICRO 2020), who name them by
their users: Basu (ISCA 2013), Pham (MICRO 2015), Gandhi (MICRO 2014), Alam (ISCA 2017), Yaniv (SIGMETRICS
2016). Placements change neither the number of walks nor of TLB hits, which these models have besides: a term
in walks grows with the walk cycles, one in hits stays.

A Point is (walk cycles, cycles) of a run, a Model gives the cycles of a run from its walk cycles.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

Point: TypeAlias = tuple[float, float]
Model: TypeAlias = Callable[[float], float]
DEGREES = (1, 2, 3)  # of Mosmodel's polynomials


def basu(local: Point) -> Model:
    """Basu, Pham: every walk cycle is waited for, all else stays."""
    return lambda walk: local[1] - local[0] + walk


def alam(huge: Point) -> Model:
    """Every walk cycle is waited for, all else is as in a run with 2 MiB pages."""
    return basu(huge)


def gandhi(local: Point, huge: Point) -> Model:
    """The line through the run without any walks that 2 MiB pages let expect, and the local run."""
    return line(local, (0.0, huge[1] - huge[0]))


def line(one: Point, other: Point) -> Model:
    """The line through two runs: Yaniv, with a run of 2 MiB pages."""
    slope = (other[1] - one[1]) / (other[0] - one[0])
    return lambda walk: one[1] + slope * (walk - one[0])


def mosmodel(points: Sequence[Point], degree: int) -> Model:
    """Polynomial of the walk cycles through runs of a program, by least squares of relative errors."""
    walks, cycles = (np.array(values) for values in zip(*points, strict=True))
    weights = np.polyfit(walks, cycles, degree, w=1 / cycles)
    return lambda walk: float(np.polyval(weights, walk))


def pooled(local: Point, added: Sequence[Point], degree: int) -> Model:
    """Polynomial of the added walk cycles, both over the local run's cycles, through `added` of others."""
    walks, slower = (np.array(values) for values in zip(*added, strict=True))
    powers = np.stack([walks**power for power in range(1, degree + 1)], axis=1) / (1 + slower)[:, None]
    weights = np.linalg.lstsq(powers, slower / (1 + slower), rcond=None)[0]
    return partial(_grown, local, weights)


def _grown(local: Point, weights: np.ndarray, walk: float) -> float:
    added = (walk - local[0]) / local[1]
    return local[1] * (1 + float(sum(w * added ** (k + 1) for k, w in enumerate(weights))))
