"""vMitosis, Figure 6: a one-socket workload over time, moved to another socket, its data after it."""

from collections.abc import Iterator

import msgspec
import numpy as np

from ..core.interval import Interval, over_corners
from ..core.machine import Machine, load_costs, load_machine
from ..cost.price import read_cycles
from ..cost.result import Result
from ..world.moves import Moves
from .bench import Bench
from .published import published
from .row import MODELLED, Row, row
from .wide import OUTSIDE

PAPER = published("vmitosis")
MIB, SECONDS, WINDOWS, SMALLER = 1 << 20, 100, 10, 120
# published figure: the policy of its steady state
AFTER = {
    "restored-none": "linux",
    "restored-ept": "vmitosis-migrate layers=ept",
    "restored-gpt": "vmitosis-migrate layers=gpt",
    "restored-both": "vmitosis-migrate layers=both",
}
NOTE = (
    "made by synth and moved: 30 GB and the CPU's caches 1 : 120, 4 threads at uniform addresses, to "
    "another socket after 30 % of 100 s, data following by NUMA balancing; latencies with interference, "
    "throughput of the last tenth over that of the first"
)


def figure_6_modelled(bench: Bench) -> Iterator[Row]:
    """Throughput once data have followed, by the tables that follow; left out of quick runs."""
    if bench.quick:
        return
    machine, accesses = small_caches(load_machine("vmitosis-cascade-lake")), 800_000
    capture = bench.capture(
        size=256 * MIB, guest="visible", threads=4, threads_to_nodes="0,0,0,0", accesses=accesses,
        init_trace=False, instructions_per_access=OUTSIDE, rate=accesses / 4 / SECONDS,
    )  # fmt: skip
    migrating = [("vmitosis-migrate", {"layers": layers}) for layers in ("ept", "gpt", "both")]
    moves = Moves(autonuma=True, delay_ms=350.0 * SECONDS, scan_size_mb=512.0)
    results = bench.replay(
        capture,
        ["linux", *migrating],
        machine,
        contended=True,
        move_threads="0:1@30%",
        autonuma=moves,
        windows=WINDOWS,
    )
    for name, policy in AFTER.items():
        ours = throughput_left(results[policy], machine, accesses / WINDOWS)
        yield row(PAPER[name], ours, MODELLED, NOTE)


def small_caches(machine: Machine) -> Machine:
    """A Machine with data caches scaled down like the workload."""
    less = {}
    for name in ("l2", "llc"):
        cache = getattr(machine, name)
        set_bytes = 64 * cache.ways
        size = max(cache.bytes // SMALLER // set_bytes, 1) * set_bytes
        less[name] = msgspec.structs.replace(cache, bytes=size)
    return msgspec.structs.replace(machine, **less)


def throughput_left(result: Result, machine: Machine, accesses: float) -> Interval:
    """Interval of the throughput in the last window, in % of that in the first, by the additive law."""
    series = result.series
    assert series is not None, "no windows were asked for"
    costs, walks = load_costs(machine), series.dram.astype(float)
    cycles = read_cycles(machine, contended=True)
    stalled = np.einsum("wdrs,rs->w", walks, cycles[..., 1])
    before, after = (stalled[k] / series.walks[k] for k in (0, -1))
    cached = result.reads[..., 0].sum() / result.walks * cycles[0, 0, 0]
    missed = result.walks / (accesses * WINDOWS)

    def left(exposed: float, cpi: float) -> float:
        first, last = (OUTSIDE * cpi + exposed * missed * (cached + waits) for waits in (before, after))
        return float(100 * first / last)

    return over_corners(left, costs.exposed, costs.cycles_per_instruction)
