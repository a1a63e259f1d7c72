"""The filter around the kernels: threads, batches, the stored stream."""

import os
from dataclasses import replace
from functools import partial
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept_streams import put_column
from naive.fold import naive_fold
from ptanalyze.core.errors import CaptureError
from ptanalyze.core.trace import Batches, Event, Piece, Touches
from ptanalyze.core.walks import WalkStream
from ptanalyze.formats.trace import read_index, trace_of
from ptanalyze.world.address_space import address_space
from ptanalyze.world.cache_pass import cache_pass
from ptanalyze.world.scaling import Growth, fold
from ptanalyze.world.tlb_filter import FarFilter, TlbFilter, near_tlb
from strategies import build_snapshot, build_trace, place, small_machine, small_tlb, snapshots, traces
from trace_copy import write_trace

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
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("page", "write", "offset", "hits")
    )


def test_results_do_not_depend_on_threads_or_batches(case):
    streams = [
        filter_trace(*case, TLB, threads=threads, batch=batch)
        for threads in (1, 2, 8)
        for batch in (1, 50, 10**6)
    ]
    assert len(streams[0]) > 50 and all(same(streams[0], other) for other in streams[1:])


def test_every_access_is_a_hit_or_a_walk(case):
    stream = filter_trace(*case, TLB)
    assert stream.hits.sum() == case[0].accesses and stream.hits[:, 2].sum() == len(stream)


def test_an_empty_trace_gives_an_empty_stream(tmp_path):
    trace = build_trace([])
    space = address_space(build_snapshot([(GIB, 5)]), trace.regions)
    for _ in range(2):
        stream = filter_trace(trace, space, place(trace, 2, 2), TLB, cache_dir=tmp_path)
        assert len(stream) == 0 and stream.offset.tolist() == [0] and stream.hits.tolist() == [[0] * 3] * 2


def test_progress_is_told_of_every_touch(case):
    done = []
    filter_trace(*case, TLB, batch=100, progress=done.append)
    assert sum(done) == case[0].touches and len(done) > 1


def only_decoded_once(trace):
    """The trace, but a second decoding fails."""
    left = [1]

    def batches(least):
        assert left.pop()
        return trace.batches(least)

    return type(trace)(trace.chunks, trace.events, trace.threads, trace.regions, batches, trace.facts)


def test_a_stored_stream_is_found_again_without_decoding_the_trace(case, tmp_path):
    trace, space, placement = case
    once = only_decoded_once(trace)
    first = filter_trace(once, space, placement, TLB, cache_dir=tmp_path)
    assert same(first, filter_trace(once, space, placement, TLB, cache_dir=tmp_path))
    (directory,) = tmp_path.iterdir()
    assert {oct(os.stat(directory / name).st_mode & 0o777) for name in os.listdir(directory)} == {"0o600"}


def test_a_stream_that_is_not_kept_is_not_synced_to_disk(case, tmp_path, monkeypatch):
    synced, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), fsync(fd)))
    assert len(filter_trace(*case, TLB)) and not synced
    assert len(filter_trace(*case, TLB, cache_dir=tmp_path)) and len(synced) == 5  # four columns, the seal


