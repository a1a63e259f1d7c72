"""Hydra (USENIX ATC 2024), figure by figure.

Figures 3 and 4 have no number in the text. Everything is replayed on machine hydra-haswell.
"""

from collections.abc import Iterator
from functools import cache

from msgspec.structs import replace

import ptanalyze as pt
from ptanalyze_law.prior import ratio, runs

from .bench import Bench
from .row import DEFINITION, FITTED, MODELLED, REPLAYED, Row, not_reproducible, published, row
from .script import ALONE, CROWDED, THREADS, Work, allocations, calls, guarded_store, web_server
from .wide import alone, footprint, gib, loading, migrated, sharing, traversal

# Hydra, Figures 1, 2, 9, 10: system calls alone and among spinning threads.

PAPER = published("hydra")
SPINNING = "35 spinning threads per socket, where the figures may end; cost file hydra-haswell"
FIT = "hydra-haswell is derived from this number (ADR 9)"
MORE = "the model does all that Linux does and more, so the bound cannot fail; the plot has no numbers"
FEWER = "the model leaves out interrupts or copies and adds nothing, so the bound cannot fail"
NONE = "no shared table page, no thread on another node: the cost of plain Linux"
SLOWER_CALL = 3  # section 1: mprotect of Linux 6.5.7 takes about 3 times as long as that of 4.17
SIZES = {"128 KB": 32, "512 KB": 128}  # pages

replayed = cache(calls)


def figure_1(bench: Bench) -> Iterator[Row]:
    """mprotect of one page."""
    alone, crowded = replayed("mprotect"), replayed("mprotect", 1, CROWDED)
    linux = alone["linux"]
    yield row(PAPER["mprotect-linux"], crowded["linux"] / linux, FITTED, FIT)
    note = f"{SPINNING}; the call takes 3 times as long (section 1), shootdowns what they take in 4.17"
    yield row(PAPER["mprotect-linux-6.5"], newer_kernel(), MODELLED, note)
    yield row(PAPER["mprotect-mitosis-alone"], alone["mitosis"] / linux, FITTED, FIT)
    yield row(PAPER["mprotect-hydra-alone"], alone["hydra"] / linux, DEFINITION, NONE)
    near = replayed("mprotect", 1, (35, 0))
    note = "35 spinning threads on the caller's socket, 35 or none on each of the others, which have no copy"
    yield row(PAPER["mprotect-hydra-remote"], crowded["hydra"] / near["hydra"], DEFINITION, note)
    yield row(PAPER["mprotect-unfiltered"], crowded["unfiltered"] / crowded["mitosis"], DEFINITION, FEWER)
    note = (
        f"{SPINNING}. Does not go together with the 2.6x of munmap: threads that spin on the caller's own "
        "socket are interrupted under Hydra too, and those that make munmap 2.6 times slower make mprotect "
        "3.2 times slower"
    )
    yield row(PAPER["mprotect-gain"], crowded["linux"] / crowded["hydra"], MODELLED, note)


def newer_kernel() -> float:
    """Slow-down of mprotect in a kernel whose call takes longer while its shootdowns take as long."""
    costs = pt.machine.load_costs(pt.load_machine("hydra-haswell"))
    call = replace(costs.call, mprotect=SLOWER_CALL * costs.call.mprotect)
    slower = replace(costs, call=call)
    return calls("mprotect", 1, CROWDED, slower)["linux"] / calls("mprotect", costs=slower)["linux"]


def figure_2(bench: Bench) -> Iterator[Row]:
    """mprotect with local and remote spinning threads, and of 512 KB."""
    near, far = (replayed("mprotect", 1, (2, 1)), replayed("mprotect", 1, (1, 2)))
    base = replayed("mprotect", 1, (1, 1))["linux"]
    ratio = (far["linux"] - base) / 7 / (near["linux"] - base)
    yield row(PAPER["remote-spinners"], ratio, FITTED, "both are derived from Figures 1 and 10 (ADR 9)")
    alone, crowded = (replayed("mprotect", SIZES["512 KB"], spinning) for spinning in (ALONE, CROWDED))
    note = f"128 entries in each of 8 copies; {MORE}"
    yield row(PAPER["half-mib-mitosis"], alone["mitosis"] / alone["linux"], DEFINITION, note)
    yield row(PAPER["half-mib-mitosis-crowded"], crowded["mitosis"] / crowded["linux"], DEFINITION, MORE)
    yield row(PAPER["half-mib-hydra-crowded"], crowded["hydra"] / crowded["linux"], DEFINITION, FEWER)


