"""What a policy costs once, and when that is earned back.

A run of the region costs W walk cycles and M management cycles again and again (Price); getting to the
policy's tables and touching memory for the first time costs O once. Over n runs a policy takes O + n C cycles
(C: price.price), so that it has paid for itself after n = (O - O_base) / (C_base - C) runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..core.interval import Interval, over_corners

if TYPE_CHECKING:
    from .price import RunLaw
    from .result import Price

NEVER = math.inf


@dataclass(frozen=True)
class Once:
    """What happens once under a policy.

    events, host_events  int64[kinds, nodes, nodes] as Result.events: before the first walk, to get from the
                         captured tables to the policy's, and in the first run beyond what a further run does
    data_copied          data pages of 4 KiB copied (collapsed into huge pages)
    cycles               of the kernel and the hypervisor for all that
    pays_back            further runs of the region until `cycles` beyond the baseline's are earned back by
                         the policy's faster steady state: 0 at once, NEVER; None without a run time, and of
                         the baseline
    run_walks            walks of a further run
    run_cycles           cycles of a further run, None if unknown
    run_seconds          length of the baseline's further run on the CPUs that walk, None if unknown
    traced_speedup       of the run as traced: cold caches, and all that happens once, within it
    """

    events: np.ndarray
    host_events: np.ndarray
    data_copied: int
    cycles: float
    pays_back: Interval | None
    run_walks: int
    run_cycles: float | None
    run_seconds: float | None
    traced_speedup: Interval | None

    def count(self, kind: int, host: bool = False) -> int:
        """Events of a kind (an index of EVENT_KINDS)."""
        return int((self.host_events if host else self.events)[kind].sum())

    @property
    def pays_back_walks(self) -> Interval | None:
        """Walks until it has paid for itself."""
        return self.pays_back and self.pays_back.through(lambda runs: runs * self.run_walks)

    @property
    def pays_back_seconds(self) -> Interval | None:
        """Seconds of the baseline's run until then."""
        if self.pays_back is None or self.run_seconds is None:
            return None
        seconds = self.run_seconds
        return self.pays_back.through(lambda runs: runs * seconds)


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
