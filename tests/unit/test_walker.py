"""The page walker and its caches."""

import os
import threading
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from naive.trees import leaf_map
from naive.walker import SetAssoc, Walker
from ptanalyze.core.errors import UsageError
from ptanalyze.core.trace import Event, WalkStream
from ptanalyze.kernels import lru, walker
from ptanalyze.kernels.lru import EMPTY, ROW, bank, depth_in_row, find, row_bank, row_of
from ptanalyze.policies import plan_for
from ptanalyze.world.address_space import address_space
from ptanalyze.world.cache_pass import WalkPipeline, cache_pass, work_by_thread
from ptanalyze.world.mm_events import invalidations
from ptanalyze.world.scenario import Scenario
from replay_cases import ask, cold_machine
from strategies import (
    Page,
    build_snapshot,
    build_trace,
    build_tree,
    frames_on,
    guest_frames,
    place,
    small_machine,
    snapshots,
    traces,
)

# The walker against the naive one, and in closed form.

GIB, KIB4 = 1 << 30, 1 << 12
LLC_LINES = st.sampled_from([12, 40, 100])  # in 1, 2 and 6 sets
SHARES = st.sampled_from([None, (0.5, 1.0), (0.2, 0.7), (0.125, 0.5)])


def every_touch_walks(trace):
    touches = [t for t in trace.batches(1)]
    page = np.concatenate([t.page for t in touches]) if touches else np.zeros(0, np.uint32)
    write = np.concatenate([t.write for t in touches]) if touches else np.zeros(0, bool)
    offset = np.concatenate([[0], np.cumsum(trace.chunks["touches"])]).astype(np.int64)
    return WalkStream(page, write, offset, np.zeros((1, 3), np.int64))


def passes(snapshot, trace, machine=None, cpus=2, **options):
    """(space, [(chunks, Reads)]) of a trace in which every touch misses the TLB."""
    machine = machine or small_machine()
    space, placement = address_space(snapshot, trace.regions), place(trace, cpus, machine.nodes)
    stream = every_touch_walks(trace)
    return space, list(cache_pass(space, placement, machine, stream, events=trace.events, **options))


def bits(mask):
    """Of a number, or of an array of one."""
    return {bit for bit in range(64) if int(np.asarray(mask).item()) >> bit & 1}


@pytest.mark.twin
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_walk_reads_what_the_naive_walker_reads(data):
    snapshot = data.draw(snapshots())
    trace = data.draw(traces(snapshot))
    machine = small_machine(nested=data.draw(st.booleans()), cache_lines=(4, data.draw(LLC_LINES)))
    llc = msgspec.structs.replace(machine.llc, share=0.5, shares=data.draw(SHARES))
    machine = msgspec.structs.replace(machine, llc=llc)
    batch, threads = data.draw(st.sampled_from([1, 5, 1000])), data.draw(st.integers(1, 3))
    assert_as_naive(snapshot, trace, machine, batch, threads)


@pytest.mark.twin
@pytest.mark.parametrize(("host", "threads"), [(None, 1), ([], 1), ([], 2)])
def test_walks_of_several_pieces_with_flushes_between_them_read_what_the_naive_walker_reads(
    host, threads, monkeypatch
):
    monkeypatch.setattr(walker, "PIECE", 350)
    rng, mapped = np.random.default_rng(4), [(GIB * (k + 1), 5 + k) for k in range(6)]
    touched = GIB * rng.integers(1, 7, (4, 700)) + KIB4 * rng.integers(0, 512, (4, 700))
    events = [(chunk, 0, Event.MUNMAP, (8 * GIB, KIB4), 0) for chunk in (1, 3)]
    trace = build_trace([(k % 2, addresses) for k, addresses in enumerate(touched.tolist())], events)
    assert_as_naive(build_snapshot(mapped, host), trace, small_machine(), 1000, threads)