def figure_9(bench: Bench) -> Iterator[Row]:
    """Calls on 128 KB, no other thread running."""
    pages = SIZES["128 KB"]
    note = "mmap writes no entries: faults do"
    yield row(PAPER["mmap-mitosis"], over_linux("mmap", "mitosis", pages), DEFINITION, note)
    note = f"32 entries in each of 8 copies; {MORE}"
    for call in ("mprotect", "munmap"):
        yield row(PAPER[f"{call}-mitosis"], over_linux(call, "mitosis", pages), DEFINITION, note)
        yield row(PAPER[f"{call}-hydra"], over_linux(call, "hydra", pages), DEFINITION, NONE)


def figure_10(bench: Bench) -> Iterator[Row]:
    """munmap of one page."""
    linux, crowded = replayed("munmap")["linux"], replayed("munmap", 1, CROWDED)
    yield row(PAPER["munmap-mitosis-crowded"], crowded["mitosis"] / linux, FITTED, FIT)
    yield row(PAPER["munmap-hydra-crowded"], crowded["hydra"] / linux, FITTED, FIT)
    note = "copies as derived from mprotect's 25 %"
    yield row(PAPER["munmap-mitosis-alone"], over_linux("munmap", "mitosis"), MODELLED, note)
    yield row(PAPER["munmap-hydra-alone"], over_linux("munmap", "hydra"), DEFINITION, NONE)


def over_linux(call: str, design: str, pages: int = 1) -> float:
    ns = replayed(call, pages)
    return ns[design] / ns["linux"]


# Hydra, Figures 11 to 14: allocators, a web server, a key-value store.

ON = (1, 2, 4, 8)  # sockets, a thread each
REQUEST_NS = pt.Interval(5000.0, 7500.0, 10000.0)  # 100 to 200 thousand requests per second and thread

malloc = cache(allocations)


def figure_11(bench: Bench) -> Iterator[Row]:
    """malloc and free of a segment."""
    yield from allocator("stateless", stateful=False)


def figure_12(bench: Bench) -> Iterator[Row]:
    """malloc and free while 256 segments per thread live."""
    yield from allocator("stateful", stateful=True)


def allocator(name: str, stateful: bool) -> Iterator[Row]:
    note = (
        "malloc by mmap alone, for glibc and tcmalloc keep memory by rules of their own; a Gamma shape of 2 "
        "and writing every page are assumed; all threads share one lock on the mappings"
    )
    ratios = {on: slower("mitosis", on, stateful) for on in ON}
    yield row(PAPER[f"{name}-least"], min(ratios.values()), MODELLED, note)
    yield row(PAPER[f"{name}-most"], max(ratios.values()), MODELLED, note)
    note = (
        "from shootdowns alone; the evaluated kernel filters munmap over all leaf tables, though section 4.2 "
        "leaves out ranges over more than one, as most of 3.3 MB are; the high end: only first pages written"
    )
    fast = pt.Interval(
        1 / slower("hydra", ON[-1], stateful),
        1 / slower("hydra", ON[-1], stateful),
        1 / slower("all", ON[-1], stateful, touched=False),
    )
    yield row(PAPER[f"{name}-hydra"], fast, MODELLED, note)


def slower(design: str, sockets: int, stateful: bool, touched: bool = True) -> float:
    work = malloc(sockets, stateful, touched)
    return work[design].ns(sockets) / work["linux"].ns(sockets)


def figure_13(bench: Bench) -> Iterator[Row]:
    """Web server: map, write and unmap a buffer with every request."""
    by_threads = {threads: web_server(threads) for threads in THREADS}
    work = {name: designs[0] for name, designs in by_threads[THREADS[-1]].items()}
    saved = [100 * (1 - designs["hydra"][1] / designs["linux"][1]) for designs in by_threads.values()]
    note = (
        "32 threads on 4 sockets, buffers of 3 pages (assumed) touched by their own thread only: all but the "
        "7 others of a socket are spared. What the measured one shoots down that sockets share, its "
        "description does not say; its 45 % are of shootdowns per second, 54 % of those per request"
    )
    yield row(PAPER["web-shootdowns"], pt.Interval(min(saved), saved[-1], max(saved)), MODELLED, note)
    bound = gain(work, "hydra")
    why = (
        "what a request takes outside these calls is not given; ours is for none, where the lock on the "
        "mappings is all that counts, and falls towards 1 with more"
    )
    for end in ("least", "most"):
        yield not_reproducible(PAPER[f"web-throughput-{end}"], why, pt.Interval(1.0, bound, bound))
    note = "nothing outside the kernel: the most that replicas can cost"
    for design, name in (("mitosis", "web-mitosis"), ("unfiltered", "web-unfiltered")):
        yield row(PAPER[name], gain(work, design), MODELLED, note)


