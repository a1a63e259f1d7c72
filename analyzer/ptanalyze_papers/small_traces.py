"""Run times of real programs at 100 to 200 GB, predicted from traces of 0.1 to 0.6 GB.

The programs of the ports (btree, canneal; bc, cc and pr of GAP) were built at small size, recorded with 128
threads between region marks, and replayed as of runs N times as large. Traces are too large to keep: what
the replay counted of each is a row of models/reference/small-traces.csv, and is priced again here, as
`whatif` prices a larger run: docs/adr/0036-the-least-share-and-loaded-memory.md compares three other ways.

Steady state: replicas hold every entry, so that Mitosis and Hydra are predicted alike. The leaf tables of
a large run are many: where several nodes made them, or they are interleaved, all nodes serve alike.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

import ptanalyze as pt

from .row import TRACED, Row, published

if TYPE_CHECKING:
    from .bench import Bench

PAPER = published("ports")
FILE = "small-traces.csv"
LEAF, CACHED = 8, 16  # bits of Counters.reads that stand for all reads from DRAM, and from caches
REPLICAS = ("mitosis", "hydra")
GRAPHS = ("bc", "cc", "pr")
SHARES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # of the LLC, that misses are counted at
PROGRAMS = ("btree", "canneal", *GRAPHS)
EPYC, XEON = "epyc-7543-16-nodes", "ports-sandy-bridge"
SERIES = {  # of runs on one machine at one time: file, and how it names the machine
    "EPYC": ("ports-epyc-runs.csv", {"": EPYC}),
    "Xeon": ("ports-xeon-runs.csv", {"intel_4": XEON}),
    "EPYC, earlier": ("ports-more-runs.csv", {"epyc": EPYC}),
    "Xeon, earlier": ("ports-more-runs.csv", {"xeon": XEON}),
}
DATA = {0: "data by first touch", 1: "interleaved data"}


class Replayed(NamedTuple):
    """A row: what the replay of a small trace counted.

    machine, scale  the machine, and how many times as large the run is that the trace stands for
    threads         of the run that was measured
    instructions, reads (of tables)  per walk
    missed          DRAM reads of tables per walk, with each of SHARES left to tables
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
    instructions: float
    reads: float
    one_node: int
    base_ns: float
    replicas_ns: float
    missed: tuple[float, ...]


@cache
def replayed() -> tuple[Replayed, ...]:
    """All rows."""
    whole, found = {"scale", "threads", "walks", "one_node"}, []
    with (pt.errors.bundled("models") / "reference" / FILE).open(newline="") as file:
        for text in csv.DictReader(file):
            known: dict[str, Any] = dict(text)
            for name in Replayed._fields[3:-1]:
                known[name] = int(text[name]) if name in whole else float(text[name])
            known["missed"] = tuple(map(float, text["missed"].split()))
            found.append(Replayed(**known))
    return tuple(found)


@cache
def predicted(one: Replayed, interleaved: bool) -> pt.Interval:
    """Speed-up of replicas, with the least share of the LLC that the machine file gives tables, from idle to
    loaded memory."""
    machine = pt.load_machine(one.machine)
    llc = machine.llc
    missed = np.interp(np.log([llc.every_share[0], *llc.every_share]), np.log(SHARES), one.missed)
    costs = pt.machine.load_costs(machine)
    here = np.eye(machine.nodes) / machine.nodes
    away = np.full_like(here, machine.nodes**-2)
    if one.one_node and not interleaved:
        away = np.zeros_like(here)
        away[:, 0] = 1 / machine.nodes
    base, policy = (_counted(one, missed, spread) for spread in (away, here))
    law = pt.price.Law(base, machine, pt.counts.STEADY, costs, (False, True), None, None)
    managed = [ns * one.walks * machine.ghz for ns in (one.base_ns, one.replicas_ns)]
    return pt.price.over(law.ratio((law.walks(base), managed[0]), (law.walks(policy), managed[1])))


def _counted(one: Replayed, missed: np.ndarray, spread: np.ndarray) -> pt.counts.Counts:
    """Counts with this number of reads from DRAM per walk at each share, spread over [reader's node, serving
    node]; which cache served the others was not kept: half of them L2."""
    nodes = len(spread)
    reads = np.zeros((1, len(missed), pt.kernels.READ_BITS, nodes, nodes, len(pt.counts.FROM)), np.int64)
    for share, each in enumerate(missed):
        reads[0, share, LEAF, ..., pt.counts.DRAM] = np.rint(spread * each * one.walks)
        cached = np.rint(np.eye(nodes) / nodes * (one.reads - each) * one.walks / 2)
        reads[0, share, CACHED, ..., pt.counts.L2] = reads[0, share, CACHED, ..., pt.counts.LLC] = cached
    classes = np.zeros((1, nodes, 4), np.int64)
    classes[..., 0] = one.walks // nodes
    events = np.zeros((1, 2, len(pt.kernels.CALLS), len(pt.kernels.EVENT_KINDS), nodes, nodes), np.int64)
    return pt.counts.Counts(
        policy="",
        params={},
        run=None,
        reads=reads,
        classes=classes,
        events=events,
        before=events[0],
        calls=np.zeros((1, 4, len(pt.kernels.CALLS), nodes), np.int64),
        instructions=np.array([one.instructions * one.walks]),
        hits=np.zeros(3, np.int64),
        pages={},
    )