def assert_as_naive(snapshot, trace, machine, batch, threads=1):
    space, batches = passes(snapshot, trace, machine, batch=batch, threads=threads)
    ids = {}
    for k in [
        *range(space.guest_tables),
        *range(space.guest_tables + space.host_tables, len(space.tables.level)),
    ]:
        ids[int(space.tables.level[k]), int(space.tables.base[k])] = k
    placement = place(trace, 2, 2)
    naive = Walker(snapshot, ids, machine, placement.cpu_node.tolist())
    flushes = set(invalidations(trace.events)["chunk"].tolist())
    walks = iter(
        [[column[k] for column in reads[:9]] for _, reads in batches for k in range(len(reads.page))]
    )
    stream = every_touch_walks(trace)
    for chunk in range(len(trace.chunks)):
        if chunk in flushes:
            naive.flush()
        cpu = int(placement.chunk_cpu[chunk])
        for page in stream.page[stream.offset[chunk] : stream.offset[chunk + 1]].tolist():
            mask = (1 << 12 + 9 * snapshot.guest.levels) - 1
            address = (int(trace.regions[page >> 9]) << 21 | (page & 511) << 12) & mask
            got = next(walks)
            leaf, slot, host, read, dram = naive.walk(cpu, address)
            assert (got[0], got[1]) == (cpu, page)
            assert (got[3], got[4], got[5:7]) == (leaf, slot, list(host))
            assert (bits(got[7]), [bits(mask) for mask in got[8]]) == (read, dram)
    assert next(walks, None) is None


def cold(snapshot, address):
    _, ((_, reads),) = passes(snapshot, build_trace([(0, [address])]))
    return bits(reads.read[0])


@pytest.mark.twin
@pytest.mark.parametrize(("levels", "reads"), [(4, 4), (5, 5)])
def test_a_cold_native_walk_reads_one_entry_a_level(levels, reads):
    got = cold(build_snapshot([(GIB, 5)], levels=levels), GIB)
    assert got == {8 * g for g in range(1, reads + 1)}


@pytest.mark.twin
@pytest.mark.parametrize(("guest", "host", "reads"), [(4, 4, 24), (5, 5, 35), (4, 5, 29), (5, 4, 29)])
def test_a_cold_two_dimensional_walk_reads_g_plus_1_times_h_plus_1_less_1(guest, host, reads):
    """Frames lie 512 GiB apart, so that no nested walk leaves an entry that helps the next."""
    apart = 1 << 27
    tree = build_tree([(GIB, 9 * apart)], (k * apart for k in range(9)), levels=guest)
    frames = [Page(at, at >> 12) for at, _ in guest_frames(tree)]
    nested = build_tree(frames, frames_on([0], 1 << 22), levels=host, encoding="ept")
    snapshot = replace(build_snapshot([(GIB, 5)]), guest=tree, host=nested)
    machine = small_machine(nested=False)
    caches = msgspec.structs.replace(machine.walk_caches, pml5e=None)
    trace = build_trace([(0, [GIB])])
    _, ((_, got),) = passes(snapshot, trace, msgspec.structs.replace(machine, walk_caches=caches))
    host_bits = {8 * g + h for g in range(guest + 1) for h in range(1, host + 1)}
    assert (
        bits(got.read[0]) == host_bits | {8 * g for g in range(1, guest + 1)}
        and len(bits(got.read[0])) == reads
    )


@pytest.mark.twin
@pytest.mark.parametrize(("level", "reads"), [(1, 4), (2, 3), (3, 2)])
def test_a_huge_leaf_ends_a_walk_early(level, reads):
    assert len(cold(build_snapshot([(GIB, 1 << 18, level)]), GIB + KIB4)) == reads


@pytest.mark.twin
def test_a_second_walk_to_the_same_table_reads_only_the_leaf():
    _, ((_, reads),) = passes(build_snapshot([(GIB, 5)]), build_trace([(0, [GIB, GIB + KIB4])]))
    assert bits(reads.read[1]) == {8} and bits(reads.dram[1]) == set()


