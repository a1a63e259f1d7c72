"""What the memory manager does to page tables, and who owns what."""

import os
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from naive import memory_manager as naive
from naive.replay import live_cpus
from ptanalyze.analysis import replay
from ptanalyze.core.errors import UsageError
from ptanalyze.core.trace import Event
from ptanalyze.kernels.memory_manager import END, LINEAGE, PROT, carve, put, vma_map
from ptanalyze.policies import plan_for
from ptanalyze.world import history, mm_events
from ptanalyze.world.mm_events import regions_with_passed
from ptanalyze.world.thread_placement import LiveCpus
from replay_cases import HEAP, case, cases, events, invalidations, run, scenario_of
from strategies import FRAMES_PER_NODE, PAGE, REGION, Page, build_snapshot, build_trace

# What the memory manager does to entries, tables, VMAs and TLBs, under every policy that it concerns.

ANONYMOUS = 0x22


def process(happened, touches, nodes=2, pages=(), kernel="6.1"):
    snapshot = build_snapshot([(0x1000, 1), *pages], nodes=nodes, vmas=[(0, 2 * PAGE, "none")])
    snapshot = replace(snapshot, facts={"kernel": kernel})
    return case(snapshot, build_trace(touches, happened, nodes), nodes)


def mmap(chunk, thread, start, pages, flags=ANONYMOUS, prot=3):
    return chunk, thread, Event.MMAP, (0, pages * PAGE, prot, flags), start


def count(process, kind, name="hydra", **params):
    done = events(run(process, name, params).counters)
    return sum(n for key, n in done.items() if key[0] == kind)


def pages(start, number):
    return [start + k * PAGE for k in range(number)]


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
def test_adjacent_anonymous_mappings_of_one_owner_are_one_vma_to_prefetching(first, second, copied):
    """Node 2 copies the first page, and what of 16 lies in its VMA."""
    made = [mmap(0, of[0], HEAP + 8 * k * PAGE, 8, *of[1:]) for k, of in enumerate((first, second))]
    touches = [(0, pages(HEAP, 8)), (second[0], pages(HEAP + 8 * PAGE, 8)), (2, [HEAP])]
    assert events(run(process(made, touches, 3), "hydra").counters)["pte_copies", 2, 0] == copied


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
        ((Event.MADVISE, (HEAP, 2 * REGION, 4), 0), 1, 0),
        ((Event.MADVISE, (HEAP, 2 * REGION, 8), 0), 1, 1),
    ],
    ids=["munmap two", "munmap", "mprotect", "mprotect to the end",
         "mprotect two", "madvise two", "free two"],
)  # fmt: skip
def test_the_evaluated_kernel_filters_munmap_and_what_ends_before_its_table(event, single, kernel):
    assert (shot(event, "single"), shot(event, "munmap-all")) == (single, kernel)
    assert (shot(event, "off"), shot(event, "all")) == (1, 0)


@pytest.mark.parametrize(
    ("call", "many", "ipis"),
    [((Event.MUNMAP,), 9697, 1), ((Event.MUNMAP,), 9698, 2), ((Event.MADVISE, 4), 9698, 1),
     ((Event.MADVISE, 4), 9699, 2), ((Event.MPROTECT, 1), 9699, 1), ((Event.MUNMAP,), 16384, 2)],
)  # fmt: skip
def test_pages_that_are_freed_wait_for_a_shootdown_in_batches(call, many, ipis):
    """A 6.18 kernel sends 2, 4 and 7 to another CPU for 64, 128 and 256 MiB; tables that go come last."""
    event = (2, 0, call[0], (HEAP, many * PAGE, *call[1:]), 0)
    trace = process([mmap(0, 0, HEAP, many), event], [(0, pages(HEAP, many)), (1, [0x1000])])
    assert count(trace, "ipis", "linux") == count(trace, "ipis", "hydra", tlbflush="off") == ipis


# Which byte ranges the kernel takes translations away from.

M = 1 << 20


def ranges(*events):
    rows = invalidations(build_trace([], [(0, 0, *event) for event in events]).events)
    return [(int(r["event"]), int(r["start"]), int(r["end"])) for r in rows]


