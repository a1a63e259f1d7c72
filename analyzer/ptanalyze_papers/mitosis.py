"""Mitosis (ASPLOS 2020), figure by figure."""

from collections.abc import Iterator
from functools import partial

import msgspec
import numpy as np

import ptanalyze as pt
from ptanalyze_law.prior import reference

from . import page_size
from .bench import Bench
from .law_rows import predicted, replicated, run_of, slowdown, waited_for
from .row import LAW, NOT_REPRODUCIBLE, REPLAYED, Row, published
from .script import million_entries_per_second
from .wide import made, scaled, speedup

# Mitosis, Figures 6, 9, 10 and Table 5: native page tables, by the run-time law and the cost file.

PAPER = published("mitosis")
FAMILY, WIDE, CALLS = "native-thin", "native-wide", "system-calls"
LOCAL = "LP-LD"
WORKLOADS = ("GUPS", "BTree", "PageRank", "LibLinear", "Canneal")
THREE_OF_FOUR = 0.75


def measured(
    where: str,
    family: str,
    workload: str,
    config: str,
    over: str,
    known: tuple[str, ...],
    ours: pt.Interval | None,
    note: str,
    prediction: str = "",
    basu: float | None = None,
) -> Row:
    """Row of the run time at a configuration over that at another one, from the artifact.

    known  the runs from which ours is predicted; without ours it is not reproducible
    """
    return PAPER.measured(
        "-".join([where.replace(" ", ""), family, workload, config, *known[1:]]),
        where,
        f"{workload}, {config} over {over}, from {' and '.join(known)}",
        "x",
        slowdown(family, workload, config, over),
        ours,
        LAW if ours else NOT_REPRODUCIBLE,
        note,
        prediction=prediction,
        basu=basu,
    )


def figure_6(bench: Bench) -> Iterator[Row]:
    """Remote page tables, then remote data too."""
    where = "Figure 6"
    for workload in WORKLOADS:
        for config, second in (("RP-LD", ""), ("RPI-LD", ""), ("RP-LD", "RPI-LD"), ("RPI-LD", "RP-LD")):
            known = (LOCAL, second) if second else (LOCAL,)
            ours = predicted(FAMILY, workload, LOCAL, config, second)
            basu = None if second else waited_for(FAMILY, workload, LOCAL, config)
            note, what = "two-runs" if second else "one-run", " ".join([workload, config, second])
            yield measured(where, FAMILY, workload, config, LOCAL, known, ours, note, what, basu)
        for config in ("LP-RD", "LP-RDI", "RP-RD", "RPI-RDI"):
            ours = predicted(FAMILY, workload, LOCAL, config)
            yield measured(where, FAMILY, workload, config, LOCAL, (LOCAL,), ours, "data")


def figure_9(bench: Bench) -> Iterator[Row]:
    """Replicas for workloads on all sockets."""
    where = "Figure 9"
    for workload in ("BTree", "Canneal"):
        for config in ("F", "F-A", "I"):
            ours, basu = replicated(run_of(WIDE, workload, config), (THREE_OF_FOUR, 0.0), FAMILY, workload)
            yield measured(
                where, WIDE, workload, config, f"{config}+M", (config,), ours, "replicas", basu=basu
            )


def figure_10(bench: Bench) -> Iterator[Row]:
    """Migrating page tables after their workload: gain over leaving them."""
    where, config = "Figure 10", "RPI-LD"
    for workload in WORKLOADS:
        ours = predicted(FAMILY, workload, LOCAL, config)
        basu = waited_for(FAMILY, workload, LOCAL, config)
        known, what = (LOCAL,), f"{workload} {config} "
        yield measured(where, FAMILY, workload, config, f"{config}+M", known, ours, "repaired", what, basu)


def table_5(bench: Bench) -> Iterator[Row]:
    """System calls with four replicas over those with a single table, by a cost file made from vMitosis."""
    machine = pt.load_machine("vmitosis-cascade-lake")
    for call, ours in (("MAP", "mmap"), ("PROTECT", "mprotect"), ("UNMAP", "munmap")):
        for pages in (1, 2048, 1 << 20):
            single, copied = (million_entries_per_second(machine, ours, pages, copies) for copies in (1, 4))
            for which in (call, f"{call}_SHARED"):
                known = which in (call, "PROTECT_SHARED")
                yield PAPER.measured(
                    f"table-5-{which}-{pages}",
                    "Table 5",
                    f"{which.replace('_', ' ').capitalize()} of {pt.errors.plural(pages, 'page')}, replicas "
                    "over none",
                    "x",
                    call_ratio(which, pages),
                    single / copied,
                    REPLAYED if known else NOT_REPRODUCIBLE,
                    "cost-file" if known else "shared",
                    prediction=f"{call} {pages}",
                )


def call_ratio(call: str, pages: int) -> float:
    """Mean cycles of a call over `pages` pages with replicas, over those without."""
    rows = reference()
    rows = rows[(rows.family == CALLS) & (rows.workload == call) & (rows.quantity == "avg")]
    without, replicas = (
        float(rows[rows.config == f"npages={pages};pagesize=4096;mitosis={n}"].value.iloc[0]) for n in (0, 1)
    )
    return replicas / without


# Mitosis, the poster: gains of modelled workloads on a 4-socket Haswell.

SOCKETS, LOCAL_CYCLES, REMOTE_CYCLES = 4, 280, 580  # of a DRAM read: Mitosis, section 3


def poster(bench: Bench) -> Iterator[Row]:
    wide = bench.replay(made(bench, "native"), ["linux", "mitosis"], haswell())
    yield PAPER.row("multi-threaded", gain(wide["mitosis"]), scaled=scaled(bench))
    thin = made(bench, "native", threads=1, nodes=SOCKETS)
    moved = bench.replay(thin, [("bind", {"node": 1}), "mitosis"], haswell(), baseline="bind")
    alone = scaled(bench).replace("one thread per socket", "one thread")
    yield PAPER.row("single-threaded", gain(moved["mitosis"]), scaled=alone)
    yield PAPER.row("gups", predicted(FAMILY, "GUPS", LOCAL, "RPI-LD"), prediction="GUPS RPI-LD ")


def haswell() -> pt.Machine:
    """The Haswell of machine hydra-haswell with 4 sockets, and the latencies of the paper's machine."""
    machine = pt.load_machine("hydra-haswell").resized(SOCKETS)
    cycles = np.where(np.eye(SOCKETS, dtype=bool), LOCAL_CYCLES, REMOTE_CYCLES) / machine.ghz
    idle = tuple(map(tuple, cycles.tolist()))
    return msgspec.structs.replace(machine, name="mitosis-haswell", latency=pt.machine.Latency(idle=idle))


def gain(result: pt.Result) -> pt.Interval:
    """Interval of the run time gained, in % of the run time left."""
    return speedup(result).through(lambda value: 100 * (value - 1))


FIGURES = {
    "Figure 6": figure_6,
    "Figure 9": figure_9,
    "Figure 10": figure_10,
    "Table 5": table_5,
    "poster": poster,
    "page size": partial(page_size.rows, "mitosis"),
}