@pytest.mark.twin
def test_leaf_entries_are_not_kept_in_paging_structure_caches():
    snapshot = build_snapshot([(GIB, 512, 2)])
    _, ((_, reads),) = passes(snapshot, build_trace([(0, [GIB, GIB])]))
    assert bits(reads.read[1]) == {16}


@pytest.mark.twin
def test_an_invalidation_drops_the_paging_structure_caches_of_every_cpu_but_not_the_lines():
    events = [(2, 0, Event.MUNMAP, (8 * GIB, KIB4), 0)]
    trace = build_trace([(0, [GIB]), (1, [GIB]), (0, [GIB]), (1, [GIB])], events)
    _, ((_, reads),) = passes(build_snapshot([(GIB, 5)]), trace)
    assert [len(bits(r)) for r in reads.read] == [4, 4, 4, 4]
    assert bits(reads.dram[2]) == set()


@pytest.mark.twin
def test_cpus_of_one_node_share_its_last_level_cache_and_those_of_another_do_not():
    trace = build_trace([(0, [GIB]), (1, [GIB]), (2, [GIB])])
    _, ((_, reads),) = passes(build_snapshot([(GIB, 5)]), trace, cpus=3)
    assert [len(bits(d)) for d in reads.dram] == [4, 4, 0]


@pytest.mark.twin
def test_a_data_page_the_host_does_not_know_is_walked_without_nested_reads():
    snapshot = build_snapshot([(GIB, 5)], [])
    snapshot.guest.entries[3, 0] = (1 << 51) | 0x67
    _, ((_, reads),) = passes(snapshot, build_trace([(0, [GIB])]))
    assert reads.host_leaf[0] == -1 and not bits(reads.read[0]) & set(range(8))


@pytest.mark.twin
def test_a_batch_never_splits_a_chunk():
    trace = build_trace([(0, [GIB] * 5), (1, [GIB] * 2), (0, []), (1, [GIB])])
    _, batches = passes(build_snapshot([(GIB, 5)]), trace, batch=3)
    assert [(c.start, c.stop, len(r.page)) for c, r in batches] == [(0, 1, 5), (1, 4, 3)]


@pytest.mark.twin
def test_a_huge_page_in_the_host_shortens_the_nested_walks():
    small = build_snapshot([(GIB, 512)], [])
    huge = build_snapshot([(GIB, 512)], [Page(0, 0, 3), Page(4 * GIB, 4 << 18, 3)])
    assert len(cold(small, GIB)) > len(cold(huge, GIB))


# Five levels: what cold walks read, and that nothing else changes.

EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 60
TOUCH = build_trace([(0, [GIB])])


def reads(snapshot, params):
    linux, five = ask(snapshot, "five-level", params=params, trace=TOUCH)
    return int(linux.reads.sum()), int(five.reads.sum())


@pytest.mark.twin
@pytest.mark.parametrize("layers", ["both", "gpt"])
def test_a_cold_native_walk_reads_five_entries_for_four(layers):
    assert reads(build_snapshot([(GIB, 5)]), {"layers": layers}) == (4, 5)


@pytest.mark.twin
@pytest.mark.parametrize(("layers", "after"), [("both", 35), ("gpt", 29), ("ept", 29)])
def test_a_cold_two_dimensional_walk_reads_24_with_four_levels_and_35_with_five(layers, after):
    """vMitosis, section 1: 24 with four levels, 35 with five."""
    assert reads(build_snapshot([(GIB, 5)], []), {"layers": layers}) == (24, after)


@pytest.mark.twin
@pytest.mark.parametrize("host", [None, []])
def test_a_tree_of_five_levels_stays_as_it_is_and_a_note_says_so(host):
    snapshot = build_snapshot([(GIB, 5)], host, levels=5, host_levels=5)
    linux, five = ask(snapshot, "five-level", trace=TOUCH)
    assert (linux.reads == five.reads).all()
    assert "five-level: the guest's tables have five levels already" in five.notes
    assert ("five-level: the host's tables have five levels already" in five.notes) == (host is not None)


