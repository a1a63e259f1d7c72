"""Data that move, NUMA hints, and what happens over time."""

import os
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import data_moves as naive
from naive.memory_manager import Memory
from naive.vmitosis_migrate import Migrating
from ptanalyze.analysis.replay import at_shares, replay_walks, start
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import Moves, load_costs, moves_from
from ptanalyze.core.trace import Event
from ptanalyze.cost.counts import DRAM, busy_ns
from ptanalyze.kernels import BALANCING, IPI, PTE_WRITE, VM_EXIT
from ptanalyze.kernels.data_migration import FAULTS
from ptanalyze.kernels.replay import DATA, FLUSH, HINT, HOST_DATA, RUN
from ptanalyze.policies import plan_for
from ptanalyze.world import page_homes
from ptanalyze.world.mm_events import UNNAMED, Linux
from ptanalyze.world.page_homes import by_host, moves_told
from ptanalyze.world.scenario import untouched
from ptanalyze.world.thread_placement import move_threads
from replay_cases import HEAP, Case, answered, both, case, cases, events, invalidations, reads_of, scenario_of
from strategies import PAGE, build_snapshot, build_trace, small_machine, snapshots

pytestmark = pytest.mark.twin

# What happens over time: windows of a replay, and the NUMA-balancing schedule.

COSTS = load_costs(None, "server-2020")


@settings(max_examples=30, deadline=None)
@given(cases(), st.integers(1, 5), st.sampled_from([1, 3, 1 << 20]))
def test_windows_add_up_to_the_whole_and_change_nothing(case, windows, batch):
    plain, cut = (start(plan_for("linux"), scenario_of(case)) for _ in range(2))
    for one, count in ((plain, 0), (cut, windows)):
        scenario = scenario_of(case)
        replay_walks([one], scenario, scenario.reads(batch), windows=count)
    assert all((a == b).all() for a, b in zip(plain.counters, cut.counters, strict=True))
    assert plain.series is None
    series = cut.series
    assert len(series.walks) == windows and series.walks.sum() == len(case.stream)
    assert (series.classes.sum(axis=0) == cut.counters.classes).all()
    own = at_shares(cut.counters.reads, case.machine.llc)[0]
    assert (series.dram.sum(axis=(0, 1)) == own[..., DRAM].sum(axis=0)).all()


def stepped(trace, moves, cpus=None, text="0:1@50%", pages=8):
    """(Scenario, steps) of one VMA of 8 pages on node 0."""
    vas = [HEAP + k * PAGE for k in range(pages)]
    snapshot = build_snapshot([(va, 1 + k) for k, va in enumerate(vas)], vmas=[(HEAP, HEAP + 8 * PAGE, "h")])
    process = case(snapshot, trace, 2, cpus)
    if text:
        process = process._replace(placement=move_threads(process.placement, trace, process.machine, text))
    scenario = scenario_of(process).keeping(moves=moves)
    return scenario, scenario.history.steps


def passes(count, events=(), threads=2):
    return build_trace([(0, [HEAP + k * PAGE for k in range(8)])] * count, events, threads)


