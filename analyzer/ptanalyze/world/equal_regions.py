"""How many regions with as many walks each a sample of unequal ones is worth.

(sum w)^2 / sum w^2 equal regions have the variance of those with walks w (Kish, "Survey Sampling", 1965).
"""

import numpy as np

from ..core.errors import UsageError
from ..core.sample import Sample
from .part import WAY_OUT

LEAST = 8


def equal_regions(walks: np.ndarray) -> float:
    """Of regions with int64[R] walks, at least one of them."""
    return 1 / float(((walks / walks.sum()) ** 2).sum())


def must_be_worth_enough(sample: Sample, walks: np.ndarray) -> None:
    """UsageError where one in n of regions with int64[R] walks are too few, or few of them have most."""
    if not walks.any():
        return
    worth = equal_regions(walks) / sample.one_in
    if round(worth, 1) < LEAST:
        raise UsageError(
            f"sample = {sample}: one in {sample.one_in} of {np.count_nonzero(walks):,} regions, whose walks "
            f"differ, is worth {worth:.1f} equal ones, of {LEAST} that its error needs; {WAY_OUT['regions']}"
        )