class Pair(NamedTuple):
    """A measured speed-up of a policy, and the row that predicts it; interleaved: where its data were; runs:
    of linux and of the policy, whose medians were compared."""

    one: Replayed
    series: str
    interleaved: int
    policy: str
    speedup: float
    runs: tuple[int, int]


def pairs() -> Iterator[Pair]:
    """Every measured run with a row here."""
    runs = measured()
    for one, series, data, policy in product(replayed(), SERIES, DATA, REPLICAS):
        key = (series, one.machine, one.program, one.input, data)
        base, run = runs.get((*key, "linux")), runs.get((*key, policy))
        if base and run:
            yield Pair(one, series, data, policy, base.time / run.time, (base.runs, run.runs))


def small_traces(program: str, _: Bench) -> Iterator[Row]:
    """Row of every pair of a program."""
    apart = noise().set_index(["series", "data"])["most"]
    for one, series, data, policy, speedup, (base, runs) in pairs():
        if one.program == program:
            what = ", ".join(filter(None, (program, one.input)))
            yield PAPER.measured(
                "-".join(["small", series, program, one.input, str(data), policy]).replace(" ", "-"),
                "small traces",
                f"{what}, {DATA[data]}, {series}: speed-up of {policy.capitalize()}",
                "x",
                speedup,
                predicted(one, bool(data)),
                TRACED,
                "small-trace",
                walks=one.walks / 1e6,
                scale=one.scale,
                base=base,
                runs=runs,
                series=series,
                data=DATA[data],
                most=100 * apart[series, DATA[data]],
            )


Key: TypeAlias = tuple[str, str, str, str, int, str]


class Measured(NamedTuple):
    """Median of the repeats that were started together, and their number."""

    time: float
    runs: int


@cache
def measured() -> dict[Key, Measured]:
    """{(series, machine, program, input, 1: interleaved data, policy): Measured}; times are seconds per
    trial, or of the run, or cycles where they were counted."""
    found = {}
    for key, every in _repeats():
        runs = every[every["batch"] == every["batch"].mode()[0]]
        found[key] = Measured(float(runs["time"].median()), len(runs))
    return found


@cache
def noise() -> pd.DataFrame:
    """How far two runs of one kernel differ: a row per series and placement of data.

    pairs  of runs of one program and kernel, linux or a policy of REPLICAS, that were started together
    most   of the slower one's seconds over the other's - 1: exceeded by a tenth of the pairs
    """
    found: dict[tuple[str, int], list[float]] = {}
    for (series, _, _, _, data, policy), runs in _repeats():
        if len(runs) < 2 or policy not in ("linux", *REPLICAS):
            continue
        for _, repeats in runs.groupby("batch"):
            apart = (max(pair) / min(pair) - 1 for pair in combinations(repeats["seconds"].dropna(), 2))
            found.setdefault((series, data), []).extend(apart)
    rows = [
        {"series": series, "data": DATA[data], "pairs": len(apart), "most": np.quantile(apart, 0.9)}
        for (series, data), apart in sorted(found.items())
    ]
    return pd.DataFrame(rows)


def _repeats() -> Iterator[tuple[Key, pd.DataFrame]]:
    """(key of measured, its runs: time, and seconds as in the file; batch: started together)"""
    for series, (file, machines) in SERIES.items():
        runs = pd.read_csv(pt.errors.bundled("models") / "reference" / file).fillna({"input": ""})
        if "cycles" not in runs:
            runs["time"] = runs["trial_seconds"].fillna(runs["seconds"])
        else:
            runs["time"] = runs["cycles"]
            runs.loc[~runs["benchmark"].isin(GRAPHS), "input"] = ""  # there it says how replicas are made
        runs["batch"] = runs["path"].str.rsplit("/", n=1).str[0] if "path" in runs else ""
        for label, name in machines.items():
            here = runs[runs["machine"] == label] if label else runs
            for key, part in here.groupby(["benchmark", "input", "interleaved_data", "policy"]):
                program, graph, data, policy = key
                yield (series, name, program, graph, int(data), policy), part
