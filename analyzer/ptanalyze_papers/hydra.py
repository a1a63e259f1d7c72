"""Hydra (USENIX ATC 2024), figure by figure.

Figures 3 and 4 have no number in the text. Everything is replayed on machine hydra-haswell.
"""

from collections.abc import Iterator
from functools import cache
from statistics import geometric_mean

from msgspec.structs import replace

import ptanalyze as pt
from ptanalyze_law.prior import ratio, runs

from .bench import Bench
from .row import Row, published
from .script import CROWDED, THREADS, Work, allocations, calls, web_server
from .wide import alone, footprint, loading, migrated, sharing, traversal

# Hydra, Figures 1, 10: system calls alone and among spinning threads.

PAPER = published("hydra")
SLOWER_CALL = 3  # section 1: mprotect of Linux 6.5.7 takes about 3 times as long as that of 4.17

replayed = cache(calls)


def figure_1(bench: Bench) -> Iterator[Row]:
    """mprotect of one page."""
    alone, crowded = replayed("mprotect"), replayed("mprotect", CROWDED)
    yield PAPER.row("mprotect-linux", crowded["linux"] / alone["linux"])
    yield PAPER.row("mprotect-linux-6.5", newer_kernel())
    yield PAPER.row("mprotect-mitosis-alone", alone["mitosis"] / alone["linux"])
    yield PAPER.row("mprotect-gain", crowded["linux"] / crowded["hydra"])


def newer_kernel() -> float:
    """Slow-down of mprotect in a kernel whose call takes longer while its shootdowns take as long."""
    costs = pt.machine.load_costs(pt.load_machine("hydra-haswell"))
    slower = replace(costs, call=replace(costs.call, mprotect=SLOWER_CALL * costs.call.mprotect))
    return calls("mprotect", CROWDED, slower)["linux"] / calls("mprotect", costs=slower)["linux"]


def figure_10(bench: Bench) -> Iterator[Row]:
    """munmap of one page."""
    alone, crowded = replayed("munmap"), replayed("munmap", CROWDED)
    yield PAPER.row("munmap-mitosis-crowded", crowded["mitosis"] / alone["linux"])
    yield PAPER.row("munmap-hydra-crowded", crowded["hydra"] / alone["linux"])
    yield PAPER.row("munmap-mitosis-alone", alone["mitosis"] / alone["linux"])


# Hydra, Figures 11 to 14: allocators, a web server, a key-value store.

ON = (1, 2, 4, 8)  # sockets, a thread each


def allocator(name: str, stateful: bool) -> Iterator[Row]:
    by_sockets = {on: allocations(on, stateful) for on in ON}
    ratios = [work["mitosis"].ns(on) / work["linux"].ns(on) for on, work in by_sockets.items()]
    yield PAPER.row(f"{name}-least", min(ratios))
    yield PAPER.row(f"{name}-most", max(ratios))


def figure_13(bench: Bench) -> Iterator[Row]:
    """Web server: map, write and unmap a buffer with every request."""
    by_threads = {threads: web_server(threads) for threads in THREADS}
    work = {name: designs[0] for name, designs in by_threads[THREADS[-1]].items()}
    saved = [100 * (1 - designs["hydra"][1] / designs["linux"][1]) for designs in by_threads.values()]
    yield PAPER.row("web-shootdowns", pt.Interval(min(saved), saved[-1], max(saved)))
    yield PAPER.row("web-throughput", gain(work, "hydra"))
    by_number = [made["linux"][0].ns(on) / made["hydra"][0].ns(on) for on, made in by_threads.items()]
    yield PAPER.row("web-mean", geometric_mean(by_number))
    yield PAPER.row("web-mitosis", gain(work, "mitosis"))
    yield PAPER.row("web-unfiltered", gain(work, "unfiltered"))


def gain(work: dict[str, Work], design: str) -> float:
    """Throughput over Linux of the most threads, with nothing to do outside the kernel."""
    return work["linux"].ns(THREADS[-1]) / work[design].ns(THREADS[-1])


def figure_14(bench: Bench) -> Iterator[Row]:
    """Key-value store: processes of two threads that guard their data with mprotect."""
    guarded = calls("mprotect", (0, 1), sockets=2)
    yield PAPER.row("store-throughput", guarded["linux"] / guarded["hydra"])


# Hydra, Figures 6, 7, 8: the price of laziness, migration, loading and execution.

WIDE = {"low": "I", "middle": "F-A", "high": "F"}  # Mitosis, Figure 9: configurations without and with +M
FOUR_SOCKETS = 0.75 * (580 / 280 - 1)  # remote share times stretch: 280 cycles local, 580 remote (Mitosis)
ENTRIES = 512  # of a table page: a single page table has 1 / 512 of the bytes that it maps
EXECUTION = 300.0  # s, section 5.5
CANNEAL, CANNEAL_TABLES = 110, 0.32  # GB of data (Table 3), of page tables under Hydra (Table 4)


def figure_6(bench: Bench) -> Iterator[Row]:
    """1 GB filled on a node, read once in random order on another."""
    (many, pages), (lone, _) = traversal(bench), traversal(bench, costs=alone())
    ours, most = lone[9] / lone["mitosis"], many[9] / many["mitosis"]
    yield PAPER.row("traversal-9", pt.Interval(ours, ours, most), size=pages >> 8)


def figure_7(bench: Bench) -> Iterator[Row]:
    """A single thread and its data move; page tables were made where it started."""
    ns = migrated(bench)
    yield PAPER.row("migrated-prefetching", ns[9] / ns["mitosis"])


def figure_8(bench: Bench) -> Iterator[Row]:
    """Loading of Canneal, and its execution on 8 sockets from the public runs on 4."""
    ns = loading()
    yield PAPER.row("loading-mitosis", ns["mitosis"] / ns["linux"])
    mitosis = pt.Interval(**{which: eight_sockets(name) for which, name in WIDE.items()})
    lazy = laziness()
    yield PAPER.row("execution-mitosis", mitosis)
    yield PAPER.row("execution-hydra", mitosis.through(lambda value: value / lazy))
    yield PAPER.row("execution-lazy", lazy)


def eight_sockets(name: str) -> float:
    """Speed-up of replication on 8 sockets from that on 4: C and C+M of Mitosis's Figure 9."""
    canneal = runs("native-wide", use=("fit",))["Canneal"]
    added = ratio(canneal[f"{name}+M"], canneal[name]) - 1
    own, *others = pt.load_machine("hydra-haswell").latency.idle[0]
    here = len(others) / (1 + len(others)) * (sum(others) / len(others) / own - 1)
    return 1 + added * here / FOUR_SOCKETS


def laziness() -> float:
    """Run time of Hydra over that of Mitosis: 1 plus the share of the threads' time that copies entries."""
    machine = pt.load_machine("hydra-haswell")
    results = footprint(CANNEAL, sharing(CANNEAL / ENTRIES, CANNEAL_TABLES))
    lazy = results["hydra"].management_cycles - results["linux"].management_cycles
    return 1 + lazy / (EXECUTION * machine.nodes * machine.ghz * 1e9)


FIGURES = {
    "Figure 1": figure_1,
    "Figure 6": figure_6,
    "Figure 7": figure_7,
    "Figure 8": figure_8,
    "Figure 10": figure_10,
    "Figure 11": lambda bench: allocator("stateless", stateful=False),
    "Figure 12": lambda bench: allocator("stateful", stateful=True),  # 256 segments per thread live
    "Figure 13": figure_13,
    "Figure 14": figure_14,
}
