"""A Scenario: its passes, and the memory that its walk stream takes."""

import mmap
import os
import pickle
from functools import cached_property

import numpy as np
import pytest
from msgspec.structs import replace

from captures import touches_of
from naive import walker
from ptanalyze.analysis.leaf_classes import classify_walks
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.verdict import workload
from ptanalyze.analysis.whatif import replay_scenario
from ptanalyze.core.columns import Finding
from ptanalyze.core.machine import Array, Moves, load_machine, sharing
from ptanalyze.core.trace import WalkStream, blocks, give_back
from ptanalyze.formats.capture import open_capture
from ptanalyze.policies import plan_for
from ptanalyze.world.scenario import Scenario, ScenarioOptions, captured_scenario
from ptanalyze.world.traced_program import TracedProgram
from ptanalyze_synth.capture import synthesize
from ptanalyze_synth.parameters import Parameters
from replay_cases import case, scenario_of
from strategies import build_snapshot, build_trace, place, small_machine

# What a process holds of a walk stream's file does not grow with it: every pass gives back what it read.

GIB, CHUNKS, WALKS = 1 << 30, 600, 4_200_000
SLACK = 6 << 20  # bytes around what is read that the kernel maps, too: pieces of 2 MiB


@pytest.fixture
def scenario(tmp_path):
    """A Scenario whose stream of 16.8 MB of pages is a mapped file: 600 chunks of the same two threads."""
    machine = small_machine()
    trace = build_trace([(k % 2, [(GIB + k * 4096, False, 1)]) for k in range(CHUNKS)])
    trace.chunks["time"] = np.arange(CHUNKS) * 10**6
    page = np.sort(np.random.default_rng(1).integers(0, len(trace.regions) << 9, WALKS)).astype(np.uint32)
    snapshot = build_snapshot([(GIB + k * 4096, k) for k in range(512)])
    for name, column in (("page", page), ("write", page % 2 == 0)):
        column.tofile(tmp_path / name)
    mapped = np.memmap(tmp_path / "page", np.uint32, "r"), np.memmap(tmp_path / "write", np.bool_, "r")
    stream = WalkStream(*mapped, np.arange(CHUNKS + 1) * (WALKS // CHUNKS), np.zeros((2, 3), np.int64))
    moves = Moves(autonuma=True, scan_period_ms=10_000)
    return Scenario(snapshot, trace, machine, place(trace, 2, 2), moves=moves).keeping(stream=stream)


def held(stream):
    """Bytes of the file of a stream's pages that are resident in this process."""
    inside, total, at = False, 0, stream.page.ctypes.data
    with open("/proc/self/smaps") as lines:
        for line in lines:
            words = line.split()
            if "-" in words[0]:
                start, end = (int(bound, 16) for bound in words[0].split("-"))
                inside = start <= at < end
            elif inside and words[0] == "Rss:":
                total += int(words[1]) << 10
    return total


PASSES = {
    "history": lambda scenario: scenario.history,
    "nodes of data": lambda scenario: scenario.data,
    "cache pass": lambda scenario: [len(reads.page) for _, reads in scenario.reads()],
    "classes of walks": lambda scenario: classify_walks(
        scenario.space, scenario.stream, scenario.placement, scenario.trace
    ),
    "workload": lambda scenario: workload(scenario),
    "counts": lambda scenario: replay_scenario(
        scenario, [plan_for("linux")], Setup.of(machine=scenario.machine, costs="hydra-haswell", cold=True)
    ),
}


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_gives_back_the_stream_behind_it(scenario, name):
    stream = scenario.stream
    assert int(stream.page.max()) < len(scenario.trace.regions) << 9
    assert held(stream) >= stream.page.nbytes  # the look at all of them is seen
    give_back(stream.page)
    assert held(stream) <= SLACK, PASSES[name](scenario)


def test_blocks_are_all_of_an_array_and_behind_the_reader_nothing_is_held(scenario):
    stream, page = scenario.stream, scenario.stream.page
    give_back(page)
    found, most = [], 0
    for block in blocks(page, 100_000):
        found.append(np.array(block))
        most = max(most, held(stream))
    assert np.array_equal(np.concatenate(found), page)
    assert most <= 400_000 + SLACK


def test_pages_that_can_be_written_to_are_never_given_back(tmp_path):
    (tmp_path / "file").write_bytes(bytes(8 * mmap.PAGESIZE))
    private = np.memmap(tmp_path / "file", np.uint8, "c")
    private[:] = 7
    view = private[:]
    view.flags.writeable = False
    give_back(view)
    assert (private == 7).all()


# A Scenario: its passes, kept when it only gets further notes, and its reads beside another simulator's.

ACCESSES = 5_000 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 60_000
HEAP = 0x5600_0000_0000


def small_scenario():
    trace = build_trace([(0, [HEAP, HEAP + 4096])])
    return scenario_of(case(build_snapshot([(HEAP, 1), (HEAP + 4096, 2)]), trace))


@pytest.mark.twin
def test_notes_are_added_and_every_pass_is_kept():
    scenario = small_scenario().with_findings(Finding("a", "first"))
    passes = {name: getattr(scenario, name) for name in ("space", "stream", "history", "data")}
    again = scenario.with_findings(Finding("b", "second"), Finding("b", "third"))
    assert [one.text for one in again.findings] == ["first", "second", "third"]
    assert scenario.findings == (Finding("a", "first"),)
    assert all(vars(again)[name] is made for name, made in passes.items())


@pytest.mark.twin
def test_what_is_known_before_events_is_the_same_of_a_traced_program_and_of_its_scenario():
    scenario = small_scenario()
    program = TracedProgram(scenario.snapshot, scenario.trace, scenario.machine, scenario.placement)
    assert program.nodes == scenario.nodes
    assert program.captured is program and scenario.reshaped(facts={}).captured is scenario
    assert not hasattr(program, "history")


@pytest.mark.twin
@pytest.mark.parametrize("pattern", ["uniform", "zipf:0.8", "zipf:1.2", "sequential"])
@pytest.mark.parametrize(
    ("mib", "nodes", "llc_kib", "off"),
    [(64, 2, 64, 0.01), pytest.param(2048, 4, 1024, 0.002, marks=pytest.mark.compiled)],
)
def test_reads_from_dram_are_those_of_a_simulator_by_addresses(pattern, mib, nodes, llc_kib, off, tmp_path):
    """Where table pages lie in a row in memory; their frames hash to other sets than their ids."""
    run = {"init_trace": False, "accesses": ACCESSES, "seed": 3}
    synthesize(Parameters(size=mib << 20, nodes=nodes, pattern=pattern, **run), tmp_path / "capture")
    capture, machine = open_capture(tmp_path / "capture"), load_machine("epyc-7543-16-nodes")
    few = replace(machine.tlb, joins=1, l1_4k=Array(entries=16, ways=4), l2=Array(entries=64, ways=4))
    llc, l2 = replace(machine.llc, bytes=llc_kib << 10), replace(machine.l2, bytes=8 << 10, share=1.0)
    machine = sharing(replace(machine, tlb=few, llc=llc, l2=l2), "0.25")
    scenario = captured_scenario(capture.snapshot, capture.trace, ScenarioOptions(machine=machine))
    missed = (reads.missed[:, 0] & reads.missed[:, 1] for _, reads in scenario.reads())
    dram = sum(int(np.bitwise_count(both).sum()) for both in missed)

    pages = [page for page, *_ in touches_of(capture.trace)]
    cpu = np.repeat(scenario.placement.chunk_cpu, capture.trace.chunks["touches"])
    cpu_node = scenario.placement.cpu_node.tolist()
    other = walker.replay(capture.snapshot.guest, machine, cpu_node, zip(cpu.tolist(), pages, strict=True))
    assert len(scenario.stream) == sum(cpu.walks for cpu in other)
    others = sum(cpu.dram for cpu in other)
    assert dram / len(scenario.stream) == pytest.approx(others / len(scenario.stream), abs=off)


def passed(scenario, names):
    """{name of a pass: its value, as bytes}."""
    return {name: pickle.dumps(getattr(scenario, name)) for name in names}


def test_copies_are_what_they_are_whatever_was_computed():
    kept = {name: one for each in Scenario.__mro__ for name, one in vars(each).items()}
    names = {name for name, one in kept.items() if isinstance(one, cached_property)} - {"_near", "_filter"}
    assert len(names) > 15
    for follow in (Scenario.steady_state, Scenario.with_findings):
        moves = Moves(autonuma=True, delay_ms=0.002, scan_period_ms=0.001, scan_size_mb=8 / 256)
        trace = build_trace([(k % 2, [GIB + 4096 * (j % 8) for j in range(k, k + 5)]) for k in range(20)])
        process = case(build_snapshot([(GIB + k * 4096, k + 1) for k in range(8)]), trace, 2)
        fresh, known = (scenario_of(process).keeping(moves=moves) for _ in range(2))
        passed(known, names)
        assert passed(follow(fresh), names) == passed(follow(known), names)
