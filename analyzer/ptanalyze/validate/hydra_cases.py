"""Hydra, Figures 11 to 14: allocators, a web server, a key-value store."""

from collections.abc import Iterator
from functools import cache

from ..core.interval import Interval
from .allocators import allocations
from .bench import Bench
from .locking import Work
from .published import published
from .row import FITTED, MODELLED, Row, not_reproducible, row
from .servers import THREADS, guarded_store, web_server

PAPER = published("hydra")
ON = (1, 2, 4, 8)  # sockets, a thread each
REQUEST_NS = Interval(5000.0, 7500.0, 10000.0)  # 100 to 200 thousand requests per second and thread

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
    fast = Interval(
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
    yield row(PAPER["web-shootdowns"], Interval(min(saved), saved[-1], max(saved)), MODELLED, note)
    bound = gain(work, "hydra")
    why = (
        "what a request takes outside these calls is not given; ours is for none, where the lock on the "
        "mappings is all that counts, and falls towards 1 with more"
    )
    for end in ("least", "most"):
        yield not_reproducible(PAPER[f"web-throughput-{end}"], why, Interval(1.0, bound, bound))
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
    yield row(PAPER["store-mitosis"], Interval(*sorted(slow)), MODELLED, note)


def store_gain(private: dict[str, Work], shared: dict[str, Work], least: float, most: float) -> Interval:
    """Throughput of Hydra over Linux when a share `least` to `most` of shootdowns is saved."""
    linux = shared["linux"].busy

    def at(own: float, saved: float) -> float:
        return (own + linux) / (own + (1 - saved) * shared["hydra"].busy + saved * private["hydra"].busy)

    return Interval(
        at(REQUEST_NS.high, least), at(REQUEST_NS.middle, (least + most) / 2), at(REQUEST_NS.low, most)
    )
