"""Mitosis (ASPLOS 2020), figure by figure."""

from collections.abc import Iterator

import msgspec
import numpy as np

import ptanalyze as pt
from ptanalyze_law.prior import reference
from ptanalyze_synth.process import START

from .bench import Bench
from .law_rows import (
    ONE_RUN,
    TWO_RUNS,
    baselines,
    beside,
    others_said,
    predicted,
    replicated,
    rival_of_replicas,
    run_of,
    took,
)
from .row import DEFINITION, LAW, MODELLED, REPLAYED, Figure, Row, not_reproducible, published, row
from .script import million_entries_per_second
from .wide import made, scaled, speedup

# Mitosis, Figures 6, 9, 10 and Table 5: native page tables, by the run-time law and the cost file.

PAPER = published("mitosis")
FAMILY, WIDE, CALLS = "native-thin", "native-wide", "system-calls"
WORKLOADS = ("GUPS", "BTree", "PageRank", "LibLinear", "Canneal")
THREE_OF_FOUR = 0.75
WHERE = "Figure 6"
HUGE = (
    "the law was fitted on 4 KiB pages; with 2 MiB pages far less of a walk waits for DRAM, how much less "
    "the counters of a local run do not say"
)
SLIP = "; BTree's TRPI-LD is the very number of its RPI-LD: a slip of the source"
DATA = "cycles outside walks are taken to grow with remote data as on the others: between once and five times"


def measured(
    family: str, workload: str, config: str, local: str, where: str, second: str = "", known: str = ""
) -> Figure:
    """Figure: run time at a configuration over that at `local`, from the artifact.

    known  the run from which ours is predicted, else `local`; second: another run, or ""
    """
    ratio = took(family, workload, config) / took(family, workload, local)
    title = f"{workload}, {config} over {local}, from {' and '.join(filter(None, (known or local, second)))}"
    name = "-".join(filter(None, (where, family, workload, config, second))).replace(" ", "")
    return PAPER.measured(name, where, title, "x", ratio)


def figure_6(bench: Bench) -> Iterator[Row]:
    """Remote page tables, then remote data too, then 2 MiB pages."""
    for workload in WORKLOADS:
        for config, second in (("RP-LD", ""), ("RPI-LD", ""), ("RP-LD", "RPI-LD"), ("RPI-LD", "RP-LD")):
            figure = measured(FAMILY, workload, config, "LP-LD", WHERE, second)
            ours, note = of(workload, "LP-LD", config, second), TWO_RUNS if second else ONE_RUN
            what = " ".join([workload, config, second])
            others = others_said(FAMILY, workload, config, second)
            yield row(figure, ours, LAW, note, prediction=what, **others)
        yield from remote_data(workload)
        for config in ("TRP-LD", "TRPI-LD"):
            yield not_reproducible(measured(FAMILY, workload, config, "TLP-LD", WHERE), huge(workload))


def huge(workload: str) -> str:
    """The reason why the law does not cover 2 MiB pages, for a workload."""
    return HUGE + SLIP if workload == "BTree" else HUGE


def of(workload: str, local: str, placement: str, second: str = "") -> pt.Interval:
    """Interval of the run time at a placement over that of the run `local`."""
    return predicted(FAMILY, FAMILY, workload, local, placement, second)


def remote_data(workload: str) -> Iterator[Row]:
    for config in ("LP-RD", "LP-RDI", "RP-RD", "RPI-RDI"):
        figure = measured(FAMILY, workload, config, "LP-LD", WHERE)
        yield row(figure, of(workload, "LP-LD", config), LAW, f"{ONE_RUN}; {DATA}")


def figure_9(bench: Bench) -> Iterator[Row]:
    """Replicas for workloads on all sockets."""
    note = (
        "law, from the counters of the run without replicas; what workloads have in common was fitted on "
        "one-socket runs of others; 3 of 4 table reads remote, taken"
    )
    workloads, configs = ("BTree", "Canneal"), ("F", "F-A", "I", "TF", "TF-A", "TI")
    gains = {(w, c): took(WIDE, w, c) / took(WIDE, w, f"{c}+M") for w in workloads for c in configs[:3]}
    for workload in workloads:
        for config in configs:
            figure = measured(WIDE, workload, config, f"{config}+M", "Figure 9", known=config)
            ours = replicated(run_of(WIDE, workload, config), THREE_OF_FOUR, 0.0, FAMILY, workload)
            if config[0] == "T":
                yield not_reproducible(figure, HUGE)
            else:
                others = beside(gains, workload, config)
                others |= rival_of_replicas(
                    run_of(WIDE, workload, config), THREE_OF_FOUR, 0.0, FAMILY, workload
                )
                yield row(figure, ours, LAW, note, prediction="", **others)


