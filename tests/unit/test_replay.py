"""The replay: a region's bounds, the further run, and all policies against their naive twins."""

import os
import re
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptanalyze
from captures import pages_of, without_calls_outside, write_trace
from naive import replay as naive
from naive.walker import NaiveTlb
from ptanalyze.analysis.replay import at_shares, replay_steady_state, replay_walks, start
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_scenario
from ptanalyze.core.errors import CaptureError, RefusedError, UsageError
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import EVENT_DTYPE, Event, Scratch, pieces
from ptanalyze.cost.counts import read_cycles, walk_cycles
from ptanalyze.formats.trace import read_trace
from ptanalyze.kernels import PTE_COPY, REPLICA_FAULT, TABLE_MOVED, TABLE_NEW
from ptanalyze.kernels.replay import CLEAR, SET, UPDATE
from ptanalyze.policies import plan_for
from ptanalyze.policies.contract import Policy
from ptanalyze.policies.static_replicas import guest_part, masked
from ptanalyze.world.mm_events import MAP_FIXED, region_of_interest, within_region
from ptanalyze.world.scenario import Scenario, ScenarioOptions, captured_scenario
from ptanalyze.world.traced_program import Effort
from replay_cases import HEAP, as_a_kernel_does, case, cases, events, reads_of, run, scenario_of, with_events
from strategies import PAGE, REGION, build_snapshot, build_trace, place, small_machine

pytestmark = pytest.mark.twin


# The further run, with TLBs, caches, memory and tables as the first left them; and what happens once.

STEADY_EXAMPLES = 15 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 40
COSTS = load_costs(load_machine("vmitosis-cascade-lake"))
CALLS_OF_ALL = (
    Event.MMAP, Event.MUNMAP, Event.MREMAP, Event.MADVISE, Event.BRK, Event.THREAD_EXIT, Event.ROI_START,
    Event.ROI_END,
)  # fmt: skip
BEGINS = (0, 0, Event.ROI_START, (), 0)


def twice(scenario, name, params=None):
    """(Run, Reads of the first run, of the second) of one policy."""
    plan, caches = plan_for(name, params), scenario.caches()
    run = start(plan, scenario)
    reads = [list(scenario.reads(caches=caches))]
    mapped = replay_walks([run], scenario, reads[0], more=True)
    again = scenario.steady_state()
    reads.append(list(again.reads(caches=caches)))
    replay_steady_state([run], again, reads[1], mapped)
    return run, *reads


@pytest.mark.parametrize("nodes, moves", [((0, 1), 1 + 2), ((0, 1, 0), 2 + 2), ((0, 0), 0)])
def test_a_table_that_follows_the_process_is_moved_back_before_it_runs_again(nodes, moves):
    pages = [HEAP + k * PAGE for k in range(40)]
    snapshot = build_snapshot([(va, k) for k, va in enumerate(pages)], vmas=[(HEAP, HEAP + 40 * PAGE, "h")])
    process = case(snapshot, build_trace([(0, pages) for _ in nodes], [BEGINS]))
    cpus = np.array(nodes, np.int32), np.zeros(1, np.int32)
    moved = type(process.placement)(cpus[0], np.array([0, 1], np.int16), cpus[1], "here")
    run, _, _ = twice(scenario_of(process._replace(placement=moved)), "mitosis", {"mode": "migrate"})
    done = [run.first.events, run.counters.events]
    tables = int(run.counters.pages[0])
    assert sum(int(events[:, TABLE_MOVED].sum()) for events in done) == moves * tables
    remote = run.counters.reads.sum(axis=(0, 3))
    assert remote.sum() == remote.trace()