def test_a_further_run_scans_on_where_and_when_the_first_left_off():
    """The first run scans 6 of 8 pages, two each microsecond from its sixth on; the last are due soon."""
    slow = Moves(autonuma=True, delay_ms=0.005, scan_period_ms=0.001, scan_size_mb=2 / 256)
    scenario, steps = stepped(passes(8), slow, text="")
    marks = lambda steps: [  # noqa: E731
        (int(at) // 8, int(slot)) for at, slot in zip(steps.at, steps.lo, strict=True) if at % 8 == 0
    ]
    hints = lambda steps: type(steps)(*(column[steps.kind == HINT] for column in steps))  # noqa: E731
    assert marks(hints(steps)) == [(5, 0), (5, 1), (6, 2), (6, 3), (7, 4), (7, 5)]
    again = marks(hints(scenario.steady_state().history.steps))
    assert again[:2] == [(1, 6), (1, 7)] and {(2, 0), (2, 1), (3, 2)} <= set(again)


def test_an_event_moves_what_it_says_and_drops_its_translations():
    event = (1, 0, Event.MOVE_PAGES, (HEAP + PAGE, 3 * PAGE, 1), 0)
    scenario, steps = stepped(passes(2, [event]), Moves(), text="")
    nested = SimpleNamespace(snapshot=SimpleNamespace(native=False))
    guest = SimpleNamespace(moves=Moves(), trace=scenario.trace, captured=nested)
    told, nested = (moves_told(program)[0] for program in (scenario, guest))
    assert told.code == nested.code and told.numbers["events"] == 1 and nested.text.startswith(told.text)
    data = steps.kind == DATA
    assert steps.lo[data].tolist() == [1, 2, 3] and set(steps.at[data].tolist()) == {8}
    assert np.count_nonzero(steps.kind == FLUSH) == 1
    dropped = invalidations(scenario.trace.events)
    assert (dropped["start"][0], dropped["end"][0]) == (HEAP + PAGE, HEAP + 4 * PAGE)


def test_an_event_that_names_a_node_the_machine_lacks_is_refused():
    with pytest.raises(UsageError, match=r"data moved to node 5: machine small has nodes 0\.\.1"):
        stepped(passes(2, [(1, 0, Event.MOVE_PAGES, (HEAP, PAGE, 5), 0)]), Moves(), text="")


def test_the_process_runs_where_most_of_its_live_threads_do():
    chunks = [(t, [HEAP]) for t in (0, 1, 2, 0, 1, 2)]
    exits = [(6, 1, Event.THREAD_EXIT, (), 0), (6, 2, Event.THREAD_EXIT, (), 0)]
    steps = stepped(build_trace(chunks, exits), Moves(), cpus=4, text="0:1@50%")[1]
    runs = steps.kind == RUN
    found = [column[runs].tolist() for column in (steps.at, steps.was, steps.to)]
    assert found == [[3], [0], [1]], "two of three ran on node 0; thread 0's next chunk changes that"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"scan": "3"}, "scan = 3: no such setting; it has: by, delay_ms"),
        ({"scan_period_ms": "0"}, "scan_period_ms = 0: must be at least 1e-09"),
        ({"scan_size_mb": "inf"}, "scan_size_mb = inf: must be at most "),
        ({"delay_ms": "nan"}, "delay_ms = nan: "),
        ({"by": "both"}, "by = both: Invalid enum value"),
    ],
)
def test_settings_that_are_none_are_refused_in_one_line(setting, said):
    with pytest.raises(UsageError) as caught:
        moves_from(setting)
    assert said in str(caught.value)


def test_a_native_capture_has_no_hypervisor_and_a_schedule_needs_times():
    with pytest.raises(UsageError, match="a native capture has no hypervisor"):
        stepped(passes(2), Moves(autonuma=True, by="host"))
    still = passes(2)
    still.chunks["time"] = 0
    with pytest.raises(UsageError, match="the trace has no times"):
        stepped(still, Moves(autonuma=True))


def executing(*chunks):
    """Passes of chunks of [thread, instructions], 1 us each by the recorder's clock."""
    trace = build_trace([(thread, [HEAP + k * PAGE for k in range(8)]) for thread, _ in chunks], threads=2)
    trace.chunks["instructions"] = [count for _, count in chunks]
    return trace


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("chunks", "timed", "pace"),
    [
        ([(0, 100)] * 9, None, 0.05),
        ([(0, 100)] * 9, {"user_seconds": 1e-6, "ghz": 2.0, "instructions": 1e3}, 0.1),
        ([(0, 100), (1, 100)] * 5, None, 0.025),
        ([(0, 1), *[(1, 100)] * 9, (0, 1)], None, 0.05),
        ([(0, 9000)] * 9, None, 1),
        ([(0, 0)] * 9, None, 1),
        ([(0, 100)], None, 1),
        ([], None, 1),
    ],
)
def test_native_time_is_the_busiest_threads(chunks, timed, pace):
    scenario, _ = stepped(executing(*chunks), Moves(), text="")
    scenario.captured.snapshot.facts["native"] = timed
    assert scenario.machine.ghz == 2.0 and scenario.pace == pytest.approx(pace)


@pytest.mark.compiled
def test_the_clock_of_synth_is_native():
    made = executing(*[(0, 100)] * 9)
    made.facts["tracer"] = "ptanalyze synth 1"
    assert stepped(made, Moves(), text="")[0].pace == 1


