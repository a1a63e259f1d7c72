"""When a one-time cost is earned back, and what a policy takes over a longer time.

A run of the region costs W walk cycles and M management cycles again and again (Price); getting to the
policy's tables and touching memory for the first time costs O once. Over n runs a policy takes O + n C cycles
(C: price.price), so that it has paid for itself after n = (O - O_base) / (C_base - C) runs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.interval import Interval, over_corners

if TYPE_CHECKING:
    from .once import Once
    from .price import RunLaw
    from .result import Price

NEVER = math.inf


def pays_back(extra: float, base: Price, price: Price, law: RunLaw) -> Interval:
    """Runs until `extra` cycles are earned back, over all assumptions of the law: 0 at once, NEVER."""
    run, unknown = law

    def runs(*at: float) -> float:
        paid = replace(price, management_cycles=price.management_cycles + extra)
        extra_cycles = run(paid, *at) - run(price, *at)
        saved = run(base, *at) - run(price, *at)
        if extra <= 0 and saved >= 0:
            return 0.0
        return extra_cycles / saved if saved > 0 else NEVER

    return over_corners(runs, *unknown)


def over_horizon(once: Once, seconds: float) -> float | None:
    """Cycles of a policy while the baseline runs for `seconds`: once, and all runs; None if unknown."""
    if once.run_cycles is None or not once.run_seconds:
        return None
    return once.cycles + once.run_cycles * seconds / once.run_seconds
