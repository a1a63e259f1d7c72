"""What was mapped before the region of interest is where it was touched first, for all policies alike."""

import itertools
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import data_moves, first_touches
from naive.memory_manager import Memory
from naive.replay import last_vmas
from ptanalyze import synth
from ptanalyze.analysis.setup import Setup
from ptanalyze.core.trace import Event
from ptanalyze.world.moves import NOTHING_MOVES
from replay_cases import HEAP, REGIONS, case, events, run, world_of
from strategies import PAGE, REGION, Page, build_snapshot, build_trace
from unit.test_replay import assert_as_naive

pytestmark = pytest.mark.twin

EXAMPLES = 25 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 50
FAR = (*REGIONS, HEAP + 2 * REGION, HEAP + (1 << 30) + REGION)
WHERE = st.sampled_from(FAR)


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
    snapshot = build_snapshot(
        pages,
        None if native else [],
        nodes=captured_on,
        table_nodes=spread,
        host_table_nodes=spread,
        vmas=vmas,
    )
    touch = st.builds(lambda page: (page.va, True), st.sampled_from(pages))
    chunks = draw(
        st.lists(
            st.tuples(st.integers(0, threads - 1), st.lists(touch, min_size=1, max_size=6)),
            min_size=1,
            max_size=5,
        )
    )
    return case(snapshot, build_trace(chunks, draw(before(threads)), threads), nodes)


def touched(one):
    """(Memory, its Touched) of the twins."""
    memory = Memory(one.snapshot, one.trace, one.space, one.placement, None)
    memory.last = last_vmas(one.snapshot, one.trace, one.space, one.placement, one.machine.nodes)
    return memory, first_touches.Touched(memory, one.trace, one.placement)


@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(one=late_cases())
def test_each_table_that_there_was_is_where_the_twin_has_it_and_no_other_is_anywhere(one):
    memory, twin = touched(one)
    tables, homes = one.space.tables, world_of(one).first_homes
    keys = [
        (int(level), int(base) >> (12 + 9 * int(level)))
        for level, base in zip(tables.level, tables.base, strict=True)
    ]
    expect = [twin.table(key) if key in memory.exists else -1 for key in keys]
    assert homes.tolist() == expect


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(one=late_cases(native=False))
def test_each_host_table_that_was_needed_is_where_the_twin_has_it(one):
    _, twin = touched(one)
    homes = world_of(one).host_first_homes
    assert {table: node for table, node in enumerate(homes.tolist()) if node >= 0} == twin.hosts(one.space)


@pytest.mark.parametrize("init", ["parallel", "single"])
@pytest.mark.parametrize("guest", ["native", "visible"])
def test_a_process_that_began_before_its_trace_has_its_tables_where_its_kernel_put_them(
    tmp_path, init, guest
):
    """synth places every table in the fault that makes it, whether the faults are traced or not."""
    asked = {"nodes": 4, "threads": 4, "accesses": 500, "init_trace": False, "mapped_by": "main"}
    capture = synth(tmp_path / "c", "32M", init=init, guest=guest, **asked)
    world = Setup.of(machine="vmitosis-cascade-lake", threads_on="recorded").world(
        capture.snapshot, capture.trace
    )
    split, snapshot = world.space.guest_tables, capture.snapshot
    assert world.first_homes[:split].tolist() == snapshot.guest.node.tolist()
    assert len(set(snapshot.guest.node.tolist())) == (4 if init == "parallel" else 1)
    if guest == "visible":
        hosts = world.host_first_homes[split : split + world.space.host_tables]
        assert (hosts >= 0).mean() > 0.5
        assert hosts[hosts >= 0].tolist() == snapshot.host.node[hosts >= 0].tolist()


