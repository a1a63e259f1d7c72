"""Walks and data accesses per second in windows of equal time (counts.Series), by the law of cost/price.py.

Cycles of a window = instructions x cycles per instruction + waits for local data + e (walk cycles + cycles
that data are farther) + M. Walk cycles are the window's reads at the machine's latencies; M is what the
kernel does for faults and system calls. Waits for local data are up to one read of the node's own DRAM per
walk, as in cost/price.py; data elsewhere cost the difference of the machine's latencies besides, once per
walk: a page that the TLB does not hold is taken not to be in the data caches either. A load waits first for
its walk, then for its line, so that e, the share that stalls the program, is the same for both. All CPUs of
the window are taken to be busy; NUMA balancing takes its share of their time; more than all adds to it.
"""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
from msgspec import structs

from ..core.columns import Column
from ..core.machine import Costs, Machine
from ..kernels import BALANCING, LL, LR, RL, RR, Counters
from .counts import Series, read_cycles, taken_ns, walk_cycles


def window_rows(series: Series | None) -> list[dict[str, int | float | None]]:
    """[{column: value}] of WINDOW_COLUMNS, one per window; shares are of its walks or DRAM reads, None
    without any. No rows of None."""
    if series is None:
        return []
    columns = {one.key: one.of(series).tolist() for one in WINDOW_COLUMNS}
    return [
        {key: None if value != value else value for key, value in zip(columns, row, strict=True)}
        for row in zip(*columns.values(), strict=True)
    ]


def _share(part: np.ndarray, whole: np.ndarray | int) -> np.ndarray:
    """float64[N]: part / whole, NaN where there is none."""
    there = np.broadcast_to(whole, part.shape) != 0
    return np.divide(part, whole, out=np.full(part.shape, np.nan), where=there)


def _leaf(s: Series, kind: int) -> np.ndarray:
    return _share(s.classes[:, :, kind].sum(axis=1), s.walks)


def _dram(s: Series, side: int) -> np.ndarray:
    return s.dram[:, side].sum(axis=(1, 2))


def _remote(s: Series, side: int) -> np.ndarray:
    reads = _dram(s, side)
    return _share(reads - np.trace(s.dram[:, side], axis1=1, axis2=2), reads)


def _per_second(s: Series, end: int, walks: bool = False) -> np.ndarray:
    if s.per_second is None:
        return np.full(len(s.walks), np.nan)
    accesses: np.ndarray = s.per_second[:, end]
    return accesses * _share(s.walks, s.accesses) if walks else accesses


WINDOW_COLUMNS = (
    Column("time_ns", "end of the window", lambda s: s.time_ns, "windows", "ms", form="ms"),
    Column("walks", "page walks", lambda s: s.walks, "windows", "walks", unit="walks"),
    Column("leaf_LL_share", "as in `whatif`", partial(_leaf, kind=LL),
           "windows", "LL", "local", form="share"),
    Column("leaf_LR_share", "", partial(_leaf, kind=LR), "windows", "LR", "", form="share"),
    Column("leaf_RL_share", "", partial(_leaf, kind=RL), "windows", "RL", "remote", form="share"),
    Column("leaf_RR_share", "", partial(_leaf, kind=RR), "windows", "RR", "", form="share"),
    Column("guest_dram_reads", "reads of the guest's tables from DRAM", partial(_dram, side=0)),
    Column("guest_remote_share", "share of them from another node", partial(_remote, side=0),
           "windows", "gPT DRAM remote", "DRAM remote", form="share"),
    Column("host_dram_reads", "of the host's tables", partial(_dram, side=1)),
    Column("host_remote_share", "share of them from another node", partial(_remote, side=1),
           "windows", "ePT DRAM remote", "", form="share"),
    Column("data_remote_share", "share of walks whose data are on another socket",
           lambda s: _share(s.data_remote, s.walks), "windows", "data remote", form="share"),
    Column("walks_per_s", "", partial(_per_second, end=1, walks=True),
           "windows", "M walks/s", form="millions", unit="1/s"),
    Column("accesses_per_s_low", "at least", partial(_per_second, end=0), unit="1/s"),
    Column("accesses_per_s", "data accesses", partial(_per_second, end=1),
           "windows", "M accesses/s", form="millions", unit="1/s"),
    Column("accesses_per_s_high", "at most", partial(_per_second, end=2), unit="1/s"),
    Column("tables_moved", "table pages moved so far", lambda s: s.tables_moved,
           "windows", "tables moved", rank=10, unit="pages"),
    Column("data_moved", "data pages moved so far", lambda s: s.data_moved,
           "windows", "data moved", unit="pages"),
    Column("data_moved_share", "share of those mapped in the end",
           lambda s: _share(s.data_moved, s.pages), "windows", "of data", form="share"),
)  # fmt: skip