@pytest.mark.parametrize("name", ["linux", "mitosis", "hydra"])
@pytest.mark.parametrize(
    "kind, flags, cleared, reserved",
    [(Event.MMAP, 0x22, 0, 0), (Event.MMAP, 0x32, 4, 0), (Event.BRK, 0, 0, 0),
     (Event.MMAP, 0x32, 0, 4), (Event.MPROTECT, 0, 0, 512)],
)  # fmt: skip
@pytest.mark.parametrize("part", [1, 4])
def test_what_a_further_run_maps_at_free_addresses_lands_on_nothing_of_the_first(
    name, kind, flags, cleared, reserved, part
):
    """Nothing unmaps it; the second node's thread would be interrupted. MAP_FIXED lands on what there is, and
    on nothing where that was reserved before the region began, `part` pages at a time."""
    area = HEAP + REGION
    pages = [area + k * PAGE for k in range(4)]
    calls = {
        Event.MMAP: [(0, part * PAGE, 3, flags)] * (4 // part),
        Event.BRK: [(area,), (area + 4 * PAGE,)],
        Event.MPROTECT: [(page, part * PAGE, 3) for page in pages[::part]],
    }
    results = {Event.MMAP: pages[::part], Event.BRK: [area, area + 4 * PAGE], Event.MPROTECT: [0] * 4}
    before = [(0, 0, Event.MMAP, (0, reserved * PAGE, 0, 0x4022), area)] if reserved else []
    made = [(2, 0, kind, *of) for of in zip(calls[kind], results[kind], strict=False)]
    trace = build_trace([(0, [HEAP]), (1, [HEAP]), (0, pages)], [*before, BEGINS, *made], 2)
    mapped = [(page, 1 + k) for k, page in enumerate([HEAP, *pages])]
    snapshot = build_snapshot(mapped, vmas=[(HEAP, area + REGION, "h")])
    run, *_ = twice(scenario_of(case(snapshot, trace, 2)), name)
    first, further = events(run.first), events(run.counters)
    assert further["faults", 0, 0] == first["faults", 0, 0] == 4
    assert further["pte_writes", 0, 0] == 4 + cleared
    assert (further.get(("ipis", 0, 1), 0) + further.get(("ipis_saved", 0, 1), 0) > 0) == bool(cleared)


@pytest.mark.parametrize(
    "gone, further", [(0, [1, 1, 1, 0]), (2, [0, 0, 1, 0, 1]), (1, [0, 1, 0, 1, 1, 0, 1])]
)
def test_what_map_fixed_lands_on_in_a_further_run_is_of_the_node_that_mapped_it_in_the_first(gone, further):
    """Owners of VMAs in steps. The pages that a later call unmaps count as in the first run."""
    pages, fixed = [HEAP + k * PAGE for k in range(4)], (HEAP, 2 * PAGE, 3, 0x32)
    calls = [
        (0, 0, Event.MMAP, (0, 4 * PAGE, 3, 0x22), HEAP), BEGINS,
        (1, 0, Event.MPROTECT, (HEAP, 2 * PAGE, 1), 0), (1, 1, Event.MMAP, fixed, HEAP),
        (2, 0, Event.MADVISE, (HEAP, 4 * PAGE, 4), 0), (3, 0, Event.MUNMAP, (HEAP, gone * PAGE), 0),
    ]  # fmt: skip
    calls = calls if gone else calls[:-1]
    placed = [(va, 1 + k) for k, va in enumerate(pages)]
    snapshot = build_snapshot(placed, vmas=[(HEAP, HEAP + 4 * PAGE, "h")])
    trace = build_trace([(0, pages), (1, pages), (0, pages), (0, pages[2:])], calls, 2)
    scenario = scenario_of(case(snapshot, trace, 2))
    steps = [one.history.steps for one in (scenario, scenario.steady_state())]
    owners = [one.was[np.isin(one.kind, (CLEAR, UPDATE))].tolist() for one in steps]
    assert owners == [[0, 0, 1, 0] + [1] * (gone > 0), further]


@pytest.mark.parametrize("name", ["linux", "mitosis", "hydra"])
@pytest.mark.parametrize("aside, faults", [((), 4), ([(1, 0, Event.MMAP, (0, 2 * PAGE, 3, 0x22), HEAP)], 6)])
def test_a_buffer_that_mremap_moves_and_grows_does_so_in_a_further_run(name, aside, faults):
    """What it had moves once more, without faults; what grew is new, and what is mapped where it was."""
    area = HEAP + REGION
    had, grown = ([start + k * PAGE for k in range(count)] for start, count in ((HEAP, 4), (area, 8)))
    move = (1, 0, Event.MREMAP, (HEAP, 4 * PAGE, 8 * PAGE, 1), area)
    trace = build_trace([(0, had), (1, grown), (0, had[: faults - 4])], [BEGINS, move, *aside], 2)
    pages = [(va, 1 + k) for k, va in enumerate(grown + had[: faults - 4])]
    snapshot = build_snapshot(pages, vmas=[(HEAP, HEAP + 4 * PAGE, "h"), (area, area + 8 * PAGE, "a")])
    run, *_ = twice(scenario := scenario_of(case(snapshot, trace, 2)), name)
    back = scenario.steady_state().history.undone.steps
    assert back.number[back.kind == SET].any(), "what moves back is in a VMA, not in none"
    first, further = events(run.first), events(run.counters)
    for counted, faulted in ((first, faults + 4), (further, faults)):
        assert sum(count for (kind, *_), count in counted.items() if kind == "faults") == faulted
        assert sum(count for (kind, *_), count in counted.items() if kind.startswith("ipis"))


@pytest.mark.parametrize("begin, at", [(0, [1, 2]), (2, [0])])
def test_a_call_stays_between_its_chunks_where_the_first_run_walks_in_neither(begin, at):
    page, chunks = HEAP, 5
    gone = [(chunk, 0, Event.MADVISE, (page, PAGE, 4), 0) for chunk in (1, 2)]
    trace = build_trace([(0, [page]) for _ in range(chunks)], [BEGINS, *gone])
    process = case(build_snapshot([(page, 1)], vmas=[(page, page + PAGE, "h")]), trace)
    every, seldom = process.stream, np.array([0, 1, 1, 1, 1, 2])
    process = process._replace(stream=replace(every, page=every.page[:2], offset=seldom))
    again = replace(every, page=every.page[begin:], offset=np.maximum(every.offset - begin, 0))
    steps = scenario_of(process).keeping(steady_stream=again, steady_from=begin).steady_state().history.steps
    assert steps.at[steps.kind == CLEAR].tolist() == at


@pytest.mark.parametrize("name", ["linux", "first-touch", "mitosis", "hydra"])
@settings(max_examples=STEADY_EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans())
def test_a_further_run_counts_what_a_twin_counts_that_goes_on(name, data, native):
    """At most one munmap, of nothing mapped before the first touch; if before it, of nothing mapped at all;
    or one brk that shrinks the heap, of small pages; no MAP_FIXED and mremap of huge ones: the twin finds the
    VMAs that are left in the end, the further run takes the steps of the first, with those of then."""
    drawn = data.draw(cases(native))
    calls, chunks = drawn.trace.events, drawn.trace.chunks
    untouched = np.append(chunks["first"], chunks["touches"].sum())[calls["chunk"]] == 0
    kept = np.isin(drawn.trace.events["kind"], CALLS_OF_ALL)
    unmaps, breaks = (np.flatnonzero(calls["kind"] == kind) for kind in (Event.MUNMAP, Event.BRK))
    shrinks, huge = breaks[1:][np.diff(calls["result"][breaks]) < 0], (drawn.space.regions.level > 1).any()
    kept[np.union1d(unmaps, shrinks)[not huge :]] = False
    fixed = (calls["kind"] == Event.MMAP) & (calls["d"] & MAP_FIXED > 0)
    kept &= ~(huge & (fixed | (calls["kind"] == Event.MREMAP)))
    for gone in unmaps[kept[unmaps]]:
        start, end = int(calls["a"][gone]), int(calls["a"][gone]) + int(calls["b"][gone])
        mapped = calls[(calls["kind"] == Event.MMAP) & (untouched | untouched[gone])]
        places = zip(mapped["result"].tolist(), mapped["b"].tolist(), strict=True)
        kept[gone] &= not any(at < end and start < at + length for at, length in places)
    drawn = as_a_kernel_does(with_events(drawn, kept))
    run, first, second = twice(scenario_of(drawn), name)
    if not first:
        return
    counted, classes, happened, _ = naive.replay(
        name, {}, drawn.snapshot, drawn.trace, drawn.space, drawn.placement, first[0][1], drawn.machine,
        again=second[0][1],
    )  # fmt: skip
    done = run.counters
    assert events(done) == happened
    assert {tuple(at.tolist()): int(done.reads[tuple(at)]) for at in np.argwhere(done.reads)} == counted
    assert {tuple(at.tolist()): int(done.classes[tuple(at)]) for at in np.argwhere(done.classes)} == classes


@pytest.mark.parametrize(
    "name", ["linux", "first-touch", "interleave", "mitosis", "hydra", "vmitosis-migrate", "wasp"]
)
@settings(max_examples=STEADY_EXAMPLES, deadline=None)
@given(data=st.data())
def test_without_calls_a_further_run_makes_and_copies_nothing(name, data):
    drawn = data.draw(cases(native=True, moving=name == "vmitosis-migrate"))
    if np.isin(drawn.trace.events["kind"], range(Event.MMAP, Event.ROI_START)).any():
        return
    if (drawn.trace.events["kind"] == Event.MOVE_PAGES).any():
        return
    run, *_ = twice(scenario_of(drawn), name)
    assert not run.counters.events.any()
    assert run.counters.pages.tolist() == [run.first.pages[0], run.first.pages[1]]


def real_scenario(trace, snapshot, nodes=2, machine=None):
    """A Scenario whose TLBs are the machine's."""
    return Scenario(snapshot, trace, machine or small_machine(nodes), place(trace, nodes, nodes), Effort(1))


FAR = 1 << 40  # pages, in sets of the same number


def naive_again(scenario, elsewhere=(0, 0)):
    """[page] that miss when a twin's TLBs go through the trace twice, the second time.

    elsewhere  bytes that the second run maps at other addresses
    """
    tlbs = [NaiveTlb(scenario.machine.tlb) for _ in scenario.placement.cpu_node]
    for far in (0, FAR):
        missed = []
        for touches in scenario.trace.batches(1):
            chunks = range(touches.chunks.start, touches.chunks.stop)
            cpus = np.repeat(scenario.placement.chunk_cpu[chunks], scenario.trace.chunks["touches"][chunks])
            for page, cpu in zip(touches.page.tolist(), cpus.tolist(), strict=True):
                number = int(scenario.space.regions.va[page >> 9]) << 9 | page & 511
                if elsewhere[0] <= number * PAGE < elsewhere[1]:
                    number += far
                if tlbs[cpu].touch(number, 1) == 2:
                    missed.append(page)
    return missed


@settings(max_examples=STEADY_EXAMPLES, deadline=None)
@given(seed=st.integers(0, 999), many=st.integers(1, 60))
def test_tlbs_are_as_the_first_run_left_them(seed, many):
    rng = np.random.default_rng(seed)
    threads = rng.integers(0, 2, 6).tolist()
    chunks = [(t, [HEAP + PAGE * int(k) for k in rng.zipf(1.3, 30) % many]) for t in threads]
    snapshot = build_snapshot([(HEAP + k * PAGE, 1000 + k) for k in range(many)], nodes=2)
    scenario = real_scenario(build_trace(chunks, [BEGINS], 2), snapshot)
    assert scenario.steady_stream.page.tolist() == naive_again(scenario)
    assert scenario.steady_stream.hits.sum() == scenario.trace.accesses
    assert scenario.steady_stream.hits[:, 2].sum() == len(scenario.steady_stream)


@settings(max_examples=STEADY_EXAMPLES, deadline=None)
@given(
    seed=st.integers(0, 999), many=st.integers(1, 60), first=st.integers(0, 60), kind=st.sampled_from("mbr")
)
def test_pages_that_a_further_run_maps_at_free_addresses_are_in_no_tlb(seed, many, first, kind):
    """But the entries of those of the first run still take up their ways: nothing shoots them down."""
    rng = np.random.default_rng(seed)
    pages = [HEAP + PAGE * int(k) for k in rng.zipf(1.3, 300) % many]
    chunks = [(0, pages[:100]), (1, pages[100:200]), (0, pages[200:])]
    start, end = HEAP + min(first, many - 1) * PAGE, HEAP + many * PAGE
    calls = {
        "m": [BEGINS, (0, 0, Event.MMAP, (0, end - start, 3, 0x22), start)],
        "b": [(0, 0, Event.BRK, (start,), start), BEGINS, (0, 0, Event.BRK, (end,), end)],
        "r": [BEGINS, (0, 0, Event.MREMAP, (HEAP - REGION, PAGE, end - start, 1), start)],
    }
    snapshot = build_snapshot([(HEAP + k * PAGE, 1000 + k) for k in range(many)], nodes=2)
    scenario = real_scenario(build_trace(chunks, calls[kind], 2), snapshot)
    assert scenario.steady_stream.page.tolist() == naive_again(scenario, (start, end))


def test_page_walk_caches_do_not_know_the_tables_of_what_a_further_run_maps_anew():
    """The region maps one of two areas with a leaf table each: its walks read the upper entries once more."""
    old, new = HEAP, HEAP + REGION
    snapshot = build_snapshot([(old, 1), (new, 2)], vmas=[(old, old + PAGE, "o"), (new, new + PAGE, "n")])
    for calls, read in (([], 1), ([(0, 0, Event.MMAP, (0, PAGE, 3, 0x22), new)], 2)):
        trace = build_trace([(0, [old, new])], [BEGINS, *calls], 1)
        _, _, again = twice(scenario_of(case(snapshot, trace, 1)), "linux")
        known, asked = (int(mask).bit_count() for mask in again[0][1].read)
        assert (known, asked) == (1, read)


def results(chunks, happen=(), names=("mitosis", "hydra"), pages=32, **options):
    """Results of threads on two nodes, with every page mapped before the region."""
    snapshot = build_snapshot([(HEAP + k * PAGE, 1000 + k) for k in range(pages)], nodes=2)
    scenario = scenario_of(case(snapshot, build_trace(chunks, [BEGINS, *happen], 2), 2))
    plans = [plan_for(name) for name in ("linux", *names)]
    return replay_scenario(scenario, plans, Setup.of(machine=small_machine(2), costs=COSTS, **options))


ALL = [HEAP + k * PAGE for k in range(32)]


def test_getting_to_replicas_is_paid_once_by_eager_and_by_lazy_policies_alike():
    linux, mitosis, hydra = results([(0, ALL), (1, ALL)])
    for policy in (mitosis, hydra):
        assert policy.count("pte_copies") == policy.count("replica_faults") == policy.count("tables_new") == 0
        assert policy.once_cycles > 0
    assert mitosis.once(TABLE_NEW) == 4 and hydra.once(TABLE_NEW) == 3  # each node has its root
    assert linux.once_cycles == 0
    assert mitosis.once(PTE_COPY) == 32 + 3  # and an entry of each upper table
    assert hydra.once(PTE_COPY) == 32 and hydra.once(REPLICA_FAULT) == 1
    assert mitosis.walk_cycles == hydra.walk_cycles


def test_cold_counts_the_run_as_traced():
    cold, warm = (results([(0, ALL), (1, ALL)], cold=c) for c in (True, False))
    assert cold[2].count("pte_copies") == warm[2].once(PTE_COPY) == 32
    assert cold[2].once(PTE_COPY) == 0 and cold[2].break_even is None
    assert cold[1].once(PTE_COPY) == 35
    assert cold[0].row()["dram_reads"] > 0 == warm[0].row()["dram_reads"]


def test_a_run_as_traced_pays_for_copies_made_before_its_first_walk_as_for_those_within_it():
    cold, warm = (results([(0, ALL), (1, ALL)], cold=c) for c in (True, False))
    for traced, steady in zip(cold, warm, strict=True):
        assert traced.speedup == traced.traced_speedup
        assert traced.speedup.middle == steady.traced_speedup.middle
    linux, mitosis, hydra = cold
    assert mitosis.once_cycles > 0 == hydra.once_cycles
    assert mitosis.management_cycles == pytest.approx(linux.management_cycles + mitosis.once_cycles)
    assert all(one.break_even is None for one in cold) and mitosis.run_seconds is None


# Where a region of interest begins and ends, and that nothing outside it is walked, replayed or priced.

BEGIN, END, CALL = Event.ROI_START, Event.ROI_END, Event.MUNMAP


@pytest.mark.parametrize(
    ("kinds", "begin", "end", "said"),
    [
        ((), None, 0, ""),
        ((CALL, CALL), None, 2, ""),
        ((CALL, BEGIN, CALL, END, CALL), 1, 3, ""),
        ((BEGIN, END, CALL, BEGIN, END, CALL), 0, 4, ""),
        ((CALL, BEGIN, CALL), 1, 3, "never ends"),
        ((BEGIN, END, BEGIN, CALL), 0, 4, "never ends"),
        ((END, CALL, BEGIN, CALL), 2, 4, "ends before it begins"),
        ((CALL, END, CALL), None, 1, "never begins"),
    ],
)
def test_the_region_is_from_its_first_start_to_its_last_end(kinds, begin, end, said):
    events = np.zeros(len(kinds), EVENT_DTYPE)
    events["kind"] = kinds
    region = region_of_interest(events)
    assert (region.begin, region.end) == (begin, end)
    assert len(region.findings) == bool(said) and said in "".join(one.text for one in region.findings)


def test_teardown_after_the_region_changes_no_count_and_no_price():
    """One thread touches two mapped pages within its region, another one of them, on another node."""
    chunks = [(0, [HEAP, HEAP + PAGE]), (1, [HEAP])]
    end, teardown = (2, 0, END, (), 0), (2, 0, CALL, (HEAP, 2 * PAGE), 0)
    without, after, inside = (results(chunks, calls) for calls in ([end], [end, teardown], [teardown, end]))
    for quiet, torn, priced in zip(without, after, inside, strict=True):
        assert (quiet.events == torn.events).all()
        assert quiet.row() == torn.row() and quiet.local_tables == torn.local_tables
        assert torn.system_calls == ()
        assert [call.call for call in priced.system_calls] == ["munmap"]
        assert priced.management_cycles > torn.management_cycles


def both_runs(scenario):
    """[page, entries read, those that miss each cache] of each walk, of the first run and the further one."""
    caches, found = scenario.caches(), []
    for replayed in (scenario, scenario.steady_state()):
        found += [
            np.concatenate([np.zeros(0, np.int64), *(np.ravel(getattr(reads, name)) for _, reads in batches)])
            for batches in [list(replayed.reads(caches=caches))]
            for name in ("page", "read", "missed")
        ]
    return found


TAKEN_AWAY = st.sampled_from([Event.MUNMAP, Event.MPROTECT, Event.MADVISE])
CALLS = st.lists(st.tuples(TAKEN_AWAY, st.integers(0, 30), st.integers(1, 60)), max_size=3)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), before=CALLS, inside=CALLS, after=CALLS)
def test_calls_outside_the_region_change_no_walk_wherever_its_own_are(data, before, inside, after):
    """But for protections that are equal: those before the region are others than in it."""
    called = lambda chunk, calls, prot=4: [  # noqa: E731
        (chunk, 0, kind, (HEAP + PAGE * at, PAGE * n, prot if kind == Event.MPROTECT else 4), 0)
        for kind, at, n in calls
    ]
    chunks = [
        (t % 2, [HEAP + PAGE * k for k in data.draw(st.lists(st.integers(0, 40), max_size=12))])
        for t in range(4)
    ]
    own = called(data.draw(st.integers(0, 4)), inside)
    events = [*called(0, before, 1), (0, 0, BEGIN, (), 0), *own, (4, 0, END, (), 0), *called(4, after)]
    snapshot = build_snapshot([(HEAP + k * PAGE, 1000 + k) for k in range(41)], nodes=2)
    trace = build_trace(chunks, events, 2)
    found = [
        both_runs(Scenario(snapshot, one, small_machine(2), place(one, 2, 2)))
        for one in (trace, without_calls_outside(trace))
    ]
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("least", [1, 7, 1000])
@pytest.mark.parametrize("decoded", [True, False])
def test_touches_outside_the_region_are_left_out(tmp_path, least, decoded):
    chunks = [(k % 2, [HEAP + PAGE * (5 * k + n) for n in range(5)]) for k in range(6)]
    call = lambda at: (at, 1, CALL, (HEAP, PAGE), 0)  # noqa: E731
    events = [call(0), call(1), (2, 0, BEGIN, (), 0), call(3), (4, 0, END, (), 0), call(5), call(6)]
    trace = build_trace(chunks, events)
    trace.events["time"] = 1000 * trace.events["chunk"]
    if not decoded:
        write_trace(tmp_path / "t.ptt", trace)
        trace = read_trace(tmp_path / "t.ptt")
    part = within_region(trace)
    touches = [piece.decode(Scratch()) for piece in pieces(part.batches(least))]
    runs, pages = [t.chunks for t in touches], [n for t in touches for n in pages_of(part, t.page).tolist()]
    assert pages == [(HEAP >> 12) + n for n in range(10, 20)]
    assert [k for run in runs for k in range(run.start, run.stop)] == [0, 1]
    assert part.chunks["first"].tolist() == [0, 5] and part.accesses == 10
    assert part.events["kind"].tolist() == trace.events["kind"].tolist()
    assert part.events["chunk"].tolist() == [0, 0, 0, 1, 2, 2, 2]
    assert within_region(part) is part


