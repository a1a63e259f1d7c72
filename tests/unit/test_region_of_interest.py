"""Where a region of interest begins and ends, and that nothing outside it is walked, replayed or priced."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_world
from ptanalyze.core.errors import CaptureError
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import EVENT_DTYPE, Event, Scratch, pieces
from ptanalyze.formats.trace import read_trace
from ptanalyze.policies import plan_for
from ptanalyze.world.captured_world import captured_world
from ptanalyze.world.mm_events import region_of_interest, within_region
from ptanalyze.world.world import World
from replay_cases import HEAP, case, world_of
from strategies import PAGE, build_snapshot, build_trace, place, small_machine
from trace_copy import without_calls_outside, write_trace

pytestmark = pytest.mark.twin

COSTS = load_costs(load_machine("vmitosis-cascade-lake"))
BEGIN, END, CALL = Event.ROI_START, Event.ROI_END, Event.MUNMAP


def events_of(*kinds):
    events = np.zeros(len(kinds), EVENT_DTYPE)
    events["kind"] = kinds
    return events


@pytest.mark.parametrize(
    ("kinds", "begin", "end", "said"),
    [
        ((), None, 0, ""),
        ((CALL, CALL), None, 2, ""),
        ((CALL, BEGIN, CALL, END, CALL), 1, 3, ""),
        ((BEGIN, END, CALL, BEGIN, END, CALL), 0, 4, ""),
        ((CALL, BEGIN, CALL), 1, 3, "never ends"),
        ((BEGIN, END, BEGIN, CALL), 0, 4, "never ends"),
        ((END, CALL, BEGIN, CALL), 2, 4, "ends before it begins"),
        ((CALL, END, CALL), None, 1, "never begins"),
    ],
)
def test_the_region_is_from_its_first_start_to_its_last_end(kinds, begin, end, said):
    region = region_of_interest(events_of(*kinds))
    assert (region.begin, region.end) == (begin, end)
    assert len(region.notes) == bool(said) and said in "".join(region.notes)


def results(*events):
    """Of one thread that touches two mapped pages within its region, and of another on another node."""
    snapshot = build_snapshot([(HEAP + k * PAGE, 1000 + k) for k in range(2)], nodes=2)
    chunks = [(0, [HEAP, HEAP + PAGE]), (1, [HEAP])]
    world = world_of(case(snapshot, build_trace(chunks, [(0, 0, BEGIN, (), 0), *events], 2), 2))
    plans = [plan_for(name) for name in ("linux", "mitosis", "hydra")]
    return replay_world(world, plans, Setup.of(machine=small_machine(2), costs=COSTS))


def test_teardown_after_the_region_changes_no_count_and_no_price():
    end, teardown = (2, 0, END, (), 0), (2, 0, CALL, (HEAP, 2 * PAGE), 0)
    without, after, inside = results(end), results(end, teardown), results(teardown, end)
    for quiet, torn, priced in zip(without, after, inside, strict=True):
        assert (quiet.calls == torn.calls).all()
        assert quiet.price == torn.price and quiet.table_pages == torn.table_pages
        assert torn.price.system_calls == ()
        assert [call.call for call in priced.price.system_calls] == ["munmap"]
        assert priced.price.management_cycles > torn.price.management_cycles


def test_a_region_that_never_ends_is_said_to():
    assert any("never ends" in note for note in results()[0].notes)
    assert not any("never ends" in note for note in results((2, 0, END, (), 0))[0].notes)


def both_runs(world):
    """[page, entries read, entries from DRAM] of each walk, of the first run and of the further one."""
    caches, found = world.caches(), []
    for run in (world, world.again()):
        found += [
            np.concatenate([np.zeros(0, np.int64), *(getattr(reads, name) for _, reads in batches)])
            for batches in [list(run.reads(caches=caches))]
            for name in ("page", "read", "dram")
        ]
    return found


def equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


CALLS = st.lists(
    st.tuples(
        st.sampled_from([Event.MUNMAP, Event.MPROTECT, Event.MADVISE]), st.integers(0, 30), st.integers(1, 60)
    ),
    max_size=3,
)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), before=CALLS, inside=CALLS, after=CALLS)
def test_calls_outside_the_region_change_no_walk_wherever_its_own_are(data, before, inside, after):
    called = lambda chunk, calls: [  # noqa: E731
        (chunk, 0, kind, (HEAP + PAGE * first, PAGE * pages, 4), 0) for kind, first, pages in calls
    ]
    chunks = [
        (t % 2, [HEAP + PAGE * k for k in data.draw(st.lists(st.integers(0, 40), max_size=12))])
        for t in range(4)
    ]
    own = called(data.draw(st.integers(0, 4)), inside)
    events = [*called(0, before), (0, 0, BEGIN, (), 0), *own, (4, 0, END, (), 0), *called(4, after)]
    snapshot = build_snapshot([(HEAP + k * PAGE, 1000 + k) for k in range(41)], nodes=2)
    trace = build_trace(chunks, events, 2)
    found = [
        both_runs(World(snapshot, one, small_machine(2), place(one, 2, 2)))
        for one in (trace, without_calls_outside(trace))
    ]
    assert equal(*found)


def page_numbers(trace, least):
    touches = [piece.decode(Scratch()) for piece in pieces(trace.batches(least))]
    number = [trace.regions[t.page >> 9].astype(np.int64) << 9 | t.page & 511 for t in touches]
    return [t.chunks for t in touches], np.concatenate(number).tolist()


@pytest.mark.parametrize("least", [1, 7, 1000])
@pytest.mark.parametrize("decoded", [True, False])
def test_touches_outside_the_region_are_left_out(tmp_path, least, decoded):
    chunks = [(k % 2, [HEAP + PAGE * (5 * k + n) for n in range(5)]) for k in range(6)]
    call = lambda at: (at, 1, CALL, (HEAP, PAGE), 0)  # noqa: E731
    events = [call(0), call(1), (2, 0, BEGIN, (), 0), call(3), (4, 0, END, (), 0), call(5), call(6)]
    trace = build_trace(chunks, events)
    trace.events["time"] = 1000 * trace.events["chunk"]
    if not decoded:
        write_trace(tmp_path / "t.ptt", trace)
        trace = read_trace(tmp_path / "t.ptt")
    part = within_region(trace)
    runs, pages = page_numbers(part, least)
    assert pages == [(HEAP >> 12) + n for n in range(10, 20)]
    assert [k for run in runs for k in range(run.start, run.stop)] == [0, 1]
    assert part.chunks["first"].tolist() == [0, 5] and part.accesses == 10
    assert part.events["kind"].tolist() == trace.events["kind"].tolist()
    assert part.events["chunk"].tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert within_region(part) is part


def test_a_world_has_the_walks_of_the_region_alone():
    pages = [HEAP + PAGE * k for k in range(8)]
    snapshot = build_snapshot([(va, 1000 + k) for k, va in enumerate(pages)], nodes=2)
    trace = build_trace([(0, pages), (0, pages[:3]), (0, pages)], [(1, 0, BEGIN, (), 0), (2, 0, END, (), 0)])
    world = captured_world(snapshot, trace, small_machine(2))
    assert len(world.stream) == 3 and int(world.hits.sum()) == 3


def test_a_region_without_touches_is_refused():
    trace = build_trace([(0, [HEAP])], [(1, 0, BEGIN, (), 0)])
    with pytest.raises(CaptureError, match="all 1 touches lie outside it"):
        captured_world(build_snapshot([(HEAP, 1)]), trace, small_machine(2))
