"""Public measurements of Mitosis and Hydra ported to Linux 7.0: nothing here is fitted to them."""

from collections.abc import Iterator
from functools import cache, partial

import pandas as pd

import ptanalyze as pt
from ptanalyze_law.leave_one_out import basu, line, of_ports
from ptanalyze_law.predict import Prediction, predict_placement, predict_walks
from ptanalyze_law.prior import mean_run, ports

from .bench import Bench, Design
from .row import LAW, MODELLED, Row, not_reproducible, published, row
from .small_traces import GRAPHS, small_traces
from .small_traces import PROGRAMS as TRACED

PAPER = published("ports")

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
ORDERS_NOTE = (
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
        ours = counted(bench, pattern, None if program in GRAPHS else size)
        for what, degree in compared:
            said = "replica faults" if what == "events" else "entries copied"
            title = f"{program}: {said}, degree {degree} over degree 0"
            name = f"{program}-{what}-{degree}"
            figure = PAPER.measured(name, "orders", title, "x", ratio(known, what, degree))
            value = ratio(ours, what, degree)
            if program in GRAPHS:
                yield not_reproducible(figure, WHY, value)
            else:
                yield row(figure, value, MODELLED, ORDERS_NOTE.format(size=size >> 20))
        if program in GRAPHS:
            title = f"{program}: propagated entries never used, degree {FULL}"
            figure = PAPER.measured(f"{program}-unused", "orders", title, "%", 100 * never_used(program))
            unneeded = 1 - 1 / ratio(ours, "entries_copied", FULL)
            yield not_reproducible(figure, BY_BITS, 100 * unneeded)


def ratio(counts: pd.DataFrame, what: str, degree: int) -> float:
    return float(counts.loc[degree, what] / counts.loc[LEAST, what])


@cache
def never_used(program: str) -> float:
    """Median share of the entries that a kernel propagated whose accessed bit it never found set."""
    rows = pd.read_csv(pt.errors.bundled("models") / "reference" / "hydra-histories.csv")
    rows = rows[(rows.benchmark == program) & (rows.replication_order == FULL)]
    return float((1 - rows["entries_ever_accessed"] / rows["entries_propagated"]).median())


@cache
def histories(program: str) -> pd.DataFrame:
    """Medians by degree: events, entries_copied."""
    rows = pd.read_csv(pt.errors.bundled("models") / "reference" / "hydra-histories.csv")
    rows = rows[(rows.benchmark == program) & (rows.nodes == NODES) & rows.path.str.match(HISTORIES)]
    return rows.groupby("replication_order")[["events", "entries_copied"]].median()


def counted(bench: Bench, pattern: str, size: int | None) -> pd.DataFrame:
    """Events and entries of a replay, for the degrees compared."""
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


def events(result: pt.Result) -> dict[str, int]:
    """Those that happen once, and those of a further run: a program without system calls has none then."""
    kinds = {"events": pt.kernels.REPLICA_FAULT, "entries_copied": pt.kernels.PTE_COPY}
    return {name: result.once(kind) + int(result.events[0, :, kind].sum()) for name, kind in kinds.items()}


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
        every = 1 / basu(one, NATIVE_LOCAL)
        yield beside(workload, "mitosis", "linux", run, alone, ALONE, basu=every)
        for policy in ("mitosis", "hydra", "wasp"):
            walk = pt.law.counted(run[policy].walk, "run: walk cycles")
            local, linux = (
                pt.law.counted(getattr(run["linux"], of), f"run: {of}") for of in ("walk", "cycles")
            )
            every = 1 / (1 + (walk - local) / linux)
            yield beside(workload, policy, "linux, walks", run, predict_walks(one, walk), COUNTED, basu=every)
            if policy != "mitosis":
                through = 1 / line(run["linux"], run["mitosis"], walk)
                known = "linux, mitosis, walks"
                yield beside(workload, policy, known, run, predict_walks(two, walk), BOTH, line=through)


def beside(
    workload: str,
    policy: str,
    known: str,
    run: dict[str, pt.law.MeasuredRun],
    found: Prediction,
    note: str,
    basu: float | None = None,
    line: float | None = None,
) -> Row:
    """Row of a policy's speed-up in cycles."""
    linux = pt.law.counted(run["linux"].cycles, "run: cycles")
    low, middle, high = pt.law.counted(found.cycles, "prediction: cycles")
    ours = pt.Interval(linux / high, linux / middle, linux / low)
    title = f"{workload}: speed-up of {policy} in cycles, from {known}"
    name = f"xeon-{workload}-{policy}-{known}".replace(", ", "-")
    value = linux / pt.law.counted(run[policy].cycles, "run: cycles")
    return row(PAPER.measured(name, WHERE, title, "x", value), ours, LAW, note, basu=basu, line=line)


FIGURES = {
    **{program: partial(small_traces, program) for program in TRACED},
    "orders": orders,
    "Xeon": policies,
}