def test_a_scenario_has_the_walks_of_the_region_alone():
    pages = [HEAP + PAGE * k for k in range(8)]
    snapshot = build_snapshot([(va, 1000 + k) for k, va in enumerate(pages)], nodes=2)
    trace = build_trace([(0, pages), (0, pages[:3]), (0, pages)], [(1, 0, BEGIN, (), 0), (2, 0, END, (), 0)])
    scenario = captured_scenario(snapshot, trace, ScenarioOptions(machine=small_machine(2)))
    assert len(scenario.stream) == 3 and int(scenario.hits.sum()) == 3


def test_a_region_without_touches_is_refused():
    trace = build_trace([(0, [HEAP])], [(1, 0, BEGIN, (), 0)])
    with pytest.raises(CaptureError, match="all 1 touches lie outside it"):
        captured_scenario(build_snapshot([(HEAP, 1)]), trace, ScenarioOptions(machine=small_machine(2)))


# The replay loop and all policies against their naive twins.

EXAMPLES = 25 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 60
FILTERS = ("off", "single", "munmap-all", "all", "all-or-none")
hydra = st.fixed_dictionaries(
    {
        "prefetch": st.integers(0, 9),
        "prefetch_on": st.sampled_from(["every", "first"]),
        "tlbflush": st.sampled_from(FILTERS),
    }
)


