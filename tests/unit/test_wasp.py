"""WASP: replicas that a daemon switches on and off by its indicators."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_replay import assert_same_as, twice

import ptanalyze
from naive.wasp import Wasp
from ptanalyze.core.errors import RefusedError, UsageError
from ptanalyze.core.trace import WalkStream
from ptanalyze.kernels import IPI, PTE_COPY, TABLE_NEW
from ptanalyze_policies.wasp import Thresholds, decisions
from replay_cases import HEAP, case, cases, run, scenario_of
from strategies import PAGE, build_snapshot, build_trace

pytestmark = pytest.mark.twin

EXAMPLES = 20 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 60
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


@settings(max_examples=3 * EXAMPLES, deadline=None)
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
        copied = done.first.events[:, PTE_COPY].sum()
        assert copied == (20 + 3 if there else 0)


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
