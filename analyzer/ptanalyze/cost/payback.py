"""When a one-time cost is earned back, and what a policy takes over a longer time.

A run of the region costs W walk cycles and M management cycles again and again (Price); getting to the
policy's tables and touching memory for the first time costs O once. Over n runs a policy takes O + n C cycles
(C: price.price), so that it has paid for itself after n = (O - O_base) / (C_base - C) runs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core import interval
from ..core.interval import Interval, over_corners

if TYPE_CHECKING:
    from .once import Once
    from .price import RunLaw
    from .result import Price

NEVER = math.inf


def pays_back(extra: float, base: Price, price: Price, law: RunLaw) -> Interval:
    """Runs until `extra` cycles are earned back, over all assumptions of the law: 0 at once, NEVER.

    A gain counts where it can be read in the speed-up (core.gain).
    """
    run, unknown = law

    def runs(*at: float) -> float:
        paid = replace(price, management_cycles=price.management_cycles + extra)
        before, after = run(base, *at), run(price, *at)
        ratio = before / after if after else 1.0
        if extra <= 0 and not interval.slower(ratio):
            return 0.0
        return (run(paid, *at) - after) / (before - after) if interval.faster(ratio) else NEVER

    return over_corners(runs, *unknown)


def over_horizon(base: Once, once: Once, speedup: float, seconds: float) -> float | None:
    """Speed-up while the baseline runs for `seconds`, one-time costs included; None if unknown.

    speedup  of each further run
    """
    if base.run_cycles is None or not base.run_seconds:
        return None
    run = base.run_cycles * seconds / base.run_seconds
    return (base.cycles + run) / (once.cycles + run / speedup)