def assert_as_naive(case, name, params, every_step=False, batch=1 << 20):
    assert_same_as(case, name, name, params, batch, every_step)


def assert_same_as(case, twin, name, params, batch=1 << 20, every_step=False):
    """twin: name of the twin, or what makes it."""
    reads = reads_of(case)
    whole = reads[0][1] if reads else None
    assert len(reads) <= 1
    if whole is None:
        return
    found, classes, happened, pages = naive.replay(
        twin, params, case.snapshot, case.trace, case.space, case.placement, whole, case.machine, every_step
    )
    done = run(case, name, params, batch).counters
    assert events(done) == happened
    assert done.pages.tolist() == pages
    assert {tuple(at.tolist()): int(done.reads[tuple(at)]) for at in np.argwhere(done.reads)} == found
    assert {tuple(at.tolist()): int(done.classes[tuple(at)]) for at in np.argwhere(done.classes)} == classes
    assert done.reads.sum() == np.bitwise_count(whole.read).sum()
    own = at_shares(done.reads, case.machine.llc)[0]
    beside = done.classes.sum() * case.machine.walk_caches.cycles
    cycles = walk_cycles(own, read_cycles(case.machine), beside).sum()
    assert cycles == pytest.approx(naive.cycles(found, classes, case.machine))


@pytest.mark.parametrize("name", ["linux", "first-touch", "interleave", "bind", "ideal", "mitosis"])
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans())
def test_policies_with_fixed_copies_count_what_their_twins_count(name, data, native):
    assert_as_naive(data.draw(cases(native)), name, {})


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans())
def test_weighted_interleave_places_what_its_twin_places(data, native):
    case = data.draw(cases(native))
    nodes = case.machine.nodes
    weights = data.draw(st.lists(st.integers(0, 3), min_size=nodes, max_size=nodes).filter(any))
    assert_as_naive(case, "interleave", {"weights": ",".join(map(str, weights))})