@pytest.mark.twin
@pytest.mark.parametrize("host", [None, []])
def test_the_machines_cache_of_the_fifth_level_spares_the_read_of_the_root(host):
    snapshot, trace = build_snapshot([(GIB, 5)], host), build_trace([(0, [GIB]), (0, [GIB << 9])])
    found = []
    for machine in (small_machine(2), cold_machine()):
        walked = ask(snapshot, "five-level", trace=trace, machine=machine)[-1]
        found.append(int(walked.reads[40].sum()))
    assert found == [1, 2]


@pytest.mark.twin
@pytest.mark.parametrize("host", [None, []])
def test_the_new_root_is_on_the_old_ones_node_and_takes_one_page(host):
    snapshot = build_snapshot([(GIB, 5)], host, table_nodes=(1,), host_table_nodes=(1,))
    linux, five = ask(snapshot, "five-level", trace=TOUCH)
    assert five.table_pages == linux.table_pages + 1
    assert five.host_pages == linux.host_pages + (host is not None)
    assert five.reads[40, 0, 1].sum() == 1 and five.reads[40].sum() == 1


@pytest.mark.twin
def test_leaf_entries_stay_where_they_are_without_a_trace_too():
    for host in (None, []):
        linux, five = ask(build_snapshot([(GIB, 5)], host, table_nodes=(0, 1)), "five-level")
        assert (linux.classes == five.classes).all() and (linux.reads == five.reads).all()


@pytest.mark.twin
def test_a_fifth_level_of_a_host_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="five-level: a native capture has no host tables"):
        ask(build_snapshot([(GIB, 5)]), "five-level", params={"layers": "ept"})


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data(), st.sampled_from(["both", "gpt", "ept"]))
def test_walks_over_five_levels_read_what_the_naive_walker_reads(data, layers):
    snapshot = data.draw(snapshots(native=None if layers != "ept" else False))
    trace, machine = data.draw(traces(snapshot)), small_machine()
    scenario = Scenario(snapshot, trace, machine, place(trace, 2, 2))
    shaped = plan_for("five-level", {"layers": layers}).reshape(scenario)
    assert leaf_map(shaped.snapshot.guest) == leaf_map(snapshot.guest)
    assert len(np.unique(shaped.snapshot.guest.frame)) == len(shaped.snapshot.guest) or snapshot.native
    assert shaped.stream is scenario.stream
    assert_as_naive(shaped.snapshot, trace, machine, 1000)


@pytest.mark.twin
def test_mitosis_replicates_the_fifth_level_too():
    mitosis, both = (
        ask(build_snapshot([(GIB, 5)]), name, trace=TOUCH)[-1] for name in ("mitosis", "five-level+mitosis")
    )
    assert both.policy == "five-level+mitosis"
    assert both.table_pages == mitosis.table_pages + 2


@pytest.mark.twin
def test_a_capture_keeps_its_own_levels():
    snapshot = build_snapshot([(GIB, 5)], [])
    before = replace(snapshot)
    ask(snapshot, "five-level")
    assert snapshot == before and (snapshot.guest.levels, snapshot.host.levels) == (4, 4)


# The set-associative array against one OrderedDict a set.

STEPS = st.lists(st.tuples(st.sampled_from(["touch", "touch", "drop"]), st.integers(0, 12)), max_size=80)


@njit
def touch(tags, first, ways, tag):
    return lru.touch(tags, first, ways, tag)


@njit
def drop(tags, first, ways, tag):
    lru.drop(tags, first, ways, tag)


