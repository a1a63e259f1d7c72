"""The walker against the naive one, and in closed form."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from naive.walker import SetAssoc, Sliced, Walker, caches_missed
from ptanalyze.core.machine import Cache
from ptanalyze.core.trace import Event
from ptanalyze.kernels import walker
from ptanalyze.world.address_space import address_space
from ptanalyze.world.cache_pass import NATIVE, NESTED, cache_pass, ways_of_tables
from replay_cases import every_touch_walks, invalidations

pytestmark = pytest.mark.twin

GIB, KIB4 = 1 << 30, 1 << 12
LLC_LINES = st.sampled_from([12, 40, 100])  # in 1, 2 and 6 sets
SHARES = st.sampled_from([None, (0.5, 1.0), (0.2, 0.7), (0.125, 0.5)])


def passes(snapshot, trace, machine=None, cpus=2, **options):
    """(space, [(chunks, Reads)]) of a trace in which every touch misses the TLB."""
    machine = machine or strategies.small_machine()
    space, placement = address_space(snapshot, trace.regions), strategies.place(trace, cpus, machine.nodes)
    return space, list(cache_pass(space, placement, machine, every_touch_walks(trace), **options))


def bits(mask):
    """Bits of a number, or of an array of one."""
    return {bit for bit in range(64) if int(np.asarray(mask).item()) >> bit & 1}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_walk_reads_what_the_naive_walker_reads(data):
    snapshot = data.draw(strategies.snapshots())
    trace = data.draw(strategies.traces(snapshot))
    machine = strategies.small_machine(nested=data.draw(st.booleans()), cache_lines=(4, data.draw(LLC_LINES)))
    llc = msgspec.structs.replace(machine.llc, share=0.5, shares=data.draw(SHARES))
    machine = msgspec.structs.replace(machine, llc=llc)
    batch, threads = data.draw(st.sampled_from([1, 5, 1000])), data.draw(st.integers(1, 3))
    assert_as_naive(snapshot, trace, machine, batch, threads)


@pytest.mark.parametrize(("host", "threads"), [(None, 1), (None, 3), ([], 1), ([], 2), ([], 3)])
def test_walks_of_several_pieces_with_flushes_between_read_what_the_twin_reads(host, threads, monkeypatch):
    monkeypatch.setattr(walker, "PIECE", 150)
    rng, mapped = np.random.default_rng(4), [(GIB * (k + 1), 5 + k) for k in range(6)]
    touched = GIB * rng.integers(1, 7, (4, 700)) + KIB4 * rng.integers(0, 512, (4, 700))
    events = [(chunk, 0, Event.MUNMAP, (8 * GIB, KIB4), 0) for chunk in (1, 3)]
    turns = [(k % 2, addresses) for k, addresses in enumerate(touched.tolist())]
    trace = strategies.build_trace(turns, events)
    assert_as_naive(strategies.build_snapshot(mapped, host), trace, strategies.small_machine(), 1000, threads)


def assert_as_naive(snapshot, trace, machine, batch, threads=1):
    space, batches = passes(snapshot, trace, machine, batch=batch, threads=threads)
    ids, past_host = {}, space.guest_tables + space.host_tables
    for k in [*range(space.guest_tables), *range(past_host, len(space.tables.level))]:
        ids[int(space.tables.level[k]), int(space.tables.base[k])] = k
    placement = strategies.place(trace, 2, 2)
    naive = Walker(snapshot, ids, machine, placement.cpu_node.tolist())
    flushes = set(invalidations(trace.events)["chunk"].tolist())
    every = ((reads, k) for _, reads in batches for k in range(len(reads.page)))
    walks = iter([[column[k] for column in reads[:9]] for reads, k in every])
    stream = every_touch_walks(trace)
    for chunk in range(len(trace.chunks)):
        if chunk in flushes:
            naive.flush()
        cpu = int(placement.chunk_cpu[chunk])
        for page in stream.page[stream.offset[chunk] : stream.offset[chunk + 1]].tolist():
            mask = (1 << 12 + 9 * snapshot.guest.levels) - 1
            address = (int(trace.regions[page >> 9]) << 21 | (page & 511) << 12) & mask
            got = next(walks)
            leaf, slot, host, read, missed = naive.walk(cpu, address)
            assert (got[0], got[1]) == (cpu, page)
            assert (got[3], got[4], got[5:7]) == (leaf, slot, list(host))
            planes, every = got[8].tolist(), range(48)
            read_by = [sum(bit in one for one in missed) for bit in every]
            assert [caches_missed(planes, bit) for bit in every] == read_by
            assert bits(got[7]) == read
    assert next(walks, None) is None


@pytest.mark.parametrize(("guest", "host", "reads"), [(4, 4, 24), (5, 5, 35), (4, 5, 29), (5, 4, 29)])
def test_a_cold_two_dimensional_walk_reads_g_plus_1_times_h_plus_1_less_1(guest, host, reads):
    """Frames lie 512 GiB apart, so that no nested walk leaves an entry that helps the next."""
    apart = 1 << 27
    tree = strategies.build_tree([(GIB, 9 * apart)], (k * apart for k in range(9)), levels=guest)
    frames = [strategies.Page(at, at >> 12) for at, _ in strategies.guest_frames(tree)]
    nested = strategies.build_tree(frames, strategies.frames_on([0], 1 << 22), levels=host, encoding="ept")
    snapshot = replace(strategies.build_snapshot([(GIB, 5)]), guest=tree, host=nested)
    machine = strategies.small_machine(nested=False)
    caches = msgspec.structs.replace(machine.walk_caches, pml5e=None)
    trace = strategies.build_trace([(0, [GIB])])
    _, ((_, got),) = passes(snapshot, trace, msgspec.structs.replace(machine, walk_caches=caches))
    host_bits = {8 * g + h for g in range(guest + 1) for h in range(1, host + 1)}
    assert bits(got.read[0]) == host_bits | {8 * g for g in range(1, guest + 1)}
    assert len(bits(got.read[0])) == reads


def hit_rate(ways, directories, fresh, walks=12_000):
    """Share of reads of page directories, 256 lines each and at random, that hit 64 sets; fresh: lines per
    walk that are read once."""
    cache, rng, hits = SetAssoc(64, ways), np.random.default_rng(1), 0
    again = rng.integers(0, 256, (walks, directories)) + 256 * np.arange(directories)
    once = rng.integers(0, 64, (walks, fresh)) + 64 * (16 + np.arange(walks * fresh).reshape(walks, fresh))
    for walk, (old, new) in enumerate(zip(again.tolist(), once.tolist(), strict=True)):
        hits += sum([cache.touch(line, line) for line in old]) * (walk >= walks // 4)
        for line in new:
            cache.touch(line, line)
    return hits / (directories * (walks - walks // 4))


@pytest.mark.parametrize("data", [1, 2, 4, 8])
@pytest.mark.parametrize(("tables", "directories", "leaves"), [(NATIVE, 1, 1), (NESTED, 3, 2)])
def test_tables_keep_as_much_of_l2_as_they_would_beside_the_lines_of_data(data, tables, directories, leaves):
    l2 = Cache(bytes=1 << 16, ways=16, share=0.5, cycles=14.0)
    ways = ways_of_tables(l2, np.array([[5, 0, 0], [0, 100 * (data - 1), 100]]), tables)
    with_data = hit_rate(l2.ways, directories, leaves + data)
    assert hit_rate(ways, directories, leaves) == pytest.approx(with_data, abs=0.06)


@pytest.mark.parametrize("sets", [4096, 9152])
@pytest.mark.parametrize("stride", [1, 64, 512, 4096, 9152, 64 * 143])
def test_an_llc_shares_out_lines_at_any_stride_to_its_sets(sets, stride):
    llc = Sliced(sets, 8)
    each = np.bincount([llc.set_of(stride * n) for n in range(4 * sets)], minlength=sets)
    assert len(each) == sets and each.var() / each.mean() < (0.2 if stride == 1 else 1.5)


@pytest.mark.compiled
def test_where_no_hit_of_a_tlb_is_known_tables_have_the_share_of_the_machine_file():
    l2 = Cache(bytes=1 << 16, ways=16, share=0.5, cycles=14.0)
    for unknown in ([[0, 0, 100]], [[0, 0, 0]], np.zeros((0, 3))):
        assert ways_of_tables(l2, np.array(unknown), NESTED) == 8
    assert ways_of_tables(msgspec.structs.replace(l2, share=1.0), np.array([[1, 900, 100]]), NATIVE) == 16
    assert ways_of_tables(l2, np.array([[1, 10**6, 1]]), NATIVE) == 1, "a set holds something"


@pytest.mark.compiled
@pytest.mark.parametrize(("host", "ways"), [(None, 5), ([], 8)])  # of 16: 2 of 7 lines, 5 of 10
def test_a_pass_leaves_to_tables_the_lines_that_they_bring(host, ways):
    rng, mapped = np.random.default_rng(5), [(GIB * k, 5 + k) for k in range(1, 60)]
    trace = strategies.build_trace([(0, (GIB * rng.integers(1, 60, 3000)).tolist())])
    snapshot, small = strategies.build_snapshot(mapped, host), strategies.small_machine(nested=False)
    stream = replace(every_touch_walks(trace), hits=np.array([[7, 4 * 3000, 3000]]))
    space, placement = address_space(snapshot, trace.regions), strategies.place(trace, 2, small.nodes)
    found = []
    for own, share in ((16, 0.5), (ways, 1.0)):
        machine = msgspec.structs.replace(small, l2=Cache(bytes=64 * own, ways=own, share=share, cycles=14.0))
        found += [reads for _, reads in cache_pass(space, placement, machine, stream)]
    first, second = found
    missed = np.bitwise_count(first.missed[:, 1]).sum()
    assert (first.missed == second.missed).all() and 0 < missed < np.bitwise_count(first.read).sum()


@pytest.mark.compiled
def test_a_batch_never_splits_a_chunk():
    trace = strategies.build_trace([(0, [GIB] * 5), (1, [GIB] * 2), (0, []), (1, [GIB])])
    _, batches = passes(strategies.build_snapshot([(GIB, 5)]), trace, batch=3)
    assert [(c.start, c.stop, len(r.page)) for c, r in batches] == [(0, 1, 5), (1, 4, 3)]