def test_scans_follow_native_time():
    """A period of native time is 20 chunks of 200 instructions in 100 ns each, that were recorded in 1 us."""
    each = Moves(autonuma=True, delay_ms=0.002, scan_period_ms=0.002, scan_size_mb=2 / 256)
    steps = stepped(executing(*[(0, 200)] * 90), each, text="")[1]
    assert set(steps.at[steps.kind == HINT] // 8) == {20, 40, 60, 80, 81}, "81: the last fault"


@pytest.mark.compiled
def test_a_run_that_natively_ends_before_the_first_mark_has_none():
    soon = Moves(autonuma=True, delay_ms=0.01, scan_period_ms=0.001)
    scenario, steps = stepped(executing(*[(0, 200)] * 90), soon)
    assert not (steps.kind == HINT).any()
    assert [note.code for note in moves_told(scenario)] == ["autonuma-too-late", "autonuma"]


def test_a_flat_guest_leaves_moving_to_its_hypervisor():
    snapshot = build_snapshot([(HEAP, 1)], [])
    snapshot.facts["vm"] = {"numa_oblivious": True}
    trace = build_trace([(0, [HEAP])] * 4, [(0, 0, Event.ROI_START, (), 0)])
    moves = Moves(autonuma=True, delay_ms=0, scan_period_ms=0.001)
    how = {"costs": COSTS, "threads_on": "0", "move_threads": "0:1@50%", "autonuma": moves}
    result = answered(snapshot, [("linux", {})], trace, **how)[0]
    assert result.count("tables_moved") == result.pages["guest"] == 4
    assert any(note.startswith("the hypervisor moves data") for note in result.notes)


def test_a_trace_too_short_for_the_schedule_says_so():
    trace = build_trace([(0, [HEAP]), (1, [HEAP])])
    late, soon = Moves(autonuma=True), Moves(autonuma=True, delay_ms=(np.ptp(trace.chunks["time"]) / 1e6) / 2)
    scenario, _ = stepped(trace, late)
    assert any("no data moves; give a smaller delay_ms" in note.text for note in moves_told(scenario))
    scenario, _ = stepped(trace, soon)
    assert not any("no data moves" in note.text for note in moves_told(scenario))


# Data that move, by events or by a schedule, and threads that move: every policy against its naive twin.

EXAMPLES = 25 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 60
BOTH = ("both", "gpt", "ept")
schedules = st.builds(
    Moves,
    autonuma=st.sampled_from([True, True, False]),
    delay_ms=st.sampled_from([0.0, 0.0, 0.0015]),
    scan_period_ms=st.sampled_from([0.0001, 0.0004, 0.001]),
    scan_size_mb=st.sampled_from([1 / 256, 4 / 256, 2.0, 64.0]),
    rate_limit_mb_s=st.sampled_from([0.0, 0.0, 2000.0]),
    by=st.sampled_from(["guest", "host"]),
)
WHEN = ["start", "never"]
migrate = st.fixed_dictionaries({"layers": st.sampled_from(BOTH), "verify": st.sampled_from(WHEN)})


@st.composite
def moving(draw, native):
    """A Case whose threads may move, and how its data do."""
    case = draw(cases(native, moving=True))
    nodes = case.machine.nodes
    if nodes > 1 and draw(st.booleans()):
        pairs = st.tuples(st.integers(0, nodes - 1), st.integers(1, nodes - 1), st.integers(0, 100))
        moves = draw(st.lists(pairs, min_size=1, max_size=2))
        text = ",".join(f"{a}:{(a + b) % nodes}@{share}%" for a, b, share in moves)
        case = case._replace(placement=move_threads(case.placement, case.trace, case.machine, text))
    hits = np.zeros((len(case.placement.cpu_node), 3), np.int64)
    case = Case(*case[:-1], type(case.stream)(case.stream.page, case.stream.write, case.stream.offset, hits))
    moves = draw(schedules)
    return case, moves if not native else msgspec.structs.replace(moves, by="guest")


def scenario_with(case, moves):
    return scenario_of(case).keeping(moves=moves)


def run(case, moves, name, params, batch=1 << 20):
    scenario = scenario_with(case, moves)
    done = start(plan_for(name, params), scenario)
    return done, scenario, replay_walks([done], scenario, scenario.reads(batch))


def assert_as_naive(case, moves, name, params, batch=1 << 20):
    reads = reads_of(case)
    if not reads:
        return
    found = naive.replay(name, params, case, reads[0][1], moves, by_host(scenario_with(case, moves)))
    done, scenario, mapped = run(case, moves, name, params, batch)
    count = done.counters
    if name == "vmitosis-migrate":  # the twin puts tables right as it begins
        all_in = (getattr(count, side) + getattr(done.before, side) for side in ("events", "host_events"))
        count = count._replace(**dict(zip(("events", "host_events"), all_in, strict=True)))
    kind = scenario.history.steps.kind
    assert np.count_nonzero(mapped.changed[(kind == DATA) | (kind == HOST_DATA)]) == found[5]
    after = scenario.data_after
    assert (0 if after is None else after.left.clock[FAULTS]) == found[7]
    assert events(count) == found[2]
    if name in ("linux", "vmitosis-migrate"):
        assert events(count, host=True) == found[3]
    assert count.pages.tolist() == found[4]
    for array, expected in ((count.classes, found[1]), (count.reads, found[0])):
        assert {tuple(at.tolist()): int(array[tuple(at)]) for at in np.argwhere(array)} == expected


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans(), params=migrate, batch=st.sampled_from([1, 3, 1 << 20]))
def test_migrated_tables_are_where_a_count_of_all_children_puts_them(data, native, params, batch):
    if native:
        params = {**params, "layers": "gpt"}
    assert_as_naive(*data.draw(moving(native)), "vmitosis-migrate", params, batch)


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(
    data=st.data(), native=st.booleans(), windows=st.integers(1, 4), batch=st.sampled_from([1, 3, 1 << 20])
)
def test_windows_count_where_the_data_of_each_walk_are(data, native, windows, batch):
    case, moves = data.draw(moving(native))
    reads = reads_of(case)
    if not reads:
        return
    found = naive.replay("linux", {}, case, reads[0][1], moves, by_host(scenario_with(case, moves)))[6]
    scenario = scenario_with(case, moves)
    done = start(plan_for("linux"), scenario)
    replay_walks([done], scenario, scenario.reads(batch), windows=windows)
    counted = done.data
    assert (counted.sum(axis=-1) == done.series.data.sum(axis=0)).all()
    assert {tuple(at.tolist()): int(counted[tuple(at)]) for at in np.argwhere(counted)} == dict(+found)
    assert done.series.data.sum() == done.series.walks.sum() == len(case.stream)
    assert done.series.data_remote.sum() == counted.sum() - np.trace(counted.sum(axis=-1))


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("linux", {}),
        ("mitosis", {}),
        ("mitosis", {"mode": "migrate"}),
        ("hydra", {"prefetch": 0}),
        ("hydra", {"prefetch": 3, "tlbflush": "all"}),
    ],
)
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans())
def test_every_policy_counts_what_its_twin_counts_while_threads_and_data_move(name, params, data, native):
    assert_as_naive(*data.draw(moving(native)), name, params)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.booleans().flatmap(moving), st.sampled_from([0, 1, 5]))
