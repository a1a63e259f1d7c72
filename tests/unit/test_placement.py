"""Where threads run: recorded, spread, or as told; and what is refused."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.errors import UsageError
from ptanalyze.core.trace import Event
from ptanalyze.core.walks import threads_placed
from ptanalyze.world.thread_placement import place
from strategies import build_topology, build_trace, small_machine


def trace_of(threads, cpus=None):
    trace = build_trace([(t, [0x1000]) for t in range(threads)], [(0, threads - 1, Event.MUNMAP, (0, 0), 0)])
    trace.chunks["cpu"] = cpus if cpus is not None else -1
    return trace


def nodes(placement):
    return placement.cpu_node[placement.chunk_cpu].tolist()


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("auto", [0, 1, 0, 1, 0]),
        ("round-robin", [0, 1, 0, 1, 0]),
        ("block", [0, 0, 0, 1, 1]),
        ("1,1,0,0,1", [1, 1, 0, 0, 1]),
        ("main=1,rest=round-robin", [1, 1, 0, 1, 0]),
        ("main=1,rest=0", [1, 0, 0, 0, 0]),
    ],
)
def test_threads_go_where_they_are_told(how, expected):
    assert nodes(place(trace_of(5), small_machine(2), how)) == expected


@pytest.mark.parametrize("how", ["round-robin", "block"])
def test_a_single_thread_is_not_said_to_be_on_all_nodes(how):
    found = place(build_trace([(0, [4096])], threads=1), small_machine(4), how)
    assert found.how == "one thread, on node 0" and found.cpu_node.tolist() == [0]
    assert threads_placed(found.how) == "one thread, on node 0"


@pytest.mark.parametrize(("how", "said"), [("round-robin", "round-robin"), ("block", "in blocks")])
def test_fewer_threads_than_nodes_are_said_to_be_on_as_many_nodes(how, said):
    trace = build_trace([(0, [4096]), (1, [4096])], threads=2)
    assert place(trace, small_machine(4), how).how == f"{said} over 4 nodes, 2 of them used"
    assert threads_placed(place(trace, small_machine(2), how).how) == f"threads {said} over 2 nodes"


def test_an_event_happens_where_its_thread_runs():
    placement = place(trace_of(4), small_machine(4))
    assert placement.cpu_node[placement.event_cpu].tolist() == [3]


def test_recorded_cpus_are_used_when_the_capture_has_several_nodes():
    trace = trace_of(3, [1, 0, 1])
    placement = place(trace, small_machine(2), topology=build_topology(2))
    assert nodes(placement) == [1, 0, 1]
    assert placement.how.startswith("recorded")
    assert place(trace, small_machine(2), topology=build_topology(1)).how.startswith("round-robin")


def test_an_event_happens_on_the_cpu_it_was_recorded_on_if_that_is_known():
    trace = build_trace(
        [(1, [0x1000]), (1, [0x1000])], [(0, t, Event.MUNMAP, (0, 0), 0) for t in (0, 1, 1, 1)]
    )
    trace.chunks["cpu"], trace.events["cpu"] = [1, 3], [0, 2, -1, 99]
    placement = place(trace, small_machine(4), topology=build_topology(4))
    assert nodes(placement) == [1, 3]
    assert placement.cpu_node[placement.event_cpu].tolist() == [0, 2, 1, 1]
    assert placement.how == "recorded: 2 CPUs on 2 nodes"


@given(st.integers(1, 20), st.integers(1, 4), st.sampled_from(["round-robin", "block"]))
def test_a_cpu_belongs_to_one_node_and_no_node_has_more_than_it_has(threads, count, how):
    placement = place(trace_of(threads), small_machine(count), how)
    assert np.bincount(placement.cpu_node).max() <= small_machine(count).cpus_per_node
    assert ("share" in placement.how) == (len(placement.cpu_node) < threads)
    assert len(placement.cpu_node) == len(set(placement.chunk_cpu.tolist()))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("0,1", "2 nodes for 5 threads"),
        ("0,1,2,0,1", r"node 2: machine small has nodes 0\.\.1"),
        ("0,1,x,0,1", "'x' is no node"),
        ("everywhere", "'everywhere' is no node; give"),
        ("main=9,rest=block", "node 9"),
        ("main=0,rest=sideways", "'sideways' is no node"),
        ("recorded", "knows no topology"),
        ("", "is no node"),
    ],
)
def test_what_cannot_be_placed_is_refused_in_one_line(how, said):
    with pytest.raises(UsageError, match=said):
        place(trace_of(5), small_machine(2), how)


@pytest.mark.parametrize(
    ("cpus", "said"), [([0, 1, -1], "CPU -1 of chunk 2"), ([0, 1, 9], "CPU 9 of chunk 2")]
)
def test_recorded_cpus_must_be_known(cpus, said):
    with pytest.raises(UsageError, match=said):
        place(trace_of(3, cpus), small_machine(2), "recorded", build_topology(2))


def test_recorded_nodes_must_exist_on_the_machine():
    with pytest.raises(UsageError, match="ran on node 2, machine small has nodes"):
        place(trace_of(2, [0, 2]), small_machine(2), "recorded", build_topology(3))


def running(threads, turns, cpus=None):
    """Every thread runs in turn, `turns` times; a munmap of the last thread's before each turn."""
    chunks = [(t, [0x1000]) for _ in range(turns) for t in range(threads)]
    events = [(k * threads, threads - 1, Event.MUNMAP, (0, 0), 0) for k in range(turns + 1)]
    trace = build_trace(chunks, events)
    trace.chunks["cpu"] = -1 if cpus is None else cpus * turns
    return trace


