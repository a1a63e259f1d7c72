"""Workloads on all sockets, made by synth, and where their leaf entries are, modelled and as published."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from ..analysis.classify import mapped_locality
from ..core.errors import bundled
from ..core.interval import Interval
from ..cost.result import Result
from ..formats.capture import Capture
from .bench import Bench

CLASSES = ("LL", "LR", "RL", "RR")
SOCKETS = 4
GIB, BLOCK = 1 << 30, 1 << 21
# Canneal, 1 : 100: 380 GB, of which one socket holds 350: one part of 12 spills to the next socket
CANNEAL = {"size": 1900 * BLOCK, "threads": 12, "threads_to_nodes": ",".join("0" * 11 + "1")}
# instructions per access: outside walks it takes a DRAM read of its data, 281 cycles in the mean over the
# nodes of vmitosis-cascade-lake, at 1.25 cycles per instruction, the middle of its cost file
OUTSIDE = 225


def made(bench: Bench, guest: str, trace: bool = True, **more: Any) -> Capture:
    """Capture of a workload that all sockets share, of a size whose tables fit no cache."""
    size = bench.size(32 * GIB, 16 * GIB)
    accesses = bench.size(4_000_000, 200_000)
    asked: dict[str, Any] = {
        "size": size,
        "guest": guest,
        "accesses": accesses,
        "instructions_per_access": OUTSIDE,
        "init_trace": False,
    }
    return bench.capture(trace=trace, **asked | more)


def scaled(bench: Bench) -> str:
    """A sentence on the workload of `made`."""
    size, accesses = bench.size(32, 16), bench.size("4,000,000", "200,000")
    return (
        f"made by synth: {size} GiB instead of 1.3 TiB, one thread per socket, {accesses} accesses at "
        "uniform addresses, each with a DRAM read of its data"
    )


def shares(capture: Capture) -> np.ndarray:
    """float64[sockets, 4]: share of the leaf entries in each class, seen from each socket."""
    return of_each(mapped_locality(capture).by_class()[0])


@cache
def counted(workload: str, vm: str) -> np.ndarray:
    """float64[sockets, 4]: the same as published in counts, of the last dump."""
    rows = pd.read_csv(bundled("models") / "reference" / "vmitosis-figure-2.csv")
    rows = rows[(rows.workload == workload) & (rows.vm == vm)]
    rows = rows[rows.dump == rows.dump.max()].sort_values("socket")
    return of_each(rows[list(CLASSES)].to_numpy(float))


def of_each(counts: np.ndarray) -> np.ndarray:
    """float64[sockets, 4]: shares of counts of each socket."""
    shares: np.ndarray = counts / counts.sum(axis=1, keepdims=True)
    return shares


def remote(shares: np.ndarray) -> tuple[float, float]:
    """(remote share of the gPT's leaf entries, of the ePT's), over all sockets."""
    _, lr, rl, rr = shares.mean(axis=0).tolist()
    return rl + rr, lr + rr


def speedup(result: Result) -> Interval:
    """Interval of a Result's speed-up over its baseline."""
    gained = result.price.speedup
    assert gained is not None, "a replayed trace has a run time"
    return gained


def run_cycles(result: Result) -> float:
    """Cycles of a Result's whole run."""
    cycles = result.price.run_cycles
    assert cycles is not None, "a replayed trace has a run time"
    return cycles


def slower(result: Result) -> Interval:
    """Interval of a Result's run time over its baseline's."""
    return speedup(result).through(lambda value: 1 / value)
