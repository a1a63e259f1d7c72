"""Walks and data accesses per second of each window of a run, by the additive law of cost/price.py.

Cycles of a window = instructions x cycles per instruction + waits for local data + e (walk cycles + cycles
that data are farther) + M. Walk cycles are the window's reads at the machine's latencies; M is what the
kernel does for faults and system calls. Waits for local data are up to one read of the node's own DRAM per
walk, as in cost/price.py; data elsewhere cost the difference of the machine's latencies besides, once per
walk: a page that the TLB does not hold is taken not to be in the data caches either. A load waits first for
its walk, then for its line, so that e, the share that stalls the program, is the same for both. All CPUs of
the window are taken to be busy; NUMA balancing goes by the clock and takes its share of their time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as changed
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from ..core.interval import over_corners
from ..kernels import BALANCING
from .price import data_cycles, moving_ns, taken_ns, walk_cycles
from .result import Rate

if TYPE_CHECKING:
    from ..core.interval import Interval
    from ..core.machine import Costs, Machine
    from ..kernels import Counters
    from .result import Series


def spent(counters: Counters, machine: Machine, costs: Costs, contended: bool = False) -> np.ndarray:
    """float64[3]: cycles of walks, of faults and system calls, of what the kernel moves (without copying).

    What system calls and shootdowns cost however much they change is left out: windows add up to the whole.
    """
    marginal = replace(costs, copies_ns=0.0, ipi_first_ns=0.0)
    ns = taken_ns(counters, machine, marginal)
    balancing = float(ns[BALANCING])
    walks = sum(walk_cycles(counters.reads, machine, contended))
    return np.array([walks, (float(ns.sum()) - balancing) * machine.ghz, balancing * machine.ghz])


def farther_cycles(data: np.ndarray, machine: Machine, contended: bool = False) -> np.ndarray:
    """float64[N]: cycles beyond local data's, of int64[N, nodes, nodes] by [walker's node, data's]."""
    latency = machine.latency_cycles(contended)
    farther: np.ndarray = np.einsum("krs,rs->k", data, latency - latency.diagonal()[:, None])
    return farther


def rated(series: Series, machine: Machine, costs: Costs, contended: bool = False) -> Series:
    """The Series with its rates; None for a window that accesses nothing, or whose work takes no cycles."""
    return changed(series, rates=tuple(_rates(series, machine, costs, contended)))


def _rates(series: Series, machine: Machine, costs: Costs, contended: bool) -> Iterator[Rate | None]:
    waits = series.cycles[:, 0] + farther_cycles(series.data, machine, contended)
    own, balancing = series.cycles[:, 1], series.cycles[:, 2] + _following(series, machine, costs)
    seconds = np.diff(series.time_ns, prepend=0) * series.pace / 1e9
    counted = series.instructions.any()  # as price.instructions has it
    instructions = series.instructions if counted else series.accesses * costs.instructions_per_access
    hertz = series.cpus * machine.ghz * 1e9
    for k, accesses in enumerate(series.accesses.tolist()):
        left, clocked = 1.0, seconds[k] > 0
        if clocked and hertz[k]:
            left = max(1 - series.scale * balancing[k] / (hertz[k] * seconds[k]), 0.0)
        local = data_cycles(series.classes[k], machine)
        window = Window(instructions[k], local, waits[k], own[k] + (0.0 if clocked else balancing[k]))
        if not accesses or window.cycles(*(unknown.low for unknown in unknowns(costs))) <= 0:
            yield None
            continue
        per_s = window.per_second(hertz[k] * left, costs)
        yield Rate(times(per_s, int(series.walks[k])), times(per_s, accesses))


def _following(series: Series, machine: Machine, costs: Costs) -> np.ndarray:
    """float64[N]: cycles to fault on data pages that move, to copy them, and of a hypervisor's shootdowns.

    A guest's shootdowns are counted by the replay. A page that a hypervisor moves is flushed alone too
    (ptep_clear_flush, mm/rmap.c): from every CPU that runs its process, as vCPUs do in the guest, and each
    that is interrupted there leaves it and comes back.
    """
    pages: np.ndarray = np.diff(series.data_moved, prepend=0)
    ns: np.ndarray = pages * (costs.fault_ns + moving_ns(1, costs))
    if series.by_host:
        each = costs.ipi_local_ns + costs.ipi_handler_ns + costs.vm_exit_ns
        ns = ns + pages * (series.cpus - 1) * each
    return ns * machine.ghz


class Window(NamedTuple):
    """local  cycles of a read of own DRAM per walk; waits  cycles of walks, and of farther data; own  cycles
    of the kernel on behalf of the program."""

    instructions: float
    local: float
    waits: float
    own: float

    def cycles(self, exposed: float, cpi: float, data: float) -> float:
        return float(self.instructions * cpi + data * self.local + exposed * self.waits + self.own)

    def per_second(self, hertz: float, costs: Costs) -> Interval:
        """Units of work per second at a given number of cycles per second."""

        def speed(*at: float) -> float:
            return float(hertz / self.cycles(*at))

        return over_corners(speed, *unknowns(costs))


def unknowns(costs: Costs) -> tuple[Interval, Interval, Interval]:
    """Of Window.cycles."""
    return costs.exposed, costs.cycles_per_instruction, costs.data_exposed


def times(per_second: Interval, work: int) -> Interval:
    return per_second.through(lambda often: often * work)
