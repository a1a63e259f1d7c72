"""Kernels of GAP on 16 nodes under Linux, Mitosis and Hydra: the step between 2^27 and 2^30 vertices.

A sample of the run must touch more PTE lines per node than its caches hold: repeated, a short one would find
all of its own lines there. 10 million accesses read at least 500,000 random places on each node.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pandas as pd

from ..core.errors import bundled
from ..core.interval import Interval
from ..core.machine import load_machine
from ..cost.result import Result
from .bench import Bench
from .published import Figure, published
from .row import MODELLED, Row, row
from .wide import speedup

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
