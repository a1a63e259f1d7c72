"""Five levels: what cold walks read, and that nothing else changes."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_walker import assert_as_naive

from cold_walks import ask, cold_machine
from naive.trees import leaf_map
from ptanalyze.core.errors import UsageError
from ptanalyze.policies import plan_for
from ptanalyze.world.world import World
from strategies import build_snapshot, build_trace, place, small_machine, snapshots, traces

pytestmark = pytest.mark.twin

EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 60
GIB = 1 << 30


TOUCH = build_trace([(0, [GIB])])


def reads(snapshot, params):
    linux, five = ask(snapshot, "five-level", params=params, trace=TOUCH)
    return int(linux.reads.sum()), int(five.reads.sum())


@pytest.mark.parametrize("layers", ["both", "gpt"])
def test_a_cold_native_walk_reads_five_entries_for_four(layers):
    assert reads(build_snapshot([(GIB, 5)]), {"layers": layers}) == (4, 5)


@pytest.mark.parametrize(("layers", "after"), [("both", 35), ("gpt", 29), ("ept", 29)])
def test_a_cold_two_dimensional_walk_reads_g_plus_1_times_h_plus_1_less_1(layers, after):
    """vMitosis, section 1: 24 with four levels, 35 with five."""
    assert reads(build_snapshot([(GIB, 5)], []), {"layers": layers}) == (24, after)


@pytest.mark.parametrize("host", [None, []])
def test_a_tree_of_five_levels_stays_as_it_is_and_a_note_says_so(host):
    snapshot = build_snapshot([(GIB, 5)], host, levels=5, host_levels=5)
    linux, five = ask(snapshot, "five-level", trace=TOUCH)
    assert (linux.reads == five.reads).all()
    assert "five-level: the guest's tables have five levels already" in five.notes
    assert ("five-level: the host's tables have five levels already" in five.notes) == (host is not None)


@pytest.mark.parametrize("host", [None, []])
def test_the_machines_cache_of_the_fifth_level_spares_the_read_of_the_root(host):
    snapshot, trace = build_snapshot([(GIB, 5)], host), build_trace([(0, [GIB]), (0, [GIB << 9])])
    found = []
    for machine in (small_machine(2), cold_machine()):
        walked = ask(snapshot, "five-level", trace=trace, machine=machine)[-1]
        found.append(int(walked.reads[40].sum()))
    assert found == [1, 2]


@pytest.mark.parametrize("host", [None, []])
def test_the_new_root_is_on_the_old_ones_node_and_takes_one_page(host):
    snapshot = build_snapshot([(GIB, 5)], host, table_nodes=(1,), host_table_nodes=(1,))
    linux, five = ask(snapshot, "five-level", trace=TOUCH)
    assert five.table_pages == linux.table_pages + 1
    assert five.host_pages == linux.host_pages + (host is not None)
    assert five.reads[40, 0, 1].sum() == 1 and five.reads[40].sum() == 1


def test_leaf_entries_stay_where_they_are_without_a_trace_too():
    for host in (None, []):
        linux, five = ask(build_snapshot([(GIB, 5)], host, table_nodes=(0, 1)), "five-level")
        assert (linux.classes == five.classes).all() and (linux.reads == five.reads).all()


def test_a_fifth_level_of_a_host_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="five-level: a native capture has no host tables"):
        ask(build_snapshot([(GIB, 5)]), "five-level", params={"layers": "ept"})


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data(), st.sampled_from(["both", "gpt", "ept"]))
def test_walks_over_five_levels_read_what_the_naive_walker_reads(data, layers):
    snapshot = data.draw(snapshots(native=None if layers != "ept" else False))
    trace, machine = data.draw(traces(snapshot)), small_machine()
    world = World(snapshot, trace, machine, place(trace, 2, 2))
    shaped = plan_for("five-level", {"layers": layers}).reshape(world)
    assert leaf_map(shaped.snapshot.guest) == leaf_map(snapshot.guest)
    assert len(np.unique(shaped.snapshot.guest.frame)) == len(shaped.snapshot.guest) or snapshot.native
    assert shaped.stream is world.stream
    assert_as_naive(shaped.snapshot, trace, machine, 1000)


def test_mitosis_replicates_the_fifth_level_too():
    mitosis, both = (
        ask(build_snapshot([(GIB, 5)]), name, trace=TOUCH)[-1] for name in ("mitosis", "five-level+mitosis")
    )
    assert both.policy == "five-level+mitosis"
    assert both.table_pages == mitosis.table_pages + 2


def test_a_capture_keeps_its_own_levels():
    snapshot = build_snapshot([(GIB, 5)], [])
    before = replace(snapshot)
    ask(snapshot, "five-level")
    assert snapshot == before and (snapshot.guest.levels, snapshot.host.levels) == (4, 4)
