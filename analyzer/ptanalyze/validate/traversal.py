"""A thread on another node than that which filled memory walks through it (Hydra, sections 5.3 and 5.4)."""

from collections.abc import Sequence

import msgspec

from ..analysis.setup import Setup
from ..analysis.whatif import replay_snapshot
from ..core.machine import Costs, Machine, load_costs, load_machine
from ..cost.result import Result
from ..formats.capture import Capture
from .bench import Bench
from .designs import LINUX, MITOSIS, Design

GIB = 1 << 30
DEGREES = tuple(range(10))
MAIN = 0


def alone() -> Costs:
    """hydra-haswell's costs for a thread that faults alone: a copied entry costs its part of a line.

    512 entries are 64 lines in order at about 5 GB/s. The file's price is that of many threads at once.
    """
    costs = load_costs(load_machine("hydra-haswell"))
    return msgspec.structs.replace(costs, pte_copy_ns=1.5)


def traversal(
    bench: Bench, size: int = GIB, costs: Costs | None = None
) -> tuple[dict[str | int, float], int]:
    """({design: ns}, pages): each page once, in random order, from node 1; filled and mapped from node 0.

    Nothing hides behind anything else: every access waits for its walk, for its data from node 0, and for the
    faults that copy entries. Designs are "mitosis" and 0 ... 9, Hydra's degree of prefetching.
    costs  None: the machine's
    """
    capture = bench.capture(
        size=bench.size(size, size >> 5), nodes=8, threads=2, threads_to_nodes="0,1", init="single",
        init_trace=False, pattern="once:1", writes=0.0,
    )  # fmt: skip
    machine, pages = load_machine("hydra-haswell"), bench.size(size, size >> 5) >> 12
    data = machine.latency.idle[1][MAIN]
    results = replays(capture, machine, costs=costs)
    return {name: waiting(result, machine) + pages * data for name, result in results.items()}, pages


def migrated(
    bench: Bench, contended: bool = True, size: int = GIB >> 2, visits: int = 64
) -> dict[str | int, float]:
    """{design: ns per access}: the thread and its data have moved to node 1, the tables were made on node 0.

    visits  accesses per page, evenly at random. Caches are scaled to the dataset as 45 MB are to 128 GiB, so
            that page tables do not fit into them; other programs load the links to node 0.
    """
    pages = bench.size(size, size >> 3) >> 12
    capture = bench.capture(
        size=pages << 12, nodes=8, threads=1, init="single", init_trace=False, accesses=visits * pages,
        move="0:0:1", writes=0.0,
    )  # fmt: skip
    machine = scaled(load_machine("hydra-haswell"), (pages << 12) / (128 * GIB))
    data = machine.latency.idle[1][1]
    results = replays(capture, machine, contended, (0, 9))
    return {name: waiting(result, machine) / (visits * pages) + data for name, result in results.items()}


def scaled(machine: Machine, factor: float) -> Machine:
    """The machine with caches of `factor` times their size."""
    caches = {
        name: msgspec.structs.replace(cache, bytes=int(cache.bytes * factor))
        for name, cache in (("l2", machine.l2), ("llc", machine.llc))
    }
    return msgspec.structs.replace(machine, **caches)


def replays(
    capture: Capture,
    machine: Machine,
    contended: bool = False,
    degrees: Sequence[int] = DEGREES,
    costs: Costs | None = None,
) -> dict[str | int, Result]:
    asked: list[Design] = [LINUX, MITOSIS, *(("hydra", {"prefetch": degree}) for degree in degrees)]
    results = replay_snapshot(
        capture.snapshot,
        capture.trace,
        asked,
        Setup.of(machine=machine, baseline="linux", contended=contended, cold=True, costs=costs),
        cache_dir=capture.cache,
    )
    return dict(zip(("linux", "mitosis", *degrees), results, strict=True))


def waiting(result: Result, machine: Machine) -> float:
    """ns of walks and page tables, all exposed; what is done before the traversal is not timed."""
    upkeep = result.price.management_cycles - result.once.cycles
    return (result.price.walk_cycles + upkeep) / machine.ghz
