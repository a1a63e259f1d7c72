"""A synthetic capture's page tables are what its own trace leads to, page by page, in any combination."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import synth as naive
from ptanalyze.capture.check import FAILED, PARTIAL, check_capture
from ptanalyze.capture.synth.capture import synthesize
from ptanalyze.capture.synth.plan import Parameters
from ptanalyze.capture.synth.plan import plan as plan_of
from ptanalyze.capture.synth.process import ALL, START, frames_of
from ptanalyze.capture.vm.redact import redact
from ptanalyze.core.trace import Event
from ptanalyze.formats.capture import load, open_capture
from ptanalyze.formats.manifest import TRACE
from ptanalyze.formats.trace_index import INDEX, stored_index
from ptanalyze.formats.vm import read_vm
from ptanalyze.world.mm_events import invalidations
from ptanalyze.world.tlb_filter import FLUSH_CEILING

pytestmark = pytest.mark.twin

MIB = 1 << 20
PAGE = 4096
SHARES = st.sampled_from([0.0, 0.3, 1.0])


@st.composite
def asked(draw):
    """Parameters of small captures with everything that a trace can tell."""
    nodes, guest = draw(st.integers(1, 3)), draw(st.sampled_from(["native", "visible", "oblivious"]))
    threads = draw(st.integers(1, 3))
    bind = st.integers(0, nodes - 1).map(lambda node: f"bind:{node}")
    policy = st.sampled_from(["first-touch", "interleave"]) | bind
    chosen = {
        "size": draw(st.integers(threads * 512, threads * 512 + 600)) * PAGE,
        "nodes": nodes,
        "threads": threads,
        "levels": draw(st.sampled_from([4, 5])),
        "guest": guest,
        "placement": "first-touch" if guest == "oblivious" else draw(policy),
        "fragmentation": draw(SHARES),
        "thp": draw(SHARES),
        "mapped_by": draw(st.sampled_from(["main", "threads"])),
        "init": draw(st.sampled_from(["parallel", "single"])),
        "init_trace": True,
        "accesses": draw(st.integers(1, 400)),
        "sharing": draw(st.sampled_from(["shared", "private", "0.5"])),
        "seed": draw(st.integers(0, 9)),
    }
    if guest != "native":
        chosen["host_placement"] = draw(policy)
        chosen["host_thp"] = draw(SHARES)
    plain = chosen["thp"] == 0
    chosen["munmap_every"] = draw(st.none() | st.integers(20, 100)) if plain else None
    chosen["mprotect_every"] = draw(st.none() | st.integers(20, 100))
    if nodes > 1 and threads > 1 and draw(st.booleans()):
        chosen["move"] = f"{draw(st.sampled_from([0, 0.25, 1]))}:1:0"
        if not chosen.get("host_thp") or guest == "visible":
            chosen["move_data"] = f"{draw(st.sampled_from([0, 0.5]))}:{draw(st.sampled_from([1e4, 1e6]))}"
    return Parameters(**chosen)


def make(parameters, directory, **options):
    """Capture of Parameters in a directory of its own."""
    out = Path(directory) / "synthetic"
    synthesize(parameters, out, **options)
    return open_capture(out)


def steps_of(trace, cpu_node):
    """What a trace says was done, in order: (touch, page, node), (unmap, page, 0), (move, page, target)."""
    events = iter([*trace.events, None])
    event = next(events)
    for batch in trace.batches(1 << 12):
        pages = (trace.regions[batch.page >> 9].astype(np.int64) << 9) + (batch.page & 511) - (START >> 12)
        start = trace.chunks["first"][batch.chunks.start]
        for number in range(batch.chunks.start, batch.chunks.stop):
            while event is not None and event["chunk"] <= number:
                yield from steps_of_event(event)
                event = next(events)
            chunk = trace.chunks[number]
            node = int(cpu_node[chunk["cpu"]])
            first = chunk["first"] - start
            for page in pages[first : first + chunk["touches"]].tolist():
                yield "touch", page, node
    while event is not None:
        yield from steps_of_event(event)
        event = next(events)


def steps_of_event(event):
    first, count = (int(event["a"]) - START) >> 12, int(event["b"]) >> 12
    if event["kind"] == Event.MUNMAP:
        yield from (("unmap", page, 0) for page in range(first, first + count))
    if event["kind"] == Event.MOVE_PAGES:
        yield from (("move", page, int(event["c"])) for page in range(first, first + count))


def modelled(parameters):
    """The naive Machine for Parameters: the same draws, nothing else in common."""
    plan = plan_of(parameters)
    frames = frames_of(plan)
    data, host_data, other = (int(k) for k in plan.rng(3).integers(0, 1 << 32, 3))
    span = frames.guest or frames.host
    memory = naive.Memory(frames.guest_nodes, span, frames.room.tolist(), plan.policy, data)
    guest = naive.Table(parameters.levels, memory, lambda region: bool(plan.huge[region]))
    host = None
    if parameters.guest != "native":
        nodes = parameters.nodes
        behind = naive.Memory(nodes, frames.host, [frames.host] * nodes, plan.host_policy, host_data)
        drawn = plan.rng(2).random(span // 512 * frames.guest_nodes) < (parameters.host_thp or 0)
        host = naive.Table(parameters.levels, behind, lambda region: bool(drawn[region]))
    share = int(parameters.fragmentation * ALL)
    return naive.Machine(guest, host, parameters.guest == "visible", share, other)


@settings(deadline=None, max_examples=30)
@given(asked())
def test_the_tables_on_disk_are_what_the_trace_leads_to(parameters):
    with tempfile.TemporaryDirectory() as place:
        capture = make(parameters, place)
        snapshot, trace = capture.snapshot, capture.trace
        machine = modelled(parameters)
        naive.run(machine, steps_of(trace, snapshot.topology.node_of_cpu()))
        assert naive.contents(snapshot.guest, START) == (machine.guest.tables, machine.guest.leaves)
        if machine.host:
            assert naive.contents(snapshot.host) == (machine.host.tables, machine.host.leaves)
        bad = {f.name for f in check_capture(capture) if f.verdict in (FAILED, PARTIAL)}
        assert bad <= {"trace: pages in the dump"}  # what was unmapped again is in no dump


@settings(deadline=None, max_examples=10)
@given(asked())
def test_an_init_phase_that_is_not_traced_leaves_the_same_tables(parameters):
    untraced = Parameters(**{**parameters.facts(), "init_trace": False})
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        traced, begun = make(parameters, one), make(untraced, other)
        for name in ("guest", "host"):
            left, right = (getattr(capture.snapshot, name) for capture in (traced, begun))
            if left is not None:
                assert np.array_equal(left.entries, right.entries)
                assert np.array_equal(left.node, right.node)
        kinds = begun.trace.events["kind"].tolist()
        assert kinds.count(Event.ROI_START) == 1
        assert begun.trace.accesses == parameters.accesses
        assert traced.trace.accesses == parameters.accesses + parameters.size // PAGE
        noted = begun.trace.events[begun.trace.events["kind"] == Event.FIRST_TOUCH]
        assert list(zip((noted["a"] >> np.uint64(21)).tolist(), noted["thread"].tolist(), strict=True)) == [
            *first_touchers(traced.trace).items()
        ]
        assert (noted["chunk"] == 0).all() and kinds.index(Event.ROI_START) > len(noted)


def test_a_region_begins_after_calls_of_a_loader_that_take_translations_away(tmp_path):
    """As of all recorded programs: what repeats them, or counts them, is wrong of synthetic captures too."""
    asked = Parameters(size=4 << 20, nodes=1, threads=1, accesses=100, init_trace=False)
    events = make(asked, tmp_path).trace.events
    before = events["kind"][: events["kind"].tolist().index(Event.ROI_START)]
    assert {Event.MMAP, Event.MPROTECT, Event.MUNMAP} <= set(before.tolist())
    assert not len(invalidations(events))
    kept = events[events["kind"] != Event.ROI_START]
    assert (invalidations(kept)["end"] - invalidations(kept)["start"]).max() > FLUSH_CEILING * PAGE


def first_touchers(trace):
    """{address >> 21: thread of the first touch}, in that order."""
    found = {}
    for batch in trace.batches(1):
        thread = int(trace.chunks["thread"][batch.chunks][0])
        for region in (batch.page >> 9).tolist():
            found.setdefault(int(trace.regions[region]), thread)
    return found


@settings(deadline=None, max_examples=5)
@given(asked())
def test_the_same_options_and_seed_give_the_same_bytes(parameters):
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        left, right = make(parameters, one), make(parameters, other)
        assert left.manifest.files == right.manifest.files
        assert {"gpt.entries", "gpt.tables", "maps", "snapshot.json", "trace.ptt"} <= set(left.manifest.files)


def test_another_seed_gives_another_trace(tmp_path):
    files = []
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        parameters = Parameters(size=8 * MIB, nodes=2, accesses=100, seed=seed)
        files.append(make(parameters, tmp_path / str(seed)).manifest.files["trace.ptt"])
    assert files[0] != files[1]


def test_every_parameter_and_the_seed_are_kept(tmp_path):
    parameters = Parameters(size=8 * MIB, nodes=2, guest="visible", accesses=10, seed=77)
    capture = make(parameters, tmp_path)
    assert capture.snapshot.facts["method"] == "synth"
    assert capture.snapshot.facts["synth"] == parameters.facts()
    assert capture.manifest.kind == "vm"
    assert "--seed=77" in capture.trace.facts["command"]


def test_a_trace_is_made_with_its_index_and_so_is_its_redacted_copy(tmp_path):
    made = make(Parameters(size=8 * MIB, accesses=500), tmp_path)
    redact(made, tmp_path / "redacted")
    for directory in (made.directory, tmp_path / "redacted"):
        assert INDEX in load(directory).manifest.files
        assert stored_index(directory / INDEX, directory / TRACE) is not None


def test_without_a_trace_the_tables_are_the_same(tmp_path):
    parameters = Parameters(size=8 * MIB, nodes=2, accesses=500, munmap_every=50)
    (tmp_path / "without").mkdir()
    traced, bare = make(parameters, tmp_path), make(parameters, tmp_path / "without", trace=False)
    assert not bare.has_trace
    assert np.array_equal(traced.snapshot.guest.entries, bare.snapshot.guest.entries)


def test_an_oblivious_guest_sees_one_node_of_all_the_memory(tmp_path):
    capture = make(Parameters(size=8 * MIB, nodes=4, guest="oblivious", accesses=10), tmp_path)
    facts = capture.snapshot.facts["vm"]
    assert facts["numa_oblivious"] and len(facts["guest_nodes"]) == 1
    assert len(read_vm(capture.directory).slots) == 1


def test_threads_that_move_go_on_on_cpus_of_the_other_node(tmp_path):
    parameters = Parameters(
        size=8 * MIB,
        nodes=2,
        threads=2,
        accesses=20000,
        move="0.5:1:0",
        move_data="0.5:1000",
        init_trace=False,
    )
    capture = make(parameters, tmp_path)
    trace, node_of = capture.trace, capture.snapshot.topology.node_of_cpu()
    seen = trace.chunks["thread"] == 1
    nodes = node_of[trace.chunks["cpu"][seen]]
    assert set(nodes.tolist()) == {0, 1} and (np.diff(nodes) <= 0).all()
    moves = trace.events[trace.events["kind"] == Event.MOVE_PAGES]
    moved = int(moves["b"].sum()) // PAGE
    assert (moves["c"] == 0).all() and (np.diff(moves["a"].astype(np.int64)) > 0).all()
    assert moved == 10  # 1000 pages a million accesses, 10,000 accesses
    frames = naive.contents(capture.snapshot.guest, START)[1].values()
    topology = capture.snapshot.topology.node_of_frame(np.array(list(frames)))
    assert np.count_nonzero(topology == 0) == 1024 + moved
