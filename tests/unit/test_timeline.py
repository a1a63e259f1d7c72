"""What happens over time: windows of a replay, and the NUMA-balancing schedule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptanalyze.analysis.replay import replay_walks, start
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_costs
from ptanalyze.core.trace import Event
from ptanalyze.kernels.steps import DATA, FLUSH, HINT, RUN, data_page, node_before, node_now
from ptanalyze.policies import plan_for
from ptanalyze.world.data_migration import moves_notes
from ptanalyze.world.mm_events import invalidations
from ptanalyze.world.moves import Moves, moves_from
from ptanalyze.world.thread_placement import move_threads
from replay_cases import HEAP, case, cases, world_of
from strategies import PAGE, REGION, Page, build_snapshot, build_trace, small_machine

pytestmark = pytest.mark.twin

COSTS = load_costs(None, "server-2020")


@settings(max_examples=30, deadline=None)
@given(cases(), st.integers(1, 5), st.sampled_from([1, 3, 1 << 20]))
def test_windows_add_up_to_the_whole_and_change_nothing(case, windows, batch):
    plain, cut = (start(plan_for("linux"), world_of(case)) for _ in range(2))
    for one, count in ((plain, 0), (cut, windows)):
        world = world_of(case)
        replay_walks([one], world, world.reads(batch), windows=count)
    assert all((a == b).all() for a, b in zip(plain.counters, cut.counters, strict=True))
    assert plain.series is None
    series = cut.series
    assert len(series.walks) == windows and series.walks.sum() == len(case.stream)
    assert (series.classes.sum(axis=0) == cut.counters.classes).all()
    assert (series.dram.sum(axis=(0, 1)) == cut.counters.reads[..., 1].sum(axis=0)).all()


def test_windows_are_of_equal_time():
    process = case(build_snapshot([(HEAP, 1)]), build_trace([(0, [HEAP] * n) for n in (5, 1, 3, 7, 2)]))
    world, one = world_of(process), start(plan_for("linux"), world_of(process))
    replay_walks([one], world, world.reads(), windows=2)
    assert one.series.time_ns.tolist() == [2000, 4000]
    assert one.series.walks.tolist() == [6, 12]


def stepped(trace, moves, cpus=None, text="0:1@50%", pages=8):
    """(World, steps) of one VMA of 8 pages on node 0."""
    vas = [HEAP + k * PAGE for k in range(pages)]
    snapshot = build_snapshot([(va, 1 + k) for k, va in enumerate(vas)], vmas=[(HEAP, HEAP + 8 * PAGE, "h")])
    process = case(snapshot, trace, 2, cpus)
    if text:
        process = process._replace(placement=move_threads(process.placement, trace, process.machine, text))
    world = world_of(process)
    vars(world)["moves"] = moves
    return world, world.history.steps


def passes(count, events=()):
    return build_trace([(0, [HEAP + k * PAGE for k in range(8)])] * count, events)


def test_a_scan_marks_so_much_each_period_and_what_is_walked_for_elsewhere_moves():
    two_pages = Moves(autonuma=True, delay_ms=0.004, scan_period_ms=0.001, scan_size_mb=2 / 256)
    steps = stepped(passes(8), two_pages)[1]
    data = steps.kind == DATA
    assert steps.at[data].tolist() == [33, 34, 43, 44, 53, 54, 63, 64], "walk 32 is the first after the move"
    assert data_page(steps, data)[1].tolist() == list(range(8))
    assert set(node_before(steps, data).tolist()) == {0} and set(node_now(steps, data).tolist()) == {1}
    assert np.count_nonzero(steps.kind == FLUSH) == 4 + 8, (
        "one per scan for its marks, one per page that moves"
    )


def test_a_further_run_scans_on_where_and_when_the_first_left_off():
    """Of 8 pages the first run scans 6, two each microsecond from its sixth on; the last are due soon."""
    slow = Moves(autonuma=True, delay_ms=0.005, scan_period_ms=0.001, scan_size_mb=2 / 256)
    world, steps = stepped(passes(8), slow, text="")
    marks = lambda steps: [  # noqa: E731
        (int(at) // 8, int(slot)) for at, slot in zip(steps.at, steps.lo, strict=True) if at % 8 == 0
    ]
    hints = lambda steps: type(steps)(*(column[steps.kind == HINT] for column in steps))  # noqa: E731
    assert marks(hints(steps)) == [(5, 0), (5, 1), (6, 2), (6, 3), (7, 4), (7, 5)]
    vars(world)["steady"] = world.steady._replace(chunk=0)
    again = marks(hints(world.again().history.steps))
    assert again[:2] == [(1, 6), (1, 7)] and {(2, 0), (2, 1), (3, 2)} <= set(again)


def test_a_huge_page_takes_its_size_of_a_scan_and_moves_as_one():
    """Two pages of 2 MiB between small ones, 2 MiB a scan: the second one waits for the next scan."""
    huge = [HEAP, HEAP + REGION]
    snapshot = build_snapshot([Page(va, 512 * (k + 1), 2) for k, va in enumerate(huge)])
    process = case(snapshot, build_trace([(0, huge)] * 6))
    moved = move_threads(process.placement, process.trace, process.machine, "0:1@50%")
    world = world_of(process._replace(placement=moved))
    vars(world)["moves"] = Moves(autonuma=True, delay_ms=0.003, scan_period_ms=0.001, scan_size_mb=2)
    steps = world.history.steps
    data = steps.kind == DATA
    assert steps.at[data].tolist() == [7, 10], "the first page in chunk 3, the second one in chunk 4"


def test_the_rate_limit_lets_so_many_pages_move():
    """Of 8 pages marked each microsecond, 1 GiB/s lets all move, a page a second one."""
    fast, slow = (
        Moves(autonuma=True, delay_ms=0, scan_period_ms=0.001, rate_limit_mb_s=rate)
        for rate in (1024, 1 / 256)
    )
    found = [np.count_nonzero(stepped(passes(8), moves)[1].kind == DATA) for moves in (fast, slow)]
    assert found == [8, 1]


def test_an_event_moves_what_it_says_and_drops_its_translations():
    event = (1, 0, Event.MOVE_PAGES, (HEAP + PAGE, 3 * PAGE, 1), 0)
    world, steps = stepped(passes(2, [event]), Moves(), text="")
    assert moves_notes(world)[0].startswith("1 events moved data before the capture was taken")
    data = steps.kind == DATA
    assert data_page(steps, data)[1].tolist() == [1, 2, 3] and set(steps.at[data].tolist()) == {8}
    assert np.count_nonzero(steps.kind == FLUSH) == 1
    dropped = invalidations(world.trace.events)
    assert (dropped["start"][0], dropped["end"][0]) == (HEAP + PAGE, HEAP + 4 * PAGE)


def test_an_event_that_names_a_node_the_machine_lacks_is_refused():
    with pytest.raises(UsageError, match=r"data moved to node 5: machine small has nodes 0\.\.1"):
        stepped(passes(2, [(1, 0, Event.MOVE_PAGES, (HEAP, PAGE, 5), 0)]), Moves(), text="")


def test_the_process_runs_where_most_of_its_live_threads_do():
    chunks = [(t, [HEAP]) for t in (0, 1, 2, 0, 1, 2)]
    exits = [(6, 1, Event.THREAD_EXIT, (), 0), (6, 2, Event.THREAD_EXIT, (), 0)]
    steps = stepped(build_trace(chunks, exits), Moves(), cpus=4, text="0:1@50%")[1]
    runs = steps.kind == RUN
    assert list(
        zip(
            steps.at[runs].tolist(),
            node_before(steps, runs).tolist(),
            node_now(steps, runs).tolist(),
            strict=True,
        )
    ) == [(3, 0, 1)], "two of three ran on node 0; thread 0's next chunk changes that"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"scan": "3"}, "scan = 3: no such setting; it has: by, delay_ms"),
        ({"scan_period_ms": "0"}, "scan_period_ms = 0: Expected `float` > 0"),
        ({"scan_size_mb": "inf"}, "scan_size_mb = inf: Expected `float` <= "),
        ({"delay_ms": "nan"}, "delay_ms = nan: "),
        ({"by": "both"}, "by = both: Invalid enum value"),
    ],
)
def test_settings_that_are_none_are_refused_in_one_line(setting, said):
    with pytest.raises(UsageError) as caught:
        moves_from(setting)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_native_capture_has_no_hypervisor_and_a_schedule_needs_times():
    with pytest.raises(UsageError, match="a native capture has no hypervisor"):
        stepped(passes(2), Moves(autonuma=True, by="host"))
    still = passes(2)
    still.chunks["time"] = 0
    with pytest.raises(UsageError, match="the trace has no times"):
        stepped(still, Moves(autonuma=True))


def test_a_flat_guest_leaves_moving_to_its_hypervisor():
    snapshot = build_snapshot([(HEAP, 1)], [])
    snapshot.facts["vm"] = {"numa_oblivious": True}
    trace = build_trace([(0, [HEAP])] * 4, [(0, 0, Event.ROI_START, (), 0)])
    result = replay_snapshot(
        snapshot,
        trace,
        [("linux", {})],
        Setup.of(
            machine=small_machine(2),
            costs=COSTS,
            threads_on="0",
            move_threads="0:1@50%",
            autonuma=Moves(autonuma=True, delay_ms=0, scan_period_ms=0.001),
        ),
    )[0]
    assert result.count("tables_moved") == result.table_pages == 4
    assert any(note.startswith("the hypervisor moves data") for note in result.notes)


def test_a_trace_too_short_for_the_schedule_says_so():
    trace = build_trace([(0, [HEAP]), (1, [HEAP])])
    lasts = np.ptp(trace.chunks["time"]) / 1e6
    late, soon = Moves(autonuma=True), Moves(autonuma=True, delay_ms=lasts / 2)
    world, _ = stepped(trace, late)
    assert any("no data moves; give a smaller delay_ms" in note for note in moves_notes(world))
    world, _ = stepped(trace, soon)
    assert not any("no data moves" in note for note in moves_notes(world))
