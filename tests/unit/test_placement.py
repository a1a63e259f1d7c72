"""Where threads run and memory lies before the region of interest."""

import itertools
import os

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from naive import data_moves
from naive.memory_manager import Memory
from naive.replay import Touched, last_vmas
from ptanalyze import synth
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import UsageError, bundled
from ptanalyze.core.machine import NOTHING_MOVES, Latency, load_machine
from ptanalyze.core.trace import Event
from ptanalyze.world.thread_placement import place
from replay_cases import HEAP, REGIONS, case, events, run, scenario_of
from strategies import PAGE, REGION, Page, build_snapshot, build_topology, build_trace, small_machine
from unit.test_replay import assert_as_naive

# What was mapped before the region of interest is where it was touched first, for all policies alike.

EXAMPLES = 25 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 50
FAR = (*REGIONS, HEAP + 2 * REGION, HEAP + (1 << 30) + REGION)
WHERE = st.sampled_from(FAR)
CUT = st.sampled_from([8 * PAGE, REGION])


@st.composite
def before(draw, threads):
    """Events before the region of interest: who maps, touches and unmaps what."""
    found = []
    for _ in range(draw(st.integers(1, 12))):
        thread, where = draw(st.integers(0, threads - 1)), draw(WHERE)
        length = draw(st.sampled_from([8 * PAGE, REGION, 2 * REGION, 1 << 30]))
        found.append(
            draw(
                st.sampled_from(
                    [(0, thread, Event.FIRST_TOUCH, (where,), 0)] * 3
                    + [
                        (0, thread, Event.MMAP, (where, length, 3, 0x32), where),
                        (0, thread, Event.MUNMAP, (where, length), draw(st.sampled_from([0, 0, -22]))),
                        (0, thread, Event.MREMAP, (where, REGION, REGION, 3), draw(WHERE)),
                        (0, thread, Event.MREMAP, (where, 2 * REGION, draw(CUT), 0), where),
                        (0, thread, Event.MREMAP, (where, REGION, draw(CUT), 3), draw(WHERE)),
                        (0, thread, Event.BRK, (where,), where),
                    ]
                )
            )
        )
    return [*found, (0, 0, Event.ROI_START, (), 0)]


@st.composite
def late_cases(draw, native=True):
    """Pages that were mapped, mostly before the region of interest, captured on one node or on several."""
    nodes, threads = draw(st.integers(2, 4)), draw(st.integers(2, 5))
    slots = draw(st.lists(st.tuples(WHERE, st.sampled_from([0, 1, 9, 300])), min_size=1, unique=True))
    huge = set(draw(st.lists(WHERE, max_size=2)))
    pages = [Page(va + slot * PAGE, 1000 + k) for k, (va, slot) in enumerate(sorted(slots)) if va not in huge]
    pages += [Page(va, 512 * (8 + k), 2) for k, va in enumerate(sorted(huge))]
    cuts = sorted({HEAP, HEAP + (1 << 40), *draw(st.lists(WHERE, max_size=3))})
    vmas = [(a, b, "v") for a, b in itertools.pairwise(cuts)]
    captured_on = draw(st.sampled_from([1, nodes])) if native else nodes
    spread = [node % captured_on for node in draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))]
    where = {"nodes": captured_on, "table_nodes": spread, "host_table_nodes": spread}
    snapshot = build_snapshot(pages, None if native else [], vmas=vmas, **where)
    touch = st.builds(lambda page: (page.va, True), st.sampled_from(pages))
    chunk = st.tuples(st.integers(0, threads - 1), st.lists(touch, min_size=1, max_size=6))
    chunks = draw(st.lists(chunk, min_size=1, max_size=5))
    return case(snapshot, build_trace(chunks, draw(before(threads)), threads), nodes)


def touched(one):
    """(Memory, its Touched) of the twins."""
    memory = Memory(one.snapshot, one.trace, one.space, one.placement, None)
    memory.last = last_vmas(one.snapshot, one.trace, one.space, one.placement, one.machine.nodes)
    return memory, Touched(memory, one.trace, one.placement)