def spent(counters: Counters, machine: Machine, costs: Costs, contended: bool = False) -> np.ndarray:
    """float64[3]: cycles of walks, of faults and system calls, of what the kernel moves (without copying).

    What system calls and shootdowns cost however much they change is left out: windows add up to the whole.
    """
    marginal = structs.replace(costs, copies_ns=0.0, ipi_first_ns=0.0)
    ns = taken_ns(np.stack([counters.events, counters.host_events]), machine, marginal)
    balancing = float(ns[BALANCING])
    own = float(counters.classes.sum()) * machine.walk_caches.cycles
    walks = walk_cycles(counters.reads, read_cycles(machine, contended), own).sum()
    return np.array([walks, (float(ns.sum()) - balancing) * machine.ghz, balancing * machine.ghz])


def farther_cycles(data: np.ndarray, machine: Machine, contended: bool = False) -> np.ndarray:
    """float64[N]: cycles beyond local data's, of int64[N, nodes, nodes] by [walker's node, data's]."""
    latency = machine.latency_cycles(contended)
    return np.einsum("krs,rs->k", data, latency - latency.diagonal()[:, None])


def rated(series: Series, machine: Machine, costs: Costs, contended: bool = False) -> Series:
    """The Series with its rates; NaN for a window that accesses nothing, or whose work takes no cycles."""
    waits = series.cycles[:, 0] + farther_cycles(series.data, machine, contended)
    balancing = series.cycles[:, 2] + _following(series, machine, costs)
    seconds = np.diff(series.time_ns, prepend=0) * series.pace / 1e9
    counted = series.instructions.any()  # as counts.instructions has it
    executed = series.instructions if counted else series.accesses * costs.instructions_per_access
    hertz = series.cpus * machine.ghz * 1e9
    taken = series.scale * _share(balancing, hertz * seconds)
    clocked = taken < 1  # else there is no clock, or one that the work cannot keep to
    left = np.where(clocked, 1 - taken, 1.0)
    own = series.cycles[:, 1] + np.where(clocked, 0.0, balancing)
    local = series.classes.sum(axis=(1, 2)) * machine.latency_cycles().diagonal().mean()
    unknown = costs.exposed, costs.cycles_per_instruction, costs.data_exposed
    ends = [[one.middle for one in unknown], *product(*({one.low, one.high} for one in unknown))]
    exposed, cpi, data = np.array(ends).T[..., None]
    cycles = executed * cpi + data * local + exposed * waits + own  # [corners, N]
    works = (series.accesses > 0) & (cycles.min(axis=0) > 0)
    speed = np.divide(hertz * left, cycles, out=np.full(cycles.shape, np.nan), where=works)
    found = np.stack([speed.min(axis=0), speed[0], speed.max(axis=0)], axis=-1)
    return replace(series, per_second=found * series.accesses[:, None])


def _following(series: Series, machine: Machine, costs: Costs) -> np.ndarray:
    """float64[N]: cycles to fault on data pages that move, to copy them, and of a hypervisor's shootdowns.

    A guest's shootdowns are counted by the replay. Before Linux 5.13 a page that a hypervisor moves is shot
    down, too: on every CPU that runs its process, as vCPUs do in the guest; each that is interrupted
    there leaves it and comes back. A data page moves with its entry, as a table page.
    """
    pages: np.ndarray = np.diff(series.data_moved, prepend=0)
    ns: np.ndarray = pages * (costs.fault_ns + costs.table_move_ns)
    if series.host_shoots:
        each = costs.ipi_local_ns + costs.ipi_handler_ns + costs.vm_exit_ns
        ns = ns + pages * (series.cpus - 1) * each
    return ns * machine.ghz
