"""What the memory manager does to entries, tables, VMAs and TLBs, under every policy that it concerns."""

import pytest

from ptanalyze.core.trace import Event
from ptanalyze.kernels.replay import FAULT
from replay_cases import HEAP, case, events, run
from strategies import PAGE, REGION, build_snapshot, build_trace

ANONYMOUS, FAR, FARTHER = 0x22, HEAP + (1 << 30), HEAP + (1 << 31)


def process(happened, touches, nodes=2, pages=()):
    snapshot = build_snapshot([(0x1000, 1), *pages], nodes=nodes, vmas=[(0, 2 * PAGE, "none")])
    return case(snapshot, build_trace(touches, happened, nodes), nodes)


def mmap(chunk, thread, start, pages, flags=ANONYMOUS, prot=3):
    return chunk, thread, Event.MMAP, (0, pages * PAGE, prot, flags), start


def count(process, kind, name="hydra", **params):
    done = events(run(process, name, params).counters)
    return sum(n for key, n in done.items() if key[0] == kind)


def pages(start, number):
    return [start + k * PAGE for k in range(number)]


@pytest.mark.parametrize("name", ["linux", "first-touch", "mitosis", "hydra"])
def test_a_buffer_moved_twice_keeps_pages_that_nobody_touched_in_between(name):
    moves = [
        mmap(0, 0, HEAP, 1024),
        (1, 0, Event.MREMAP, (HEAP, 2 * REGION, 2 * REGION, 1), FAR),
        (1, 0, Event.MREMAP, (FAR, 2 * REGION, 2 * REGION, 1), FARTHER),
    ]
    found = process(moves, [(0, pages(HEAP, 1024)), (0, pages(FARTHER, 1024))])
    assert run(found, name).counters.events[:, FAULT].sum() == 1024


def test_mprotect_to_the_protection_there_is_changes_nothing_and_interrupts_nobody():
    same = [mmap(0, 0, HEAP, 8), (2, 0, Event.MPROTECT, (HEAP, 8 * PAGE, 3), 0)]
    found = process(same, [(0, pages(HEAP, 8)), (1, pages(HEAP, 8))])
    assert count(found, "pte_writes", "linux") == 8
    assert count(found, "ipis", "linux") == 0


@pytest.mark.parametrize(("name", "copies"), [("linux", 1), ("mitosis", 3), ("hydra", 2)])
def test_mprotect_clears_and_sets_each_entry_in_every_copy(name, copies):
    """Threads on two of three nodes use the pages."""
    flip = [mmap(0, 0, HEAP, 8), (2, 0, Event.MPROTECT, (HEAP, 5 * PAGE, 1), 0)]
    touches = [(0, pages(HEAP, 8)), (1, pages(HEAP, 8))]
    with_it, without = process(flip, touches, 3), process(flip[:1], touches, 3)
    written = lambda of: count(of, "pte_writes", name) + count(of, "pte_fanout", name)  # noqa: E731
    assert written(with_it) - written(without) == 2 * 5 * copies


def test_a_page_that_is_new_in_a_shared_table_is_there_for_every_node_that_shares_it():
    touches = [(0, [HEAP]), (1, [HEAP]), (0, pages(HEAP, 9)), (1, pages(HEAP, 9))]
    found = process([mmap(0, 0, HEAP, 64)], touches)
    assert count(found, "replica_faults") == 1
    assert count(found, "pte_fanout") == 8


def test_a_page_that_mprotect_changed_is_there_for_every_node_that_shares_its_table():
    happened = [mmap(0, 0, HEAP, 64), (2, 0, Event.MPROTECT, (HEAP, 9 * PAGE, 1), 0)]
    found = process(happened, [(0, pages(HEAP, 9)), (1, [HEAP]), (1, pages(HEAP, 9))])
    assert count(found, "replica_faults", prefetch=0) == 1


def test_memory_that_another_node_moves_keeps_its_owner():
    happened = [mmap(0, 0, HEAP, 8), (1, 1, Event.MREMAP, (HEAP, 8 * PAGE, 8 * PAGE, 1), FAR)]
    found = process(happened, [(0, pages(HEAP, 8)), (0, pages(FAR, 8))])
    assert count(found, "replica_faults") == 0
    assert events(run(found, "hydra").counters)["pte_writes", 1, 0] == 16


def test_mremap_flushes_after_each_leaf_table_and_once_more_when_tables_go():
    happened = [mmap(0, 0, HEAP, 600), (2, 0, Event.MREMAP, (HEAP, 600 * PAGE, 600 * PAGE, 1), FAR)]
    found = process(happened, [(0, pages(HEAP, 600)), (1, [0x1000]), (0, pages(FAR, 600))])
    assert count(found, "ipis", "linux") == 3
    assert count(found, "ipis_saved", tlbflush="all") == 3