def test_steps_do_not_depend_on_how_many_are_found_at_a_time(found, few):
    one, moves = found
    whole = scenario_with(one, moves).history
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_homes, "BUFFER", few)
        parts = scenario_with(one, moves).history
    assert all((a == b).all() for a, b in zip(whole.steps, parts.steps, strict=True))
    assert (whole.shootdowns.live == parts.shootdowns.live).all()
    assert (np.diff(whole.steps.at) >= 0).all()


@settings(max_examples=EXAMPLES, deadline=None)
@given(snapshots(nodes=3), st.sampled_from(BOTH))
def test_put_right_at_once_every_table_is_on_the_node_of_most_of_its_children(snapshot, layers):
    if snapshot.native and layers == "ept":
        return
    one = case(snapshot, build_trace([]), 3)
    memory = Memory(snapshot, one.trace, one.space, one.placement, None)
    data = naive.Data(memory, one, Moves(), by_host=False)
    twin = Migrating(memory, one.space, 3, data, layers)
    scenario = untouched(snapshot, small_machine(3))
    run = start(plan_for("vmitosis-migrate", {"layers": layers}), scenario)
    split = scenario.space.guest_tables
    home, host_home = (getattr(state, "tables", state).home for state in run.states)
    assert [twin.home[data.key(t)] for t in range(split)] == home[:split].tolist()
    assert [twin.host[t] for t in sorted(twin.host)] == host_home[split:].tolist()[: len(twin.host)]
    assert events(run.before) == +twin.events
    assert events(run.before, host=True) == +twin.host_events


