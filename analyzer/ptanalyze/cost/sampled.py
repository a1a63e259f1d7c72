"""The law of a process whose accessed bits were sampled: each read of a leaf entry from DRAM takes as long as
it is far to the node that serves it, and e of it stalls the program (cost.law).

The cycles of the process are counted: its CPU time. So a speed-up needs neither instructions nor a rate of
walks: reads that caches answer take as long under every placement.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.columns import message
from ..core.interval import Interval, over_corners
from ..core.machine import Machine

MOST_STALLED = 0.9  # of the cycles: a process that runs does some work


@dataclass(frozen=True)
class Sampled:
    """Reads of leaf entries from DRAM by a process, on a machine.

    reads    per second of CPU time, by all nodes together
    leaves   as Counts.leaves, with the tables where they were captured
    hertz    cycles per second; exposed: share e of the wait
    seconds  of CPU time that the process was sampled; elapsed: of the clock
    walks    counted share of the cycles that walks take, None: no counter
    alone    whether it keeps one CPU busy at most, which is on one node at a time: intervals reach over all
    small    share of the reads that 2 MiB pages would spare, in memory that may have them
    """

    reads: Interval
    leaves: np.ndarray
    hertz: float
    exposed: Interval
    seconds: float
    elapsed: float
    walks: float | None = None
    alone: bool = False
    small: float = 0.0

    def assumptions(self, taken: str) -> str:
        return str(message("assumed", "sampled", e=self.exposed, ghz=self.hertz / 1e9, taken=taken))

    def share(self, latency: float) -> Interval:
        """Share of the run that walks take, where a read from DRAM takes these cycles; without a counter
        what is above the reads from DRAM is open."""
        if self.walks is not None:
            counted = self.walks
            return self.exposed.through(lambda exposed: min(exposed * counted, MOST_STALLED))
        least = over_corners(
            lambda reads, exposed: min(reads * exposed * latency / self.hertz, MOST_STALLED),
            self.reads,
            self.exposed,
        )
        return Interval(least.low, least.middle, 1.0)

    def _ratio(self, captured: float, baseline: float, policy: float) -> Interval:
        """Run time under the baseline over that under a policy, by mean cycles of a read in each place."""

        def ratio(reads: float, exposed: float) -> float:
            each = min(reads * exposed, MOST_STALLED * self.hertz / max(captured, 1e-9)) / self.hertz
            outside = 1 - each * captured
            return (outside + each * baseline) / (outside + each * policy)

        return over_corners(ratio, self.reads, self.exposed)

    def speedup(self, captured: np.ndarray, baseline: np.ndarray, policy: np.ndarray) -> Interval:
        """Run time under the baseline over that under a policy.

        captured, baseline, policy  cycles of a read by each node that walks, float64[CPU nodes]
        """
        mean = self._ratio(*(float(place.mean()) for place in (captured, baseline, policy)))
        if not self.alone:
            return mean
        places = zip(captured, baseline, policy, strict=True)
        each = [mean, *(self._ratio(*map(float, at)) for at in places)]
        return Interval(min(one.low for one in each), mean.middle, max(one.high for one in each))

    def run_time(
        self, leaves: np.ndarray, baseline: np.ndarray | None, machine: Machine, contended: bool
    ) -> dict[str, Any]:
        """Fields of a Result: speed-ups over the baseline, of local tables, and of leaf entries in the LLC
        where 2 MiB pages could be.

        leaves, baseline  Counts.leaves of the policy and of the baseline; None: not known
        """
        readers = list(machine.cpu_nodes)
        cycles = machine.table_cycles(contended)[readers]
        captured, policy = ((cycles * served).sum(axis=1) for served in (self.leaves, leaves))
        before = policy if baseline is None else (cycles * baseline).sum(axis=1)
        local = np.minimum(policy, machine.table_cycles().diagonal()[readers])
        fewer = self.small * np.minimum(policy, machine.llc.cycles) + (1 - self.small) * policy
        here, there = float(captured.mean()), float(policy.mean())
        speedup, share = self.speedup(captured, before, policy), self.share(there)

        return {
            "speedup": speedup,
            "run_cycles": self.seconds * self.hertz * len(policy) * self._ratio(here, there, here).middle,
            "run_seconds": self.elapsed,
            "walk_share": share,
            "kernel_share": Interval.exactly(0.0),
            "table_share": share,
            "local_tables": self.speedup(captured, policy, local),
            "cached_tables": self.speedup(captured, policy, fewer),
        }