@pytest.mark.twin
@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(one=late_cases())
def test_each_table_that_there_was_is_where_the_twin_has_it_and_no_other_is_anywhere(one):
    memory, twin = touched(one)
    tables, homes = one.space.tables, scenario_of(one).first_homes
    known = zip(tables.level.tolist(), tables.base.tolist(), strict=True)
    keys = [(level, base >> (12 + 9 * level)) for level, base in known]
    assert homes.tolist() == [twin.table(key) if key in memory.exists else -1 for key in keys]


@pytest.mark.twin
@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(one=late_cases(native=False))
def test_each_host_table_that_was_needed_is_where_the_twin_has_it(one):
    _, twin = touched(one)
    homes = scenario_of(one).host_first_homes
    assert {table: node for table, node in enumerate(homes.tolist()) if node >= 0} == twin.hosts(one.space)


@pytest.mark.twin
@pytest.mark.parametrize("init", ["parallel", "single"])
@pytest.mark.parametrize("guest", ["native", "visible"])
def test_a_process_that_began_before_its_trace_has_its_tables_where_they_were_made(tmp_path, init, guest):
    """synth places every table in the fault that makes it, whether the faults are traced or not."""
    asked = {"nodes": 4, "threads": 4, "accesses": 500, "init_trace": False, "mapped_by": "main"}
    capture = synth(tmp_path / "c", "32M", init=init, guest=guest, **asked)
    asked = Setup.of(machine="vmitosis-cascade-lake", threads_on="recorded")
    scenario = asked.scenario(capture.snapshot, capture.trace)
    split, snapshot = scenario.space.guest_tables, capture.snapshot
    assert scenario.first_homes[:split].tolist() == snapshot.guest.node.tolist()
    assert len(set(snapshot.guest.node.tolist())) == (4 if init == "parallel" else 1)
    if guest == "visible":
        hosts = scenario.host_first_homes[split : split + scenario.space.host_tables]
        assert (hosts >= 0).mean() > 0.5
        assert hosts[hosts >= 0].tolist() == snapshot.host.node[hosts >= 0].tolist()


@pytest.mark.twin
@pytest.mark.parametrize("name", ["first-touch", "interleave", "bind", "linux", "hydra"])
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans())
def test_policies_count_what_their_twins_count_from_there_on(name, data, native):
    assert_as_naive(data.draw(late_cases(native)), name, {})


@pytest.mark.twin
@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(one=late_cases())
def test_data_of_a_single_node_capture_are_with_the_first_toucher(one):
    memory, twin = touched(one)
    data, scenario = data_moves.Data(memory, one, NOTHING_MOVES, False), scenario_of(one)
    for row, table in enumerate(scenario.history.rows.leaf.tolist()):
        for slot in (0, 1, 9, 300):
            entry = data.entry(table, slot)
            node = int(scenario.data.guest[row, slot])
            if entry in memory.valid:
                alone = len(one.snapshot.topology) == 1
                assert node == data.node[entry]
                assert not alone or node == twin.page(entry)


@pytest.mark.twin
@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(one=late_cases())
def test_tables_that_never_migrate_are_where_first_touch_has_them_on_a_capture_of_one_node(one):
    if len(one.snapshot.topology) > 1:
        return
    still, placed = run(one, "vmitosis-migrate", {"verify": "never"}), run(one, "first-touch")
    assert np.array_equal(still.counters.reads, placed.counters.reads)
    assert events(still.counters) == events(placed.counters)


# Where threads run: recorded, spread, or as told; and what is refused.


def trace_of(threads, cpus=None):
    trace = build_trace([(t, [0x1000]) for t in range(threads)], [(0, threads - 1, Event.MUNMAP, (0, 0), 0)])
    trace.chunks["cpu"] = cpus if cpus is not None else -1
    return trace


def nodes(placement):
    return placement.cpu_node[placement.chunk_cpu].tolist()


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("auto", [0, 1, 0, 1, 0]),
        ("round-robin", [0, 1, 0, 1, 0]),
        ("block", [0, 0, 0, 1, 1]),
        ("1,1,0,0,1", [1, 1, 0, 0, 1]),
    ],
)
def test_threads_go_where_they_are_told(how, expected):
    assert nodes(place(trace_of(5), small_machine(2), how)) == expected