def test_another_tlb_placement_or_trace_is_another_stream(case, tmp_path):
    trace, space, placement = case
    filter_trace(trace, space, placement, TLB, cache_dir=tmp_path)
    filter_trace(trace, space, placement, small_tlb((8, 4), (16, 4)), cache_dir=tmp_path)
    filter_trace(trace, space, place(trace, 2, 2), TLB, cache_dir=tmp_path)
    trace.facts["program"] = "other"
    filter_trace(trace, space, placement, TLB, cache_dir=tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("name", ["page.npy", "write.npy", "offset.npy", "hits.npy", "seal"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "empty"])
def test_a_damaged_stored_stream_is_computed_again(case, tmp_path, name, damage):
    stream = filter_trace(*case, TLB, cache_dir=tmp_path)
    expected = [np.array(getattr(stream, column)) for column in ("page", "write", "offset", "hits")]
    (directory,) = tmp_path.iterdir()
    path, content = directory / name, bytearray((directory / name).read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 4
    content = {"flip": content, "truncate": content[:-1], "empty": b"", "remove": None}[damage]
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    again = filter_trace(*case, TLB, cache_dir=tmp_path)
    assert all(map(np.array_equal, (again.page, again.write, again.offset, again.hits), expected))
    assert [path.name for path in tmp_path.iterdir()] == [directory.name]


def test_threads_share_the_decoding_of_a_file_and_what_is_run_again_is_the_same(case, tmp_path):
    write_trace(tmp_path / "trace.ptt", case[0])
    filters = [
        TlbFilter(
            trace_of(tmp_path / "trace.ptt", read_index(tmp_path / "trace.ptt")), *case[1:], TLB, n, batch=b
        )
        for n, b in ((1, 10**6), (1, 30), (2, 30), (5, 30))
    ]
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
def test_a_trace_that_fails_half_way_leaves_nothing_behind(case, tmp_path, threads):
    trace, space, placement = case

    def batches(least):
        yield next(trace.batches(1))
        raise CaptureError("trace.ptt", "chunk", 1, "cut off")

    broken = type(trace)(trace.chunks, trace.events, trace.threads, trace.regions, batches, {})
    with pytest.raises(CaptureError, match="cut off"):
        filter_trace(broken, space, placement, TLB, cache_dir=tmp_path, threads=threads)
    assert not list(tmp_path.iterdir())


def test_a_page_outside_the_regions_of_the_trace_is_refused(case):
    trace, space, placement = case
    page = np.array([len(trace.regions) << 9], np.uint32)
    batches = lambda least: iter([Touches(slice(0, 1), page, page > 0, page)])  # noqa: E731
    wild = type(trace)(trace.chunks, trace.events, trace.threads, trace.regions, batches, {})
    with pytest.raises(CaptureError, match=r"page = .* beyond its"):
        filter_trace(wild, space, placement, TLB)


def test_a_cache_directory_that_cannot_be_made_changes_no_result(case, tmp_path):
    (tmp_path / "file").write_text("")
    kept = filter_trace(*case, TLB, cache_dir=tmp_path / "file" / "cache")
    assert np.array_equal(kept.page, filter_trace(*case, TLB).page)


def test_a_memory_mapped_stream_feeds_the_cache_pass(tmp_path):
    trace = build_trace([(k % 2, [GIB + KIB4 * (k + 8 * n) for n in range(700)]) for k in range(8)])
    space, placement = address_space(build_snapshot([(GIB, 5)]), trace.regions), place(trace, 2, 2)
    stream = filter_trace(trace, space, placement, TLB, cache_dir=tmp_path)
    assert isinstance(stream.page, np.memmap) and len(stream) == 5600
    reads = [reads for _, reads in cache_pass(space, placement, small_machine(), stream, batch=1000)]
    assert np.array_equal(np.concatenate([r.page for r in reads]), stream.page)
    assert all((r.read & np.uint64(1 << 8)).all() for r in reads)  # every walk reads its leaf entry


def forged(directory, name, change):
    """A stored stream whose column was changed by somebody who made the checksums fit."""
    column = np.array(np.load(directory / f"{name}.npy"))
    content = BytesIO()
    np.save(content, change(column))
    put_column(directory, name, content.getvalue())


def raised(by):
    """A function that adds to the middle element of a column."""

    def change(column):
        column[len(column) // 2] += by
        return column

    return change


def there_and_back(column):
    """From 2^62 to -2^63 is a step whose length is no number of 64 bits, and all others go up."""
    column[1:4] = 1 << 62, -(1 << 63), -1
    return column


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("page", raised(np.uint32(1 << 31))),
        ("page", lambda column: column[:-1]),
        ("page", lambda column: column.astype(np.int64)),
        ("offset", raised(1 << 40)),
        ("offset", raised(-1000)),
        ("offset", there_and_back),
        ("offset", lambda column: np.append(column, column[-1])),
        ("write", lambda column: np.append(column, True)),
        ("hits", lambda column: column[:, :2]),
    ],
)
def test_a_stored_stream_that_was_forged_is_computed_again(case, tmp_path, name, change):
    stream = filter_trace(*case, TLB, cache_dir=tmp_path)
    expected = [np.array(getattr(stream, column)) for column in ("page", "write", "offset", "hits")]
    (directory,) = tmp_path.iterdir()
    forged(directory, name, change)
    again = filter_trace(*case, TLB, cache_dir=tmp_path)
    assert all(map(np.array_equal, (again.page, again.write, again.offset, again.hits), expected))


def test_a_second_run_begins_without_what_was_unmapped_after_a_cpu_s_last_chunk():
    trace = build_trace([(0, [GIB]), (1, [GIB])], [(1, 1, Event.MUNMAP, (GIB, KIB4), 0)])
    space = address_space(build_snapshot([(GIB, 5)]), trace.regions)
    twice = TlbFilter(trace, space, place(trace, 2, 2), TLB)
    assert len(twice.first()) == 2 and len(twice.again(0)) == 2


# The levels of the TLB one after the other, and memory that does not grow folded behind the first.


TLBS = [
    small_tlb((8, 4), (12, 3)),
    small_tlb((4, 4), (8, 2), l2_1g=(3, 3), l2_holds=("4k",)),
    small_tlb((16, 4), (16, 16), l2_holds=("4k", "2m", "1g")),
    small_tlb((6, 2), (9, 3), (3, 1), l2_1g=(2, 1)),
    small_tlb((12, 4), (10, 2), l2_holds=("2m",)),
    small_tlb((17, 17), (16, 2)),
]


def split(trace, space, placement, tlb, threads=1, batch=1000, folded=None):
    sizes = np.unique(space.regions.tlb_level).tolist()
    near = TlbFilter(trace, space, placement, near_tlb(tlb, sizes), threads, batch=batch)
    return FarFilter(near, tlb, lambda missed: folded)


def columns(stream):
    return [np.asarray(getattr(stream, name)).tolist() for name in ("page", "write", "offset", "hits")]


@pytest.mark.parametrize("tlb", TLBS)
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
    folded = fold(Growth(factor, fixed), regions, missed)
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
    folded = fold(Growth(4.0, fixed), where[1].regions, near)
    thin, whole = split(*where, small), split(*where, small, folded=folded)
    first = whole.first()
    assert len(thin.first()) == 5 * 64 and len(first) == 2 * 64
    assert sorted(first.page[:64].tolist()) == sorted({int(page) for page in near.page})
    assert first.hits.sum() == trace.accesses and first.hits[:, 2].tolist() == [64, 64]
    assert len(thin.again(0)) == 5 * 64 and len(whole.again(0)) == 0


def test_a_shootdown_of_a_folded_page_drops_what_stands_for_it():
    own = [GIB + KIB4 * page for page in range(16)]
    unmapped = [(1, 0, Event.MUNMAP, (own[8], KIB4), 0)]
    trace = build_trace([(0, own), (0, own[:1])], unmapped)
    where = trace, address_space(build_snapshot([(GIB, 5)]), trace.regions), place(trace, 1, 1)
    small = small_tlb((1, 1), (16, 16))
    fixed = np.array([[GIB // KIB4, GIB // KIB4 + 16]], np.uint64)
    folded = fold(Growth(2.0, fixed), where[1].regions, TlbFilter(*where, near_tlb(small, [1])).first())
    assert np.diff(split(*where, small, folded=folded).first().offset).tolist() == [16, 1]


def test_caches_see_folded_lines_and_walks_keep_their_tables():
    """Pages of two leaf tables that are folded onto the first line: its table alone is read from DRAM."""
    own = [GIB, GIB + 512 * KIB4, GIB + 8 * KIB4]
    trace = build_trace([(0, own)])
    space, placement = address_space(build_snapshot([(GIB, 5)]), trace.regions), place(trace, 1, 1)
    stream = TlbFilter(trace, space, placement, small_tlb((1, 1), (1, 1))).first()
    fixed = np.array([[GIB // KIB4, GIB // KIB4 + 1024]], np.uint64)
    folded = fold(Growth(64.0, fixed), space.regions, stream)
    machine = small_machine()
    reads = [
        next(cache_pass(space, placement, machine, stream, fold=of, threads=threads))[1]
        for of in (None, folded)
        for threads in (1, 2)
    ]
    for column in ("cpu", "page", "write", "leaf", "slot", "host_leaf"):
        assert all(np.array_equal(getattr(one, column), getattr(reads[0], column)) for one in reads)
    plain, seen = reads[0], reads[2]
    assert np.array_equal(seen.dram, reads[3].dram) and plain.dram[1] and plain.dram[2]
    assert not seen.dram[1:].any() and (seen.read[1:] == 1 << 8).all()