@pytest.mark.parametrize(
    ("kind", "arguments", "result", "expected"),
    [
        (Event.MUNMAP, (M, 5000), 0, [(M, M + 8192)]),
        (Event.MPROTECT, (M, 4096, 1), 0, [(M, M + 4096)]),
        (Event.MADVISE, (M, 4096, 4), 0, [(M, M + 4096)]),
        (Event.MADVISE, (M, 4096, 14), 0, []),  # MADV_HUGEPAGE changes no translation
        (Event.MMAP, (0, 4096, 3, 0x22), M, []),
        (Event.MMAP, (M, 4096, 3, 0x32), M, [(M, M + 4096)]),
        (Event.MMAP, (M, 4096, 3, 0x100032), M, []),
        (Event.MREMAP, (M, 8192, 16384, 1), 2 * M, [(M, M + 8192)]),
        (Event.MREMAP, (M, 8192, 16384, 1), M, []),
        (Event.MREMAP, (M, 8192, 4096, 0), M, [(M + 4096, M + 8192)]),
        (Event.MREMAP, (M, 4096, 8192, 3), 4 * M, [(4 * M, 4 * M + 8192), (M, M + 4096)]),
        # mremap_to of mm/mremap.c unmaps the target, then what is cut off, and moves the rest
        (
            Event.MREMAP,
            (M, 16384, 4096, 3),
            4 * M,
            [(4 * M, 4 * M + 4096), (M + 4096, M + 16384), (M, M + 4096)],
        ),
        (Event.MUNMAP, (M, 4096), -22, []),
        (Event.MMAP, (M, 4096, 3, 0x32), -12, []),
        (Event.MUNMAP, (M, 0), 0, []),
        (Event.MUNMAP, (M, (1 << 64) - 1), 0, []),  # longer than the address space: carried out by none
        (Event.ROI_START, (M, 4096), 0, []),
    ],
)
def test_an_event_invalidates_what_the_kernel_unmaps(kind, arguments, result, expected):
    assert ranges((kind, arguments, result)) == [(0, *one) for one in expected]


def test_a_shrinking_brk_is_measured_against_the_break_before_it():
    calls = [(0, 4 * M), (8 * M, 8 * M), (5 * M, 5 * M), (M, 5 * M)]
    assert ranges(*((Event.BRK, (asked,), found) for asked, found in calls)) == [(2, 5 * M, 8 * M)]


def test_events_outside_the_region_of_interest_take_nothing_away():
    unmap = (Event.MUNMAP, (M, 4096), 0)
    begin, end = ((kind, (), 0) for kind in (Event.ROI_START, Event.ROI_END))
    assert ranges(unmap, begin, unmap, end, unmap) == [(2, M, M + 4096)]
    assert ranges((Event.BRK, (), 4 * M), begin, (Event.BRK, (M,), M)) == [(2, M, 4 * M)]


# Where a Debian kernel 6.1.0-56, booted with two nodes under emulation, had data and tables: 128 MiB written
# by a CPU of node 1, then what the row says. It counts leaf tables and those above them (NR_PAGETABLE) of all
# processes, and higher ones only from 6.6 on. The two rows of a fork's children are not here: a trace follows
# one process.

SIZE, SLACK = 64 * REGION, 4 << 20  # as the program did, each mapping is 4 MiB larger than what is used
OVER = HEAP + (1 << 30)
NEXT, AFTER = OVER + (1 << 31), OVER + (1 << 31) + SIZE + 4 * SLACK
TO_0 = (1, 0, Event.MOVE_PAGES, (OVER, SIZE, 0), 0)


def emptied(size, advice=4, start=OVER):
    return 1, 0, Event.MADVISE, (start, size, advice), 0


def remapped(source, target):
    return 1, 0, Event.MREMAP, (source, SIZE, SIZE, 3), target