@pytest.mark.twin
@settings(deadline=None)
@given(STEPS, st.integers(1, 5), st.integers(1, 4))
def test_touches_and_drops_agree_with_the_naive_array(steps, sets, ways):
    array, twin = bank(1, [(sets, ways)]), SetAssoc(sets, ways)
    for what, tag in steps:
        first = tag % sets * ways
        if what == "touch":
            assert touch(array.tags, first, ways, np.uint32(tag)) == twin.touch(tag, tag)
        else:
            drop(array.tags, first, ways, np.uint32(tag))
            twin.drop(tag)
    for s, row in enumerate(twin.sets):
        held = array.tags[s * ways : (s + 1) * ways]
        assert held[held != EMPTY].tolist() == list(reversed(row))


@pytest.mark.twin
def test_a_bank_lays_out_the_arrays_of_its_owners_one_after_the_other():
    b = bank(3, [(2, 4), None, (5, 1)])
    assert (b.stride, len(b.tags), b.start.tolist(), b.ways.tolist()) == (13, 39, [0, 8, 8], [4, 0, 1])


@pytest.mark.twin
def test_an_array_the_machine_lacks_always_misses():
    b = bank(1, [None])
    assert not touch(b.tags, 0, int(b.ways[0]), np.uint32(1)) and not touch(b.tags, 0, 0, np.uint32(1))


@pytest.mark.twin
def test_a_cyclic_sweep_one_larger_than_a_set_misses_every_time():
    b = bank(1, [(1, 4)])
    assert not any(touch(b.tags, 0, 4, np.uint32(k % 5)) for k in range(50))


@pytest.mark.twin
@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from([0, 1, 2, 4, 5, 11, 16, 17, 20, 32, 64, 72])),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 90)), max_size=200),
)
def test_sets_in_rows_hit_and_evict_as_the_naive_ones_whatever_their_ways(shapes, touches):
    shapes = [shape if shape[1] else None for shape in shapes]
    found = row_bank(2, shapes)
    naive = [[SetAssoc(*(shape or (1, 0))) for shape in shapes] for _ in range(2)]
    for owner, array, tag in touches:
        array %= len(shapes)
        assert touch_one(found, owner, array, np.uint32(tag)) == naive[owner][array].touch(tag, tag)