@pytest.mark.parametrize("name", ["first-touch", "interleave", "bind", "linux", "hydra"])
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans())
def test_policies_count_what_their_twins_count_from_there_on(name, data, native):
    assert_as_naive(data.draw(late_cases(native)), name, {})


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(one=late_cases())
def test_data_of_a_single_node_capture_are_with_the_first_toucher(one):
    memory, twin = touched(one)
    data, world = data_moves.Data(memory, one, NOTHING_MOVES, False), world_of(one)
    rows = world.history.rows.leaf.tolist()
    for row, table in enumerate(rows):
        for slot in (0, 1, 9, 300):
            entry = data.entry(table, slot)
            node = int(world.data.guest[row, slot])
            if entry in memory.valid:
                alone = len(one.snapshot.topology) == 1
                assert node == data.node[entry]
                assert not alone or node == twin.page(entry)


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(one=late_cases())
def test_tables_that_never_migrate_are_where_first_touch_has_them_on_a_capture_of_one_node(one):
    if len(one.snapshot.topology) > 1:
        return
    still, placed = run(one, "vmitosis-migrate", {"verify": "never"}), run(one, "first-touch")
    assert np.array_equal(still.counters.reads, placed.counters.reads)
    assert events(still.counters) == events(placed.counters)


def late(*before_region, touches=((1, [HEAP]),), nested=False):
    """A page that the main thread on node 0 mapped before the region of interest, then touched on node 1."""
    host = [] if nested else None
    snapshot = build_snapshot([(HEAP, 1)], host, nodes=1 + nested, vmas=[(HEAP, HEAP + REGION, "")])
    mapped = (0, 0, Event.MMAP, (0, REGION, 3, 0x22), HEAP)
    told = [mapped, *((0, thread, Event.FIRST_TOUCH, (where,), 0) for thread, where in before_region)]
    return case(snapshot, build_trace(touches, [*told, (0, 0, Event.ROI_START, (), 0)], 2), 2)


def served(one, name, params=None, bit=8):
    """{node: walks of node 1's CPUs whose entry of that bit of a read mask it served}; 8: of level 1."""
    reads = run(one, name, params).counters.reads[bit, 1].sum(axis=1)
    return {node: int(count) for node, count in enumerate(reads) if count}


@pytest.mark.parametrize("name", ["first-touch", "hydra"])
def test_without_first_touches_memory_is_with_the_thread_that_mapped_it_under_every_policy(name):
    assert served(late(), name) == {0: 1}


def test_a_thread_on_another_node_that_touched_it_first_has_its_table_and_the_data():
    one = late((1, HEAP))
    assert served(one, "first-touch") == {1: 1}
    assert int(world_of(one).data.guest[0, 0]) == 1
    assert int(world_of(late()).data.guest[0, 0]) == 0


def test_data_pull_a_table_to_where_they_were_touched():
    one = late((1, HEAP))
    assert served(one, "vmitosis-migrate") == {1: 1}
    assert served(late(), "vmitosis-migrate") == {0: 1}


def test_a_huge_page_promoted_from_it_and_a_shadow_table_of_it_begin_there_too():
    assert served(late((1, HEAP)), "thp+first-touch", bit=16) == {1: 1}
    assert served(late(), "thp+first-touch", bit=16) == {0: 1}
    assert served(late((1, HEAP), nested=True), "shadow") == {1: 1}
    assert served(late(nested=True), "shadow") == {0: 1}


def test_so_do_the_host_s_tables_of_a_guest():
    for node, one in ((1, late((1, HEAP), nested=True)), (0, late(nested=True))):
        assert served(one, "first-touch", bit=1) == {node: 1}


def test_what_interleave_and_bind_place_does_not_depend_on_first_touches():
    for name in ("interleave", "bind"):
        assert served(late((1, HEAP)), name) == served(late(), name)


def test_a_capture_without_first_touches_says_so_and_one_with_them_does_not():
    (note,) = world_of(late()).first_touch_notes
    assert note.startswith("recorded without first touches")
    assert world_of(late((1, HEAP))).first_touch_notes == []
    whole = case(build_snapshot([(HEAP, 1)]), build_trace([(0, [HEAP])]))
    assert world_of(whole).first_touch_notes == []
