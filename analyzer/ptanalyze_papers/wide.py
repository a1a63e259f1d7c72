"""Workloads on all sockets, made by synth, and where their leaf entries are, modelled and as published."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pandas as pd

import ptanalyze as pt
from ptanalyze_synth.patterns import Random
from ptanalyze_synth.process import START as PROCESS_START
from ptanalyze_synth.process import new_group

from .bench import HYDRA, LINUX, MITOSIS, Bench, Design
from .script import PAGE, Script, work

CLASSES = ("LL", "LR", "RL", "RR")
MIB, GIB, BLOCK = 1 << 20, 1 << 30, 1 << 21
# Canneal, 1 : 100: 380 GB, of which one socket holds 350: one part of 12 spills to the next socket
CANNEAL = {"size": 1900 * BLOCK, "threads": 12, "threads_to_nodes": ",".join("0" * 11 + "1")}
# instructions per access: outside walks it takes a DRAM read of its data, 281 cycles in the mean over the
# nodes of vmitosis-cascade-lake, at 1.25 cycles per instruction, the middle of its cost file
OUTSIDE = 225


def made(bench: Bench, guest: str, trace: bool = True, **more: Any) -> pt.Capture:
    """Capture of a workload that all sockets share, of a size whose tables fit no cache."""
    asked: dict[str, Any] = {
        "size": bench.size(32 * GIB, 16 * GIB),
        "guest": guest,
        "accesses": bench.size(4_000_000, 200_000),
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


def shares(capture: pt.Capture) -> np.ndarray:
    """float64[sockets, 4]: share of the leaf entries in each class, seen from each socket."""
    return of_each(pt.analysis.locality(capture.snapshot).by_class()[0])


@cache
def counted(workload: str, vm: str) -> np.ndarray:
    """float64[sockets, 4]: the same as published in counts, of the last dump."""
    rows = pd.read_csv(pt.errors.bundled("models") / "reference" / "vmitosis-figure-2.csv")
    rows = rows[(rows.workload == workload) & (rows.vm == vm)]
    rows = rows[rows.dump == rows.dump.max()].sort_values("socket")
    return of_each(rows[list(CLASSES)].to_numpy(float))


def of_each(counts: np.ndarray) -> np.ndarray:
    """float64[sockets, 4]: shares of counts of each socket."""
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def remote(shares: np.ndarray) -> tuple[float, float]:
    """(remote share of the gPT's leaf entries, of the ePT's), over all sockets."""
    _, lr, rl, rr = shares.mean(axis=0).tolist()
    return rl + rr, lr + rr


def speedup(result: pt.Result) -> pt.Interval:
    """Interval of a Result's speed-up over its baseline."""
    gained = result.speedup
    assert gained is not None, "a replayed trace has a run time"
    return gained


def run_cycles(result: pt.Result) -> float:
    """Cycles of a Result's whole run."""
    cycles = result.run_cycles
    assert cycles is not None, "a replayed trace has a run time"
    return cycles


def slower(result: pt.Result) -> pt.Interval:
    """Interval of a Result's run time over its baseline's."""
    return speedup(result).through(lambda value: 1 / value)


# A thread on another node than that which filled memory walks through it (Hydra, sections 5.3 and 5.4).

MOST = 9  # degree of prefetching: a table page
VISITS = 64
MAIN = 0


def alone() -> pt.machine.Costs:
    """hydra-haswell's costs for a thread that faults alone: a copied entry costs its part of a line.

    512 entries are 64 lines in order at about 5 GB/s. The file's price is that of many threads at once.
    """
    return msgspec.structs.replace(pt.machine.load_costs(pt.load_machine("hydra-haswell")), pte_copy_ns=1.5)