def hole(at):
    """Room for `remapped`, between mappings that keep the tables above it."""
    return mmap(1, 0, at, (SIZE + SLACK) // PAGE), (1, 0, Event.MUNMAP, (at, SIZE + 2 * PAGE), 0)


MOVED = [TO_0, *hole(NEXT), remapped(OVER, NEXT)]
SHIFTED = [*MOVED, *hole(AFTER), remapped(NEXT, AFTER + PAGE)]
AND_BACK = [TO_0, *hole(NEXT), remapped(OVER, NEXT + PAGE), remapped(NEXT + PAGE, OVER)]
MAPPED_AGAIN = [(1, 0, Event.MUNMAP, (OVER, SIZE + SLACK), 0), mmap(1, 0, OVER, SIZE // PAGE)]
ROWS = {  # events, place; by node: data of 2048 pages, kB of tables; kB of others: stacks, other programs
    "E1, E3, E4, E6 born on node 1": ([], OVER, (0, 2048), (0, 260), 0),
    "E1, E6 after cpuset.mems=0": ([TO_0], OVER, (2048, 0), (0, 260), 0),
    "E1 new memory": ([TO_0, mmap(1, 0, NEXT, SIZE // PAGE)], NEXT, (2048, 0), (260, 260), 0),
    "E2 on CPU of 0: set_mempolicy 1, mbind 0": ([TO_0], OVER, (2048, 0), (0, 260), 0),
    "E3 after move_pages to 0, thread on 0": ([TO_0], OVER, (952, 0), (0, 260), 0),
    "E3 after mremap at a multiple of 2 MiB": (MOVED, NEXT, (952, 0), (4, 260), 0),
    "E3 after mremap shifted by one page": (SHIFTED, AFTER + PAGE, (952, 0), (264, 4), 0),
    "E5 shared memfd born on node 1": ([], OVER, (0, 2048), (0, 284), 24),
    "E5 MADV_DONTNEED, touched on CPU of 0": ([emptied(SIZE)], OVER, None, (0, 284), 24),
    "E5 munmap, mmap, touched on CPU of 0": (MAPPED_AGAIN, OVER, None, (264, 20), 20),
    "E6 mremap away by one page and back": (AND_BACK, OVER, (2048, 0), (264, 4), 0),
    "E7 THP born on node 1": ([], OVER, (0, 480), (-60, 256), 60),
    "E7 THP after cpuset.mems=0": ([TO_0], OVER, (2048, 0), (-60, 256), 60),
    "E8 four threads, born on node 1": ([], OVER, (0, 2048), (0, 296), 36),
    "E8 after cpuset.mems=0": ([TO_0], OVER, (2048, 0), (0, 296), 36),
    "E8 after the repair from outside": (AND_BACK, OVER, (2048, 0), (340, 92), 88),
}  # fmt: skip


def placed(happened, at=OVER, size=SIZE, kernel="6.1.0-56-amd64", huge=False, policy="first-touch", **params):
    """(leaf tables, tables above, data of every 16th page) by node, touched by a CPU of node 0 in the end."""
    birth = [OVER + k * PAGE for k in range(0, size // PAGE, 512 if huge else 1)]
    used = [at + k * PAGE for k in range(0, size // PAGE, 16)]
    mapped = [
        Page(base, FRAMES_PER_NODE + 512 * k, 2) for k, base in enumerate(range(OVER, OVER + size, REGION), 1)
    ] * huge
    happened = [mmap(0, 1, OVER, (size + SLACK) // PAGE), *happened]
    found = process(happened, [(1, birth), (0, used)], pages=mapped, kernel=kernel)
    scenario, done = scenario_of(found), replay.start(plan_for(policy, params), scenario_of(found))
    exists = replay.replay_walks([done], scenario, scenario.reads(), data=True).exists
    tables, home = scenario.space.tables, done.states[0].home
    there = exists & (tables.base >= OVER) & (home >= 0)
    below, above = (np.bincount(home[there & (tables.level == k)], minlength=2).tolist() for k in (1, 2))
    return tuple(below), tuple(above), tuple(done.data[0].sum(axis=-1).tolist())


@pytest.mark.parametrize("row", ROWS)
def test_data_and_tables_lie_where_a_debian_kernel_had_them(row):
    """Each huge page has a table in deposit, on the node of its fault, that no walk reads. E2 is policy bind
    with data that mbind put elsewhere. E3 knew the nodes of 952 pages, E7 of 480. E5's data are of a file,
    whose pages outlive the mapping (ADR 28: here they are touched again)."""
    happened, at, data, kb, others = ROWS[row]
    huge = "THP" in row
    bound = {"policy": "bind", "node": 1} if "mempolicy" in row else {}
    below, above, used = placed(happened, at, huge=huge, **bound)
    ours = [4 * sum(tables) for tables in zip(below, above, (0, 64 * huge), strict=True)]
    assert max(abs(a - b) for a, b in zip(ours, kb, strict=True)) <= others
    assert sum(used) == 2048 and (data is None or [n > 0 for n in used] == [n > 0 for n in data])


@pytest.mark.parametrize(("kernel", "expected"), [
    ("6.13.12", (0, 2)), ("6.14.0", (2, 0)), ("6.18.44-fc-v669", (2, 0)), ("7.0.0-rc3", (2, 0)),
])  # fmt: skip
def test_from_6_14_on_memory_that_was_given_back_has_new_leaf_tables_where_it_is_touched(kernel, expected):
    """VmPTE of a process on 6.18 falls from 1,072 to 48 kB as MADV_DONTNEED empties 1 GiB."""

    def left(*happened):
        return placed(happened, size=2 * REGION, kernel=kernel)[0]

    assert left(emptied(2 * REGION)) == expected
    assert left(emptied(2 * REGION - PAGE)) == ((1, 1) if expected[0] else (0, 2)), "2 MiB must be whole"
    split = (1, 0, Event.MPROTECT, (OVER + PAGE, PAGE, 1), 0)
    assert left(split, emptied(2 * REGION))[1] >= 1, "and in one VMA"
    assert left(emptied(2 * REGION, advice=8)) == (0, 2), "MADV_FREE frees no table"


def test_a_process_on_more_than_three_cpus_sends_no_ipis_once_the_cpu_can_broadcast():
    def ipis(threads, kernel, invlpgb, then=()):
        touches = [(k, [HEAP + k * PAGE]) for k in range(threads)]
        protect = (threads, 0, Event.MPROTECT, (HEAP, PAGE, 1), 0)
        ends = [(threads, k, Event.THREAD_EXIT, (), 0) for k in then]
        found = process([mmap(0, 0, HEAP, 64), *ends, protect], touches, threads, kernel=kernel)
        machine = msgspec.structs.replace(found.machine, invlpgb=invlpgb)
        return count(found._replace(machine=machine), "ipis", "linux")

    assert ipis(5, "6.15.0", True) == 0
    assert ipis(5, "6.14.9", True) == ipis(5, "6.15.0", False) == 4
    assert ipis(3, "6.15.0", True) == 2, "on three CPUs there is no global ASID"
    assert ipis(5, "6.15.0", True, then=(3, 4)) == 0, "it is kept when threads end"
    assert ipis(5, "6.1", True, then=(3, 4)) == 2


@pytest.mark.parametrize(("asked", "captured", "found"), [
    ("", None, (6, 1)), ("", "6.18.44-fc-v669", (6, 18)), ("", "rubbish", (6, 1)),
    ("6.18", "5.10.0", (6, 18)), ("7.0-rc1", None, (7, 0)),
])  # fmt: skip
def test_the_kernel_is_the_one_asked_for_else_that_of_the_capture(asked, captured, found):
    assert mm_events.linux(asked, captured) == found


@pytest.mark.parametrize("asked", ["six", "6", "4.17", "-1.2", "6.x"])
def test_a_kernel_that_is_none_or_too_old_is_refused_in_one_line(asked):
    with pytest.raises(UsageError, match=f"--kernel {asked}: "):
        mm_events.linux(asked, "6.18")


# The interval map of VMAs against a dict with one item per page; live CPUs against a recount.

EDGES = 70 * 64  # three levels of bit maps
WHERE = st.one_of(st.integers(0, 20), st.integers(4080, 4110), st.integers(0, EDGES - 1))
RANGE = st.tuples(WHERE, WHERE).map(sorted)


def runs(pages, start, end):
    """[(first page, one past the last, what they hold)] of a dict with one item a page."""
    found = []
    for page in (page for page in range(start, end) if page in pages):
        begins = not found or found[-1][1:] != (page, pages[page])
        found.append((page, page + 1, pages[page]) if begins else (found.pop()[0], page + 1, pages[page]))
    return found


CALL = st.tuples(RANGE, st.sampled_from(["map", "unmap", "protect"]), st.integers(0, 3))


@pytest.mark.twin
@given(st.lists(CALL, max_size=8))
def test_pieces_are_the_runs_of_a_dict_of_pages(calls):
    vmas, pages = vma_map(np.arange(EDGES)), {}
    for number, ((start, end), what, prot) in enumerate(calls):
        there = runs(pages, start, end)
        carve(vmas, start, end)
        new = {"map": [(start, end, [number % 3, prot])] if start < end else [], "unmap": []}
        new = new.get(what, [(lo, hi, [lineage, prot]) for lo, hi, (lineage, _) in there])
        for lo, hi, piece in new:
            put(vmas, lo, hi, *piece)
        for page in range(start, end):
            pages.pop(page, None)
        pages |= {page: piece for lo, hi, piece in new for page in range(lo, hi)}
        begins = np.flatnonzero(np.unpackbits(vmas.begins[0].view(np.uint8), bitorder="little")).tolist()
        pieces = [(at, *vmas.edges[at, [END, LINEAGE, PROT]].tolist()) for at in begins]
        assert [(start, end, what) for start, end, *what in pieces] == runs(pages, 0, EDGES)


@pytest.mark.twin
@given(cases())
def test_live_cpus_are_those_of_threads_that_have_started_and_not_ended(case):
    trace, placement = case.trace, case.placement
    found, _ = LiveCpus(trace, placement).others(np.arange(len(trace.events)))
    for number, cpu in enumerate(placement.event_cpu.tolist()):
        assert found[number].tolist() == live_cpus(trace, placement, number, cpu, found.shape[1])


# Regions that mremap moved touched ones to.

ADDRESS = st.builds(
    lambda region, page: region * REGION + page * PAGE, st.integers(1, 8), st.integers(0, 511)
)
SIZE = st.sampled_from(
    [0, 1, PAGE, 16 * PAGE, REGION, REGION + PAGE, 3 * REGION, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
)
START = ADDRESS | st.sampled_from([(1 << 63) - PAGE, 1 << 63, (1 << 64) - PAGE])
RESULT = ADDRESS | st.sampled_from([-12, 0, (1 << 63) - PAGE])
MOVE = st.tuples(START, SIZE, SIZE, RESULT)


@pytest.mark.twin
@given(touched=st.lists(st.integers(1, 8), max_size=4, unique=True), moves=st.lists(MOVE, max_size=8))
@example(touched=[1], moves=[(REGION, (1 << 63) - 1, (1 << 63) - 1, REGION + PAGE)])
@example(touched=[2], moves=[(REGION + PAGE, 1 << 63, REGION, REGION)])
@example(touched=[1], moves=[(2 * REGION, PAGE, PAGE, 3 * REGION), (REGION, PAGE, PAGE, 2 * REGION)] * 2)
def test_as_the_moves_say_one_after_the_other(touched, moves):
    calls = [(0, 0, Event.MREMAP, (a, b, c, 1), result) for a, b, c, result in moves]
    trace = build_trace([(0, [region * REGION for region in touched])], calls)
    found = regions_with_passed(trace)
    assert found.dtype == np.uint64
    assert found.tolist() == naive.regions_with_passed(trace.regions.tolist(), trace.events)


# How steps are made does not show in them. What they are, test_replay asks tests/naive/memory_manager.

EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 30
LITTLE = {"STEPS_PER_CALL": 0, "ROOM": 0, "WALKS_AT_ONCE": 1, "WORTH_COMPILING": 0}


def arrays(history):
    """All of a History but the CPUs."""
    parts = [*history.steps, *history.shootdowns, history.vma_owner, *history.vmas]
    return [*parts, history.valid, history.exists, *history.last, history.home]


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans(), moving=st.booleans())
def test_steps_do_not_depend_on_compilation_nor_on_how_much_is_done_at_once(data, native, moving):
    case = data.draw(cases(native, moving))
    whole = scenario_of(case).history
    with pytest.MonkeyPatch.context() as changed:
        for name, value in LITTLE.items():
            changed.setattr(history, name, value)
        parts = scenario_of(case).history
    assert all(np.array_equal(*pair) for pair in zip(arrays(whole), arrays(parts), strict=True))
