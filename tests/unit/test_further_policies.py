"""Policies of ptanalyze_policies: shadow paging and WASP."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_replay import assert_same_as, twice
from test_walker import assert_as_naive

import ptanalyze
from naive.trees import by_steps, leaf_map, shadow_pages
from naive.wasp import Wasp
from ptanalyze.core.errors import RefusedError, UsageError
from ptanalyze.core.trace import Event, WalkStream
from ptanalyze.kernels import IPI, LL, PTE_COPY, PTE_WRITE, RL, TABLE_FREE, TABLE_NEW, VM_EXIT
from ptanalyze.policies import plan_for
from ptanalyze.world.scenario import Scenario, untouched
from ptanalyze_policies.wasp import Thresholds, decisions
from replay_cases import HEAP, ask, case, cases, run, scenario_of
from strategies import PAGE, REGION, build_snapshot, build_trace, place, small_machine, snapshots, traces

pytestmark = pytest.mark.twin

PLAIN = os.environ.get("NUMBA_DISABLE_JIT") == "1"
EXAMPLES = 10 if PLAIN else 60


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
    facts = plan_for("shadow").reshape(scenario_of(case)).facts
    linux, shadow = run(case, "linux").counters.events, run(case, "shadow").counters.events
    writes = linux[:, [PTE_WRITE, TABLE_NEW, TABLE_FREE]].sum(axis=(1, 2, 3))
    exits = shadow[:, VM_EXIT].sum(axis=(1, 2))
    if not any(facts.values()):
        assert (exits == writes).all()
    elif not facts["shadow_pages_unmapped"]:  # a small page of a huge one that is touched is an exit more
        assert (exits[1:] == writes[1:]).all() and exits[0] >= writes[0]
    assert linux[:, VM_EXIT].sum() == 0
    assert shadow[:, VM_EXIT].sum() == np.einsum("cnn->", shadow[:, VM_EXIT])


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
    guest = ask(snapshot, "shadow", params={"place": "guest"})[-1]
    mitosis = ask(snapshot, "shadow+mitosis")[-1]
    assert guest.classes.tolist() == [[8, 0, 0, 0], [0, 0, 8, 0]]
    assert mitosis.classes[:, LL].sum() == 16 and guest.reads[1:8].sum() == 0


@pytest.mark.parametrize(
    ("name", "params"),
    [("vmitosis-replicate", {}), ("vmitosis-replicate", {"layers": "ept"}), ("interleave", {})],
)
def test_what_acts_on_the_table_that_is_gone_is_refused(name, params):
    with pytest.raises(UsageError, match=r"both act on the host's .* \(ePT\); give them apart"):
        plan_for(f"{name}+shadow", params)


@pytest.mark.parametrize(("names", "reads"), [("thp+shadow", 3), ("thp", 15)])
def test_reads_of_a_cold_walk_under_several(names, reads):
    """Huge pages in both dimensions over four levels each: (3 + 1)(3 + 1) - 1."""
    pages = [(HEAP + k * PAGE, 2048 + k) for k in range(512)]
    snapshot = build_snapshot(pages, [], vmas=[(HEAP, HEAP + REGION, "")])
    assert ask(snapshot, names, trace=build_trace([(0, [HEAP])]))[-1].reads.sum() == reads


# WASP: replicas that a daemon switches on and off by its indicators.

NAME, US = "wasp", 1e-3
VAS = [HEAP + k * PAGE for k in range(20)]


def timed(drawn, times, accesses):
    """The case with other times and numbers of accesses of its chunks."""
    chunks = drawn.trace.chunks.copy()
    chunks["time"], chunks["accesses"] = times, accesses
    return drawn._replace(trace=replace(drawn.trace, chunks=chunks))


@st.composite
def sampled(draw, native=True):
    """(case whose chunks take time and have more accesses than walks, parameters, those of the twin)."""
    drawn = draw(cases(native))
    count = len(drawn.trace.chunks)
    steps = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    many = draw(st.lists(st.sampled_from([1, 1, 3, 200]), min_size=count, max_size=count))
    walks = drawn.trace.chunks["touches"]
    drawn = timed(drawn, 1000 * np.cumsum(steps), walks * np.array(many, np.int64) if count else walks)
    interval, hysteresis = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([0, 1, 2, 3]))
    rate, miss = draw(st.sampled_from([0.0, 1e6, 3e6])), draw(st.sampled_from([0.0, 0.01, 0.4]))
    own = {
        "interval_ms": interval * US, "hysteresis_ms": hysteresis * US, "accesses_per_second": rate,
        "misses_per_access": miss, "slowdown": 1,
    }  # fmt: skip
    twins = {"interval": interval * 1000, "hysteresis": hysteresis * 1000, "mar": rate / 1e9, "miss": miss}
    return drawn, own, twins


@settings(max_examples=60 if PLAIN else 180, deadline=None)
@given(drawn=st.booleans().flatmap(sampled), batch=st.sampled_from([1, 3, 1 << 20]))
def test_it_counts_what_a_twin_written_from_the_port_counts(drawn, batch):
    one, params, twins = drawn

    def made(memory, space, machine):
        return Wasp(memory, space, machine, one.snapshot, one.trace, one.placement, twins)

    assert_same_as(one, made, NAME, params, batch)


def two_nodes(chunks, accesses, events=(), nodes=2, **more):
    """A case whose chunk k runs from microsecond k on, with so many accesses."""
    vmas = [(HEAP, HEAP + PAGE * 20, "heap")]
    snapshot = build_snapshot([(va, k) for k, va in enumerate(VAS)], nodes=nodes, vmas=vmas)
    drawn = case(snapshot, build_trace(chunks, events), nodes, **more)
    return timed(drawn, 1000 * np.arange(len(chunks)), accesses)


def test_a_run_that_is_too_short_to_decide_in_has_its_replicas_when_it_goes_on():
    for accesses, there in (([1000] * 8, True), ([10_000] * 8, False)):
        drawn = two_nodes([(k % 2, VAS) for k in range(8)], accesses)
        scenario = scenario_of(drawn)
        done, *_ = twice(scenario, NAME, {"slowdown": 1})
        assert done.first.classes[1, 2] == 80, "it ends long before the daemon's first sample"
        assert done.counters.classes[1, 2] == (0 if there else 80)
        assert done.first.pages.tolist() == ([8, 8] if there else [4, 4])
        assert not done.counters.events[:, [TABLE_NEW, PTE_COPY, IPI]].any(), "copying is no part of it"
        assert done.first.events[:, PTE_COPY].sum() == (20 + 3 if there else 0)


def test_misses_of_the_steady_state_are_those_of_warm_tlbs():
    scenario = scenario_of(two_nodes([(k % 2, VAS) for k in range(8)], [1000] * 8))
    none = WalkStream(np.zeros(0, np.uint32), np.zeros(0, bool), np.zeros(9, np.int64), np.zeros((2, 3)))
    limits = Thresholds(1000, 1000, 0, 0.01)
    assert decisions(scenario, limits).misses_per_access == 0.02 and decisions(scenario, limits).steady
    found = decisions(scenario.keeping(steady_stream=none), limits)
    assert found.misses_per_access == 0 and not found.steady and len(found.chunk) == 1


def test_too_many_samples_are_refused_and_an_oblivious_guest_is(tmp_path):
    drawn = two_nodes([(0, VAS)] * 3, [100] * 3)
    with pytest.raises(UsageError, match=r"policy wasp: interval_ms = 1e-06: .* at most 1000000"):
        run(timed(drawn, [0, 10**7, 10**7], [1, 1, 1]), NAME, {"interval_ms": 1e-6})
    vm = ptanalyze.synth(tmp_path / "vm", "8M", guest="oblivious", accesses=100)
    with pytest.raises(UsageError, match=r"NUMA-oblivious"):
        ptanalyze.whatif(vm, NAME)
    assert issubclass(RefusedError, UsageError)
