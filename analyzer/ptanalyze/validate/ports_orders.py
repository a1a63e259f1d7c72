"""Hydra's degrees of prefetching: replica faults and entries copied, against histories of its kernel."""

from collections.abc import Iterator
from functools import cache

import pandas as pd

from ..core.errors import bundled
from ..cost.result import Result
from ..kernels.replay import PTE_COPY, REPLICA_FAULT
from .bench import Bench
from .designs import Design
from .published import published
from .row import MODELLED, Row, not_reproducible, row

PAPER = published("ports")
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
GRAPHS = ("pr", "cc", "bc")
NOTE = (
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
                yield row(figure, value, MODELLED, NOTE.format(size=size >> 20))
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
