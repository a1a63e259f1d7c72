"""Public measurements of Mitosis and Hydra ported to Linux 7.0: nothing here is fitted to them."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pandas as pd

from ..core.errors import bundled
from ..core.interval import Interval
from ..core.machine import load_machine
from ..cost.law import Run
from ..cost.law import counted as closed_forms_counted
from ..cost.predict import Prediction, predict_placement, predict_walks
from ..cost.result import Result
from ..kernels.replay import PTE_COPY, REPLICA_FAULT
from .bench import Bench, Design
from .leave_one_out import of_ports
from .prior import mean_run, ports
from .row import MODELLED, REPLAYED, Figure, Row, not_reproducible, published, row
from .small_traces import small_traces
from .wide import speedup

# Kernels of GAP on 16 nodes under Linux, Mitosis and Hydra: the step between 2^27 and 2^30 vertices.
#
# A sample of the run must touch more PTE lines per node than its caches hold: repeated, a short one would
# find all of its own lines there. 10 million accesses read at least 500,000 random places on each node.

PAPER = published("ports")
MACHINE = "epyc-7543-16-nodes"
GRAPHS = tuple(f"{kind}{scale}" for kind in ("kron", "uni") for scale in range(27, 31))
QUICK = ("kron27",)
POLICIES = ("mitosis", "hydra")
DATA = {0: "data by first touch", 1: "interleaved data"}
BASELINE = {0: "linux", 1: "interleave"}
# accesses that read data at a random place, of all accesses (kernels/synth.py): each waits for DRAM
RANDOM = {"pr": 32 / 67, "bc": 0.45, "cc": 1 / 5}
INSTRUCTIONS_PER_CYCLE = 1 / 1.25  # the middle of the cost files
THREADS: dict[str, Any] = {"threads": 4, "threads_to_nodes": "2,6,10,14"}  # half of them on node 0's socket
NOTE = (
    "made by synth at full size, one thread on 4 of 16 nodes, {accesses:,} accesses, each random one with "
    "a DRAM read of its data; by first touch all tables are on node 0, as if one thread had loaded the graph "
    "(assumed); idle latencies, the interval reaches to contended ones: the measured runs have 128 threads"
)


def page_rank(bench: Bench) -> Iterator[Row]:
    return kernel(bench, "pr")


def betweenness(bench: Bench) -> Iterator[Row]:
    return kernel(bench, "bc")


def components(bench: Bench) -> Iterator[Row]:
    return kernel(bench, "cc")


def kernel(bench: Bench, name: str) -> Iterator[Row]:
    """Speed-ups over one copy of the tables, by graph, placement of the data and policy."""
    accesses = bench.size(10_000_000, 40_000)
    for graph in QUICK if bench.quick else GRAPHS:
        figures = {(policy, data): figure(name, graph, policy, data) for data in DATA for policy in POLICIES}
        if not any(one.says(bench.wanted) for one in figures.values()):
            continue
        ours = predicted(bench, name, graph, accesses)
        for key, one in figures.items():
            yield row(one, ours[key], MODELLED, NOTE.format(accesses=accesses))


def figure(name: str, graph: str, policy: str, data: int) -> Figure:
    seconds = measured()
    known = seconds[name, "linux", graph, data] / seconds[name, policy, graph, data]
    title = f"{name}, {graph}, {DATA[data]}: speed-up of {policy.capitalize()}"
    return PAPER.measured(f"{name}-{graph}-{data}-{policy}", name, title, "x", known)


@cache
def measured() -> dict[tuple[str, str, str, int], float]:
    """{(kernel, policy, graph, 1: interleaved data): seconds per trial, median of the runs}."""
    runs = pd.read_csv(bundled("models") / "reference" / "ports-epyc-runs.csv")
    known = runs.groupby(["benchmark", "policy", "input", "interleaved_data"])["trial_seconds"].median()
    return {key: float(value) for key, value in known.items()}


def predicted(bench: Bench, name: str, graph: str, accesses: int) -> dict[tuple[str, int], Interval]:
    """{(policy, 1: interleaved data): Interval of the speed-up}: from idle latencies to contended ones."""
    machine = load_machine(MACHINE)
    waiting = machine.latency_cycles().mean() * INSTRUCTIONS_PER_CYCLE * RANDOM[name]
    capture = bench.capture(
        pattern=f"{name}:{graph}", nodes=machine.nodes, placement="bind:0", accesses=accesses,
        init_trace=False, instructions_per_access=round(waiting), **THREADS,
    )  # fmt: skip
    found: dict[tuple[str, int], Interval] = {}
    for data, base in BASELINE.items():
        idle, loaded = (
            bench.replay(capture, POLICIES, machine, contended=load, baseline=base) for load in (False, True)
        )
        found |= {(policy, data): between(idle[policy], loaded[policy]) for policy in POLICIES}
    bench.clear()  # 300 MB of tables
    return found


def between(idle: Result, loaded: Result) -> Interval:
    low, high = speedup(idle), speedup(loaded)
    return Interval(min(low.low, high.low), low.middle, max(low.high, high.high))


# Hydra's degrees of prefetching: replica faults and entries copied, against histories of its kernel.

NODES = 8
HISTORIES = r"bin/\w+/hydra/repl_order_\d/"  # of the 8-node machine, all degrees
FULL, LEAST = 9, 0
BETWEEN = (3, 6, FULL)
PROGRAMS: dict[str, str] = {
    "btree": "btree",
    "canneal": "anneal",
    "pr": "pr:kron17",
    "cc": "cc:kron17",
    "bc": "bc:kron17",
}
PORTS_ORDERS_GRAPHS = ("pr", "cc", "bc")
PORTS_ORDERS_NOTE = (
    "made by synth, {size} MiB that the thread of every node touches all over; prefetching with every copied "
    "entry, as the kernels of 7.0 do"
)
WHY = (
    "the histories count the building of the graph, in which most entries are copied, and threads that take "
    "the next piece of work from all parts of the graph; ours is a kernel with static parts alone"
)

BY_BITS = (
    "the kernel looks for accessed bits in copies, of 4 and 16 nodes, and its propagated entries are half of "
    "its copied ones; ours are the entries that degree 9 copies beyond those of degree 0, on 8 nodes"
)


def orders(bench: Bench) -> Iterator[Row]:
    """Events and entries over those of degree 0."""
    size = bench.size(64 << 20, 16 << 20)
    compared = [("events", degree) for degree in BETWEEN] + [("entries_copied", FULL)]
    for program, pattern in PROGRAMS.items():
        known = histories(program)
        ours = counted(bench, pattern, None if program in PORTS_ORDERS_GRAPHS else size)
        for what, degree in compared:
            said = "replica faults" if what == "events" else "entries copied"
            title = f"{program}: {said}, degree {degree} over degree 0"
            name = f"{program}-{what}-{degree}"
            figure = PAPER.measured(name, "orders", title, "x", ratio(known, what, degree))
            value = ratio(ours, what, degree)
            if program in PORTS_ORDERS_GRAPHS:
                yield not_reproducible(figure, WHY, value)
            else:
                yield row(figure, value, MODELLED, PORTS_ORDERS_NOTE.format(size=size >> 20))
        if program in PORTS_ORDERS_GRAPHS:
            title = f"{program}: propagated entries never used, degree {FULL}"
            figure = PAPER.measured(f"{program}-unused", "orders", title, "%", 100 * never_used(program))
            unneeded = 1 - 1 / ratio(ours, "entries_copied", FULL)
            yield not_reproducible(figure, BY_BITS, 100 * unneeded)


def ratio(counts: pd.DataFrame, what: str, degree: int) -> float:
    return float(counts.loc[degree, what] / counts.loc[LEAST, what])


@cache
def never_used(program: str) -> float:
    """Median share of the entries that a kernel propagated whose accessed bit it never found set."""
    rows = pd.read_csv(bundled("models") / "reference" / "hydra-histories.csv")
    rows = rows[(rows.benchmark == program) & (rows.replication_order == FULL)]
    return float((1 - rows["entries_ever_accessed"] / rows["entries_propagated"]).median())


@cache
def histories(program: str) -> pd.DataFrame:
    """Medians by degree: events, entries_copied."""
    rows = pd.read_csv(bundled("models") / "reference" / "hydra-histories.csv")
    rows = rows[(rows.benchmark == program) & (rows.nodes == NODES) & rows.path.str.match(HISTORIES)]
    return rows.groupby("replication_order")[["events", "entries_copied"]].median()


def counted(bench: Bench, pattern: str, size: int | None) -> pd.DataFrame:
    """The same of a replay, for the degrees compared."""
    capture = bench.capture(
        pattern=pattern, size=size, nodes=NODES, init="single", init_trace=False,
        accesses=bench.size(4_000_000, 1_000_000),
    )  # fmt: skip
    degrees = (LEAST, *BETWEEN)
    asked: list[Design] = [("hydra", {"prefetch": degree, "prefetch_on": "every"}) for degree in degrees]
    results = bench.replay(capture, ["linux", *asked], "hydra-haswell", cold=True)
    return pd.DataFrame(
        [events(results[f"hydra prefetch={degree} prefetch_on=every"]) for degree in degrees],
        index=list(degrees),
    )


def events(result: Result) -> dict[str, int]:
    """Those that happen once, and those of a further run: a program without system calls has none then."""
    kinds = {"events": REPLICA_FAULT, "entries_copied": PTE_COPY}
    return {name: result.once.count(kind) + int(result.calls[:, kind].sum()) for name, kind in kinds.items()}


# Ports on 4-socket Xeons, all 64 hyperthreads busy: run times by the law, from counters.

NATIVE_LOCAL = "LP"
WHERE = "4-socket Xeons, interleaved data"
SHARED = "law, two hyperthreads share a page walker; nothing is fitted to these machines; "
COUNTED = SHARED + "from linux' counters and the walk cycles of the policy's run"
BOTH = SHARED + "from linux' and mitosis' counters and the walk cycles of the policy's run"
ALONE = SHARED + "from linux' counters alone, 3 of 4 table reads remote, taken"


def policies(bench: Bench) -> Iterator[Row]:
    """Cycles of linux over those of a policy with replicas, means of five runs."""
    for workload, repeats in ports().items():
        run = {policy: mean_run(of) for policy, of in repeats.items()}
        law = of_ports(workload, run["linux"])
        one, two = law(), law(run["mitosis"], NATIVE_LOCAL)
        alone = predict_placement(one, NATIVE_LOCAL)
        yield beside(workload, "mitosis", "linux", run, alone, ALONE)
        for policy in ("mitosis", "hydra", "wasp"):
            walk = closed_forms_counted(run[policy].walk, "run: walk cycles")
            yield beside(workload, policy, "linux, walks", run, predict_walks(one, walk), COUNTED)
            if policy != "mitosis":
                yield beside(workload, policy, "linux, mitosis, walks", run, predict_walks(two, walk), BOTH)


def beside(workload: str, policy: str, known: str, run: dict[str, Run], found: Prediction, note: str) -> Row:
    """Row of a policy's speed-up in cycles."""
    linux = closed_forms_counted(run["linux"].cycles, "run: cycles")
    low, middle, high = closed_forms_counted(found.cycles, "prediction: cycles")
    ours = Interval(linux / high, linux / middle, linux / low)
    title = f"{workload}: speed-up of {policy} in cycles, from {known}"
    name = f"xeon-{workload}-{policy}-{known}".replace(", ", "-")
    value = linux / closed_forms_counted(run[policy].cycles, "run: cycles")
    return row(PAPER.measured(name, WHERE, title, "x", value), ours, REPLAYED, note)


FIGURES = {
    "pr": page_rank,
    "bc": betweenness,
    "cc": components,
    "orders": orders,
    "Xeon": policies,
    "small traces": small_traces,
}