@pytest.mark.parametrize(
    ("first", "second", "copied"),
    [
        ((0, ANONYMOUS, 3), (0, ANONYMOUS, 3), 16),
        ((0, ANONYMOUS, 3), (1, ANONYMOUS, 3), 8),
        ((0, ANONYMOUS, 3), (0, ANONYMOUS, 1), 8),
        ((0, ANONYMOUS, 3), (0, 0x4022, 3), 8),
        ((0, 0x2, 3), (0, 0x2, 3), 8),
    ],
    ids=["as one", "owners", "protections", "MAP_NORESERVE", "files"],
)
def test_adjacent_anonymous_mappings_of_one_owner_are_one_vma_and_prefetching_crosses_them(
    first, second, copied
):
    """Node 2 copies the first page, and what of 16 lies in its VMA."""
    made = [
        mmap(0, thread, HEAP + 8 * k * PAGE, 8, flags, prot)
        for k, (thread, flags, prot) in enumerate((first, second))
    ]
    touches = [(0, pages(HEAP, 8)), (second[0], pages(HEAP + 8 * PAGE, 8)), (2, [HEAP])]
    done = events(run(process(made, touches, 3), "hydra").counters)
    assert done["pte_copies", 2, 0] == copied


def test_a_mapping_below_another_joins_it_and_one_that_was_moved_there_does_not():
    below = [mmap(0, 0, HEAP + 8 * PAGE, 8), mmap(0, 0, HEAP, 8)]
    touches = [(0, pages(HEAP, 16)), (1, [HEAP])]
    assert count(process(below, touches), "pte_copies") == 16
    moved = [
        mmap(0, 0, HEAP, 8),
        mmap(0, 0, FAR, 8),
        (0, 0, Event.MREMAP, (FAR, 8 * PAGE, 8 * PAGE, 3), HEAP + 8 * PAGE),
    ]
    assert count(process(moved, touches), "pte_copies") == 8


def shot(event, tlbflush):
    """IPIs of one event by a thread of node 0; nobody else uses the pages."""
    touches = [(0, pages(HEAP, 1024)), (1, [0x1000])]
    return count(process([mmap(0, 0, HEAP, 1024), (2, 0, *event)], touches), "ipis", tlbflush=tlbflush)


@pytest.mark.parametrize(
    ("event", "single", "kernel"),
    [
        ((Event.MUNMAP, (HEAP, 2 * REGION), 0), 1, 0),
        ((Event.MUNMAP, (HEAP, 5 * PAGE), 0), 0, 0),
        ((Event.MPROTECT, (HEAP, 5 * PAGE, 1), 0), 0, 0),
        ((Event.MPROTECT, (HEAP, REGION, 1), 0), 0, 1),
        ((Event.MPROTECT, (HEAP, 2 * REGION, 1), 0), 1, 1),
        ((Event.MADVISE, (HEAP, 2 * REGION, 4), 0), 1, 1),
    ],
    ids=["munmap two", "munmap", "mprotect", "mprotect to the end", "mprotect two", "madvise two"],
)
def test_the_evaluated_kernel_filters_munmap_of_any_width_and_others_that_end_before_their_table(
    event, single, kernel
):
    assert (shot(event, "single"), shot(event, "munmap-all")) == (single, kernel)
    assert (shot(event, "off"), shot(event, "all")) == (1, 0)


@pytest.mark.parametrize("touched", [pages(HEAP, 512), pages(HEAP + REGION, 4), [HEAP + REGION - PAGE]])
def test_mprotect_over_two_leaf_tables_interrupts_the_sharers_of_the_only_one_it_changes(touched):
    """Nodes 0 and 2 share it, node 1 runs beside them."""
    happened = [mmap(0, 0, HEAP, 1024), (3, 0, Event.MPROTECT, (HEAP, 2 * REGION, 1), 0)]
    found = process(happened, [(0, touched), (2, touched[:1]), (1, [0x1000])], 3)
    ipis, saved = (count(found, kind, tlbflush="single") for kind in ("ipis", "ipis_saved"))
    assert (ipis, saved) == (1, 1)
    assert count(found, "ipis", tlbflush="munmap-all") == 2


def test_unmapping_pages_that_are_gone_still_flushes_because_tables_go():
    gone = [
        mmap(0, 0, HEAP, 8),
        (2, 0, Event.MADVISE, (HEAP, 8 * PAGE, 4), 0),
        (2, 0, Event.MUNMAP, (HEAP, 8 * PAGE), 0),
    ]
    found = process(gone, [(0, pages(HEAP, 8)), (1, [0x1000])])
    assert count(found, "ipis", "linux") == 2
