"""Data that move, by events or by a schedule, and threads that move: every policy against its naive twin."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import data_moves as naive
from naive.memory_manager import Memory
from naive.vmitosis_migrate import Migrating
from ptanalyze.analysis.replay import replay_walks, start
from ptanalyze.kernels.steps import DATA, HOST_DATA
from ptanalyze.policies import plan_for
from ptanalyze.world import data_migration
from ptanalyze.world.data_migration import by_host
from ptanalyze.world.moves import Moves
from ptanalyze.world.thread_placement import move_threads
from ptanalyze.world.world import untouched
from replay_cases import Case, case, cases, events, reads_of, world_of
from strategies import build_trace, small_machine, snapshots

pytestmark = pytest.mark.twin

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
migrate = st.fixed_dictionaries(
    {"layers": st.sampled_from(BOTH), "verify": st.sampled_from(["start", "never"])}
)


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
    return case, moves if not native else Moves(**{**as_dict(moves), "by": "guest"})


def as_dict(moves):
    return {name: getattr(moves, name) for name in moves.__struct_fields__}


def world_with(case, moves):
    world = world_of(case)
    vars(world)["moves"] = moves
    return world


def run(case, moves, name, params, batch=1 << 20):
    world = world_with(case, moves)
    done = start(plan_for(name, params), world)
    mapped = replay_walks([done], world, world.reads(batch))
    return done, world, mapped


def assert_as_naive(case, moves, name, params, batch=1 << 20):
    reads = reads_of(case)
    if not reads:
        return
    host_moves = by_host(world_with(case, moves))
    found = naive.replay(name, params, case, reads[0][1], moves, host_moves)
    done, world, mapped = run(case, moves, name, params, batch)
    count = done.counters
    if name == "vmitosis-migrate":  # the twin puts tables right as it begins
        all_in = (getattr(count, side) + getattr(done.before, side) for side in ("events", "host_events"))
        count = count._replace(**dict(zip(("events", "host_events"), all_in, strict=True)))
    kind = world.history.steps.kind
    assert np.count_nonzero(mapped.changed[(kind == DATA) | (kind == HOST_DATA)]) == found[5]
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
    found = naive.replay("linux", {}, case, reads[0][1], moves, by_host(world_with(case, moves)))[6]
    world = world_with(case, moves)
    done = start(plan_for("linux"), world)
    replay_walks([done], world, world.reads(batch), windows=windows)
    counted = done.series.data.sum(axis=0)
    assert {tuple(at.tolist()): int(counted[tuple(at)]) for at in np.argwhere(counted)} == dict(+found)
    assert done.series.data.sum() == done.series.walks.sum() == len(case.stream)
    assert done.series.data_remote.sum() == counted.sum() - np.trace(counted)


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
    whole = world_with(one, moves).history
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_migration, "BUFFER", few)
        parts = world_with(one, moves).history
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
    world = untouched(snapshot, small_machine(3))
    run = start(plan_for("vmitosis-migrate", {"layers": layers}), world)
    split = world.space.guest_tables
    home, host_home = (state.home for state in run.states)
    assert [twin.home[data.key(t)] for t in range(split)] == home[:split].tolist()
    assert [twin.host[t] for t in sorted(twin.host)] == host_home[split:].tolist()[: len(twin.host)]
    assert events(run.before) == +twin.events
    assert events(run.before, host=True) == +twin.host_events
