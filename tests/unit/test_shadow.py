"""Shadow paging: one table for two dimensions, and an exit for each entry that the guest writes."""

import os
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_walker import assert_as_naive

from naive.trees import by_steps, leaf_map, shadow_pages
from ptanalyze.core.errors import UsageError
from ptanalyze.core.trace import Event
from ptanalyze.kernels import LL, PTE_WRITE, RL, TABLE_FREE, TABLE_NEW, VM_EXIT
from ptanalyze.policies import plan_for
from ptanalyze.world.scenario import Scenario, untouched
from replay_cases import HEAP, ask, cases, run, scenario_of
from strategies import (
    PAGE,
    REGION,
    build_snapshot,
    build_trace,
    place,
    small_machine,
    snapshots,
    traces,
)

pytestmark = pytest.mark.twin

EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 60
GIB = 1 << 30


def process(pages=8, threads=2):
    """(Snapshot, Trace): every thread touches all pages of a VM's process, then the first is unmapped."""
    vas = [HEAP + k * PAGE for k in range(pages)]
    snapshot = build_snapshot([(va, 5 + k) for k, va in enumerate(vas)], [], vmas=[(HEAP, HEAP + REGION, "")])
    events = [(threads, 0, Event.MUNMAP, (HEAP, PAGE), 0)]
    return snapshot, build_trace([(thread, vas) for thread in range(threads)], events)


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(snapshots(native=False))
def test_the_shadow_table_maps_what_both_tables_together_map(snapshot):
    scenario = untouched(snapshot, small_machine())
    shaped = plan_for("shadow").reshape(scenario)
    shadow, (expected, missing) = shaped.snapshot.guest, shadow_pages(snapshot)
    assert shaped.snapshot.native and shaped.facts["shadow_pages_unmapped"] == missing
    for address, found in expected.items():
        assert by_steps(shadow, address)[1:] == found
    mapped = sum(512 ** (level - 1) for level, _, _ in leaf_map(shadow).values())
    guests = sum(512 ** (level - 1) for level, _, _ in leaf_map(snapshot.guest).values())
    assert mapped == guests - missing
    assert shaped.unwalked_table_pages == len(snapshot.guest)
    assert len(shadow) == len(snapshot.guest) + shaped.facts["shadow_tables_of_split_pages"]
    plan_for("shadow").reshape(scenario)  # the capture is as it was
    assert shadow_pages(snapshot) == (expected, missing)


@settings(max_examples=EXAMPLES, deadline=None)
@given(snapshots(native=False), st.data())
def test_a_tlb_entry_spans_what_it_did_and_walks_read_what_the_naive_walker_reads(snapshot, data):
    trace, machine = data.draw(traces(snapshot)), small_machine()
    scenario = Scenario(snapshot, trace, machine, place(trace, 2, 2))
    shaped = plan_for("shadow").reshape(scenario)
    assert (shaped.space.regions.tlb_level == scenario.space.regions.tlb_level).all()
    assert shaped.stream is scenario.stream
    assert_as_naive(shaped.snapshot, trace, machine, 1000)


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False))
def test_exits_are_as_many_as_linuxs_guest_writes(case):
    scenario = scenario_of(case)
    facts = plan_for("shadow").reshape(scenario).facts
    linux, shadow = run(case, "linux").counters.events, run(case, "shadow").counters.events
    writes = linux[:, [PTE_WRITE, TABLE_NEW, TABLE_FREE]].sum(axis=(1, 2, 3))
    exits = shadow[:, VM_EXIT].sum(axis=(1, 2))
    if not any(facts.values()):
        assert (exits == writes).all()
    elif not facts["shadow_pages_unmapped"]:  # a small page of a huge one that is touched is an exit more
        assert (exits[1:] == writes[1:]).all() and exits[0] >= writes[0]
    assert linux[:, VM_EXIT].sum() == 0
    assert shadow[:, VM_EXIT].sum() == np.einsum("cnn->", shadow[:, VM_EXIT])


def test_pages_that_the_host_does_not_map_are_faults_of_the_hypervisors_and_counted():
    snapshot = build_snapshot([(HEAP, 5), (HEAP + PAGE, 6)], [])
    leaf = np.flatnonzero(snapshot.guest.level == 1)[0]
    snapshot.guest.entries[leaf, 1] = (1 << 50) | 0x67
    result = ask(snapshot, "shadow", trace=build_trace([(0, [HEAP])]))[-1]
    assert "shadow: 1 pages of the guest that the host does not map are not mapped" in result.notes


def test_its_pages_are_on_the_node_of_the_vcpu_that_faults_or_of_the_guests_table():
    snapshot, trace = process()
    first, guest = (ask(snapshot, "shadow", params={"place": place}, trace=trace)[-1]
                    for place in ("first-touch", "guest"))  # fmt: skip
    assert first.classes.tolist() == guest.classes.tolist() == [[8, 0, 0, 0], [0, 0, 8, 0]]
    far = build_snapshot([(HEAP + k * PAGE, 5 + k) for k in range(8)], [], table_nodes=(1,))
    assert ask(far, "shadow", params={"place": "guest"}, trace=trace)[-1].classes[:, RL].tolist() == [8, 0]
    assert ask(far, "shadow", trace=trace)[-1].classes[:, RL].tolist() == [0, 8]


@pytest.mark.parametrize("trace", [True, False])
def test_without_a_trace_it_needs_a_place_for_its_tables(trace):
    snapshot, touched = process()
    if trace:
        assert ask(snapshot, "shadow", trace=touched)
        return
    with pytest.raises(UsageError, match="policy shadow: needs the order of accesses"):
        ask(snapshot, "shadow")
    guest, mitosis = (
        ask(snapshot, "shadow", params={"place": "guest"})[-1],
        ask(snapshot, "shadow+mitosis")[-1],
    )
    assert guest.classes.tolist() == [[8, 0, 0, 0], [0, 0, 8, 0]]
    assert mitosis.classes[:, LL].sum() == 16 and guest.reads[1:8].sum() == 0


@pytest.mark.parametrize(
    ("name", "params", "what"),
    [
        ("vmitosis-replicate", {}, "the host's page table of a VM (ePT)"),
        ("vmitosis-replicate", {"layers": "ept"}, "the host's page table of a VM (ePT)"),
        ("interleave", {}, "the host's page table of a VM (ePT)"),
    ],
)
def test_what_acts_on_the_table_that_is_gone_is_refused(name, params, what):
    with pytest.raises(UsageError, match=re.escape(f"both act on {what}; give them apart")) as caught:
        plan_for(f"{name}+shadow", params)
    assert "\n" not in str(caught.value)


def test_a_native_capture_is_refused():
    with pytest.raises(UsageError, match="policy shadow: a native capture has no host tables"):
        ask(build_snapshot([(GIB, 5)]), "shadow", trace=build_trace([(0, [GIB])]))


@pytest.mark.parametrize(
    ("names", "reads"),
    [
        ("thp+shadow", 3),
        ("thp", 15),
    ],
)
def test_reads_of_a_cold_walk_under_several(names, reads):
    """Huge pages in both dimensions over four levels each: (3 + 1)(3 + 1) - 1."""
    pages = [(HEAP + k * PAGE, 2048 + k) for k in range(512)]
    snapshot = build_snapshot(pages, [], vmas=[(HEAP, HEAP + REGION, "")])
    result = ask(snapshot, names, trace=build_trace([(0, [HEAP])]))[-1]
    assert result.reads.sum() == reads