def figure_10(bench: Bench) -> Iterator[Row]:
    """Migrating page tables after their workload: gain over leaving them."""
    repaired = "; repaired tables are taken to be as good as local ones"
    gains = {(w, "RPI-LD"): took(FAMILY, w, "RPI-LD") / took(FAMILY, w, "RPI-LD+M") for w in WORKLOADS}
    for workload in WORKLOADS:
        figure, others = (
            measured(FAMILY, workload, "RPI-LD", "RPI-LD+M", "Figure 10", known="LP-LD"),
            beside(gains, workload, "RPI-LD"),
        )
        ours, what = of(workload, "LP-LD", "RPI-LD"), f"{workload} RPI-LD "
        others["basu"] = baselines(FAMILY)[workload, "RPI-LD"]["basu"]
        yield row(figure, ours, LAW, ONE_RUN + repaired, prediction=what, **others)
        figure = measured(FAMILY, workload, "RPI-LD+M", "LP-LD", "Figure 10")
        yield row(figure, 1.0, DEFINITION, "the law knows no difference between local and repaired tables")
        figure = measured(FAMILY, workload, "TRPI-LD", "TRPI-LD+M", "Figure 10", known="TLP-LD")
        yield not_reproducible(figure, huge(workload))


def table_5(bench: Bench) -> Iterator[Row]:
    """System calls with four replicas over those with a single table, by a cost file made from vMitosis."""
    machine = pt.load_machine("vmitosis-cascade-lake")
    note = "cost file server-2020, made from another machine's calls (vMitosis, Table 5); ratios only"
    shared = "mappings of shared memory neither zero nor free pages; the cost file is for anonymous memory"
    for call, ours in (("MAP", "mmap"), ("PROTECT", "mprotect"), ("UNMAP", "munmap")):
        for pages in (1, 2048, 1 << 20):
            single, copied = (million_entries_per_second(machine, ours, pages, copies) for copies in (1, 4))
            what = f"{call} {pages}"
            yield row(call_ratio(call, pages), single / copied, REPLAYED, note, prediction=what)
            figure = call_ratio(f"{call}_SHARED", pages)
            if call == "PROTECT":
                yield row(figure, single / copied, REPLAYED, note, prediction=what)
            else:
                yield not_reproducible(figure, shared, single / copied, what)


def call_ratio(call: str, pages: int) -> Figure:
    """Figure: mean cycles of a call over `pages` pages with replicas, over those without."""
    rows = reference()
    rows = rows[(rows.family == CALLS) & (rows.workload == call) & (rows.quantity == "avg")]
    without, replicas = (
        float(rows[rows.config == f"npages={pages};pagesize=4096;mitosis={n}"].value.iloc[0]) for n in (0, 1)
    )
    title = f"{call.replace('_', ' ').capitalize()} of {pt.errors.plural(pages, 'page')}, replicas over none"
    return PAPER.measured(f"table-5-{call}-{pages}", "Table 5", title, "x", replicas / without)


# Mitosis, the poster: shares of remote reads, and gains of modelled workloads on a 4-socket Haswell.

SOCKETS, LOCAL, REMOTE = 4, 280, 580  # cycles of a DRAM read: Mitosis, section 3


def poster(bench: Bench) -> Iterator[Row]:
    cold = "one address of a made capture, walked with empty caches"
    for name, guest in (("reads", "native"), ("reads-nested", "visible")):
        capture = bench.capture(trace=False, size=4 << 20, guest=guest, threads=1)
        yield row(PAPER[name], len(pt.analysis.explain(capture.snapshot, START).steps), DEFINITION, cold)
    wide = bench.replay(made(bench, "native"), ["linux", "mitosis"], haswell())
    away = remote_reads(wide["linux"])
    for name in ("remote-share", "remote-most"):
        yield row(PAPER[name], away, DEFINITION, scaled(bench))
    yield row(PAPER["multi-threaded"], gain(wide["mitosis"]), MODELLED, scaled(bench))
    thin = made(bench, "native", threads=1, nodes=SOCKETS)
    moved = bench.replay(thin, [("bind", {"node": 1}), "mitosis"], haswell(), baseline="bind")
    alone = (
        scaled(bench).replace("one thread per socket", "one thread") + "; its page tables on another socket"
    )
    yield row(PAPER["single-threaded"], gain(moved["mitosis"]), MODELLED, alone)
    ours = of("GUPS", "LP-LD", "RPI-LD")
    yield row(PAPER["gups"], ours, LAW, ONE_RUN, prediction="GUPS RPI-LD ")
    yield row(
        PAPER["gups-repaired"],
        1.0,
        DEFINITION,
        "the law knows no difference between local and repaired tables",
    )
    yield not_reproducible(PAPER["redis"], "no counters of Redis are at hand, and the poster gives none")


def haswell() -> pt.Machine:
    """The Haswell of machine hydra-haswell with 4 sockets, and the latencies of the paper's machine."""
    machine = pt.load_machine("hydra-haswell").resized(SOCKETS)
    cycles = np.where(np.eye(SOCKETS, dtype=bool), LOCAL, REMOTE) / machine.ghz
    idle = tuple(map(tuple, cycles.tolist()))
    return msgspec.structs.replace(machine, name="mitosis-haswell", latency=pt.machine.Latency(idle=idle))


def remote_reads(result: pt.Result) -> float:
    """% of the leaf reads that another socket serves."""
    local, _, remote, _ = result.classes.sum(axis=0)
    return float(100 * remote / (local + remote))


def gain(result: pt.Result) -> pt.Interval:
    """Interval of the run time gained, in % of the run time left."""
    return speedup(result).through(lambda value: 100 * (value - 1))


FIGURES = {
    "Figure 6": figure_6,
    "Figure 9": figure_9,
    "Figure 10": figure_10,
    "Table 5": table_5,
    "poster": poster,
}
