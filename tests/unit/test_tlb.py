"""TLBs, the filter around them, stripped traces."""

import tempfile
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from captures import same_walks, stripped, write_trace
from naive.walker import Flushed, NaiveTlb, joined_groups, naive_fold
from ptanalyze.core.errors import CaptureError, UsageError, bundled
from ptanalyze.core.machine import load_machine
from ptanalyze.core.trace import Batches, Event, Piece, Touches, WalkStream
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.trace import read_index, trace_of
from ptanalyze.world import tlb_filter
from ptanalyze.world.address_space import address_space
from ptanalyze.world.cache_pass import cache_pass
from ptanalyze.world.mm_events import undoing
from ptanalyze.world.scaling import Growth, fold
from ptanalyze.world.tlb_filter import TlbFilter, far_tlb, is_common, joined_pages, missed_trace, near_tlb
from strategies import build_snapshot, build_trace, place, small_machine, small_tlb, snapshots, traces

pytestmark = pytest.mark.twin


def filter_trace(*where, **how):
    return TlbFilter(*where, **how).first()


GIB, KIB4 = 1 << 30, 1 << 12
TLB = small_tlb((8, 4), (12, 3))


@pytest.fixture
def case():
    rng = np.random.default_rng(5)
    run = lambda n: [(int(GIB + KIB4 * k), bool(k % 3 == 0), 1 + int(k) % 2) for k in rng.zipf(1.3, n) % 600]  # noqa: E731
    trace = build_trace([(int(t), run(int(n))) for t, n in rng.integers(0, 30, (40, 2)) % [4, 30]])
    return trace, address_space(build_snapshot([(GIB, 5)]), trace.regions), place(trace, 4, 2)


def same(a, b):
    columns = ("page", "write", "offset", "hits")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in columns)


def test_threads_share_the_decoding_of_a_file_and_what_is_run_again_is_the_same(case, tmp_path):
    path = tmp_path / "trace.ptt"
    write_trace(path, case[0])
    hows = ((1, 10**6), (1, 30), (2, 30), (5, 30))
    filters = [TlbFilter(trace_of(path, read_index(path)), *case[1:], TLB, n, batch=b) for n, b in hows]
    expect, again = filters[0].first(), filters[0].again(17)
    assert all(same(expect, other.first()) and same(again, other.again(17)) for other in filters[1:])


def test_of_a_trace_that_is_run_again_only_what_is_run_is_decoded(case):
    twice, decoded = TlbFilter(*case, TLB, batch=1), []
    twice.first()
    batches = twice.trace.batches

    def counted(least):
        decode = lambda run, _: decoded.append(run) or 1 / 0  # noqa: E731
        return Batches(Piece(one.chunks, partial(decode, one.chunks)) for one in batches(least))

    twice.trace = replace(twice.trace, batches=counted)
    with pytest.raises(ZeroDivisionError):
        twice.again(17)
    assert decoded == [slice(17, 18)]


def test_a_further_run_is_filtered_until_tlbs_hold_what_they_held_in_the_first(case):
    pieces, whole, decoded = TlbFilter(*case, TLB, batch=1), TlbFilter(*case, TLB, batch=10**6), []
    assert same(pieces.first(), whole.first())
    take, pieces._decoded = pieces._decoded, lambda *piece: decoded.append(piece) or take(*piece)
    for begin in (0, 17, 0):
        assert same(pieces.again(begin), whole.again(begin))
    assert 0 < len(decoded) < 2 * len(case[0].chunks)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_piece_that_cannot_be_decoded_is_named_whoever_decodes_it(case, threads):
    trace, space, placement = case

    def decode(run):
        raise CaptureError("trace.ptt", "chunk", run.start, "damaged")

    def batches(least):
        whole = list(trace.batches(least))
        runs = {touches.chunks.start: touches for touches in whole}
        sound = lambda run, _: runs[run.start] if run.start < 9 else decode(run)  # noqa: E731
        return Batches(Piece(one.chunks, partial(sound, one.chunks)) for one in whole)

    with pytest.raises(CaptureError, match="chunk = 9"):
        filter_trace(replace(trace, batches=batches), space, placement, TLB, threads=threads, batch=1)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_trace_that_fails_half_way_leaves_nothing_behind(case, tmp_path, monkeypatch, threads):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    trace, space, placement = case

    def batches(least):
        yield next(trace.batches(1))
        raise CaptureError("trace.ptt", "chunk", 1, "cut off")

    broken = type(trace)(trace.chunks, trace.events, trace.threads, trace.regions, batches, {})
    with pytest.raises(CaptureError, match="cut off"):
        filter_trace(broken, space, placement, TLB, threads=threads)
    assert not list(tmp_path.iterdir())