@settings(max_examples=3 * EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans(), params=hydra, batch=st.sampled_from([1, 3, 1 << 20]))
def test_hydra_counts_what_its_twin_counts_and_keeps_its_invariants(data, native, params, batch):
    assert_as_naive(data.draw(cases(native)), "hydra", params, every_step=True, batch=batch)


@settings(max_examples=EXAMPLES, deadline=None)
@given(case=cases(native=False), layers=st.sampled_from(["both", "gpt", "ept"]))
def test_replication_in_either_dimension_counts_what_its_twin_counts(case, layers):
    assert_as_naive(case, "vmitosis-replicate", {"layers": layers})


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_mitosis_on_some_nodes_counts_what_its_twin_counts(data):
    case = data.draw(cases())
    some = data.draw(st.lists(st.integers(0, case.machine.nodes - 1), min_size=1, unique=True))
    assert_as_naive(case, "mitosis", {"nodes": ",".join(map(str, sorted(some)))})


# Policies of analyzer/docs/add-a-policy.md, against twins of their own.

GUIDE = Path(ptanalyze.__file__).parents[1] / "docs" / "add-a-policy.md"


@cache
def of_the_page(name):
    """The Policy that a block of the page makes."""
    code = re.search(rf'```python\n("""{name}: .*?)```', GUIDE.read_text("utf-8"), re.DOTALL)[1]
    module = sys.modules[name] = ModuleType(name)
    exec(compile(code, GUIDE.name, "exec"), vars(module))
    return module.POLICY


