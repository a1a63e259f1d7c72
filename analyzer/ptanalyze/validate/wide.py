"""Workloads on all sockets, made by synth, and where their leaf entries are, modelled and as published."""

from functools import cache

import pandas as pd

from ..bundled import bundled
from ..locality import mapped_locality
from ..result import Estimate

CLASSES = ("LL", "LR", "RL", "RR")
SOCKETS = 4
GIB, BLOCK = 1 << 30, 1 << 21
# Canneal, 1 : 100: 380 GB, of which one socket holds 350: one part of 12 spills to the next socket
CANNEAL = {"size": 1900 * BLOCK, "threads": 12, "threads_to_nodes": ",".join("0" * 11 + "1")}
# instructions an access: outside walks it takes one DRAM read of its data, 281 cycles in the mean over the
# nodes of vmitosis-cascade-lake, at 1.25 cycles an instruction, the middle of its cost file
OUTSIDE = 225


def made(bench, guest, trace=True, **more):
    """Capture of a workload that all sockets share, of a size whose tables no cache holds."""
    size = bench.size(32 * GIB, 16 * GIB)
    accesses = bench.size(4_000_000, 200_000)
    asked = {"size": size, "guest": guest, "accesses": accesses, "instructions_per_access": OUTSIDE}
    asked |= {"init_trace": False} | more
    return bench.capture(trace=trace, **asked)


def scaled(bench):
    """A sentence on what `made` is."""
    size, accesses = bench.size(32, 16), bench.size("4,000,000", "200,000")
    return (
        f"made by synth: {size} GiB instead of 1.3 TiB, one thread a socket, {accesses} accesses at uniform "
        "addresses, each with a DRAM read of its data"
    )


def shares(capture):
    """float64[sockets, 4]: share of the leaf entries in each class, seen from each socket."""
    counts = mapped_locality(capture).by_class()[0].astype(float)
    return counts / counts.sum(axis=1, keepdims=True)


@cache
def counted(workload, vm):
    """float64[sockets, 4]: the same as published in counts, of the last dump."""
    rows = pd.read_csv(bundled("models") / "reference" / "vmitosis-figure-2.csv")
    rows = rows[(rows.workload == workload) & (rows.vm == vm)]
    rows = rows[rows.dump == rows.dump.max()].sort_values("socket")
    found = rows[list(CLASSES)].to_numpy(float)
    return found / found.sum(axis=1, keepdims=True)


def remote(shares):
    """(remote share of the gPT's leaf entries, of the ePT's), over all sockets."""
    _, lr, rl, rr = shares.mean(axis=0)
    return rl + rr, lr + rr


def speedup(result):
    """Estimate of a Result's speed-up over its baseline."""
    return result.price.speedup


def slower(result):
    """Estimate of a Result's run time over its baseline's."""
    found = result.price.speedup
    return Estimate(1 / found.high, 1 / found.middle, 1 / found.low)