def traversal(
    bench: Bench, costs: pt.machine.Costs | None = None, degrees: Sequence[int] = (MOST,)
) -> tuple[dict[str | int, float], int]:
    """({design: ns}, pages) of 1 GiB: each once, in random order, from node 1; filled and mapped from node 0.

    Nothing hides behind anything else: every access waits for its walk, for its data from node 0, and for the
    faults that copy entries. Designs are "mitosis" and Hydra's degrees of prefetching.
    costs  None: the machine's
    """
    size = bench.size(GIB, GIB >> 5)
    capture = bench.capture(
        size=size, nodes=8, threads=2, threads_to_nodes="0,1", init="single", init_trace=False,
        pattern="once:1", writes=0.0,
    )  # fmt: skip
    machine, pages = pt.load_machine("hydra-haswell"), size // PAGE
    data = machine.latency.idle[1][MAIN]
    results = replays(bench, capture, machine, degrees, costs=costs)
    return {name: waiting(result, machine) + pages * data for name, result in results.items()}, pages


def migrated(bench: Bench) -> dict[str | int, float]:
    """{design: ns per access}: the thread and its data have moved to node 1, the tables were made on node 0.

    VISITS for each page of 256 MiB, evenly at random. Caches are scaled to the dataset as 45 MB are to
    128 GiB, so that page tables do not fit into them; other programs load the links to node 0.
    """
    size = bench.size(GIB >> 2, GIB >> 5)
    accesses = VISITS * size // PAGE
    capture = bench.capture(
        size=size, nodes=8, threads=1, init="single", init_trace=False, accesses=accesses, move="0:0:1",
        writes=0.0,
    )  # fmt: skip
    machine = with_caches(pt.load_machine("hydra-haswell"), size / (128 * GIB))
    data = machine.latency.idle[1][1]
    results = replays(bench, capture, machine, (MOST,), contended=True)
    return {name: waiting(result, machine) / accesses + data for name, result in results.items()}


def with_caches(machine: pt.Machine, factor: float) -> pt.Machine:
    """The machine with caches of `factor` times their size."""
    caches = {
        name: msgspec.structs.replace(cache, bytes=int(cache.bytes * factor))
        for name, cache in (("l1d", machine.l1d), ("l2", machine.l2), ("llc", machine.llc))
        if cache is not None
    }
    return msgspec.structs.replace(machine, **caches)


def replays(
    bench: Bench, capture: pt.Capture, machine: pt.Machine, degrees: Sequence[int], **how: Any
) -> dict[str | int, pt.Result]:
    """{design: Result}: linux, mitosis, and Hydra with degrees of prefetching."""
    asked: list[Design] = [LINUX, MITOSIS, *(("hydra", {"prefetch": degree}) for degree in degrees)]
    results = bench.replay(capture, asked, machine, baseline="linux", cold=True, **how)
    return dict(zip(("linux", "mitosis", *degrees), results.values(), strict=True))


def waiting(result: pt.Result, machine: pt.Machine) -> float:
    """ns of walks and page tables, all exposed; what is done before the traversal is not timed."""
    return (result.walk_cycles + (result.management_cycles - result.once_cycles)) / machine.ghz


# A graph analysis in a VM whose memory a co-runner scatters (PTEMagnet, sections 3.3 and 6.3).

DATASET = 16 << 30  # bytes, published
SCALE = 8  # the modelled dataset and the caches are this much smaller
THREADS = 8  # published
RUN = 12  # neighbouring pages of a stream: fitted, see ptemagnet.py
SKEW = 0.6  # of the popularity of places where streams begin: assumed
TURN, TURNS = 4096, 32  # pages of a turn; turns of each thread
ALONE, BESIDE_OBJDET, BESIDE_STRESS = 2.8, 3.4, 6.8  # ePT lines per gPT line, published


