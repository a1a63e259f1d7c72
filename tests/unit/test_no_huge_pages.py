"""Memory that a program forbids huge pages stays 4 KiB under thp."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cold_walks import COSTS
from naive.no_huge_pages import HUGE, NO_HUGE, forbidden_pages
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.trace import Event
from ptanalyze.show.first_screen import table
from ptanalyze.world.no_huge_pages import forbidden, overlap
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
        st.tuples(ADDRESS, LENGTH, st.sampled_from([NO_HUGE, NO_HUGE, HUGE, 4])),
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
    found = forbidden(events)
    assert (np.diff(found.reshape(-1).astype(np.int64)) > 0).all()
    pages = {page for start, end in found.tolist() for page in range(start // PAGE, end // PAGE)}
    assert pages == forbidden_pages(events)


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


def thp(calls, regions=4, host=None, **params):
    """thp's Result of `regions` full regions from 1 GiB on in one VMA."""
    pages = [(GIB + k * PAGE, 2048 + k) for k in range(512 * regions)]
    snapshot = build_snapshot(pages, host, vmas=[(GIB, GIB + regions * REGION, "")])
    trace = build_trace([(0, [GIB])], [(0, 0, *call) for call in calls])
    setup = Setup.of(
        cold=True, machine=small_machine(2), costs=COSTS, threads_on="round-robin", baseline="linux"
    )
    return replay_snapshot(snapshot, trace, [("thp", params)], setup)[-1]


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