@pytest.mark.twin
@pytest.mark.parametrize("ways", [16, 17, 24, 32, 64, 72])
@pytest.mark.parametrize("tags", [12, 70, 80])
def test_long_sets_that_are_full_hit_and_evict_as_the_naive_ones(ways, tags):
    found, naive = row_bank(1, [(2, ways)]), SetAssoc(2, ways)
    hits = []
    for tag in np.random.default_rng(ways).integers(0, 2 * tags, 3000).tolist():
        hits.append(touch_one(found, 0, 0, np.uint32(tag)))
        assert hits[-1] == naive.touch(tag, tag)
    assert any(hits) and len(found.tags) == 2 * -(-ways // 16) * 16
    for s, row in enumerate(naive.sets):
        held = found.tags[s * len(found.tags) // 2 :][:ways]
        assert held[held != EMPTY].tolist() == list(reversed(row))


@pytest.mark.twin
@settings(deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.sampled_from([0, 1, 3, 4, 5, 11, 16, 17, 32, 40]), min_size=1, max_size=4),
    st.lists(st.integers(0, 130), max_size=300),
)
def test_one_stack_tells_what_separate_caches_of_its_sets_with_fewer_ways_hit(sets, ways, touches):
    ways = sorted(ways)
    stack, naive = row_bank(1, [(sets, ways[-1])]), [SetAssoc(sets, fewer) for fewer in ways]
    for tag in touches:
        deep = depth_of(stack, ways[-1], np.uint32(tag))
        assert [deep < fewer for fewer in ways] == [cache.touch(tag, tag) for cache in naive]


@njit
def depth_of(bank, ways, tag):
    return depth_in_row(bank.tags, bank.shape[0, ROW], np.uint32(ways), row_of(bank, 0, 0, tag), tag)


def test_a_row_of_16_tags_is_a_line_of_the_cache():
    assert all(row_bank(owners, [(3, 11)]).tags.ctypes.data % 64 == 0 for owners in (1, 2, 500))


@njit
def touch_one(bank, owner, array, tag):
    return find(bank, owner, array, tag, tag)


# Two threads carry walks through their steps as one does; none is left when nobody asks any more.

CHUNKS, WALKS = 40, 300


@pytest.fixture(params=[1, 2], ids=["taking turns", "by node"])
def batches(request, monkeypatch):
    """What makes an iterator of Reads, in pieces of 128 walks; chunk 7 has no walk."""
    monkeypatch.setattr(walker, "PIECE", 128)
    rng, mapped = np.random.default_rng(6), [(GIB * (k + 1), 5 + k) for k in range(6)]
    touched = GIB * rng.integers(1, 7, (CHUNKS, WALKS)) + KIB4 * rng.integers(0, 512, (CHUNKS, WALKS))
    addresses = [[] if chunk == 7 else row for chunk, row in enumerate(touched.tolist())]
    events = [(chunk, 0, Event.MUNMAP, (8 * GIB, KIB4), 0) for chunk in range(0, CHUNKS, 3)]
    trace = build_trace([(chunk % 2, row) for chunk, row in enumerate(addresses)], events)
    snapshot, machine = build_snapshot(mapped, []), small_machine(request.param, nested=True)
    space, placement = address_space(snapshot, trace.regions), place(trace, 2, machine.nodes)
    stream = every_touch_walks(trace)
    return lambda **how: cache_pass(space, placement, machine, stream, events=trace.events, **how)


@pytest.mark.parametrize("batch", [1, 1000, 1 << 20])
def test_two_threads_find_what_one_finds(batches, batch):
    one, two = (list(batches(batch=batch, threads=threads)) for threads in (1, 2))
    assert [chunks for chunks, _ in one] == [chunks for chunks, _ in two]
    for (_, alone), (_, shared) in zip(one, two, strict=True):
        for column, other in zip(alone, shared, strict=True):
            np.testing.assert_array_equal(column, other)
    assert sum(len(reads.page) for _, reads in one) == (CHUNKS - 1) * WALKS


def test_threads_have_whole_nodes_and_walks_as_even_as_these_allow():
    cpu_node, walks = np.arange(32) // 2, np.random.default_rng(2).integers(980, 1020, 32)
    for threads in (1, 2, 4, 8, 16, 99):
        shares = work_by_thread(cpu_node, walks, threads)
        assert (np.sum(shares, axis=0) == 1).all() and len(shares) == min(threads, 16)
        assert all((mine[::2] == mine[1::2]).all() for mine in shares)
        assert walks.sum() / max(walks[mine].sum() for mine in shares) > 0.95 * min(threads, 16)
    assert len(work_by_thread(cpu_node, np.zeros(32, int), 4)) == 1


def test_no_thread_is_left_when_nobody_asks_for_the_rest(batches):
    before = set(threading.enumerate())
    rest = batches(batch=1000, threads=2)
    next(rest)
    assert set(threading.enumerate()) - before
    rest.close()
    assert not set(threading.enumerate()) - before


@pytest.mark.parametrize("step", ["find_leaves", "descend", "fetch"])
def test_what_a_thread_fails_with_is_raised(batches, step, monkeypatch):
    """Also where it is not the last piece of a batch."""
    real, count = getattr(WalkPipeline, step), []

    def fail(steps, piece, *how):
        count.append(piece)
        if len(count) == 3:
            raise MemoryError("no room")
        return real(steps, piece, *how)

    monkeypatch.setattr(WalkPipeline, step, fail)
    before = set(threading.enumerate())
    with pytest.raises(MemoryError, match="no room"):
        list(batches(batch=1000, threads=2))
    assert not set(threading.enumerate()) - before