# Marking pages for NUMA hints rewrites entries: in every replica, by a VM exit each under shadow paging.

PAGES, NODES = 8, 2
ONCE = Moves(autonuma=True, delay_ms=0.002, scan_period_ms=1.0)  # in the third chunk, then no more


def balanced(policy, moves=ONCE, thread=0, passes=5, native=True, threads=2, linux=UNNAMED):
    """(Scenario, Counters): a thread of node `thread` goes through 8 pages on node 0, again and again."""
    vas = [HEAP + k * PAGE for k in range(PAGES)]
    entries = [(va, 1 + k) for k, va in enumerate(vas)]
    vmas = [(HEAP, HEAP + PAGES * PAGE, "h")]
    snapshot = build_snapshot(entries, vmas=vmas) if native else build_snapshot(entries, [], vmas=vmas)
    process = case(snapshot, build_trace([(thread, vas)] * passes, threads=threads), NODES)
    scenario = scenario_of(process).keeping(moves=moves, linux=linux)
    plan = plan_for(policy)
    shaped = plan.reshape(scenario)
    run = start(plan, shaped)
    replay_walks([run], shaped, shaped.reads())
    return shaped, run.counters


def of(counters, kind):
    return int(counters.events[BALANCING, kind].sum())


@pytest.mark.compiled
@pytest.mark.parametrize(("linux", "moved"), [(Linux(5, 12), PAGES), (Linux(5, 13), 0)])
def test_a_page_that_moves_is_shot_down_alone_by_older_kernels_and_marks_together(linux, moved):
    """change_prot_numa flushes a scan's range, ptep_clear_flush each page that the CPUs may have (5.12)."""
    scenario, _ = balanced("linux", thread=1, linux=linux)
    steps, shootdowns = scenario.history.steps, scenario.history.shootdowns
    before = steps.kind[np.flatnonzero(steps.kind == FLUSH) - 1].tolist()
    assert before == [HINT] + [DATA] * moved and np.count_nonzero(steps.kind == DATA) == PAGES
    assert shootdowns.single[-moved - 1 :].tolist() == [False] + [True] * moved
    stay, alone = balanced("linux")[0], balanced("linux", threads=1)[0]
    assert np.count_nonzero(stay.history.steps.kind == FLUSH) == 1
    assert not len(alone.history.steps.kind), "pages are where the only thread runs"


@pytest.mark.compiled
def test_under_shadow_paging_every_mark_and_every_restored_entry_is_an_exit():
    _, count = balanced("shadow", native=False)
    assert of(count, VM_EXIT) == 2 * PAGES


@pytest.mark.compiled
def test_a_hypervisor_s_marks_are_not_counted_and_the_note_says_so():
    by_host = Moves(autonuma=True, delay_ms=0.002, scan_period_ms=1.0, by="host")
    scenario, count = balanced("linux", by_host, native=False)
    assert not (scenario.history.steps.kind == HINT).any() and of(count, PTE_WRITE) == 0
    assert "its marks cost nothing" in moves_told(scenario)[0].text
    assert "a mark rewrites an entry in every copy" in moves_told(balanced("linux")[0])[0].text


@pytest.mark.compiled
def test_marks_have_the_price_of_a_rewritten_entry_and_their_shootdowns():
    costs = load_costs(None, "server-2020")
    (scenario, linux), (_, mitosis) = balanced("linux"), balanced("mitosis")
    ns = [busy_ns(both(count), scenario.machine, costs)[BALANCING] for count in (linux, mitosis)]
    assert of(linux, IPI) == 0, "nobody else runs"
    assert ns[0] == pytest.approx(2 * PAGES * costs.entry.rewrite.first)
    copies = 2 * PAGES * (NODES - 1) * (costs.entry.rewrite.copy + costs.copies_ns)
    assert ns[1] - ns[0] == pytest.approx(copies)
