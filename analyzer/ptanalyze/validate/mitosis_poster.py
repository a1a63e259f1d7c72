"""Mitosis, the poster: shares of remote reads, and gains of modelled workloads on a 4-socket Haswell."""

from collections.abc import Iterator

import msgspec
import numpy as np

from ..analysis.walk import explain
from ..capture.synth.process import START
from ..core.interval import Interval
from ..core.machine import Latency, Machine, load_machine
from ..cost.result import Result
from .bench import Bench
from .law_rows import ONE_RUN, predicted
from .published import published
from .row import DEFINITION, MODELLED, REPLAYED, Row, not_reproducible, row
from .wide import made, scaled, speedup

PAPER = published("mitosis")
SOCKETS, LOCAL, REMOTE = 4, 280, 580  # cycles of a DRAM read: Mitosis, section 3


def poster(bench: Bench) -> Iterator[Row]:
    cold = "one address of a made capture, walked with empty caches"
    for name, guest in (("reads", "native"), ("reads-nested", "visible")):
        capture = bench.capture(trace=False, size=4 << 20, guest=guest, threads=1)
        yield row(PAPER[name], len(explain(capture.snapshot, START).steps), DEFINITION, cold)
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
    yield row(
        PAPER["gups"], predicted("native-thin", "native-thin", "GUPS", "LP-LD", "RPI-LD"), REPLAYED, ONE_RUN
    )
    yield row(
        PAPER["gups-repaired"],
        1.0,
        DEFINITION,
        "the law knows no difference between local and repaired tables",
    )
    yield not_reproducible(PAPER["redis"], "no counters of Redis are at hand, and the poster gives none")


def haswell() -> Machine:
    """The Haswell of machine hydra-haswell with 4 sockets, and the latencies of the paper's machine."""
    machine = load_machine("hydra-haswell").resized(SOCKETS)
    cycles = np.where(np.eye(SOCKETS, dtype=bool), LOCAL, REMOTE) / machine.ghz
    idle = tuple(map(tuple, cycles.tolist()))
    return msgspec.structs.replace(machine, name="mitosis-haswell", latency=Latency(idle=idle))


def remote_reads(result: Result) -> float:
    """% of the leaf reads that another socket serves."""
    local, _, remote, _ = result.classes.sum(axis=0)
    return float(100 * remote / (local + remote))


def gain(result: Result) -> Interval:
    """Interval of the run time gained, in % of the run time left."""
    return speedup(result).through(lambda value: 100 * (value - 1))
