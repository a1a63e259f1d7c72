"""Public measurements of Mitosis and Hydra ported to Linux 7.0: nothing here is fitted to them."""

from collections.abc import Iterator
from functools import cache, partial

import pandas as pd

import ptanalyze as pt
from ptanalyze_law.predict import Prediction, predict_placement, predict_walks
from ptanalyze_law.prior import calibrated, mean_run, ports

from .bench import Bench, Design
from .law_rows import basu, line
from .row import LAW, MODELLED, NOT_REPRODUCIBLE, Row, published
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


def orders(bench: Bench) -> Iterator[Row]:
    """Events and entries over those of degree 0."""
    size = bench.size(64 << 20, 16 << 20)
    compared = [("events", degree) for degree in BETWEEN] + [("entries_copied", FULL)]
    for program, pattern in PROGRAMS.items():
        graph = program in GRAPHS
        known, ours = histories(program), counted(bench, pattern, None if graph else size)
        for what, degree in compared:
            said = "replica faults" if what == "events" else "entries copied"
            yield PAPER.measured(
                f"{program}-{what}-{degree}",
                "orders",
                f"{program}: {said}, degree {degree} over degree 0",
                "x",
                ratio(known, what, degree),
                ratio(ours, what, degree),
                NOT_REPRODUCIBLE if graph else MODELLED,
                "graphs" if graph else "orders",
                size=size >> 20,
            )


def ratio(counts: pd.DataFrame, what: str, degree: int) -> float:
    return float(counts.loc[degree, what] / counts.loc[LEAST, what])


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


def policies(bench: Bench) -> Iterator[Row]:
    """Cycles of linux over those of a policy with replicas, means of five runs."""
    local = "LP"
    for workload, repeats in ports().items():
        run = {policy: mean_run(of) for policy, of in repeats.items()}
        law = calibrated("native-thin", workload, many=True, local=run["linux"], at="L:0.25,R:0.75")
        one, two = law(), law(remote=run["mitosis"], placement=local)
        alone = predict_placement(one, local)
        yield speedup(workload, "mitosis", "linux", run, alone, "alone", basu=1 / basu(one, local))
        for policy in ("mitosis", "hydra", "wasp"):
            walk, here, linux = (
                pt.law.counted(count, "run: walk cycles, cycles")
                for count in (run[policy].walk, run["linux"].walk, run["linux"].cycles)
            )
            every = 1 / (1 + (walk - here) / linux)
            found = predict_walks(one, walk)
            yield speedup(workload, policy, "linux, walks", run, found, "walks", basu=every)
            if policy != "mitosis":
                through = 1 / line(run["linux"], run["mitosis"], walk)
                found, known = predict_walks(two, walk), "linux, mitosis, walks"
                yield speedup(workload, policy, known, run, found, "both", line=through)


def speedup(
    workload: str,
    policy: str,
    known: str,
    run: dict[str, pt.law.MeasuredRun],
    found: Prediction,
    note: str,
    **rival: float,
) -> Row:
    """Row of a policy's speed-up in cycles."""
    linux = pt.law.counted(run["linux"].cycles, "run: cycles")
    low, middle, high = pt.law.counted(found.cycles, "prediction: cycles")
    return PAPER.measured(
        f"xeon-{workload}-{policy}-{known}".replace(", ", "-"),
        "4-socket Xeons, interleaved data",
        f"{workload}: speed-up of {policy} in cycles, from {known}",
        "x",
        linux / pt.law.counted(run[policy].cycles, "run: cycles"),
        pt.Interval(linux / high, linux / middle, linux / low),
        LAW,
        note,
        **rival,  # type: ignore[arg-type]
    )


FIGURES = {
    **{program: partial(small_traces, program) for program in TRACED},
    "orders": orders,
    "Xeon": policies,
}
