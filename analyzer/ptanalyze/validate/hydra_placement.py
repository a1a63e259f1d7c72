"""Hydra, Figures 6, 7, 8: the price of laziness, migration, loading and execution."""

from collections.abc import Iterator

from ..core.interval import Interval
from ..core.machine import load_machine
from .bench import Bench
from .footprints import footprint, sharing
from .loading import loading
from .prior import ratio, runs
from .published import published
from .row import MODELLED, REPLAYED, Row, row
from .traversal import alone, migrated, traversal

PAPER = published("hydra")
WIDE = {"low": "I", "middle": "F-A", "high": "F"}  # Mitosis, Figure 9: configurations without and with +M
FOUR_SOCKETS = 0.75 * (580 / 280 - 1)  # remote share times stretch: 280 cycles local, 580 remote (Mitosis)
CANNEAL, ENTRIES = 110, 512  # GB, Table 3; leaf tables per GiB
TABLE_4_HYDRA = PAPER["canneal-hydra"].value  # GB
EXECUTION = 300.0  # s, section 5.5


def figure_6(bench: Bench) -> Iterator[Row]:
    """1 GB filled on a node, read once in random order on another."""
    (many, pages), (lone, _) = traversal(bench), traversal(bench, costs=alone())
    size = f"{pages >> 8} MiB on machine hydra-haswell"
    note = (
        f"{size}; every access waits for its walk, its data and its faults; an entry that this lone thread "
        "copies costs what the link takes (1.5 ns); the interval reaches to what many threads at once pay"
    )
    for degree in (9, 0):
        ours, most = lone[degree] / lone["mitosis"], many[degree] / many["mitosis"]
        yield row(PAPER[f"traversal-{degree}"], Interval(ours, ours, most), MODELLED, note)
    longer = sum(lone[degree] > lone[degree - 1] for degree in range(1, 10))
    yield row(PAPER["traversal-monotone"], longer, MODELLED, note)


def figure_7(bench: Bench) -> Iterator[Row]:
    """A single thread and its data move; page tables were made where it started."""
    ns = migrated(bench)
    note = (
        "random reads, 64 per page, of 256 MiB with caches scaled as for 128 GiB; contended latencies, all "
        "exposed"
    )
    yield row(PAPER["migrated-linux"], ns["linux"] / ns["mitosis"], MODELLED, note)
    yield row(PAPER["migrated-hydra"], ns[0] / ns[9], MODELLED, note)
    yield row(PAPER["migrated-prefetching"], ns[9] / ns["mitosis"], MODELLED, note)


def figure_8(bench: Bench) -> Iterator[Row]:
    """Loading and execution of Canneal."""
    ns = loading()
    note = (
        "one thread faults every page in; 0.4 us of zeroing per page, nothing of the program's own, which "
        "would bring it nearer to 1"
    )
    yield row(PAPER["loading-mitosis"], ns["mitosis"] / ns["linux"], MODELLED, note)
    yield row(PAPER["loading-hydra"], ns["hydra"] / ns["linux"], MODELLED, note)
    yield from execution()


def execution() -> Iterator[Row]:
    """Speed-ups of Canneal on 8 sockets from the public runs on 4."""
    mitosis = Interval(**{which: eight_sockets(name) for which, name in WIDE.items()})
    lazy = laziness()
    hydra = mitosis.through(lambda value: value / lazy)
    note = (
        "from the public runs of Mitosis's Figure 9 on 4 sockets (interleaved, first-touch with balancing, "
        "first-touch): what remote tables add, times 7/8 and the distances of 8 sockets; which of the three "
        "Hydra's baseline is, its text does not say"
    )
    yield row(PAPER["execution-mitosis"], mitosis, REPLAYED, note)
    yield row(PAPER["execution-hydra"], hydra, REPLAYED, note)
    note = "faults that copy entries, by Table 4's footprint, in 5 minutes of one thread per socket"
    yield row(PAPER["execution-lazy"], lazy, MODELLED, note)


def eight_sockets(name: str) -> float:
    """Speed-up of replication on 8 sockets from that on 4: C and C+M of Mitosis's Figure 9."""
    canneal = runs("native-wide", use=("fit",))["Canneal"]
    added = ratio(canneal[f"{name}+M"], canneal[name]) - 1
    own, *others = load_machine("hydra-haswell").latency.idle[0]
    here = len(others) / (1 + len(others)) * (sum(others) / len(others) / own - 1)
    return 1 + added * here / FOUR_SOCKETS


def laziness() -> float:
    """Run time of Hydra over that of Mitosis: 1 plus the share of the threads' time that copies entries."""
    machine = load_machine("hydra-haswell")
    results = footprint(CANNEAL, sharing(CANNEAL / ENTRIES, TABLE_4_HYDRA))
    lazy = results["hydra"].price.management_cycles - results["linux"].price.management_cycles
    return 1 + lazy / (EXECUTION * machine.nodes * machine.ghz * 1e9)