def where_they_were(case):
    """Arguments of Fixed: a single copy of each table, as guest_homes has it."""
    one = len(case.snapshot.topology) < 2 and case.snapshot.native
    return {"rule": "first"} if one else {"captured": True}


def replicated_on(case, nodes, chosen):
    """Twin that keeps the tables which `chosen`(first byte, byte after) says on `nodes`, as `masked` does."""

    def twin(memory, space, machine):
        far = machine.latency.idle
        serve = [n if n in nodes else min(nodes, key=lambda m: (far[n][m], m)) for n in range(machine.nodes)]

        def replicated(table):
            level, number = table
            return chosen(number << (12 + 9 * level), (number + 1) << (12 + 9 * level))

        how = {"replicas": sorted(nodes), "serve": serve, "replicated": replicated}
        return naive.Fixed(memory, space, machine.nodes, **how, **where_they_were(case))

    return twin


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans())
def test_tables_of_big_vmas_are_on_the_two_busiest_nodes_as_a_twin_has_them(data, native):
    case = data.draw(cases(native))
    walks = Counter({node: 0 for node in range(case.machine.nodes)})
    for chunk, cpu in enumerate(case.placement.chunk_cpu):
        walks[int(case.placement.cpu_node[cpu])] += int(case.trace.chunks["touches"][chunk])
    busiest = [node for node, _ in sorted(walks.items(), key=lambda item: (-item[1], item[0]))[:2]]
    spans = [(int(vma["start"]), int(vma["end"])) for vma in case.snapshot.vmas]
    big = [(first, end) for first, end in spans if end - first > 1 << 30]
    twin = replicated_on(case, busiest, lambda low, high: any(a < high and low < b for a, b in big))
    if not big and reads_of(case):
        with pytest.raises(RefusedError, match="mask: none"):
            run(case, of_the_page("big-vmas"))
        return
    assert_same_as(case, twin, of_the_page("big-vmas"), {})


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans())
def test_any_mask_counts_what_its_twin_counts_and_all_tables_what_mitosis_counts(data, native):
    case = data.draw(cases(native))
    nodes = sorted(data.draw(st.sets(st.integers(0, case.machine.nodes - 1), min_size=1)))
    levels = data.draw(st.sampled_from([(1,), (2, 3), (4, 5), (1, 2, 3, 4, 5)]))

    tables, guest, host = case.space.tables, case.space.guest_tables, case.space.host_tables
    spans = [
        (low, low + (1 << (12 + 9 * level)))
        for k, (low, level) in enumerate(zip(tables.base.tolist(), tables.level.tolist(), strict=True))
        if level in levels and not guest <= k < guest + host
    ]

    def at(low, high):
        """In the mask, or above what is in it: a CPU finds a copy through copies of those above."""
        return any(low <= first and end <= high for first, end in spans)

    start = lambda s, _: masked(s, np.isin(s.space.tables.level, levels), nodes)  # noqa: E731
    policy = Policy("some", "some", guest=guest_part(start), source="a test", needs=("trace",))
    if not spans and reads_of(case):
        with pytest.raises(RefusedError, match="mask: none"):
            run(case, policy)
        return
    assert_same_as(case, replicated_on(case, nodes, at), policy, {})
    if len(levels) == 5:
        mitosis = run(case, "mitosis", {"nodes": ",".join(map(str, nodes))})
        for counted in zip(run(case, policy).counters, mitosis.counters, strict=True):
            np.testing.assert_array_equal(*counted)