def test_recorded_cpus_are_used_when_the_capture_has_several_nodes():
    trace = trace_of(3, [1, 0, 1])
    placement = place(trace, small_machine(2), topology=build_topology(2))
    assert nodes(placement) == [1, 0, 1]
    assert placement.how.startswith("recorded")
    assert place(trace, small_machine(2), topology=build_topology(1)).how.startswith("round-robin")


def test_an_event_happens_on_the_cpu_it_was_recorded_on_if_that_is_known():
    events = [(0, thread, Event.MUNMAP, (0, 0), 0) for thread in (0, 1, 1, 1)]
    trace = build_trace([(1, [0x1000]), (1, [0x1000])], events)
    trace.chunks["cpu"], trace.events["cpu"] = [1, 3], [0, 2, -1, 99]
    placement = place(trace, small_machine(4), topology=build_topology(4))
    assert nodes(placement) == [1, 3]
    assert placement.cpu_node[placement.event_cpu].tolist() == [0, 2, 1, 1]
    assert placement.how == "recorded: 2 CPUs on 2 nodes"


@given(st.integers(1, 20), st.integers(1, 4), st.sampled_from(["round-robin", "block"]))
def test_a_cpu_belongs_to_one_node_and_no_node_has_more_than_it_has(threads, count, how):
    placement = place(trace_of(threads), small_machine(count), how)
    assert np.bincount(placement.cpu_node).max() <= small_machine(count).cpus_per_node
    assert ("share" in placement.how) == (len(placement.cpu_node) < threads)
    assert len(placement.cpu_node) == len(set(placement.chunk_cpu.tolist()))
    assert "share" not in placement.how or placement.how.endswith(" (1 CPU per node)")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"how": "0,1"}, "2 nodes for 5 threads"),
        ({"how": "0,1,2,0,1"}, r"node 2: machine small has nodes 0\.\.1"),
        ({"how": "0,1,x,0,1"}, "'x' is not a node"),
        ({"how": "everywhere"}, "'everywhere' is not a node; give"),
        ({"how": "recorded"}, "knows no topology"),
        ({"how": ""}, "is not a node"),
        ({"moves": "0:2@30%"}, r"node 2: machine small has nodes 0\.\.1"),
        ({"moves": "0:1"}, "write FROM:TO@SHARE%"),
        ({"moves": "0:1@30%,"}, "write FROM:TO@SHARE%"),
        ({"moves": "1:1@30%"}, "from a node to itself"),
        ({"moves": "0:1@100.5%"}, "the trace ends before that"),
        ({"moves": "0:1@-1s"}, "write FROM:TO@SHARE%"),
    ],
)
def test_what_cannot_be_placed_or_moved_is_refused_in_one_line(asked, said):
    with pytest.raises(UsageError, match=said):
        place(trace_of(5), small_machine(2), **asked)


def test_threads_that_access_nothing_may_be_left_out_of_a_list():
    """An answer counts those that do: "its 2 threads fit one node"."""
    trace = build_trace([(t, [0x1000]) for t in (1, 3)], [(0, 4, Event.MUNMAP, (0, 0), 0)], 5)
    assert len(trace.threads) == 5
    for how in ("1,0", "0,1,0,0,1"):
        assert nodes(place(trace, small_machine(2), how)) == [1, 0]
    with pytest.raises(UsageError, match=r"^--threads-to-nodes 1,0,1: 3 nodes for 5 threads, or for 2"):
        place(trace, small_machine(2), "1,0,1")


def test_recorded_nodes_must_exist_on_the_machine():
    why = r"node 2: machine small has nodes 0\.\.1; use -m vmitosis-cascade-lake"
    with pytest.raises(UsageError, match=why):
        place(trace_of(2, [0, 2]), small_machine(2), "recorded", build_topology(3))
    with pytest.raises(UsageError, match=r"use -m hydra-haswell \(8 nodes\)"):
        place(trace_of(3, [0, 4, 7]), small_machine(2), "recorded", build_topology(8))


def running(threads, turns):
    """Every thread runs in turn, `turns` times; a munmap of the last thread's before each turn."""
    chunks = [(t, [0x1000]) for _ in range(turns) for t in range(threads)]
    events = [(k * threads, threads - 1, Event.MUNMAP, (0, 0), 0) for k in range(turns + 1)]
    trace = build_trace(chunks, events)
    trace.chunks["cpu"] = -1
    return trace