def test_a_page_outside_the_regions_of_the_trace_is_refused(case):
    trace, space, placement = case
    page = np.array([len(trace.regions) << 9], np.uint32)
    batches = lambda least: iter([Touches(slice(0, 1), page, page > 0, page)])  # noqa: E731
    wild = type(trace)(trace.chunks, trace.events, trace.threads, trace.regions, batches, {})
    with pytest.raises(CaptureError, match=r"page = .* beyond its"):
        filter_trace(wild, space, placement, TLB)


def test_a_memory_mapped_stream_feeds_the_cache_pass():
    trace = build_trace([(k % 2, [GIB + KIB4 * (k + 8 * n) for n in range(700)]) for k in range(8)])
    space, placement = address_space(build_snapshot([(GIB, 5)]), trace.regions), place(trace, 2, 2)
    stream = filter_trace(trace, space, placement, TLB)
    assert isinstance(stream.page, np.memmap) and len(stream) == 5600
    reads = [reads for _, reads in cache_pass(space, placement, small_machine(), stream, batch=1000)]
    assert np.array_equal(np.concatenate([r.page for r in reads]), stream.page)
    assert all((r.read & np.uint64(1 << 8)).all() for r in reads)  # every walk reads its leaf entry


def test_a_second_run_begins_without_what_was_unmapped_after_a_cpu_s_last_chunk():
    trace = build_trace([(0, [GIB]), (1, [GIB])], [(1, 1, Event.MUNMAP, (GIB, KIB4), 0)])
    space = address_space(build_snapshot([(GIB, 5)]), trace.regions)
    twice = TlbFilter(trace, space, place(trace, 2, 2), TLB)
    assert len(twice.first()) == 2 and len(twice.again(0)) == 2


# The levels of the TLB one after the other, and memory that does not grow folded behind the first.
COMMON = [
    small_tlb((8, 4), (12, 3)),
    small_tlb((4, 4), (8, 2), l2_1g=(3, 3), l2_holds=("4k",)),
    small_tlb((16, 4), (16, 16), l2_holds=("4k", "2m", "1g")),
    small_tlb((6, 6), (10, 5)),
]
OTHER = [
    small_tlb((12, 2), (12, 3)),
    small_tlb((6, 2), (9, 3), (3, 1), l2_1g=(2, 1)),
    small_tlb((12, 4), (10, 2), l2_holds=("2m",)),
    small_tlb((3, 3), (20, 20), l2_holds=("4k", "2m", "1g")),
    small_tlb((17, 17), (16, 2)),
]


def split(trace, space, placement, tlb, threads=1, batch=1000, folded=None):
    sizes = np.unique(space.regions.tlb_level).tolist()
    how = {"threads": threads, "batch": batch}
    near = TlbFilter(trace, space, placement, near_tlb(tlb, sizes), **how)
    how |= {"fold": folded, "mapped": near.mapped}
    return TlbFilter(missed_trace(near, near.first()), space, placement, far_tlb(tlb), **how)


def columns(stream):
    return [np.asarray(getattr(stream, name)).tolist() for name in ("page", "write", "offset", "hits")]


@pytest.mark.parametrize("tlb", [*COMMON, *OTHER])
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_two_levels_one_after_the_other_walk_as_both_at_once(tlb, data):
    snapshot = data.draw(snapshots())
    trace = data.draw(traces(snapshot, max_touches=40))
    where = trace, address_space(snapshot, trace.regions), place(trace, 2, 2)
    how = {"threads": data.draw(st.sampled_from([1, 4])), "batch": data.draw(st.sampled_from([1, 7, 1000]))}
    begin = data.draw(st.integers(0, len(trace.chunks)))
    whole, far = TlbFilter(*where, tlb, **how), split(*where, tlb, **how)
    assert columns(far.first()) == columns(whole.first())
    assert columns(far.again(begin)) == columns(whole.again(begin))