def corunner(lines: float) -> float:
    """Share of faults after which a co-runner takes the rest of 8 frames, so that the metric is `lines`.

    A page shares its line with the page before it unless it begins 8 frames of its own: the metric is
    1 + 7 new_group(share), between 1.875 and 8.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 + 7 * new_group(middle) < lines else (low, middle)
    return high


class Graph:
    """Captures, and the same trace over them, on a Bench; machine ptemagnet-broadwell, one socket, scaled."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.pages = bench, bench.size(DATASET, DATASET >> 6) // SCALE // PAGE
        self.turns = bench.size(TURNS, 1)
        share = self.pages * PAGE / DATASET
        self.machine = with_caches(pt.load_machine("ptemagnet-broadwell").resized(1), share)
        self.replayed = cache(self.replay)

    def capture(self, lines: float) -> pt.Capture:
        return self.bench.capture(
            trace=False, size=self.pages * PAGE, nodes=1, guest="visible", threads=THREADS,
            fragmentation=corunner(lines),
        )  # fmt: skip

    def scattered(self, lines: float) -> pt.reservations.Fragmentation:
        """Fragmentation of the capture."""
        return pt.reservations.measure(
            pt.address_space.address_space(self.capture(lines).snapshot, np.zeros(0, np.uint64))
        )

    def replay(self, lines: float) -> dict[str, pt.Result]:
        """{policy: Result} of the trace, as captured and with PTEMagnet."""
        capture, script = self.capture(lines), streams(self.pages, self.turns)
        return script.replay_on(
            capture.snapshot, {"linux": LINUX, "ptemagnet": ("ptemagnet", {})}, self.machine
        )


def streams(pages: int, turns: int, run: int = RUN) -> Script:
    """Script of threads that read runs of neighbouring pages, from places of uneven popularity."""
    script, first = Script([0] * THREADS), PROCESS_START // PAGE
    script.premapped()
    begin = [Random(np.random.default_rng([7, t]), 0, pages, pages, 0.0, SKEW, 7) for t in range(THREADS)]
    for _ in range(turns):
        for thread in range(THREADS):
            touched = (begin[thread](-(-TURN // run))[:, None] + np.arange(run)).ravel()[:TURN] % pages
            script.touch(thread, first + touched, write=False)
    return script


# Setting data up: a single thread touches every page first (Hydra, section 5.5, the loading phase).

START, LOADED = 1 << 30, 1 << 14  # page number; pages, of 64 MiB


def loading() -> dict[str, float]:
    """{design: ns per page}: its fault with zeroing and share of table pages, nothing of the program's."""
    script = Script([0])
    script.mmap(0, START - 1, 1 + LOADED)
    script.touch(0, START - 1)
    script.mark()
    script.touch(0, START + np.arange(LOADED))
    results = script.before_and_after({"linux": LINUX, "mitosis": MITOSIS, "hydra": HYDRA})
    ghz = pt.load_machine("hydra-haswell").ghz
    return {name: work(*both, LOADED, ghz).busy for name, both in results.items()}


# Page tables of a dataset that threads of every socket share in part (Hydra, section 5.2, Table 4).

FOOTPRINTS_SOCKETS = 8
REGIONS = 512  # leaf tables per GiB
FOOTPRINTS_START = 1 << 34  # page number, aligned to the range of an upper table


def footprint(gigabytes: int, shared: float) -> dict[str, pt.Result]:
    """{design: Result} of a process whose main thread maps and fills `gigabytes`, a page per leaf table.

    shared  part of the leaf tables that each of the other sockets touches too, evenly spread: the size of
            page tables depends on the leaf tables that a socket touches, not on how often or where
    """
    script, leaves = Script(range(FOOTPRINTS_SOCKETS)), gigabytes * REGIONS
    pages = FOOTPRINTS_START + 512 * np.arange(leaves)
    script.mmap(0, FOOTPRINTS_START, leaves * 512)
    script.touch(0, pages)
    for thread in range(1, FOOTPRINTS_SOCKETS):
        script.touch(thread, spread(pages, shared))
    return script.replay({"linux": LINUX, "mitosis": MITOSIS, "hydra": HYDRA})


def spread(pages: np.ndarray, share: float) -> np.ndarray:
    """`share` of the pages, evenly spaced, at least one."""
    count = max(round(len(pages) * share), 1)
    return pages[np.arange(count) * len(pages) // count]


def sharing(single: float, hydra: float) -> float:
    """Part of the leaf tables that each other socket has, from the bytes of a single copy and under Hydra."""
    return (hydra / single - 1) / (FOOTPRINTS_SOCKETS - 1)