def test_threads_go_on_on_another_node_at_a_share_of_the_touches_or_after_some_time():
    trace = running(2, 4)
    for moves in ("0:1@50%", "0:1@0.000004s"):
        placed = place(trace, small_machine(2), "0,0", moves=moves)
        assert nodes(placed) == [0, 0, 0, 0, 1, 1, 1, 1]
        assert moves in placed.how


def test_each_thread_has_a_cpu_of_its_own_on_the_new_node_while_there_are_some():
    roomy = msgspec.structs.replace(small_machine(2), cpus_per_node=3)
    placed = place(running(4, 2), roomy, "0,0,1,1", moves="0:1@50%")
    assert len(set(placed.chunk_cpu[4:].tolist())) == 3
    assert "1 of them share a CPU" in placed.how
    back = place(running(3, 3), roomy, "0,0,1", moves="0:1@33%,1:0@66%")
    assert nodes(back)[6:] == [0, 0, 0] and np.bincount(back.cpu_node).tolist() == [3, 3]


@given(st.integers(1, 6), st.integers(1, 6), st.integers(2, 4), st.data())
def test_a_move_changes_nothing_before_it_and_leaves_nobody_behind(threads, turns, count, data):
    source = data.draw(st.integers(0, count - 1))
    target = (source + data.draw(st.integers(1, count - 1))) % count
    share = data.draw(st.integers(0, 100))
    trace, machine = running(threads, turns), small_machine(count)
    before, after = place(trace, machine), place(trace, machine, moves=f"{source}:{target}@{share}%")
    cut = -(-share * len(trace.chunks) // 100)
    expected = [target if k >= cut and node == source else node for k, node in enumerate(nodes(before))]
    assert nodes(after) == expected
    assert (after.chunk_cpu[:cut] == before.chunk_cpu[:cut]).all()
    assert np.bincount(after.cpu_node).max() <= machine.cpus_per_node


# Machines with nodes without CPUs: who runs and reads there, and page tables kept off or on them.

LOW_HEAP = 1 << 30
SLOW = 2  # of three nodes
MATRIX = ((100.0, 200.0, 300.0), (200.0, 100.0, 250.0), (300.0, 250.0, 250.0))


@pytest.mark.twin
def test_nobody_reads_from_a_node_without_cpus_and_no_replica_is_put_there():
    """Six regions, tables on nodes 0, 1, 2 in turn; the data of each region on one node."""
    pages = [
        (LOW_HEAP + r * REGION + k * PAGE, (r + 1) % 3 * strategies.FRAMES_PER_NODE + 512 * r + k)
        for r in range(6)
        for k in range(8)
    ]
    tiered = msgspec.structs.replace(small_machine(3), memory_nodes=(SLOW,), latency=Latency(idle=MATRIX))
    setup = Setup.of(machine=tiered, costs="server-2020")
    snapshot = build_snapshot(pages, nodes=3, table_nodes=[0, 1, 2])
    linux, mitosis = replay_snapshot(snapshot, None, [("mitosis", {})], setup)
    assert linux.walks == mitosis.walks == 2 * 48
    assert linux.reads[:, SLOW].sum() == 0 < linux.reads[:, :, SLOW].sum()
    assert mitosis.reads[:, :, SLOW].sum() == 0 and mitosis.row()["remote_reads"] == 0


@pytest.mark.twin
@pytest.mark.parametrize("nodes", ["[5]", "[0, 1]", "[1, 1]", "[-1]"])
def test_a_machine_file_names_slow_nodes_it_has_and_leaves_one_with_cpus(tmp_path, nodes):
    text = (bundled("models") / "machines" / "sapphire-rapids.toml").read_text("utf-8")
    file = tmp_path / "m.toml"
    file.write_text(f"memory_nodes = {nodes}\n{text}")
    with pytest.raises(UsageError, match="memory_nodes"):
        load_machine(file)
    file.write_text(f"memory_nodes = [1]\n{text}")
    assert load_machine(file).cpu_nodes == (0,) and load_machine(file).resized(4).memory_nodes == (1, 3)
