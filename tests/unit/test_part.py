"""The part of a trace that is asked for with --from and --to, and what is said of a run that fills memory."""

import msgspec
import pytest

from ptanalyze.analysis.setup import Setup, open_replay_capture
from ptanalyze.analysis.verdict import workload
from ptanalyze.analysis.whatif import replay, timeline
from ptanalyze.core.columns import FILLS, REFILLS
from ptanalyze.core.errors import UsageError
from ptanalyze.core.trace import Event
from ptanalyze.world.mm_events import chunk_at
from ptanalyze.world.scenario import ScenarioOptions, captured_scenario
from ptanalyze.world.traced_program import first_walks
from ptanalyze_synth.capture import synth
from strategies import PAGE, build_snapshot, build_trace, small_machine

HEAP = 0x1000_0000_0000
FIRST, MORE = [HEAP + k * PAGE for k in range(50)], [HEAP + k * PAGE for k in range(25)]
CHUNKS = [(0, FIRST[:25]), (0, FIRST[25:]), (1, FIRST), (0, FIRST), (0, MORE), (1, MORE)]  # 200 accesses


def run(begin="", end="", events=()):
    snapshot = build_snapshot([(va, k) for k, va in enumerate(FIRST)], nodes=2)
    asked = ScenarioOptions(machine=small_machine(2), begin=begin, end=end)
    return captured_scenario(snapshot, build_trace(CHUNKS, [*events]), asked)


@pytest.mark.parametrize(("begin", "first"), [("", 0), ("0", 0), ("25%", 2), ("50", 2), ("51", 3)])
@pytest.mark.parametrize(("end", "last"), [("", 6), ("100%", 6), ("75%", 4)])
def test_parts_begin_and_end_with_chunks(begin, end, first, last):
    scenario = run(begin, end)
    assert (scenario.steady_from, len(scenario.trace.chunks)) == (first, last)
    walks = int(scenario.stream.offset[-1] - scenario.stream.offset[first])
    assert len(scenario.steady_stream) == scenario.walks_by_node.sum() == walks
    assert not any(one.code == "region-never-begins" for one in scenario.findings)


def test_who_walks_is_of_the_part_that_counts():
    whole, last = workload(run()), workload(run("87.5%"))
    assert (whole.shared, last.shared) == (1, 0) and whole.walks.min() > 0
    assert (last.thin, last.walks[0], last.at_once) == (True, 0, 1.0)


def test_times_count_from_the_first_chunk():
    trace = build_trace(CHUNKS)
    trace.chunks["time"] = [5_000_000 + k * 1_000_000 for k in range(6)]
    assert [chunk_at(trace, "--from", text) for text in ("0s", "2ms", "0.0035s", "5ms")] == [0, 2, 4, 5]
    trace.chunks["time"] = 7
    with pytest.raises(UsageError, match="has no times; give a share"):
        chunk_at(trace, "--from", "2ms")


NOWHERE = ["x", "-1", "1e3", "101%", "100%", "999", "9s"]


@pytest.mark.parametrize(("begin", "end"), [("", "40 %"), ("50%", "25%"), *((at, "") for at in NOWHERE)])
def test_places_that_are_not_there_are_refused(begin, end):
    with pytest.raises(UsageError, match=r"^--(from|to) "):
        run(begin, end)


def test_a_run_as_traced_has_no_later_begin(tmp_path):
    made = synth(tmp_path / "made", "8M", accesses=2000)
    for asked in ({"cold": True}, {"move_threads": "0:1@50%"}):
        with pytest.raises(UsageError, match="--from 40%: the run as traced begins with the trace"):
            open_replay_capture(made).scenario(Setup.of(begin="40%", **asked))
    with pytest.raises(UsageError, match="--from 40%"):
        timeline(made, "linux", begin="40%")


def test_memory_freed_after_the_part_stays(tmp_path):
    """A munmap after the part is no call of its further run, which would fault all pages in again."""
    scenario = run("", "75%", [(4, 0, Event.MUNMAP, (HEAP, 50 * PAGE), 0)])
    assert not len(scenario.steady_state().history.steps.at)


def test_first_walks_are_counted_by_chunk():
    scenario = run()
    assert first_walks(scenario.stream, scenario.space.regions).tolist() == [25, 25, 0, 0, 0, 0]


@pytest.mark.parametrize("joins", [1, 4])
def test_a_fill_ends_with_first_touches_whatever_pages_share_an_entry(joins):
    """Pages that share an entry walk at first for one of them; the others would seem new when it is gone."""
    pages = [HEAP + k * PAGE for k in range(400)]
    snapshot = build_snapshot([(va, k) for k, va in enumerate(pages)], nodes=2)
    machine = small_machine(2)
    machine = msgspec.structs.replace(machine, tlb=msgspec.structs.replace(machine.tlb, joins=joins))
    later = [(0, pages[offset::7] * 2) for offset in range(7)]
    trace = build_trace([(0, pages[:200]), (0, pages[200:]), *later])
    program = captured_scenario(snapshot, trace, ScenarioOptions(machine=machine))
    assert program.stream.offset[2] == 400 // joins
    assert (first_walks(program.stream, program.space.regions)[2:].sum() > 0) == (joins > 1)
    (found,) = program.filling
    assert found.numbers["share"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("filling", "work", "late", "said"),
    [(1, 40, 0, FILLS), (1, 8, 80, FILLS), (100, 1, 0, FILLS), (1, 400, 0, ""), (1, 0, 0, "touched-once")],
)
def test_short_and_long_fills_are_said_and_memory_that_just_grows_is_not(filling, work, late, said):
    every = [HEAP + k * PAGE for k in range(2000 + late)]
    pages = every[:2000]
    snapshot = build_snapshot([(va, k) for k, va in enumerate(every)], nodes=2)
    parts = [[(va, True, filling) for va in pages[k::20]] for k in range(20)]
    parts += [[(va, False, work) for va in pages]] * (work > 0) + [[(va, True, 1) for va in every[2000:]]]
    trace = build_trace([(0, part) for part in parts])
    found = captured_scenario(snapshot, trace, ScenarioOptions(machine=small_machine(2))).filling
    share = filling / (filling + work + late / 2000)
    assert [(one.code, one.numbers["share"]) for one in found] == [(said, pytest.approx(share))] * bool(said)


def test_a_fill_is_said_and_left_out_as_said(tmp_path):
    """The work's walks are those that the same capture without its fill has."""
    asked = {"threads": 2, "accesses": 36_000, "init": "single", "placement": "first-touch"}
    whole = synth(tmp_path / "whole", "40M", init_trace=True, **asked)
    work = synth(tmp_path / "work", "40M", init_trace=False, **asked)
    every = replay(whole, "mitosis").results
    share = every[0].finding(FILLS).numbers["share"]
    assert every[0].finding(REFILLS) is not None and every[1].break_even is None
    assert share == pytest.approx(10240 / 46240, abs=0.01)
    assert replay(work, "mitosis").results[0].finding(FILLS) is None
    part = replay(whole, "mitosis", begin=f"{100 * share:.3f}%").results
    assert part[0].finding(FILLS) is part[0].finding(REFILLS) is None and part[1].break_even is not None
    for mine, theirs in zip(part, replay(work, "mitosis").results, strict=True):
        assert mine.walks == pytest.approx(theirs.walks, abs=4096), "a part begins with a chunk"
        assert mine.speedup.middle == pytest.approx(theirs.speedup.middle, abs=0.005)
