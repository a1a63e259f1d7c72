"""Where threads run: recorded, spread, or as told; and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.errors import UsageError
from ptanalyze.trace import Event
from ptanalyze.world.placement import place
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


def test_an_event_happens_where_its_thread_runs():
    placement = place(trace_of(4), small_machine(4))
    assert placement.cpu_node[placement.event_cpu].tolist() == [3]


def test_recorded_cpus_are_used_when_the_capture_has_several_nodes():
    trace = trace_of(3, [1, 0, 1])
    placement = place(trace, small_machine(2), topology=build_topology(2))
    assert nodes(placement) == [1, 0, 1]
    assert placement.how.startswith("recorded")
    assert place(trace, small_machine(2), topology=build_topology(1)).how.startswith("round-robin")


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
