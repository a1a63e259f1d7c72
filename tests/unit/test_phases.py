"""Phases of a trace: found where threads, first touches or calls change; the last busy one is answered."""

import itertools
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import replay as naive
from ptanalyze.analysis.setup import Setup, open_replay_capture
from ptanalyze.analysis.whatif import replay
from ptanalyze.core.columns import PHASES
from ptanalyze.core.errors import UsageError
from ptanalyze.core.trace import Event
from ptanalyze.world.phases import (
    STRAY,
    Places,
    at_work,
    cuts_of,
    last_busy,
    partition,
    phases_of,
    turns,
    without_loops,
)
from ptanalyze.world.scenario import ScenarioOptions, captured_scenario
from ptanalyze_synth.capture import synth
from strategies import PAGE, build_snapshot, build_trace, small_machine

pytestmark = pytest.mark.twin

EXAMPLES = 15 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 60
HEAP = 0x1000_0000_0000
EACH = 1024  # walks of a chunk


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    weights=st.lists(st.integers(1, 9), min_size=1, max_size=9),
    data=st.data(),
    least=st.integers(1, 9),
    penalty=st.sampled_from([0.01, 0.3, 2.0]),
)
def test_no_partition_explains_more_than_the_one_that_is_found(weights, data, least, penalty):
    means = [data.draw(st.tuples(st.floats(0, 1), st.floats(0, 1))) for _ in weights]
    turn = [data.draw(st.sampled_from([0, 0.25, 0.5, 1])) for _ in weights]
    weight = np.array(weights, np.float64)
    places = Places(
        np.arange(len(weights) + 1),
        np.append(0.0, np.cumsum(weight)),
        np.vstack([np.zeros(2), np.cumsum(weight[:, None] * np.array(means), axis=0)]),
        np.append(0.0, np.cumsum(weight * np.array(turn))),
    )
    found = partition(places, least, penalty)
    best = naive.best_cuts(weights, means, turn, least, penalty)
    if best is None:
        assert found == [0, len(weights)]
        return
    assert all(naive.long_enough(weights, turn, least, a, b) for a, b in itertools.pairwise(found))
    assert naive.cost(weights, means, found, penalty) == pytest.approx(best[0], abs=1e-9)


@settings(max_examples=EXAMPLES, deadline=None)
@given(chunks=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300)), min_size=1, max_size=30))
def test_threads_at_work_and_their_turns_are_those_of_a_count_by_hand(chunks):
    threads, walks = (list(column) for column in zip(*chunks, strict=True))
    thread, count = np.array(threads, np.uint16), np.array(walks, np.int64)
    assert at_work(thread, count).tolist() == naive.at_work(threads, walks, STRAY)
    assert turns(thread, count).tolist() == naive.turn(threads, walks)


def test_a_pool_that_starts_early_and_waits_is_not_at_work():
    threads = np.array([1, 2, 0, 0, 0, 1, 2, 1, 2], np.uint16)
    walks = np.array([1, 1, 500, 500, 500, 500, 500, 500, 500], np.int64)
    assert at_work(threads, walks).tolist() == [0, 0, 1, 1, 1, 1, 2, 2, 1]


def pages(first, count):
    return [HEAP + (first + k) * PAGE for k in range(count)]


def found(chunks, calls=()):
    """Phases of chunks [(thread, first page)], each of EACH walks to a page of its own."""
    trace = build_trace([(thread, pages(first, EACH)) for thread, first in chunks], calls)
    seen, new = set(), []
    for _, first in chunks:
        mine = set(range(first, first + EACH))
        new.append(len(mine - seen))
        seen |= mine
    return phases_of(trace, np.array(new), np.full(len(chunks), EACH))


FILL = [(0, k * EACH) for k in range(40)]
WORK = [(1 + k % 4, k % 40 * EACH) for k in range(24)]


def test_a_fill_by_one_thread_and_the_work_of_four_are_two_phases_cut_at_the_chunk():
    fill, work = found(FILL + WORK)
    assert (fill.first, fill.end, work.end) == (0, 40, 64)
    assert (fill.threads, fill.thread, work.threads) == (1, 0, 4)
    assert (fill.walks, fill.pages, work.walks, work.pages) == (40 * EACH, 40 * EACH, 24 * EACH, 0)


def test_one_thread_that_touches_memory_first_and_works_on_it_then_has_two_phases():
    fill, work = found(FILL + [(0, k % 40 * EACH) for k in range(30)])
    assert (fill.end, work.threads, work.pages) == (40, 1, 0)


