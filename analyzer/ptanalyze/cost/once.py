"""What a policy costs once: getting to its tables, and touching memory for the first time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..core.interval import Interval


@dataclass(frozen=True)
class Once:
    """What happens once under a policy.

    Of a run counted as traced (Setup.cold), what is done before the first walk: `within` its Price too.

    events, host_events  int64[kinds, nodes, nodes] as Result.events: before the first walk, to get from the
                         captured tables to the policy's, and in the first run beyond what a further run does
    data_copied          data pages of 4 KiB copied into huge pages
    cycles               of the kernel and the hypervisor for all that
    pays_back            further runs of the region until `cycles` beyond the baseline's are earned back by
                         the policy's faster steady state: 0 at once, NEVER; None without a run time, and of
                         the baseline
    run_walks            walks of a further run
    run_cycles           cycles of a further run, None if unknown
    run_seconds          length of the baseline's further run on the CPUs that walk, None if unknown
    traced_speedup       of the run as traced: cold caches, and all that happens once, within it
    within               whether the run that is counted is that one: its Price has `cycles` too
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
    within: bool = False

    def count(self, kind: int, host: bool = False) -> int:
        """Events of a kind (an index of EVENT_KINDS)."""
        return int((self.host_events if host else self.events)[kind].sum())

    @property
    def when(self) -> str | None:
        """When the cost is earned back, in a word: "at once", "later", "never"; None where unknown."""
        if self.pays_back is None:
            return None
        runs = self.pays_back.middle
        return "at once" if not runs else "later" if math.isfinite(runs) else "never"

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