PAGES = st.lists(st.integers(0, 5 * 512 - 1), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None)
@given(PAGES, st.integers(0, 2000), st.integers(1, 600), st.sampled_from([1.5, 4, 16, 64]))
def test_pages_are_folded_as_a_dictionary_folds_them(pages, first, count, factor):
    trace = build_trace([(0, [GIB + KIB4 * page for page in pages])])
    regions = address_space(build_snapshot([(GIB, 5)]), trace.regions).regions
    number = GIB // KIB4
    page = np.concatenate([touches.page for touches in trace.batches(1000)])
    missed = WalkStream(page, np.zeros(len(page), bool), np.array([0, len(page)]), np.zeros((1, 3), np.int64))
    fixed = np.array([[number + first, number + first + count]], np.uint64)
    folded = fold(Growth(factor, fixed=fixed), regions, missed)
    of = naive_fold(pages, range(first, first + count), factor)
    seen = page if folded is None else folded.of(page)
    real = (regions.va[seen >> 9].astype(np.int64) << 9 | seen & 511) - number
    assert real.tolist() == [of.get(page, page) for page in pages]


def test_folded_memory_takes_its_share_of_a_smaller_tlb_and_each_page_walks_when_it_is_new():
    """Eight lines that fit a second level of 64 entries, used over and over: of a run four times as large
    they fit one of 16, if they are folded onto two."""
    own = [GIB + KIB4 * page for page in range(64)]
    trace = build_trace([(0, own * 4), (1, own)])
    where = trace, address_space(build_snapshot([(GIB, 5)]), trace.regions), place(trace, 2, 2)
    fixed = np.array([[GIB // KIB4, GIB // KIB4 + 64]], np.uint64)
    small = small_tlb((2, 2), (16, 16))
    near = TlbFilter(*where, near_tlb(small, [1])).first()
    folded = fold(Growth(4.0, fixed=fixed), where[1].regions, near)
    thin, whole = split(*where, small), split(*where, small, folded=folded)
    first = whole.first()
    assert len(thin.first()) == 5 * 64 and len(first) == 2 * 64
    assert sorted(first.page[:64].tolist()) == sorted({int(page) for page in near.page})
    assert first.hits.sum() == trace.accesses and first.hits[:, 2].tolist() == [64, 64]
    assert len(thin.again(0)) == 5 * 64 and len(whole.again(0)) == 0


def test_a_shootdown_of_a_folded_page_drops_what_stands_for_it():
    own = [GIB + KIB4 * page for page in range(16)]
    trace = build_trace([(0, own), (0, own[:1])], [(1, 0, Event.MUNMAP, (own[8], KIB4), 0)])
    where = trace, address_space(build_snapshot([(GIB, 5)]), trace.regions), place(trace, 1, 1)
    small = small_tlb((1, 1), (16, 16))
    fixed = np.array([[GIB // KIB4, GIB // KIB4 + 16]], np.uint64)
    folded = fold(Growth(2.0, fixed=fixed), where[1].regions, TlbFilter(*where, near_tlb(small, [1])).first())
    assert np.diff(split(*where, small, folded=folded).first().offset).tolist() == [16, 1]


def test_a_further_run_that_finds_a_folded_page_unmapped_walks_once_more_for_it_and_what_stands_for_it():
    own = [GIB + KIB4 * page for page in range(16)]
    trace = build_trace([(0, own)], [(0, 0, Event.MMAP, (0, KIB4, 3, 0x22), own[8])])
    where = trace, address_space(build_snapshot([(GIB, 5)]), trace.regions), place(trace, 1, 1)
    small = small_tlb((1, 1), (16, 16))
    fixed = np.array([[GIB // KIB4, GIB // KIB4 + 16]], np.uint64)
    near = TlbFilter(*where, near_tlb(small, [1]))
    folded = fold(Growth(2.0, fixed=fixed), where[1].regions, near.first())
    undone = undoing(trace.events, 0)
    rerun = {
        len(gone): TlbFilter(missed_trace(near, near.first(), gone), *where[1:], far_tlb(small), fold=folded)
        for gone in (undone[:0], undone)
    }
    assert [rerun[n].again(0, undone[:n]).page.tolist() for n in rerun] == [[], [0, 8]]


PAGES_UNMAPPED = st.integers(1, tlb_filter.FLUSH_CEILING)
UNMAPPED = st.lists(st.tuples(st.integers(0, 4 * 512 - 1), PAGES_UNMAPPED), max_size=3)


@pytest.mark.parametrize(("joins", "at_once"), [(1, 1 << 11), (1, 1), (4, 1), (16, 1 << 11)])
@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 4 * 512 - 1), min_size=1, max_size=60, unique=True), UNMAPPED)
def test_what_a_further_run_finds_unmapped_is_as_if_shot_down(joins, at_once, pages, unmapped):
    """Ranges that munmaps at the very end take away: the rest of both runs is the same, where each page that
    nothing shoots down is the oldest of its set when it is walked again, as it was touched first."""
    gone = {page // joins for start, count in unmapped for page in range(start, start + count)}
    pages.sort(key=lambda page: page // joins not in gone)
    touched, snapshot = [(0, [GIB + KIB4 * page for page in pages])], build_snapshot([(GIB, 5)])
    calls = [(1, 0, Event.MUNMAP, (GIB + KIB4 * page, KIB4 * count), 0) for page, count in unmapped]
    ends, shot = (1, 0, Event.ROI_END, (), 0), build_trace(touched, calls)
    left = build_trace(touched, [ends, *calls])
    tlb = changed(small_tlb((8, 4), (64, 4)), joins=joins)
    streams = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tlb_filter, "SPANS_AT_ONCE", at_once)
        for trace, undone in ((shot, left.events[:0]), (left, left.events[1:])):
            where = trace, address_space(snapshot, trace.regions), place(trace, 1, 1)
            streams.append(TlbFilter(*where, tlb).again(0, undone))
    assert same(*streams)


def test_caches_see_folded_lines_and_walks_keep_their_tables():
    """Pages of two leaf tables that are folded onto the first line: its table alone is read from DRAM."""
    trace = build_trace([(0, [GIB, GIB + 512 * KIB4, GIB + 8 * KIB4])])
    space, placement = address_space(build_snapshot([(GIB, 5)]), trace.regions), place(trace, 1, 1)
    stream = TlbFilter(trace, space, placement, small_tlb((1, 1), (1, 1))).first()
    fixed = np.array([[GIB // KIB4, GIB // KIB4 + 1024]], np.uint64)
    folded = fold(Growth(64.0, fixed=fixed), space.regions, stream)
    machine = small_machine()
    reads = [
        next(cache_pass(space, placement, machine, stream, fold=of, threads=threads))[1]
        for of in (None, folded)
        for threads in (1, 2)
    ]
    for column in ("cpu", "page", "write", "leaf", "slot", "host_leaf"):
        assert all(np.array_equal(getattr(one, column), getattr(reads[0], column)) for one in reads)
    plain, seen = reads[0], reads[2]
    assert np.array_equal(seen.missed, reads[3].missed) and plain.missed[1:].all()
    assert not seen.missed[1:, 1:].any() and (seen.read[1:] == 1 << 8).all()


# Both TLB kernels, behind the filter, against the naive TLB.

MIB2 = 1 << 21


def naive_filter(trace, space, placement, tlb):
    """([(page, write)] that miss, misses of each chunk, hits by CPU)."""
    joined = joined_groups(space.snapshot, tlb.joins) if tlb.joins > 1 else None
    cpus = [NaiveTlb(tlb, joined) for _ in placement.cpu_node]
    sizes = {int(va): int(size) for va, size in zip(trace.regions, space.regions.tlb_level, strict=True)}
    flushed, due = Flushed(sizes), [*trace.events]
    walks, counts = [], []
    for touches in trace.batches(1 << 30):
        for chunk in range(touches.chunks.start, touches.chunks.stop):
            while due and due[0]["chunk"] <= chunk:
                for flush in flushed.happen(due.pop(0)):
                    for cpu in cpus:
                        cpu.shoot_down(*flush)
            first, count = int(trace.chunks["first"][chunk]), int(trace.chunks["touches"][chunk])
            cpu, before = cpus[placement.chunk_cpu[chunk]], len(walks)
            cpu.hits[0] += int(trace.chunks["accesses"][chunk]) - count
            for page, write in zip(
                touches.page[first : first + count].tolist(),
                touches.write[first : first + count],
                strict=True,
            ):
                number = int(trace.regions[page >> 9]) << 9 | page & 511
                flushed.touch(number)
                if cpu.touch(number, int(space.regions.tlb_level[page >> 9])) == 2:
                    walks.append((page, bool(write)))
            counts.append(len(walks) - before)
    return walks, counts, [cpu.hits for cpu in cpus]


def agrees_with_naive(snapshot, trace, tlb, **options):
    space, placement = address_space(snapshot, trace.regions), place(trace, 2, 2)
    stream = TlbFilter(trace, space, placement, tlb, **options).first()
    walks, counts, hits = naive_filter(trace, space, placement, tlb)
    assert list(zip(stream.page.tolist(), stream.write.tolist(), strict=True)) == walks
    assert np.diff(stream.offset).tolist() == counts
    assert stream.hits.tolist() == hits
    return stream


@pytest.mark.parametrize("tlb", [*COMMON, *OTHER])
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_misses_hits_and_their_order_are_the_naive_tlbs(tlb, data):
    snapshot = data.draw(snapshots())
    trace = data.draw(traces(snapshot, max_touches=40))
    threads = data.draw(st.sampled_from([1, 8]))  # of 2 CPUs: with 8 each TLB is split by set, if it can be
    tlb = changed(tlb, joins=data.draw(st.sampled_from([1, 4, 16])))
    agrees_with_naive(snapshot, trace, tlb, batch=data.draw(st.sampled_from([1, 7, 1000])), threads=threads)


RUNS = st.lists(  # (first page, first frame, pages): where runs begin decides what joins
    st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 24)), min_size=1, max_size=4
)


@pytest.mark.parametrize("tlb", [COMMON[0], OTHER[0]])
@pytest.mark.parametrize("joins", [4, 16])
@settings(max_examples=15, deadline=None)
@given(runs=RUNS, data=st.data())
def test_pages_of_frames_in_a_row_share_an_entry_as_the_naive_tlb_has_them(tlb, joins, runs, data):
    pages = {
        GIB // KIB4 + 64 * k + first + n: 128 * k + frame + n
        for k, (first, frame, count) in enumerate(runs)
        for n in range(count)
    }
    behind = data.draw(st.none() | st.lists(st.integers(0, 8), min_size=1, max_size=3))  # shifts of 8 pages
    host = behind and [(frame * KIB4, frame + behind[frame // 8 % len(behind)]) for frame in pages.values()]
    encoding = data.draw(st.sampled_from(["ept", "kvm"]))
    mapped = [(page * KIB4, frame) for page, frame in pages.items()]
    snapshot = build_snapshot(mapped, host, host_encoding=encoding)
    touched = [page * KIB4 for page in sorted(pages)] + [GIB + 400 * KIB4]
    touch = st.tuples(st.sampled_from(touched), st.booleans())
    chunks = data.draw(st.lists(st.tuples(st.integers(0, 2), st.lists(touch, max_size=40)), max_size=5))
    gone = [(k, 0, Event.MUNMAP, (data.draw(st.sampled_from(touched)), KIB4), 0) for k in range(len(chunks))]
    trace = build_trace(chunks or [(0, [touched[0]])], gone[: data.draw(st.integers(0, 2))])
    threads = data.draw(st.sampled_from([1, 8]))
    agrees_with_naive(snapshot, trace, changed(tlb, joins=joins), batch=7, threads=threads)


@pytest.mark.compiled
@pytest.mark.parametrize(("joins", "frames", "entries"), [
    (1, 1, 64), (4, 1, 16), (16, 1, 4), (4, 2, 64), (16, 2, 64),
])  # fmt: skip
def test_memory_of_frames_in_a_row_takes_a_quarter_of_the_entries(joins, frames, entries):
    """64 pages whose frames are `frames` apart, in a TLB that holds as many entries as they need, and in half
    of that: the first sweep misses once for each entry, further ones never or always."""
    snapshot = build_snapshot([(GIB + k * KIB4, 64 + frames * k) for k in range(64)])
    trace = build_trace(sweep(64, rounds=5))
    for has, rounds in ((entries, 1), (entries // 2, 5)):
        tlb = changed(small_tlb(l1=(1, 1), l2=(has, has)), joins=joins)
        space, placement = address_space(snapshot, trace.regions), place(trace, 1, 1)
        assert len(TlbFilter(trace, space, placement, tlb).first().page) == rounds * entries


@pytest.mark.compiled
@pytest.mark.parametrize(("host", "bits"), [
    (None, []), ("kvm", [(5, 2), (9, 2), (1, 1)]),
    ("ept", [(8, 2), (9, 2), (11, 2), (1, 1), (3, 1), (57, 1)]),
])  # fmt: skip
def test_pages_join_only_if_frames_are_in_a_row_and_attributes_equal_in_each_dimension(host, bits):
    """A bit of an entry, and how many of two groups still join then."""

    def groups(of):
        found = joined_pages(address_space(of, np.array([GIB >> 21], np.uint64)), 4)
        return 0 if found is None else int(found.groups.sum())

    def built(guest=lambda k: 64 + k, behind=lambda k: 128 + k, huge=False):
        plain = [(GIB, 0, 2)] if huge else [(GIB + k * KIB4, guest(k)) for k in range(8)]
        below = host and [(guest(k) << 12, behind(k)) for k in range(8)]
        return build_snapshot(plain, below, host_encoding=host or "ept")

    snapshot = built()
    assert groups(snapshot) == 2
    assert joined_pages(address_space(snapshot, np.array([GIB >> 21], np.uint64)), 1) is None
    assert groups(built(guest=lambda k: 64 + 2 * k)) == groups(built(guest=lambda k: 65 + k)) == 0
    changes = [(snapshot.guest, GIB, 1, [(5, 2), (6, 2), (1, 1), (63, 1)])]  # accessed, dirty, writable, NX
    if host:
        assert groups(built(behind=lambda k: 128 + 2 * k)) == groups(built(behind=lambda k: 130 + k)) == 0
        assert groups(built(huge=True)) == 2, "a huge page of the guest, in 4 KiB pages of the host"
        changes.append((snapshot.host, 0, 65, bits))
    for tree, base, slot, tried in changes:
        leaf = int(np.flatnonzero((tree.level == 1) & (tree.base == base))[0])
        for bit, still in tried:
            tree.entries[leaf, slot] ^= np.uint64(1 << bit)
            assert groups(snapshot) == still, bit
            tree.entries[leaf, slot] ^= np.uint64(1 << bit)


def sweep(pages, rounds=3, start=GIB):
    return [(0, [start + KIB4 * k for k in range(pages)] * rounds)]


def test_the_common_shape_is_recognised():
    assert all(is_common(tlb) for tlb in COMMON) and not any(is_common(tlb) for tlb in OTHER)
    assert not is_common(small_tlb((8, 4), (1024 * 4, 4)))


@pytest.mark.parametrize("tlb", [COMMON[0], OTHER[0]])
@pytest.mark.parametrize(("pages", "walks"), [((1,), 3), ((1, 33), 5), ((1, 34), 6), ((33, 34), 5)])
def test_a_shootdown_of_up_to_33_pages_spares_the_others_and_a_longer_one_flushes(tlb, pages, walks):
    """From the first page that was touched to the last, of 64."""
    touched, far = [GIB + page * KIB4 for page in pages], [2 * GIB]
    trace = build_trace([(0, touched + far), (0, touched + far)], [(1, 0, Event.MUNMAP, (GIB, 64 * KIB4), 0)])
    assert len(agrees_with_naive(build_snapshot([(GIB, 5)]), trace, tlb)) == walks


# What is left out of a trace changes no TLB, no walk and no count; a TLB that it would change is refused.


@pytest.mark.parametrize("leaf", [1, 2])
@pytest.mark.parametrize("kind", [Event.MUNMAP, Event.MPROTECT])
def test_walks_after_shootdowns_and_on_a_shared_cpu_are_the_same(kind, leaf, tmp_path):
    """Threads on shared CPUs take turns; after each, pages they just used are unmapped or protected."""
    rng = np.random.default_rng(leaf)
    snapshot = build_snapshot([(GIB, 2048), (4 * GIB, 8, 2)] if leaf == 2 else [(GIB, 2048), (4 * GIB, 4096)])
    step = MIB2 // (512 if leaf == 1 else 1)
    pages = [GIB + KIB4 * k for k in range(12)] + [4 * GIB + step * k for k in range(8)]
    turns = [
        (int(rng.integers(0, 6)), [pages[k] for k in rng.zipf(1.4, 150) % len(pages)]) for _ in range(60)
    ]
    events = [
        (turn, 0, kind, (pages[turn % len(pages)], KIB4 * (1 + turn % 40), 1), 0) for turn in range(1, 60)
    ]
    trace = build_trace(turns, events)
    trace.events["time"] = trace.events["chunk"] * 1000 - 1
    assert same_walks(trace, snapshot, tmp_path / "trace.ptt") < 0.8


REFUSED = {
    "sets": (small_tlb((32, 4), (16, 4)), 1, "l1_4k"),
    "ways": (small_tlb((48, 3), (16, 4)), 1, "l1_4k"),
    "one set": (small_tlb((8, 8), (16, 4)), 1, "l1_4k"),
    "2 MiB": (small_tlb((64, 4), (16, 4), (8, 4)), 2, "l1_2m"),
    "1 GiB": (small_tlb((64, 4), (16, 4), (8, 8)), 3, "l1_1g"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_tlb_that_the_trace_was_not_stripped_for_is_refused_in_one_line(why, tmp_path):
    tlb, size, field = REFUSED[why]
    snapshot = build_snapshot([(4 * GIB, 1 << 18 if size == 3 else 512, size)])
    trace = build_trace([(0, [4 * GIB, 4 * GIB + KIB4] * 9)])
    short = stripped(trace, tmp_path / "trace.ptt")
    space, placement = address_space(snapshot, trace.regions), place(trace, 1, 1)
    with pytest.raises(UsageError, match=f"^tlb.{field} = [^\n]*--strip off[^\n]*$"):
        TlbFilter(short, space, placement, tlb).first()
    assert len(TlbFilter(trace, space, placement, tlb).first())


def test_an_array_for_pages_that_the_trace_lacks_may_have_any_shape(tmp_path):
    trace = build_trace([(0, [GIB, GIB + KIB4] * 9)])
    short = stripped(trace, tmp_path / "trace.ptt")
    space = address_space(build_snapshot([(GIB, 9)]), trace.regions)
    assert len(TlbFilter(short, space, place(trace, 1, 1), small_tlb((64, 4), (16, 4), (3, 1))).first()) == 2


# Both kernels, and a TLB that is split by set: the same walks on every machine of the package.


@pytest.fixture(scope="module")
def long_case():
    """A thread's trace with pages of two sizes, a chunk of 9,000 touches, shootdowns of a page and of all."""
    rng = np.random.default_rng(8)
    small = GIB + KIB4 * rng.integers(0, 3000, 16_000)
    pages = np.where(rng.random(16_000) < 0.2, 4 * GIB + MIB2 * rng.integers(0, 90, 16_000), small).tolist()
    run = [(page, page % 3 == 0, 1) for page in pages]
    events = [(2, 0, Event.MUNMAP, (pages[0], KIB4), 0), (3, 0, Event.MUNMAP, (GIB, 99 * KIB4), 0)]
    chunks = [(0, run[:9000]), (0, run[9000:13000]), (1, run[13000:15000]), (0, run[15000:])]
    trace = build_trace(chunks, events)
    mapped = [(GIB, 5), *((4 * GIB + k * MIB2, 512 * (k + 1), 2) for k in range(90))]
    return trace, address_space(build_snapshot(mapped), trace.regions), place(trace, 1, 1)


@pytest.mark.compiled
@pytest.mark.parametrize("name", [path.stem for path in bundled("models").glob("machines/*.toml")])
def test_either_kernel_gives_the_same_walks_on_every_machine(long_case, name, monkeypatch):
    tlb = load_machine(name).tlb
    one, other = (TlbFilter(*long_case, tlb, threads=n, batch=5000) for n in (1, 4))
    first, again = one.first(), one.again(2)
    monkeypatch.setattr(tlb_filter, "is_common", lambda tlb: False)
    assert 1000 < len(first) < 16_000 and same(first, other.first()) and same(again, other.again(2))


# What is left out of the bundled captures changes no walk under any machine that comes with the package.


@pytest.mark.compiled
def test_walks_of_the_one_bundled_sample_that_is_not_stripped_are_the_same_under_every_machine(tmp_path):
    capture = open_capture("sysbench-memory")
    same_walks(capture.trace, capture.snapshot, tmp_path / "trace.ptt")
