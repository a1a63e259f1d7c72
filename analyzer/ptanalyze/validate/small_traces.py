"""Run times of real programs at 100 to 200 GB, predicted from traces of 0.1 to 0.6 GB.

The programs of the ports (btree, canneal; bc, cc and pr of GAP) were built at small size, recorded with 128
threads between region marks, and replayed as of runs N times as large. Traces are too large to keep: what
the replay counted of each is a row of models/reference/small-traces.csv, and is priced here anew. A row:

    python -m ptanalyze.validate.small_traces CAPTURE MACHINE N PROGRAM INPUT >> small-traces.csv

Steady state: replicas hold every entry, so that Mitosis and Hydra are predicted alike. The leaf tables of
a large run are many: where several nodes made them, or they are interleaved, all nodes serve alike.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from msgspec.structs import replace as changed

from ..analysis.replay import replay_again, replay_walks, start, system_calls
from ..analysis.setup import Setup, opened
from ..core.errors import bundled
from ..core.interval import Interval
from ..core.machine import LINE_BYTES, load_costs, load_machine, sharing
from ..core.trace import SLOT_BITS
from ..cost import price as cost
from ..cost.load import PAGE_LINES, SHARES, Pages, Traffic, data_lines, told_share
from ..kernels.replay import Counters, counters
from ..policies import plan_for
from .row import TRACED, Row, published, row

if TYPE_CHECKING:
    from ..cost.result import Price
    from ..world.world import World
    from .bench import Bench

PAPER = published("ports")
FILE = "small-traces.csv"
LEAF, CACHED = 8, 16  # bits of Counters.reads that stand for all reads from DRAM, and from caches
REPLICAS = ("mitosis", "hydra")
GRAPHS = ("bc", "cc", "pr")
PROGRAMS = ("btree", "canneal", *GRAPHS)
EPYC, XEON = "epyc-7543-16-nodes", "ports-sandy-bridge"
SERIES = {  # of runs on one machine at one time: file, and how it names the machine
    "EPYC": ("ports-epyc-runs.csv", {"": EPYC}),
    "Xeon": ("ports-xeon-runs.csv", {"intel_4": XEON}),
    "EPYC, earlier": ("ports-more-runs.csv", {"epyc": EPYC}),
    "Xeon, earlier": ("ports-more-runs.csv", {"xeon": XEON}),
}
DATA = {0: "data by first touch", 1: "interleaved data"}
ALMOST = 0.95  # of the reads
NOTE = (
    "from a trace of {walks:.1f} M walks, replayed as of a run {scale} times as large; {share} of the LLC is "
    "left to page tables, {data:.2f} lines of data are read from DRAM per walk"
)


class Replayed(NamedTuple):
    """A row: what the replay of a small trace counted.

    machine, scale  the machine, and how many times as large the run is that the trace stands for
    threads         of the run that was measured
    accesses, instructions, reads (of tables)  per walk; visits: misses of first-level TLBs per walk
    missed          DRAM reads of tables per walk, with each of machine.SHARES left to tables
    by_node, distinct, beyond, held  load.Pages
    one_node        1 where a single node serves the tables that walks read under first touch; else, as the
                    tables of the large run are many, all nodes alike
    base_ns, replicas_ns  of the kernel on behalf of the program per walk, with one copy and with replicas
    """

    program: str
    input: str
    machine: str
    scale: int
    threads: int
    walks: int
    accesses: float
    instructions: float
    visits: float
    reads: float
    by_node: int
    distinct: int
    beyond: int
    held: float
    one_node: int
    base_ns: float
    replicas_ns: float
    missed: tuple[float, ...]


@cache
def replayed() -> tuple[Replayed, ...]:
    """All rows."""
    whole = {"scale", "threads", "walks", "by_node", "distinct", "beyond", "one_node"}
    found = []
    with (bundled("models") / "reference" / FILE).open(newline="") as file:
        for text in csv.DictReader(file):
            known: dict[str, Any] = dict(text)
            for name in Replayed._fields[3:-1]:
                known[name] = int(text[name]) if name in whole else float(text[name])
            known["missed"] = tuple(map(float, text["missed"].split()))
            found.append(Replayed(**known))
    return tuple(found)


def predicted(one: Replayed, interleaved: bool) -> tuple[Interval, Interval, float]:
    """(speed-up of replicas, share of the LLC, lines of data from DRAM per walk)."""
    machine = load_machine(one.machine)
    share = told_share(SHARES, one.missed, data_lines(one.accesses, one.visits))
    runs = [share.middle, share.low, share.high, share.middle]  # the last as traced: not in the interval
    missed = np.interp(np.log(runs), np.log(SHARES), one.missed)
    pages = Pages(one.by_node, one.distinct, one.beyond, one.held)
    least = min(max(float(missed.min()), one.beyond / one.walks), 1.0)
    traffic = Traffic(one.threads, pages.missing(least), pages.shared)
    reads = traffic.data * traffic.farther(machine)
    costs = cost.with_data_in_dram(load_costs(machine), least, reads, one.instructions)
    here = np.eye(machine.nodes) / machine.nodes
    away = np.full_like(here, machine.nodes**-2)
    if one.one_node and not interleaved:
        away = np.zeros_like(here)
        away[:, 0] = 1 / machine.nodes
    executed = np.full(len(runs), one.instructions * one.walks)
    price: Price | None = None
    for spread, ns in ((away, one.base_ns), (here, one.replicas_ns)):
        kernel, count = np.full(len(runs), ns * one.walks), _counted(one, missed, spread)
        price = cost.price(count, machine, costs, price, executed, collapsed_ns=kernel, traffic=traffic)
    found = price.covering(0).speedup if price else None
    assert found is not None
    return found, share, traffic.data


def _counted(one: Replayed, missed: np.ndarray, spread: np.ndarray) -> Counters:
    """Counts with so many reads from DRAM per walk, spread over [reader's node, serving node]."""
    nodes = len(spread)
    runs = []
    for each in missed:
        count = counters(nodes)
        count.reads[LEAF, ..., 1] = np.rint(spread * each * one.walks)
        count.reads[CACHED, ..., 0] = np.rint(np.eye(nodes) / nodes * (one.reads - each) * one.walks)
        count.classes[:, 0] = one.walks // nodes
        runs.append(count)
    return Counters(*map(np.stack, zip(*runs, strict=True)))


def small_traces(program: str, _: Bench) -> Iterator[Row]:
    """Of every measured run of a program with a row here."""
    runs = measured()
    for one in (one for one in replayed() if one.program == program):
        for series, data in product(SERIES, DATA):
            base = runs.get((series, one.machine, one.program, one.input, data, "linux"))
            if base is None:
                continue
            ours, share, lines = predicted(one._replace(threads=base.cpus or one.threads), bool(data))
            shown = f"{share.middle:.2f} ({share.low:.2f} to {share.high:.2f})"
            note = NOTE.format(walks=one.walks / 1e6, scale=one.scale, share=shown, data=lines)
            for policy in REPLICAS:
                run = runs.get((series, one.machine, one.program, one.input, data, policy))
                if run is None:
                    continue
                what = ", ".join(filter(None, (one.program, one.input)))
                said = f"{what}, {DATA[data]}, {series}: speed-up of {policy.capitalize()}"
                name = "-".join(["small", series, one.program, one.input, str(data), policy]).replace(
                    " ", "-"
                )
                figure = PAPER.measured(name, "small traces", said, "x", base.time / run.time)
                yield row(figure, ours, TRACED, note)


class Measured(NamedTuple):
    """Median of the repeats; cpus: that were busy, None where no cycles were counted."""

    time: float
    cpus: int | None


@cache
def measured() -> dict[tuple[str, str, str, str, int, str], Measured]:
    """{(series, machine, program, input, 1: interleaved data, policy): Measured}; times are seconds per
    trial, or of the run, or cycles where they were counted."""
    found: dict[tuple[str, str, str, str, int, str], Measured] = {}
    for series, (file, machines) in SERIES.items():
        runs = pd.read_csv(bundled("models") / "reference" / file).fillna({"input": ""})
        if "cycles" not in runs:
            runs["time"], runs["cycles"] = runs["trial_seconds"].fillna(runs["seconds"]), np.nan
        else:
            runs["time"] = runs["cycles"]
            runs.loc[~runs["benchmark"].isin(GRAPHS), "input"] = ""  # there it says how replicas are made
        for label, name in machines.items():
            here = runs[runs["machine"] == label] if label else runs
            hertz = load_machine(name).ghz * 1e9
            for key, part in here.groupby(["benchmark", "input", "interleaved_data", "policy"]):
                busy = (part["cycles"] / part["seconds"]).median() / hertz
                program, graph, data, policy = key
                found[series, name, program, graph, int(data), policy] = Measured(
                    float(part["time"].median()), None if np.isnan(busy) else round(busy)
                )
    return found


# A row, counted from a capture.


def pages_reached(world: World) -> Pages:
    """Beyond the lines of all of a node's caches each page has a line of data at least that no cache can have
    held."""
    machine, stream, placement = world.machine, world.stream, world.placement
    node = placement.cpu_node[placement.chunk_cpu]
    reached = np.zeros((world.nodes, len(world.space.regions.va) << SLOT_BITS), np.bool_)
    for chunk in np.flatnonzero(np.diff(stream.offset)).tolist():
        reached[node[chunk], stream.page[stream.offset[chunk] : stream.offset[chunk + 1]]] = True
    cpus = np.bincount(placement.cpu_node, minlength=world.nodes)
    lines = (machine.llc.bytes + cpus * machine.l2.bytes) // LINE_BYTES
    by_node = reached.sum(axis=1)
    beyond = int(np.maximum(by_node - lines, 0).sum())
    held = float(np.minimum(by_node, lines / PAGE_LINES).sum())
    return Pages(int(by_node.sum()), int(reached.any(axis=0).sum()), beyond, held)


def counted(directory: str, name: str, scale: int, program: str, graph: str) -> Replayed:
    """Replay a capture as of a run `scale` times as large, with each share of the LLC left to tables."""
    known, machine = opened(directory), load_machine(name)
    snapshot = replace(known.snapshot, facts={**known.snapshot.facts, "scale": scale})
    assert known.trace is not None, directory
    room = changed(
        machine, cpus_per_node=max(machine.cpus_per_node, -(-len(known.trace.threads) // machine.nodes))
    )
    missed: list[float] = []
    for share in SHARES:
        setup = Setup.of(machine=sharing(room, str(share)), threads_on="round-robin", jobs=2)
        world = setup.world(snapshot, known.trace, known.capture.cache)
        runs = [start(plan_for(name), world) for name in ("first-touch", "mitosis")[: 1 if missed else 2]]
        caches = world.caches()
        mapped = replay_walks(runs, world, world.reads(caches=caches), None, 0, more=True)
        again = world.again()
        still = replay_again(runs, again, again.reads(caches=caches), mapped, None)
        reads, walks = runs[0].counters.reads, len(again.stream)
        if not missed:
            served = reads[..., 1].sum(axis=(0, 1)) / max(reads[..., 1].sum(), 1)
            made = system_calls(again, still, world.steady.chunk)
            spent = [
                float(cost.taken_ns(run.counters, machine, setup.costs, made).sum()) / walks for run in runs
            ]
        missed.append(float(reads[..., 1].sum()) / walks)
    chunks = world.trace.chunks[world.steady.chunk :]
    return Replayed(
        program, graph, name, scale, machine.nodes * machine.cpus_per_node, walks,
        float(chunks["accesses"].sum()) / walks, float(chunks["instructions"].sum()) / walks,
        1 + float(again.hits[1]) / walks, float(reads.sum()) / walks, *pages_reached(again),
        int(served.max() > ALMOST), spent[0], spent[1], tuple(missed),
    )  # fmt: skip


def line(one: Replayed) -> list[str]:
    """The row as text, by the columns of the file."""
    *values, missed = one
    short = [f"{value:.5g}" if isinstance(value, float) else str(value) for value in values]
    return [*short, " ".join(f"{part:.4g}" for part in missed)]


if __name__ == "__main__":
    directory, name, scale, program, graph = sys.argv[1:]
    made = counted(directory, name, int(scale), program, graph)
    csv.writer(sys.stdout, lineterminator="\n").writerow(line(made))