@pytest.mark.parametrize(
    ("mask", "nodes", "said"),
    [
        (np.array([3]), [0], "mask: int64[1], not bool[4]"),
        (np.ones(4, np.int64), [0], "mask: int64[4], not bool[4]"),
        (np.ones(5, bool), [0], "mask: bool[5], not bool[4]"),
        (np.zeros(4, bool), [0], "mask: none of the program's page tables"),
        (np.ones(4, bool), [], "nodes: none of the program's page tables"),
        (np.ones(4, bool), [0, 0], "nodes = [0, 0]: "),
        (np.ones(4, bool), [0, 3], "nodes = [0, 3]: "),
        (np.ones(4, bool), [-1], "nodes = [-1]: "),
        (np.ones(4, bool), [0.0, 1.0], "nodes = [0.0, 1.0]: "),
        (np.ones(4, bool), [True, False, True], "nodes = [True, False, True]: "),
    ],
)
def test_a_mask_or_nodes_that_mean_nothing_are_named_with_their_value(mask, nodes, said):
    process = case(build_snapshot([(HEAP, 1)]), build_trace([(0, [HEAP])]), 3)
    side = guest_part(lambda scenario, params: masked(scenario, mask, nodes))
    with pytest.raises(UsageError, match=re.escape(said)):
        run(process, Policy("some", "some", guest=side, source="a test"))


