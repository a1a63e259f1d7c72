"""Memory that a program forbids huge pages stays 4 KiB under thp."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cold_walks import COSTS
from naive.no_huge_pages import COLLAPSE, HUGE, MARKS, NO_HUGE, marked_pages
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.trace import Event
from ptanalyze.show.whatif import table
from ptanalyze.world.huge_pages import advice, overlap, within
from strategies import PAGE, REGION, build_snapshot, build_trace, small_machine

pytestmark = pytest.mark.twin

GIB = 1 << 30
TOP = 64
ADDRESS = st.integers(1, TOP).map(lambda page: page * PAGE)
LENGTH = st.integers(0, 12 * PAGE)


def event(kind, arguments, result):
    return st.tuples(st.just(kind), arguments, result)


CALLS = st.one_of(
    event(
        Event.MADVISE,
        st.tuples(ADDRESS, LENGTH, st.sampled_from([NO_HUGE, NO_HUGE, HUGE, HUGE, COLLAPSE, COLLAPSE, 4])),
        st.sampled_from([0, 0, -12, -22]),
    ),
    event(Event.MMAP, st.tuples(ADDRESS, LENGTH), ADDRESS | st.just(-12)),
    event(Event.MUNMAP, st.tuples(ADDRESS, LENGTH), st.just(0)),
    event(Event.MREMAP, st.tuples(ADDRESS, LENGTH, LENGTH), ADDRESS | st.just(-12)),
    event(Event.BRK, st.tuples(ADDRESS), ADDRESS),
)


def events_of(calls):
    return build_trace([], [(0, 0, *call) for call in calls]).events


@settings(max_examples=400, deadline=None)
@given(st.lists(CALLS, max_size=12))
def test_the_marked_pages_are_those_of_the_naive_twin(calls):
    events = events_of(calls)
    for mark in MARKS:
        found = getattr(advice(events), mark)
        assert (np.diff(found.reshape(-1).astype(np.int64)) > 0).all()
        pages = {page for start, end in found.tolist() for page in range(start // PAGE, end // PAGE)}
        assert pages == marked_pages(events, mark)


@given(
    st.lists(st.integers(1, 60), max_size=8, unique=True).map(sorted),
    st.lists(st.integers(0, 60), min_size=1),
    st.integers(1, 9),
)
def test_regions_overlap_ranges_as_sets_of_pages_do(bounds, bases, length):
    ranges = np.array(bounds[: len(bounds) // 2 * 2], np.uint64).reshape(-1, 2)
    marked = {page for start, end in ranges.tolist() for page in range(start, end)}
    got = overlap(np.array(bases, np.uint64), length, ranges).tolist()
    assert got == [not marked.isdisjoint(range(base, base + length)) for base in bases]
    inside = within(np.array(bases, np.uint64), length, ranges).tolist()
    assert inside == [marked.issuperset(range(base, base + length)) for base in bases]


def thp(calls, regions=4, host=None, **params):
    return results(calls, regions, host, **params)[-1]


def results(calls, regions=4, host=None, tracer="", allowed=None, cold=True, **params):
    """[linux's, thp's Result] of `regions` full regions from 1 GiB on in one VMA, a page of each touched."""
    pages = [(GIB + k * PAGE, 2048 + k) for k in range(512 * regions)]
    snapshot = build_snapshot(pages, host, vmas=[(GIB, GIB + regions * REGION, "")])
    snapshot = replace(snapshot, facts={"huge_pages": allowed} if allowed else {})
    touched = [GIB + k * REGION for k in range(regions)]
    trace = build_trace([(0, touched)], [(0, 0, *call) for call in calls])
    trace = replace(trace, facts={**trace.facts, "tracer": tracer})
    setup = Setup.of(
        cold=cold, machine=small_machine(2), costs=COSTS, threads_on="round-robin", baseline="linux"
    )
    return replay_snapshot(snapshot, trace, [("thp", params)], setup)


def advised(start, length, advice=NO_HUGE, result=0):
    return Event.MADVISE, (GIB + start, length, advice), result


@pytest.mark.parametrize(
    ("calls", "promoted"),
    [
        ([], 4),
        ([advised(0, 4 * REGION)], 0),
        ([advised(REGION, REGION)], 3),
        ([advised(REGION + 7 * PAGE, PAGE)], 3),
        ([advised(REGION - PAGE, 2 * PAGE)], 2),
        ([advised(0, 4 * REGION, result=-22)], 4),
        ([advised(0, 4 * REGION), advised(0, 2 * REGION, HUGE)], 2),
        ([advised(0, 4 * REGION), (Event.MMAP, (0, REGION, 3, 0x22), GIB)], 1),
        ([advised(0, 4 * REGION), (Event.MUNMAP, (GIB, 4 * REGION), 0)], 0),
    ],
)
def test_what_is_forbidden_stays_small_and_is_counted_and_said(calls, promoted):
    result = thp(calls)
    assert result.facts["regions_promoted"] == promoted
    assert result.facts.get("regions_forbidden", 0) == 4 - promoted
    said = [note for note in result.notes if "MADV_NOHUGEPAGE" in note]
    assert said == (
        [f"thp: {2 * (4 - promoted)} MiB are MADV_NOHUGEPAGE: thp leaves them alone"] if promoted < 4 else []
    )


def test_a_guests_advice_does_not_bind_its_host():
    result = thp([advised(0, 4 * REGION)], host=[])
    assert result.facts["regions_promoted"] == 0 and result.facts["ept_regions_promoted"] >= 4


def test_only_what_could_be_huge_counts_as_forbidden():
    beside = [advised(GIB, 8 * REGION)]
    assert "regions_forbidden" not in thp(beside).facts
    assert thp([advised(0, REGION)], fragmentation=1).facts["regions_left_by_fragmentation"] == 3


def test_the_first_screen_says_how_much_thp_leaves_alone():
    result = thp([advised(0, 4 * REGION)])
    base = replace(result, policy="linux")
    lines = [str(line) for section in table({"linux": base, "thp": result}) for line in section.lines]
    assert "thp: 8 MiB are MADV_NOHUGEPAGE: thp leaves them alone." in lines


QEMU = "qemu-user plugin, API 1"
ASKED, COLLAPSED = advised(0, 3 * REGION, HUGE), advised(REGION, REGION, COLLAPSE)


@pytest.mark.parametrize(
    ("calls", "allowed", "huge", "more"),
    [
        ([ASKED], "madvise", 3, 1),
        ([ASKED], "always", 3, 1),
        ([ASKED], None, 3, 1),
        ([ASKED], "never", 0, 4),
        ([ASKED], "forbidden", 0, 0),
        ([COLLAPSED], "never", 1, 3),
        ([COLLAPSED], "forbidden", 0, 0),
        ([ASKED, COLLAPSED], "madvise", 3, 1),
        ([ASKED, advised(0, REGION)], "madvise", 2, 1),
        ([advised(PAGE, 3 * REGION, HUGE)], "madvise", 2, 2),
        ([advised(0, 4 * REGION, HUGE, result=-22)], "madvise", 0, 4),
    ],
)
def test_what_the_program_asked_for_and_the_machine_gives_is_huge_in_the_baseline(calls, allowed, huge, more):
    linux, thp = results(calls, tracer=QEMU, allowed=allowed)
    assert linux.single_copy == 3 + 4 - huge and thp.facts["regions_promoted"] == more
    assert linux.count("pages_zeroed") == 512 * huge + 4 - huge
    said = [note for note in linux.notes if f"{2 * huge} MiB have huge pages under every policy" in note]
    assert len(said) == (huge > 0) and all(("taken for granted" in note) == (not allowed) for note in said)


def test_what_a_program_has_already_thp_does_not_gain():
    linux, thp = results([advised(0, 4 * REGION, HUGE)], tracer=QEMU, allowed="madvise", cold=False)
    assert thp.price.speedup.middle == 1 and thp.facts["regions_promoted"] == 0
    assert (linux.walks, linux.reads.sum()) == (thp.walks, thp.reads.sum())


def test_tables_of_a_program_that_ran_natively_are_what_it_had():
    linux, thp = results([ASKED], tracer="Pin 3.31", allowed="madvise")
    assert linux.single_copy == 3 + 4 and thp.facts["regions_promoted"] == 4


def prctl(a, b=0):
    return Event.THP_DISABLE, (a, b), -22


@pytest.mark.parametrize(
    ("calls", "allowed"), [([], "forbidden"), ([prctl(1)], "madvise"), ([prctl(0), prctl(1)], None)]
)
def test_a_process_without_huge_pages_by_prctl_gets_none_and_that_is_said(calls, allowed):
    linux, thp = results([*calls, ASKED], allowed=allowed, tracer=QEMU)
    assert linux.single_copy == 3 + 4
    assert thp.facts["regions_forbidden"] == 4
    assert "thp: 8 MiB are PR_SET_THP_DISABLE: thp leaves them alone" in thp.notes


@pytest.mark.parametrize("calls", [[prctl(1), prctl(0)], [prctl(1, 2)]])
def test_prctl_taken_back_or_but_for_what_is_advised_forbids_nothing_that_is_advised(calls):
    linux, _ = results([*calls, ASKED], allowed="madvise", tracer=QEMU)
    assert linux.single_copy == 3 + 4 - 3


def test_memory_that_was_gone_when_its_tables_were_read_makes_the_answer_careful():
    """NumPy asks huge pages for arrays that it frees before the end."""
    snapshot = build_snapshot([(GIB, 2048)], vmas=[(GIB, GIB + REGION, "")])
    calls = [(0, 0, Event.MADVISE, (2 * GIB, 2 * REGION, HUGE), 0)]
    trace = build_trace([(0, [GIB, 2 * GIB, 2 * GIB + REGION])], calls)
    trace = replace(trace, facts={**trace.facts, "tracer": QEMU})
    linux, thp = replay_snapshot(
        snapshot, trace, [("thp", {})], Setup.of(machine=small_machine(2), costs=COSTS, baseline="linux")
    )
    for result in (linux, thp):
        said, *_ = result.careful
        assert said.startswith("4 MiB stay 4 KiB here that are huge without the emulator (MADV_HUGEPAGE)")
