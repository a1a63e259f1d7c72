"""Steering: Mitosis, but for which replica a node's CPUs walk."""

import os

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import Latency
from ptanalyze.kernels.replay import EVENT_KINDS, FAULT, LL, LR, PTE_FANOUT, PTE_WRITE
from ptanalyze.policies.wasp import steering
from replay_cases import HEAP, case, cases, run
from strategies import build_snapshot, build_trace, small_machine

pytestmark = pytest.mark.twin

EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 40
NAME = "steering"


def text(steer):
    return ",".join(map(str, steer))


def machine(idle, contended=None):
    return msgspec.structs.replace(small_machine(len(idle)), latency=Latency(idle=idle, contended=contended))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.booleans().flatmap(cases))
def test_each_node_on_its_own_replica_is_mitosis(case):
    mitosis = run(case, "mitosis").counters
    for steer in (text(range(case.machine.nodes)), "auto"):
        found = run(case, NAME, {"steer": steer}).counters
        assert all((one == other).all() for one, other in zip(mitosis, found, strict=True))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.booleans().flatmap(cases), st.data())
def test_steering_moves_reads_and_first_writes_to_the_replica_asked_for_and_nothing_else(case, data):
    nodes = case.machine.nodes
    steer = data.draw(st.lists(st.integers(0, nodes - 1), min_size=nodes, max_size=nodes))
    mitosis, found = run(case, "mitosis").counters, run(case, NAME, {"steer": text(steer)}).counters
    every, own = np.arange(nodes), mitosis.reads[0::8, np.arange(nodes), np.arange(nodes)]
    assert (found.reads[0::8, every, steer] == own).all()
    assert found.reads[0::8].sum() == own.sum()
    assert (found.reads[1::8] == mitosis.reads[1::8]).all()
    for kind in (PTE_WRITE, FAULT):
        first = mitosis.events[:, kind, every, every]
        assert (found.events[:, kind, every, steer] == first).all()
        assert found.events[:, kind].sum() == first.sum()
    assert (found.events[:, PTE_FANOUT].sum(axis=2) == mitosis.events[:, PTE_FANOUT].sum(axis=2)).all()
    others = [k for k in range(len(EVENT_KINDS)) if k not in (PTE_WRITE, FAULT, PTE_FANOUT)]
    assert (found.events[:, others] == mitosis.events[:, others]).all()
    assert (found.pages == mitosis.pages).all()


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False))
def test_in_a_vm_it_steers_both_dimensions_where_asked(case):
    nodes = case.machine.nodes
    everywhere = text([0] * nodes)
    both = run(case, NAME, {"steer": everywhere, "layers": "both"}).counters
    assert both.reads.sum() == both.reads[:, :, 0].sum()
    assert both.host_pages[0] == nodes * case.space.host_tables
    assert both.classes[0, [LL]].sum() == both.classes[0].sum()
    local = run(case, NAME, {"layers": "ept"}).counters
    assert (local.reads[0::8] == run(case, "linux").counters.reads[0::8]).all()
    assert local.classes[:, LR].sum() == 0


def test_auto_goes_where_latency_is_least_and_stays_where_it_is_no_less():
    flat = ((100, 200, 300), (200, 100, 300), (300, 300, 100))
    assert steering("auto", machine(flat)).tolist() == [0, 1, 2]
    loaded = ((500, 400, 450), (400, 100, 300), (450, 300, 300))
    assert steering("auto", machine(flat, loaded)).tolist() == [1, 1, 2]


@pytest.mark.parametrize(
    ("steer", "why"),
    [
        ("0,2", r"steer = 0,2: '2' is no node, machine small has nodes 0\.\.1"),
        ("0", "steer = 0: 1 nodes for 2"),
        ("0,1,1", "3 nodes for 2"),
        ("", "'' is no node"),
        ("automatic", "'automatic' is no node"),
    ],
)
def test_what_is_no_steering_is_refused(steer, why):
    process = case(build_snapshot([(HEAP, 1)]), build_trace([(0, [HEAP])]))
    with pytest.raises(UsageError, match=why):
        run(process, NAME, {"steer": steer})


@pytest.mark.parametrize("layers", ["ept", "both"])
def test_a_native_capture_has_no_nested_table_to_steer(layers):
    process = case(build_snapshot([(HEAP, 1)]), build_trace([(0, [HEAP])]))
    with pytest.raises(UsageError, match="steering: a native capture has no host tables"):
        run(process, NAME, {"layers": layers})
