"""vMitosis, Figure 6: a one-socket workload over time, moved to another socket, its data after it."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from pandas import DataFrame, concat

from ..core.interval import Interval
from ..core.machine import Costs, Machine, load_costs, load_machine
from ..core.units import described
from ..cost.result import Result
from ..cost.throughput import rated
from ..world.moves import Moves
from .bench import Bench, bench
from .designs import Design
from .moved_curves import Curve, Moved, moved
from .moved_curves import published as curve_of
from .published import Figure, published
from .row import DEFINITION, MODELLED, Row, row
from .scan_pace import Pace, paces

PAPER = published("vmitosis")
MACHINE = "vmitosis-cascade-lake"
GIB, MIB = 1 << 30, 1 << 20
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
    "IR": Variant("visible", ("vmitosis-replicate", {}), "replicated before"),
    "O-RI": Variant("oblivious", ("linux", {}), "NUMA-oblivious, nothing migrates with the data"),
    "O-RIM": Variant("oblivious", ("vmitosis-migrate", {"layers": "ept"}), "NUMA-oblivious, ePT migrates"),
    "O-IR": Variant("oblivious", ("vmitosis-replicate", {"layers": "ept"}), "NUMA-oblivious, ePT replicated"),
}
CURVES = ("RRI", "RRIG", "RRIM", "O-IR")  # of which the artifact has samples
AT_EACH_PACE = (*CURVES, "O-RI")  # replays have linux among their policies
TEXT = {"restored-none": "RRI", "restored-ept": "RRIE", "restored-gpt": "RRIG", "restored-both": "RRIM"}
ALL_LOCAL = ("RRIM", "IR", "O-RIM", "O-IR")  # in the end, whatever the model says
QUANTITIES = {
    "drop": ("throughput 10 to 70 s after the move, of that before", "%"),
    "dip": ("second dip, below the drop", "%"),
    "end": ("throughput in the last third, of that before", "%"),
    "recover": ("time from the move to 90 % of the last third", "s"),
}
NOTE = (
    "made by synth and moved: 30 GB 1 : 240, 48 threads at uniform addresses that wait outside walks for a "
    "DRAM read of their data, to another socket after 150 s; latencies with interference; 256 MiB of data "
    "marked every 0.51 s, after a pass of 203 s that only learns where the threads are: Linux' scan period "
    "by its own rules after five minutes of queries (interval: 120 s, then every 0.3 s; 203 s, then every "
    "1.69 s); each page that moves is shot down alone: each IPI of a guest is a VM exit of the sender, each "
    "of a host one of the vCPU that it interrupts"
)
LOCAL = "every table is local in the end: that it is as fast as before is taken for granted"


def figure_6_modelled(bench: Bench) -> Iterator[Row]:
    """Drop, second dip, end and recovery of each line; left out of quick runs."""
    if bench.quick:
        return
    for name, variant in TEXT.items():
        yield judged(PAPER[name], variant, "end")
    lost = figures("O-RI")["end"].through(lambda kept: 100 - kept)
    yield row(PAPER["oblivious-drop"], lost, MODELLED, NOTE)
    yield judged(PAPER["oblivious-restored"], "O-RIM", "end")
    for variant in CURVES:
        measured = moved(curve_of(variant))._asdict()
        for name, (quantity, unit) in QUANTITIES.items():
            where = f"Figure 6, section 4.3 ({'6b' if variant.startswith('O') else '6a'})"
            title = f"{quantity}: {VARIANTS[variant].title} ({variant})"
            figure = PAPER.measured(f"moved-{variant}-{name}", where, title, unit, measured[name])
            yield judged(figure, variant, name)


def judged(figure: Figure, variant: str, name: str) -> Row:
    """Row of a Figure; the end of a variant whose tables are all local is no evidence."""
    if name == "end" and variant in ALL_LOCAL:
        return row(figure, figures(variant)[name], DEFINITION, LOCAL)
    return row(figure, figures(variant)[name], MODELLED, NOTE)


def samples() -> DataFrame:
    """Published and predicted curves: variant, title, source, seconds since the move, share of the throughput
    before, and low and high of it by the assumptions (published: the share itself)."""
    parts = []
    for name, variant in VARIANTS.items():
        middle, *corners = predicted()[name]
        every = np.array([middle.share, *(one.share for one in corners)])
        bounds = {"low": every.min(axis=0), "high": every.max(axis=0)}
        parts.append(sampled(middle, name, variant.title, "predicted") | bounds)
        if name in CURVES:
            known = curve_of(name)
            bounds = {"low": known.share, "high": known.share}
            parts.append(sampled(known, name, variant.title, "published") | bounds)
    rows = concat([DataFrame(part) for part in parts], ignore_index=True)
    return described(rows, [NOTE], {"machine": MACHINE})


def sampled(curve: Curve, name: str, title: str, source: str) -> dict[str, object]:
    """Columns of `samples`."""
    known = {"variant": name, "title": title, "source": source}
    return {**known, "seconds": curve.seconds, "share": curve.share}


@cache
def figures(variant: str) -> dict[str, Interval]:
    """{field of Moved: Interval} over the ends of the cost file's assumptions, each taken throughout, and
    over the paces of NUMA balancing."""
    middle, *corners = (moved(curve)._asdict() for curve in predicted()[variant])
    return {name: spanned([middle[name], *(one[name] for one in corners)]) for name in Moved._fields}


def spanned(values: list[float]) -> Interval:
    """Interval of several values, the first of which is the middle."""
    return Interval(min(values), values[0], max(values))


@cache
def predicted() -> dict[str, list[Curve]]:
    """{variant: [Curve by the middle of the assumptions, by each of their corners, and for AT_EACH_PACE by
    their middle at each further pace]}."""
    machine = load_machine(MACHINE)
    curves: dict[str, list[Curve]] = {name: [] for name in VARIANTS}
    with bench() as own:
        for (guest, costs), pace in product(priced(load_costs(machine)).items(), PACES):
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


def priced(costs: Costs) -> dict[str, Costs]:
    """{guest: Costs} of the paper's VMs; instructions stand for waits for local data.

    A NUMA-visible guest moves data itself, and each IPI that it sends is a VM exit: Linux 4.17 addresses CPUs
    one by one in a VM without interrupt remapping (try_to_enable_x2apic, arch/x86/kernel/apic/apic.c:
    x2apic_phys), and asks no hypervisor to send several (4.19 does). Interrupts that arrive are posted:
    Cascade Lake needs no exit for them. For a NUMA-oblivious one the host does, which sends its own.
    """
    host = replace(costs, data_exposed=Interval.exactly(0))
    return {"visible": replace(host, ipi_local_ns=IPI_NS, ipi_remote_ns=IPI_NS), "oblivious": host}


def moving(
    own: Bench, guest: str, policies: list[Design], machine: Machine, costs: Costs, pace: Pace
) -> list[Result]:
    """[Result] of the dataset's 1 : SCALE, moved from socket 0 to socket 1."""
    local = float(machine.latency_cycles(contended=True)[0, 0])
    capture = own.capture(
        size=DATASET // SCALE, scale=SCALE, guest=guest, threads=THREADS,
        threads_to_nodes=",".join("0" * THREADS), accesses=ACCESSES, rate=ACCESSES / THREADS / SECONDS,
        init_trace=False, instructions_per_access=local / costs.cycles_per_instruction.middle,
    )  # fmt: skip
    begins = 1000 * (MOVED + pace.learning)
    moves = Moves(autonuma=True, delay_ms=begins, scan_period_ms=pace.period, scan_size_mb=SCAN_MIB)
    results = own.replay(
        capture, policies, machine,
        contended=True, costs=costs, autonuma=moves, windows=WINDOWS, move_threads=f"0:1@{MOVED}s",
    )  # fmt: skip
    return list(results.values())


def assumptions(costs: Costs) -> Iterator[Costs]:
    """Costs with the middle of both assumptions, then with each pair of their ends."""
    e, cpi = costs.exposed, costs.cycles_per_instruction
    for share, cycles in ((e.middle, cpi.middle), *product((e.low, e.high), (cpi.low, cpi.high))):
        yield replace(costs, exposed=Interval.exactly(share), cycles_per_instruction=Interval.exactly(cycles))


def curve(result: Result, machine: Machine, costs: Costs) -> Curve:
    assert result.series is not None, "no windows were asked for"
    series = rated(result.series, machine, costs, contended=True)
    speed = [0.0 if rate is None else rate.accesses.middle for rate in series.rates]
    return Curve.of(series.time_ns / 1e9, np.array(speed), MOVED)