def gain(work: dict[str, Work], design: str) -> float:
    """Throughput over Linux of the most threads, with nothing to do outside the kernel."""
    return work["linux"].ns(THREADS[-1]) / work[design].ns(THREADS[-1])


def figure_14(bench: Bench) -> Iterator[Row]:
    """Key-value store: data guarded by mprotect."""
    private, shared = guarded_store(False), guarded_store(True)
    why = (
        "what part of the guarded data both threads of a process touch is not given: a shootdown is saved "
        "where only the caller's socket has the leaf table, from none to all of them"
    )
    for end in ("least", "most"):
        yield not_reproducible(PAPER[f"store-saved-{end}"], why)
    note = (
        "two mprotects per request, the published share of shootdowns saved (50 to 96 %), and 5 to 10 us for "
        "the rest of a request, an estimate"
    )
    saved = [PAPER[f"store-saved-{end}"].value / 100 for end in ("least", "most")]
    yield row(PAPER["store-hydra"], store_gain(private, shared, *saved), FITTED, note)
    slow = [(own + shared["linux"].busy) / (own + shared["mitosis"].busy) for own in REQUEST_NS]
    yield row(PAPER["store-mitosis"], pt.Interval(*sorted(slow)), DEFINITION, MORE)


def store_gain(private: dict[str, Work], shared: dict[str, Work], least: float, most: float) -> pt.Interval:
    """Throughput of Hydra over Linux when a share `least` to `most` of shootdowns is saved."""
    linux = shared["linux"].busy

    def at(own: float, saved: float) -> float:
        return (own + linux) / (own + (1 - saved) * shared["hydra"].busy + saved * private["hydra"].busy)

    return pt.Interval(
        at(REQUEST_NS.high, least), at(REQUEST_NS.middle, (least + most) / 2), at(REQUEST_NS.low, most)
    )


# Hydra, Figures 6, 7, 8: the price of laziness, migration, loading and execution.

WIDE = {"low": "I", "middle": "F-A", "high": "F"}  # Mitosis, Figure 9: configurations without and with +M
FOUR_SOCKETS = 0.75 * (580 / 280 - 1)  # remote share times stretch: 280 cycles local, 580 remote (Mitosis)
ENTRIES = 512  # of a table page: a single page table has 1 / 512 of the bytes that it maps
EXECUTION = 300.0  # s, section 5.5


def figure_6(bench: Bench) -> Iterator[Row]:
    """1 GB filled on a node, read once in random order on another."""
    (many, pages), (lone, _) = traversal(bench), traversal(bench, costs=alone())
    size = f"{pages >> 8} MiB on machine hydra-haswell"
    note = (
        f"{size}; every access waits for its walk, its data and its faults; an entry that this lone thread "
        "copies costs what the link takes (1.5 ns); the interval reaches to what many threads at once pay"
    )
    for degree, kind in ((9, MODELLED), (0, DEFINITION)):
        ours, most = lone[degree] / lone["mitosis"], many[degree] / many["mitosis"]
        yield row(PAPER[f"traversal-{degree}"], pt.Interval(ours, ours, most), kind, note)
    longer = sum(lone[degree] > lone[degree - 1] for degree in range(1, 10))
    yield row(PAPER["traversal-monotone"], longer, DEFINITION, note)


def figure_7(bench: Bench) -> Iterator[Row]:
    """A single thread and its data move; page tables were made where it started."""
    ns = migrated(bench)
    note = (
        "random reads, 64 per page, of 256 MiB with caches scaled as for 128 GiB; contended latencies, all "
        "exposed"
    )
    yield row(PAPER["migrated-linux"], ns["linux"] / ns["mitosis"], DEFINITION, note)
    yield row(PAPER["migrated-hydra"], ns[0] / ns[9], DEFINITION, note)
    yield row(PAPER["migrated-prefetching"], ns[9] / ns["mitosis"], MODELLED, note)


