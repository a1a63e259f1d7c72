"""vMitosis, Figure 6: a one-socket workload over time, moved to another socket, its data after it."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
from msgspec.structs import replace

import ptanalyze as pt

from .bench import Bench, Design, bench
from .row import MODELLED, Row, published
from .wide import GIB, MIB

# Throughput over time around a migration, and its figures: of published samples as of ours.

STEP, WIDE = 5.0, 7  # seconds between points of a curve; points of a running median
SETTLED, PLATEAU = 10.0, 70.0  # seconds after the move: the plateau's begin and end
RECOVERED = 0.9


class Curve(NamedTuple):
    """float64[n]: seconds  rising, since the move; share  throughput over that before the move."""

    seconds: np.ndarray
    share: np.ndarray

    @classmethod
    def of(cls, ends: np.ndarray, speed: np.ndarray, moved: float) -> Self:
        """Curve of throughputs `speed` up to each of `ends` (s); threads moved at `moved`."""
        steady = ends[1:] <= moved  # not the first, which finds caches empty
        return cls(ends - moved, speed / float(np.median(speed[1:][steady])))

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """(seconds, share) at every STEP after the move, the share smoothed by a running median."""
        at = np.arange(STEP / 2, self.seconds[-1], STEP)
        share = self.share[np.searchsorted(self.seconds, at)]
        near = np.lib.stride_tricks.sliding_window_view(np.pad(share, WIDE // 2, mode="edge"), WIDE)
        return at, np.median(near, axis=1)


class Moved(NamedTuple):
    """What a curve says of a migration.

    drop     throughput from 10 to 70 s after the move, % of that before: the median
    dip      second dip: how far it falls below the drop before it recovers, % of the drop; 0 without any
    end      throughput in the last third after the move, % of that before: the median
    recover  s from the move until a running median over 35 s is 90 % of the end
    """

    drop: float
    dip: float
    end: float
    recover: float


def moved(curve: Curve) -> Moved:
    after = curve.seconds > 0
    last = curve.seconds > curve.seconds[-1] * 2 / 3
    at, share = curve.points()
    drop = float(np.median(share[(at > SETTLED) & (at < PLATEAU)]))
    end = float(np.median(curve.share[after & last]))
    back = np.flatnonzero((at >= PLATEAU) & (share >= RECOVERED * end))
    recover = at[back[0]] if len(back) else np.inf
    low = float(share[(at >= SETTLED) & (at < recover)].min())
    return Moved(100 * drop, 100 * max(1 - low / drop, 0.0), 100 * end, float(recover))


def published_curve(config: str) -> Curve:
    """Curve of a configuration of vMitosis, Figure 6, from the artifact: samples of equal work."""
    rows = pd.read_csv(pt.errors.bundled("models") / "reference" / "vmitosis-figure-6.csv")
    rows = rows[rows["config"] == config]
    ends = rows["interval_s"].cumsum().to_numpy()
    return Curve.of(ends, rows["throughput_ops_s"].to_numpy(float), ends[(rows["phase"] == "pre").sum() - 1])


# How fast Linux' NUMA balancing follows threads that have moved: its scan period, from its own rules.
# kernel/sched/fair.c of Linux 4.17 (update_task_scan_period): at the end of each pass over the memory, the
# period of a task whose pages others use too grows by the tenths of its faults beyond seven that were local,
# at least by one tenth, or shrinks by those that are missing.

TENTHS, ENOUGH = 10, 7  # NUMA_PERIOD_SLOTS, NUMA_PERIOD_THRESHOLD
FIRST_MS = 1000.0  # sysctl_numa_balancing_scan_delay: the period that a task begins with
WINDOW_MIB, SECOND_MS = 2560.0, 1000.0  # MAX_SCAN_WINDOW per second at most
ALL, NONE = 1.0, 0.0  # shares of the faults


class Pace(NamedTuple):
    """learning  s after the threads' move in which pages are looked at for the first time; period  ms from
    one scan to the next in the pass that moves them."""

    learning: float
    period: float


def next_period(period: float, local: float, scan_mib: float) -> float:
    """The period (ms) after a pass in which a share of the faults was local."""
    tenths = int(TENTHS * local)
    slots = max(tenths - ENOUGH, 1) if tenths >= ENOUGH else tenths - ENOUGH
    return max(period + slots * period / TENTHS, SECOND_MS * scan_mib / WINDOW_MIB)


def settled_period(seconds: float, mib: float, scan_mib: float) -> float:
    """The period (ms) after this time (s) with all pages local, for this amount of memory."""
    period = FIRST_MS
    while (seconds := seconds - one_pass(period, mib, scan_mib)) >= 0:
        period = next_period(period, ALL, scan_mib)
    return period


def one_pass(period: float, mib: float, scan_mib: float) -> float:
    """s of a pass over all of the memory."""
    return mib / scan_mib * period / 1000


def paces(seconds: float, mib: float, scan_mib: float) -> Iterator[Pace]:
    """The Pace that the rules give threads that move after this time (s), as a pass begins; the fastest,
    with the period that tasks begin with; the slowest, of a move so late in a pass that the period stays."""
    settled = settled_period(seconds, mib, scan_mib)
    for before, local in ((settled, NONE), (FIRST_MS, NONE)):
        yield Pace(one_pass(before, mib, scan_mib), next_period(before, local, scan_mib))
    yield Pace(one_pass(settled, mib, scan_mib), settled)


PAPER = published("vmitosis")
MACHINE = "vmitosis-cascade-lake"
DATASET, SCALE, THREADS = 30 * GIB, 240, 48  # section 4.3; a thread per hardware thread of the socket
SECONDS, MOVED, WINDOWS, ACCESSES = 750, 150, 150, 3_000_000
QUERIED = 300  # s before the move, "about five minutes" (section 4.3)
# Linux 4.19, commit 4180bf1b655a: 100,000 broadcasts in a VM of 80 vCPUs on 2 sockets of Skylake take 19.85 s
# with x2APIC in physical mode, until all have answered
IPI_NS = 19_845_070_887 / 100_000 / 79
SCAN_MIB = 256  # per scan: sysctl_numa_balancing_scan_size of Linux
# should_numa_migrate_memory (kernel/sched/fair.c) moves a page at the second fault from a node: the first
# pass over the dataset only learns where the threads are
PACES = tuple(paces(QUERIED, DATASET / MIB, SCAN_MIB))  # the first is the middle


class Variant(NamedTuple):
    """A line of the figure: the guest that it is of, and the policy."""

    guest: str
    policy: Design
    title: str


VARIANTS = {
    "RRI": Variant("visible", ("linux", {}), "nothing migrates with the data"),
    "RRIE": Variant("visible", ("vmitosis-migrate", {"layers": "ept"}), "ePT migrates"),
    "RRIG": Variant("visible", ("vmitosis-migrate", {"layers": "gpt"}), "gPT migrates"),
    "RRIM": Variant("visible", ("vmitosis-migrate", {"layers": "both"}), "both migrate"),
    "O-RI": Variant("oblivious", ("linux", {}), "NUMA-oblivious, nothing migrates with the data"),
    "O-IR": Variant("oblivious", ("vmitosis-replicate", {"layers": "ept"}), "NUMA-oblivious, ePT replicated"),
}
CURVES = ("RRI", "RRIG", "RRIM", "O-IR")  # of which the artifact has samples
AT_EACH_PACE = (*CURVES, "O-RI")  # replays have linux among their policies
TEXT = {"restored-none": "RRI", "restored-ept": "RRIE", "restored-gpt": "RRIG"}
ALL_LOCAL = ("RRIM", "O-IR")  # in the end, whatever the model says: no prediction
QUANTITIES = {
    "drop": ("throughput 10 to 70 s after the move, of that before", "%"),
    "dip": ("second dip, below the drop", "%"),
    "end": ("throughput in the last third, of that before", "%"),
    "recover": ("time from the move to 90 % of the last third", "s"),
}


def figure_6_modelled(bench: Bench) -> Iterator[Row]:
    """Drop, second dip, end and recovery of each line; left out of quick runs."""
    if bench.quick:
        return
    for name, variant in TEXT.items():
        yield PAPER.row(
            name, figures(variant)["end"], kind=MODELLED, note="moved", prediction=f"end of {variant}"
        )
    lost = figures("O-RI")["end"].through(lambda kept: 100 - kept)
    yield PAPER.row("oblivious-drop", lost, kind=MODELLED, note="moved")
    for variant in CURVES:
        measured = moved(published_curve(variant))._asdict()
        for name, (quantity, unit) in QUANTITIES.items():
            if name == "end" and variant in ALL_LOCAL:
                continue
            yield PAPER.measured(
                f"moved-{variant}-{name}",
                f"Figure 6, section 4.3 ({'6b' if variant.startswith('O') else '6a'})",
                f"{quantity}: {VARIANTS[variant].title} ({variant})",
                unit,
                measured[name],
                figures(variant)[name],
                MODELLED,
                "moved",
                # until its tables move each variant is Linux: they have one drop
                prediction=name if name == "drop" else f"{name} of {variant}",
            )


@cache
def figures(variant: str) -> dict[str, pt.Interval]:
    """{field of Moved: Interval} over the ends of the cost file's assumptions, each taken throughout, and
    over the paces of NUMA balancing."""
    curves = zip(*map(moved, predicted()[variant]), strict=True)
    return {
        name: pt.Interval(min(of), of[0], max(of)) for name, of in zip(Moved._fields, curves, strict=True)
    }


@cache
def predicted() -> dict[str, list[Curve]]:
    """{variant: [Curve with mid-range assumptions, at each of their corners, and for AT_EACH_PACE at
    their middle at each further pace]}."""
    machine = pt.load_machine(MACHINE)
    curves: dict[str, list[Curve]] = {name: [] for name in VARIANTS}
    with bench() as own:
        for (guest, costs), pace in product(priced(pt.machine.load_costs(machine)).items(), PACES):
            middle = pace == PACES[0]
            mine = {name: variant for name, variant in VARIANTS.items() if variant.guest == guest}
            if not middle:
                mine = {name: mine[name] for name in mine if name in AT_EACH_PACE}
            results = moving(own, guest, [variant.policy for variant in mine.values()], machine, costs, pace)
            for name, result in zip(mine, results, strict=True):
                every = list(assumptions(costs))
                taken = every if middle else every[:1]
                curves[name] += [curve(result, machine, assumed) for assumed in taken]
    return curves


def priced(costs: pt.machine.Costs) -> dict[str, pt.machine.Costs]:
    """{guest: Costs} of the paper's VMs; instructions stand for waits for local data.

    A NUMA-visible guest moves data itself, and each IPI that it sends is a VM exit: Linux 4.17 addresses CPUs
    one by one in a VM without interrupt remapping (try_to_enable_x2apic, arch/x86/kernel/apic/apic.c:
    x2apic_phys), and asks no hypervisor to send several (4.19 does). Interrupts that arrive are posted:
    Cascade Lake needs no exit for them. For a NUMA-oblivious one the host does, which sends its own.
    """
    host = replace(costs, data_exposed=pt.Interval.exactly(0))
    return {"visible": replace(host, ipi_local_ns=IPI_NS, ipi_remote_ns=IPI_NS), "oblivious": host}


def moving(
    own: Bench, guest: str, policies: list[Design], machine: pt.Machine, costs: pt.machine.Costs, pace: Pace
) -> list[pt.Result]:
    """[Result] of the dataset's 1 : SCALE, moved from socket 0 to socket 1."""
    local = float(machine.latency_cycles(contended=True)[0, 0])
    capture = own.capture(
        size=DATASET // SCALE, scale=SCALE, guest=guest, threads=THREADS,
        threads_to_nodes=",".join("0" * THREADS), accesses=ACCESSES, rate=ACCESSES / THREADS / SECONDS,
        init_trace=False, instructions_per_access=local / costs.cycles_per_instruction.middle,
    )  # fmt: skip
    begins = 1000 * (MOVED + pace.learning)
    moves = pt.machine.Moves(
        autonuma=True, delay_ms=begins, scan_period_ms=pace.period, scan_size_mb=SCAN_MIB
    )
    results = own.replay(
        capture, policies, machine,
        contended=True, costs=costs, autonuma=moves, windows=WINDOWS, move_threads=f"0:1@{MOVED}s",
        kernel="5.0",  # the oldest, for 4.17
    )  # fmt: skip
    return list(results.values())


def assumptions(costs: pt.machine.Costs) -> Iterator[pt.machine.Costs]:
    """Costs with the middle of both assumptions, then with each pair of their ends."""
    e, cpi = costs.exposed, costs.cycles_per_instruction
    for share, cycles in ((e.middle, cpi.middle), *product((e.low, e.high), (cpi.low, cpi.high))):
        yield replace(
            costs, exposed=pt.Interval.exactly(share), cycles_per_instruction=pt.Interval.exactly(cycles)
        )


def curve(result: pt.Result, machine: pt.Machine, costs: pt.machine.Costs) -> Curve:
    assert result.series is not None, "no windows were asked for"
    series = pt.analysis.rated(result.series, machine, costs, contended=True)
    assert series.per_second is not None
    return Curve.of(series.time_ns / 1e9, np.nan_to_num(series.per_second[:, 1]), MOVED)