def test_what_one_kind_of_work_does_is_one_phase_however_its_threads_take_turns():
    assert len(found([(k % 5, 0) for k in range(60)])) == 1
    assert len(found([(k // 3 % 5, 0) for k in range(900)])) == 1


def test_a_phase_of_memory_calls_is_told_apart():
    steady = [(0, 0)] * 60
    calls = [(30 + k // 128, 0, Event.MADVISE, (HEAP, PAGE, 4), 0) for k in range(128 * 30)]
    first, then = found(steady, calls)
    assert (first.end, first.calls, then.calls) == (30, 0, 128 * 30)


def test_fewer_walks_than_a_chunk_may_have_are_no_phase():
    assert len(found([(0, k * EACH) for k in range(4)] + [(1, 0), (2, 0), (3, 0)])) == 1
    weight = np.full(12, 100.0)
    assert cuts_of(weight, np.repeat([[0.0], [100.0]], 6, axis=0), np.ones(12)) == [0, 12]
    assert cuts_of(10 * weight, np.repeat([[0.0], [1000.0]], 6, axis=0), np.ones(12)) == [0, 6, 12]


def test_an_end_of_one_thread_is_not_the_last_phase():
    phases = found(FILL + WORK + [(0, k * EACH) for k in range(10)])
    assert [phase.threads for phase in phases] == [1, 4, 1]
    assert last_busy(phases) == 1
    ends = [phases[1]._replace(threads=3, walks=phases[1].walks * n // 100 + 1) for n in (19, 20)]
    assert [last_busy([*phases[:2], end]) for end in ends] == [1, 2]  # threads end one after the other
    fill = phases[0]._replace(threads=4, walks=100 * phases[1].walks)
    assert last_busy([fill, phases[1]]) == 1


@pytest.mark.parametrize(
    "kinds, runs",
    [
        ("", []),
        ("ab", [(0, 1), (1, 2)]),
        ("aba", [(0, 1), (1, 2), (2, 3)]),
        ("fabab", [(0, 1), (1, 5)]),
        ("fababx", [(0, 1), (1, 5), (5, 6)]),
        ("aab", [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_phases_that_come_again_and_again_are_one(kinds, runs):
    assert without_loops(kinds) == runs


def whole_run(chunks, phase, events=()):
    some = [HEAP + k * PAGE for k in range(40 * EACH)]
    snapshot = build_snapshot(
        [(va, 1000 + k) for k, va in enumerate(some)], nodes=2, vmas=[(HEAP, HEAP + len(some) * PAGE, "h")]
    )
    trace = build_trace([(thread, pages(first, EACH)) for thread, first in chunks], events)
    return captured_scenario(snapshot, trace, ScenarioOptions(machine=small_machine(2), phase=phase))


def test_the_steady_state_is_that_of_the_last_phase_unless_another_is_asked_for():
    """Threads end one after the other, so that the end of their phase is known to a turn of theirs."""
    end = FILL[:10]
    scenario = whole_run(FILL + WORK + end, "last")
    last = len(scenario.trace.chunks)
    assert scenario.steady.chunk == 40 and 60 <= last <= 64
    assert len(scenario.stream) == last * EACH and len(scenario.steady_stream) == (last - 40) * EACH
    assert scenario.trace.touches == last * EACH == sum(len(t.page) for t in scenario.trace.batches(1))
    assert (
        "3 phases: 1 has 54 % of the walks (thread 0 alone, 100 % of the first touches); "
        in scenario.steady.found[0].text
    )
    assert (
        f"Answered: phase 2, {(last - 40) * EACH:,} walks; --phase 1 or 3 or all asks another"
        in scenario.steady.found[0].text
    )
    assert "--roi-start-access 40960" in scenario.steady.found[0].text
    fill = whole_run(FILL + WORK + end, "1")
    assert (fill.steady.chunk, len(fill.trace.chunks), len(fill.steady_stream)) == (0, 40, 40 * EACH)
    third = whole_run(FILL + WORK + end, "3")
    assert (third.steady.chunk, len(third.trace.chunks)) == (last, 74)
    assert len(third.steady_stream) == (74 - last) * EACH
    every = whole_run(FILL + WORK + end, "all")
    assert (every.steady.chunk, len(every.steady_stream)) == (0, 74 * EACH)


def test_memory_that_is_freed_after_the_phase_is_there_in_its_further_run():
    """A munmap after the phase is no call of its further run, which would fault all pages in again."""
    unmap = [(64, 0, Event.MUNMAP, (HEAP, 40 * EACH * PAGE), 0)]
    scenario = whole_run(FILL + WORK + [(0, 0)] * 10, "2", unmap)
    assert len(scenario.trace.chunks) <= 64
    assert not len(scenario.steady_state().history.steps.at)
    assert not any(one.code == "region-never-begins" for one in scenario.findings)


def test_a_region_of_interest_is_answered_as_marked_and_its_phases_if_asked_for():
    marked = [(0, 0, Event.ROI_START, (), 0)]
    assert whole_run(FILL + WORK, "last", marked).steady[:3] == (0, 64 * EACH, ())
    assert whole_run(FILL + WORK, "2", marked).steady.chunk == 40


@pytest.mark.parametrize("phase", ["3", "99999999999999999999"])
def test_a_phase_that_is_not_there_is_refused_with_those_that_are(phase):
    with pytest.raises(
        UsageError, match=rf"phase {phase}: the trace has phases: 1 has .*; 2 has .*; give its number"
    ):
        whole_run(FILL + WORK, phase).steady  # noqa: B018


@pytest.mark.parametrize("phase", ["0", "-1", "first", ""])
def test_what_is_no_phase_is_refused_before_anything_is_computed(phase):
    with pytest.raises(UsageError, match="give last, all or the number of a phase"):
        Setup.of(phase=phase)
    with pytest.raises(UsageError, match="has all phases"):
        Setup.of(phase=2, cold=True)


@pytest.mark.compiled
def test_a_synthetic_fill_and_its_work_are_answered_apart(tmp_path):
    """The work's walks are those that the same capture without its fill has."""
    asked = {"threads": 2, "accesses": 36_000, "init": "single", "placement": "first-touch"}
    whole = synth(tmp_path / "whole", "40M", init_trace=True, **asked)
    work = synth(tmp_path / "work", "40M", init_trace=False, **asked)
    setup = Setup.of(machine="vmitosis-cascade-lake")
    assert open_replay_capture(whole).scenario(setup).steady.found[0].text.startswith("2 phases: 1 has ")
    found = [replay(capture, "mitosis", setup).results for capture in (whole, work)]
    assert found[0][0].finding(PHASES) and not found[1][0].finding(PHASES)
    for mine, theirs in zip(*found, strict=True):
        assert mine.walks == pytest.approx(theirs.walks, abs=4096), "a phase begins with a chunk"
        assert mine.price.speedup.middle == pytest.approx(theirs.price.speedup.middle, abs=0.005)