def figure_8(bench: Bench) -> Iterator[Row]:
    """Loading and execution of Canneal."""
    ns = loading()
    note = (
        "one thread faults every page in; 0.4 us of zeroing per page, nothing of the program's own, which "
        "would bring it nearer to 1"
    )
    yield row(PAPER["loading-mitosis"], ns["mitosis"] / ns["linux"], MODELLED, note)
    yield row(PAPER["loading-hydra"], ns["hydra"] / ns["linux"], DEFINITION, NONE)
    yield from execution()


def execution() -> Iterator[Row]:
    """Speed-ups of Canneal on 8 sockets from the public runs on 4."""
    mitosis = pt.Interval(**{which: eight_sockets(name) for which, name in WIDE.items()})
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
    own, *others = pt.load_machine("hydra-haswell").latency.idle[0]
    here = len(others) / (1 + len(others)) * (sum(others) / len(others) / own - 1)
    return 1 + added * here / FOUR_SOCKETS


def laziness() -> float:
    """Run time of Hydra over that of Mitosis: 1 plus the share of the threads' time that copies entries."""
    machine = pt.load_machine("hydra-haswell")
    gigabytes = PROGRAMS["Canneal"]
    results = footprint(gigabytes, sharing(gigabytes / ENTRIES, PAPER["canneal-hydra"].value))
    lazy = results["hydra"].management_cycles - results["linux"].management_cycles
    return 1 + lazy / (EXECUTION * machine.nodes * machine.ghz * 1e9)


# Hydra, Table 4 and its other statements on footprints.

PROGRAMS = {"Graph500": 160, "Btree": 110, "HashJoin": 145, "XSBench": 85, "Canneal": 110}  # GB, Table 3
EVERYTHING = {"XSBench"}  # section 5.2: every page table is replicated on every socket
CORES = 288


def table_4(bench: Bench) -> Iterator[Row]:
    """Page tables under Linux, Mitosis and Hydra, a replay at full size that touches each leaf table once."""
    for program, gigabytes in PROGRAMS.items():
        name = program.lower()
        published_bytes = PAPER[f"{name}-hydra"].value
        share = 1.0 if program in EVERYTHING else sharing(gigabytes / ENTRIES, published_bytes)
        results = footprint(gigabytes, share)
        note = "sizes of Table 3, all mapped by 4 KiB pages, GB as 2^30 bytes"
        yield row(PAPER[f"{name}-linux"], gib(results["linux"]), DEFINITION, note)
        yield row(PAPER[f"{name}-mitosis"], gib(results["mitosis"]), DEFINITION, note)
        if program in EVERYTHING:
            note = "every socket touches every leaf table, as section 5.2 says"
            yield row(PAPER[f"{name}-hydra"], gib(results["hydra"]), DEFINITION, note)
        else:
            note = f"sharing fitted on this: each other socket touches {100 * share:.1f} % of leaf tables"
            yield row(PAPER[f"{name}-hydra"], gib(results["hydra"]), FITTED, note)
    yield from overheads()


def overheads() -> Iterator[Row]:
    results = footprint(PROGRAMS["Canneal"], 0)
    note = "8 bytes of leaf entry per page of 4 KiB, and the tables above it"
    for design in ("linux", "mitosis"):
        share = 100 * gib(results[design]) / PROGRAMS["Canneal"]
        yield row(PAPER[f"overhead-{design}"], share, DEFINITION, note)


def radixvm(bench: Bench) -> Iterator[Row]:
    """A page table for each core."""
    share = 100 * CORES / ENTRIES
    note = "closed form: 288 copies of 8 bytes for each 4 KiB page, of memory that holds data"
    yield row(PAPER["radixvm"], share, DEFINITION, note)


FIGURES = {
    "Figure 1": figure_1,
    "Figure 2": figure_2,
    "Figure 6": figure_6,
    "Figure 7": figure_7,
    "Figure 8": figure_8,
    "Figure 9": figure_9,
    "Figure 10": figure_10,
    "Figure 11": figure_11,
    "Figure 12": figure_12,
    "Figure 13": figure_13,
    "Figure 14": figure_14,
    "Table 4": table_4,
    "section 7.0.3": radixvm,
}