def test_threads_go_on_on_another_node_at_a_share_of_the_touches_or_after_some_time():
    trace = running(2, 4)
    for moves in ("0:1@50%", "0:1@0.000004s"):
        placed = place(trace, small_machine(2), "0,0", moves=moves)
        assert nodes(placed) == [0, 0, 0, 0, 1, 1, 1, 1]
        assert moves in placed.how


def test_several_moves_happen_in_the_order_of_time_whatever_the_order_they_are_told_in():
    placed = place(running(1, 4), small_machine(3), "0", moves="1:2@75%, 0:1@25%")
    assert nodes(placed) == [0, 1, 1, 2]


def test_only_what_runs_on_the_node_then_moves():
    placed = place(running(3, 2), small_machine(3), "0,1,2", moves="1:2@50%,0:2@100%,2:0@0%")
    assert nodes(placed) == [0, 1, 0, 0, 2, 0]
    assert "0:2@100% (nothing runs there)" in placed.how


def test_each_thread_has_a_cpu_of_its_own_on_the_new_node_while_there_are_some():
    roomy = msgspec.structs.replace(small_machine(2), cpus_per_node=3)
    placed = place(running(4, 2), roomy, "0,0,1,1", moves="0:1@50%")
    assert len(set(placed.chunk_cpu[4:].tolist())) == 3
    assert "1 of them share a CPU" in placed.how
    back = place(running(3, 3), roomy, "0,0,1", moves="0:1@33%,1:0@66%")
    assert nodes(back)[6:] == [0, 0, 0] and np.bincount(back.cpu_node).tolist() == [3, 3]


def test_an_event_happens_where_its_thread_ran_last():
    placed = place(running(2, 2), small_machine(2), "0,0", moves="0:1@50%")
    assert placed.cpu_node[placed.event_cpu].tolist() == [0, 0, 1]
    topology = build_topology(2)
    recorded = place(running(2, 2, [0, 1]), small_machine(2), "recorded", topology)
    assert recorded.cpu_node[recorded.event_cpu].tolist() == [1, 1, 1]


@given(st.integers(1, 6), st.integers(1, 6), st.integers(2, 4), st.data())
def test_a_move_changes_nothing_before_it_and_leaves_nobody_behind(threads, turns, count, data):
    source = data.draw(st.integers(0, count - 1))
    target = (source + data.draw(st.integers(1, count - 1))) % count
    share = data.draw(st.integers(0, 100))
    trace, machine = running(threads, turns), small_machine(count)
    before, after = place(trace, machine), place(trace, machine, moves=f"{source}:{target}@{share}%")
    cut = -(-share * len(trace.chunks) // 100)
    expected = [target if k >= cut and node == source else node for k, node in enumerate(nodes(before))]
    assert nodes(after) == expected
    assert (after.chunk_cpu[:cut] == before.chunk_cpu[:cut]).all()
    assert np.bincount(after.cpu_node).max() <= machine.cpus_per_node


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ("0:2@30%", r"node 2: machine small has nodes 0\.\.1"),
        ("0:1", "write FROM:TO@SHARE%"),
        ("0:1@30%,", "write FROM:TO@SHARE%"),
        ("1:1@30%", "from a node to itself"),
        ("0:1@100.5%", "beyond the trace's end"),
        ("0:1@-1s", "write FROM:TO@SHARE%"),
    ],
)
def test_a_move_that_cannot_be_is_refused_in_one_line(moves, said):
    with pytest.raises(UsageError, match=said):
        place(trace_of(3), small_machine(2), moves=moves)


def test_a_trace_without_times_has_no_seconds():
    trace = trace_of(3)
    trace.chunks["time"] = 0
    with pytest.raises(UsageError, match="the trace has no times; give a share"):
        place(trace, small_machine(2), moves="0:1@1s")
