"""Replays of a sample: reads and walks are part of the whole's; faults, updates, copies are all of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ptanalyze.analysis.runs import replay_again, replay_walks, start
from ptanalyze.core.sample import Sample
from ptanalyze.core.trace import Event
from ptanalyze.kernels.replay import READ_BITS
from ptanalyze.policies import plan_for
from ptanalyze.world.steady_part import SteadyPart
from ptanalyze.world.world import World
from replay_cases import HEAP, case, events
from strategies import PAGE, REGION, build_snapshot, build_trace, small_tlb

pytestmark = pytest.mark.twin

TLB = small_tlb((16, 1), (16, 1), (16, 1))
NATIVE = [("linux", {}), ("first-touch", {}), ("mitosis", {}), ("hydra", {}), ("hydra", {"prefetch": 3})]
NESTED = [("vmitosis-replicate", {}), ("hydra-2d", {})]


def replayed(case, name, params, sample=None):
    """[Run] as traced and once more over a Case on a real TLB."""
    world = World(case.snapshot, case.trace, replace(case.machine, tlb=TLB), case.placement, sample=sample)
    plan = plan_for(name, params)
    shaped = plan.reshape(world)
    vars(shaped)["steady"] = SteadyPart(0, 0, "")  # an estimate, too: a share of the walks
    run = start(plan, shaped)
    caches = shaped.caches()
    mapped = replay_walks([run], shaped, shaped.reads(caches=caches), more=True)
    again = shaped.again()
    replay_again([run], again, again.reads(caches=caches), mapped)
    return run


def inside(counters, groups):
    """Walks of the sample by class: int64[sockets, 4]."""
    return counters.classes.reshape(groups, -1, 4)[: groups - 1 or None].sum(axis=0)


def assert_only_reads_are_sampled(case, name, params, unit, one_in):
    whole = replayed(case, name, params)
    counted = [0, 0]
    for which in range(one_in):
        run = replayed(case, name, params, Sample(unit, one_in, which))
        for k, (part, all_of_it) in enumerate(((run.first, whole.first), (run.counters, whole.counters))):
            assert events(part) == events(all_of_it)
            assert events(part, host=True) == events(all_of_it, host=True)
            assert part.pages.tolist() == all_of_it.pages.tolist()
            assert part.host_pages.tolist() == all_of_it.host_pages.tolist()
            counted[k] = counted[k] + inside(part, len(part.reads) // READ_BITS)
    assert np.array_equal(counted[0], whole.first.classes)
    assert np.array_equal(counted[1], whole.counters.classes)


PAGES = [HEAP + region * REGION + slot * PAGE for region in range(4) for slot in (0, 1, 2, 8, 17, 33, 500)]
SPANS = st.sampled_from([PAGE, 3 * PAGE, 40 * PAGE, REGION, 4 * REGION])


@st.composite
def processes(draw, native):
    """Threads on several nodes that touch mapped memory, which calls take away and map anew."""
    nodes = draw(st.integers(1, 3))
    touched = st.lists(st.sampled_from(PAGES), min_size=1, max_size=20)
    chunks = draw(st.lists(st.tuples(st.integers(0, 2), touched), min_size=1, max_size=6))
    calls = st.tuples(st.integers(0, len(chunks)), st.sampled_from(PAGES), SPANS, st.sampled_from("uap"))
    events = [(0, 0, Event.MMAP, (HEAP, 1 << 30, 3, 0x32), HEAP)]  # nothing touched lies outside all VMAs
    for at, where, length, call in sorted(draw(st.lists(calls, max_size=5))):
        if call == "u":
            events += [
                (at, 0, Event.MUNMAP, (where, length), 0),
                (at, 0, Event.MMAP, (where, length, 3, 0x32), where),
            ]
        elif call == "a":
            events.append((at, 1, Event.MADVISE, (where, length, 4), 0))
        else:
            events.append((at, 2, Event.MPROTECT, (where, length, 1), 0))
    mapped = [(va, 1000 + k) for k, va in enumerate(PAGES)]
    snapshot = build_snapshot(
        mapped, None if native else [], nodes=nodes, vmas=[(HEAP, HEAP + (1 << 30), "v")]
    )
    return case(snapshot, build_trace(chunks, events, 3), nodes, nodes)


@pytest.mark.parametrize("unit", ["sets", "regions"])
@settings(max_examples=6, deadline=None)
@given(st.data())
def test_faults_updates_and_copies_are_those_of_the_whole_trace(unit, data):
    made, (name, params) = data.draw(processes(native=True)), data.draw(st.sampled_from(NATIVE))
    assert_only_reads_are_sampled(made, name, params, unit, 2)


@settings(max_examples=6, deadline=None)
@given(st.data())
def test_so_are_violations_of_the_host(data):
    made, (name, params) = data.draw(processes(native=False)), data.draw(st.sampled_from(NESTED))
    assert_only_reads_are_sampled(made, name, params, "regions", 2)