class Moving(naive.Fixed):
    """leaf-moves: before the Nth remote walk its leaf table goes where the walk is from."""

    remote, patience = Counter(), 0

    def walk(self, page, node, made):
        leaf = self.memory.chain(page)[0]
        server = super().walk(page, node, made)
        self.remote[leaf] += server != node
        if server != node and self.remote[leaf] == self.patience:
            self.events["tables_moved", server, node] += 1
            self.home[leaf], self.remote[leaf] = node, 0
            self.write((leaf[0] + 1, leaf[1] >> 9), node)
        return self.where(leaf, node)


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans(), patience=st.sampled_from([1, 2, 3, 1000]))
def test_leaf_tables_that_go_to_their_readers_are_where_a_twin_has_them(data, native, patience):
    case = data.draw(cases(native))

    def twin(memory, space, machine):
        made = Moving(memory, space, machine.nodes, **where_they_were(case))
        made.remote, made.patience = Counter(), patience
        return made

    assert_same_as(case, twin, of_the_page("leaf-moves"), {"walks": patience})


def test_a_policy_that_does_not_say_how_many_tables_fill_themselves_has_one_of_each():
    freed = [(1, 0, Event.MUNMAP, (HEAP, REGION), 0)]
    process = case(build_snapshot([(HEAP, 1)]), build_trace([(0, [HEAP])], freed))
    for policy in ("linux", of_the_page("leaf-moves")):
        assert run(process, policy).counters.pages.tolist() == [4, 4], "freed, yet in the snapshot"


@pytest.mark.parametrize("name", ["linux", "first-touch", "interleave", "bind", "ideal", "mitosis", "hydra"])
def test_tables_that_are_freed_made_again_and_moved_into_are_as_the_twin_has_them(name):
    there, elsewhere = HEAP, HEAP + (1 << 39)
    maps = [
        (0, 0, Event.MMAP, (0, REGION, 3, 0x22), there),
        (2, 0, Event.MUNMAP, (there, REGION), 0),
        (2, 1, Event.MMAP, (0, REGION, 3, 0x22), there),
        (3, 1, Event.MPROTECT, (there, PAGE, 1), 0),
        (4, 2, Event.MREMAP, (there, REGION, REGION, 1), elsewhere),
    ]
    touches = [(0, [there]), (1, [there]), (1, [there]), (2, [there, there + PAGE]), (0, [elsewhere])]
    snapshot = build_snapshot([(elsewhere, 1)], nodes=3, vmas=[(elsewhere, elsewhere + REGION, "m")])
    process = case(snapshot, build_trace(touches, maps), 3)
    assert_as_naive(process, name, {}, every_step=True)
    counted = events(run(process, name).counters)
    assert sum(n for key, n in counted.items() if key[0] == "tables_freed") >= 6
    if name == "first-touch":
        assert counted["faults", 1, 1] == 1
        assert counted["tables_new", 2, 2] == 3
    if name == "hydra":
        assert ("pte_fanout", 1, 0) not in counted


@pytest.mark.parametrize("name", ["linux", "first-touch", "interleave", "bind", "ideal", "mitosis", "hydra"])
@pytest.mark.parametrize("stays", [0, 4])
def test_tables_that_are_emptied_and_moved_whole_are_as_the_twin_has_them(name, stays):
    """Twice into the same place, which has a table then; stays: MREMAP_DONTUNMAP."""
    there, elsewhere = HEAP, HEAP + (1 << 39)
    move = Event.MREMAP, (there, REGION, REGION, 3 | stays), elsewhere
    events_ = [
        (0, 0, Event.MMAP, (0, 2 * REGION, 3, 0x22), there),
        (1, 1, Event.MADVISE, (there, 2 * REGION, 4), 0),
        (2, 2, *move),
        (3, 0, Event.MMAP, (0, REGION, 3, 0x32), there),
        (4, 1, *move),
        (5, 0, Event.MUNMAP, (elsewhere, REGION), 0),
    ]
    both = [there, there + PAGE, there + REGION]
    touches = [(0, both), (1, both), (2, [elsewhere, there + REGION]), (0, both), (0, [elsewhere]), (1, both)]
    snapshot = build_snapshot([(elsewhere, 1)], nodes=3, vmas=[(elsewhere, elsewhere + REGION, "m")])
    snapshot = replace(snapshot, facts={"kernel": "6.18.44"})
    process = case(snapshot, build_trace(touches, events_), 3)
    assert_as_naive(process, name, {}, every_step=True)
    freed = sum(n for key, n in events(run(process, name).counters).items() if key[0] == "tables_freed")
    assert freed >= 3, "two emptied, and one unmapped"
