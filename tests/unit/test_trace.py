"""trace.ptt and its index: what is written is read again, and nothing else is taken for it."""

import lzma
import os
import struct
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from captures import touches_of, write_trace
from naive import decode as naive
from ptanalyze.capture.check import check_capture
from ptanalyze.capture.describe import describe
from ptanalyze.core.errors import CaptureError
from ptanalyze.core.trace import CHUNK_DTYPE, Event, Scratch, lines_per_page, pieces
from ptanalyze.formats import trace as trace_files
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.record import TRACE, seal
from ptanalyze.formats.trace import HEADER_BYTES, HEADER_DTYPE, INDEX, read_index, read_trace, stored_index
from ptanalyze.kernels import trace_codec
from ptanalyze_formats.kernels import encode_chunk
from ptanalyze_formats.trace_writer import new_trace

pytestmark = pytest.mark.twin

TOUCHES = st.lists(strategies.TOUCHES, min_size=1, max_size=40)
EVENTS = st.tuples(st.sampled_from(Event), st.integers(0, (1 << 57) - 1), st.integers(-200, (1 << 57) - 1))


def columns(touches):
    page, write, count = zip(*touches, strict=True)
    return np.array(page, np.int64), np.array(write, np.bool_), np.array(count, np.int64)


def write_chunks(path, chunks, **facts):
    with new_trace(path, ended="exit", **facts) as writer:
        for number, (thread, touches) in enumerate(chunks):
            writer.chunk(*columns(touches), thread=thread, time=10 * number, cpu=number % 3)
    return path


@given(TOUCHES)
def test_the_compiled_encoder_and_its_naive_twin_write_the_same_bytes(touches):
    out = np.empty(10 * len(touches), np.uint8)
    n = encode_chunk(*columns(touches), out)
    assert out[:n].tobytes() == naive.encode(touches)
    assert naive.decode(out[:n].tobytes(), len(touches)) == (touches, b"")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), TOUCHES), min_size=1, max_size=6), st.integers(1, 60))
def test_touches_are_read_as_they_were_written_whatever_the_batch(tmp_path_factory, chunks, least):
    trace = read_trace(write_chunks(tmp_path_factory.mktemp("t") / "trace.ptt", chunks))
    expect = [touch for _, touches in chunks for touch in touches]
    assert touches_of(trace, least) == expect
    assert trace.touches == len(expect) and trace.accesses == sum(count for _, _, count in expect)
    assert trace.chunks["thread"].tolist() == [thread for thread, _ in chunks]
    assert trace.regions.tolist() == list(dict.fromkeys(page >> 9 for page, _, _ in expect))
    sizes = [len(batch.page) for batch in trace.batches(least)]
    assert all(size >= least for size in sizes[:-1])


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.just(0), TOUCHES), min_size=2, max_size=6), st.integers(1, 60), st.data())
def test_pieces_are_the_batches_on_whatever_thread_they_are_decoded(tmp_path_factory, chunks, least, data):
    path = write_chunks(tmp_path_factory.mktemp("t") / "trace.ptt", chunks)
    trace = trace_files.trace_of(path, read_index(path))
    expect = list(trace.batches(least))
    left = list(pieces(trace.batches(least)))
    assert [piece.chunks for piece in left] == [batch.chunks for batch in expect]
    order = data.draw(st.permutations(range(len(left))))
    with ThreadPoolExecutor(4) as pool:
        found = dict(zip(order, pool.map(lambda k: left[k].decode(Scratch()), order), strict=True))
    for k, batch in enumerate(expect):
        for name in ("page", "write", "count"):
            np.testing.assert_array_equal(getattr(found[k], name), getattr(batch, name))


def test_what_is_left_of_batches_that_were_begun_is_pieces_too(tmp_path):
    path = write_chunks(tmp_path / "t.ptt", [(0, [(k, False, 1)]) for k in range(5)])
    begun = read_trace(path).batches(2)
    assert [next(begun).chunks, *(piece.chunks for piece in pieces(begun))] == [
        slice(0, 2), slice(2, 4), slice(4, 5),
    ]  # fmt: skip
    (piece,) = pieces(iter([next(read_trace(path).batches(9))]))
    assert piece.chunks == slice(0, 5) and np.shares_memory(*(piece.decode(Scratch()).page for _ in range(2)))


def test_a_table_of_all_regions_is_left_as_it_is_by_those_it_lacks():
    number = np.array([7 << 9, 8 << 9 | 3, 9 << 9], np.int64)
    table = np.full(17, trace_codec.EMPTY, np.int64)
    regions = np.zeros(8, np.int64)
    page = np.zeros(3, np.uint32)
    table[-1] = 5
    assert trace_codec.number_pages(number, 2, table, regions, 0, 2, page) == 2
    known = table.copy(), regions.copy()
    assert trace_codec.number_pages(number, 3, table, regions, 2, 2, page) == 3
    assert page.tolist()[:2] == [0, 1 << 9 | 3]
    assert np.array_equal(table, known[0]) and np.array_equal(regions, known[1])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(TOUCHES, EVENTS), min_size=1, max_size=8), TOUCHES)
def test_a_trace_written_again_is_the_same_trace(tmp_path_factory, steps, last):
    place = tmp_path_factory.mktemp("t")
    with new_trace(place / "a.ptt", ended="signal", command="x y", pid=7, sampled=True) as writer:
        for time, step in enumerate([*steps, last]):
            if isinstance(step, list):
                writer.chunk(*columns(step), thread=time % 2, time=time // 2, cpu=1, instructions=time)
            else:
                kind, a, result = step
                writer.event(kind, a, 1, 2, 3, result=result, thread=time % 3, time=time // 2)
    first = read_trace(place / "a.ptt")
    write_trace(place / "b.ptt", first)
    again = read_trace(place / "b.ptt")
    for name in ("chunks", "events", "threads", "regions"):
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))
    assert touches_of(again) == touches_of(first) and again.facts == first.facts


def test_chunks_of_all_threads_are_put_in_the_order_of_time(tmp_path):
    with new_trace(tmp_path / "t.ptt", ended="exit") as writer:
        for thread, time, page in ((0, 50, 1), (1, 20, 2), (1, 50, 3), (0, 60, 4)):
            writer.chunk(*columns([(page, False, 1)]), thread=thread, time=time)
        writer.event(Event.MUNMAP, 4096, 8192, thread=1, time=50)
        writer.event(Event.BRK, 0, result=1 << 30, thread=1, time=70)
    trace = read_trace(tmp_path / "t.ptt")
    assert [page for page, _, _ in touches_of(trace)] == [2, 1, 3, 4]
    assert trace.events["chunk"].tolist() == [3, 4]


def test_threads_know_their_tid_parent_start_and_end(tmp_path):
    with new_trace(tmp_path / "t.ptt", ended="exit") as writer:
        writer.event(Event.THREAD_START, a=100, b=(1 << 64) - 1, thread=0, time=0)
        writer.event(Event.THREAD_START, a=101, b=0, thread=1, time=5)
        writer.chunk(*columns([(1, True, 1)]), thread=1, time=6)
        writer.event(Event.THREAD_EXIT, thread=1, time=9)
    threads = read_trace(tmp_path / "t.ptt").threads
    assert threads["tid"].tolist() == [100, 101] and threads["parent"].tolist() == [-1, 0]
    assert threads["start"].tolist() == [0, 5] and threads["end"].tolist() == [-1, 9]


def test_more_regions_than_the_table_began_with_are_all_found(tmp_path):
    pages = (np.arange(3000, dtype=np.int64) * 7919 % 5003) << 9
    with new_trace(tmp_path / "t.ptt", ended="exit") as writer:
        writer.accesses_of(pages, pages < 0, thread=0, time=np.arange(3000))
    assert read_trace(tmp_path / "t.ptt").regions.tolist() == list(dict.fromkeys((pages >> 9).tolist()))


def test_accesses_are_merged_and_cut_into_chunks(tmp_path):
    page = np.repeat(np.arange(5000, dtype=np.int64), 2)
    write = np.arange(10000) % 4 == 3
    with new_trace(tmp_path / "t.ptt", ended="exit") as writer:
        writer.accesses_of(page, write, thread=0, time=np.arange(10000), instructions=np.arange(10000))
    trace = read_trace(tmp_path / "t.ptt")
    assert trace.chunks["touches"].tolist() == [4096, 904] and trace.accesses == 10000
    assert trace.chunks["time"].tolist() == [0, 8192]
    assert touches_of(trace)[:2] == [(0, False, 2), (1, True, 2)]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Bytes of a finished trace of four chunks, with the position of each chunk and the end."""
    path = tmp_path_factory.mktemp("good") / "trace.ptt"
    chunks = [(0, [(n * 1000 + i, i % 2 == 0, 1 + i % 5) for i in range(20)]) for n in range(4)]
    data = write_chunks(path, chunks).read_bytes()
    starts = [HEADER_BYTES]
    while starts[-1] < len(data):
        starts.append(starts[-1] + 48 + struct.unpack_from("<I", data, starts[-1] + 8)[0])
    return data, starts


def read_bytes(tmp_path, data):
    (tmp_path / "bad.ptt").write_bytes(data)
    return read_trace(tmp_path / "bad.ptt")


def test_a_file_cut_anywhere_is_a_shorter_trace_or_refused(tmp_path, good):
    data, starts = good
    for cut in [*range(HEADER_BYTES, len(data), 17), *starts]:
        whole = sum(start <= cut for start in starts) - 1
        if whole == 0:
            with pytest.raises(CaptureError, match="touches = 0"):
                read_bytes(tmp_path, data[:cut])
            continue
        trace = read_bytes(tmp_path, data[:cut])
        assert trace.touches == 20 * whole
        assert trace.facts["lost_bytes"] == len(data) - starts[whole]
        assert ("cut short" in trace.facts["ended"]) == (cut < len(data))
    with pytest.raises(CaptureError, match="shorter than"):
        read_bytes(tmp_path, data[:100])


def with_header(data, **fields):
    """The file with other values in its header, whose checksum is right."""
    header = np.frombuffer(data[:HEADER_BYTES], HEADER_DTYPE).copy()
    for name, value in {**fields, "crc": 0}.items():
        header[name] = value
    header["crc"] = zlib.crc32(header.tobytes())
    return header.tobytes() + data[HEADER_BYTES:]


def test_an_unfinished_file_ends_at_its_last_whole_chunk(tmp_path, good):
    data, starts = good
    trace = read_bytes(tmp_path, with_header(data[: starts[3]] + b"\0" * 100, ended=0, bytes=0))
    assert trace.touches == 60 and trace.facts["ended"].startswith("unfinished")
    assert trace.facts["lost_bytes"] == 100


def test_no_flipped_bit_goes_unnoticed(tmp_path, good):
    data, _ = good
    for at in [*range(0, 300, 7), *range(HEADER_BYTES, len(data), 11)]:
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        with pytest.raises(CaptureError) as error:
            read_bytes(tmp_path, bytes(flipped))
        assert "bad.ptt" in str(error.value)


IMPOSSIBLE = [  # lines of pages
    *((0, 0, 1, 0), (9, 10, 9, 0), (9, 0, 8, 0), (9, 0, 577, 0), (9, 9, 20, 21), (9, 0, 9, 1)),
    (2**32 - 1, 0, 0, 0),
]


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        *(("magic", b"FOREIGN!", ""), ("byte_order", 0x04030201, ""), ("header_bytes", 64, "")),
        *(("ended", 99, ""), *(("lines", lines, " = ") for lines in IMPOSSIBLE)),
        *(("version", version, f" = {version}: expected 1 or 2.*record it again") for version in (3, 4, 5)),
    ],
)
def test_a_foreign_header_is_named_by_field_and_value(tmp_path, good, field, value, why):
    with pytest.raises(CaptureError, match=field + why):
        read_bytes(tmp_path, with_header(good[0], **{field: value}))


def estimated(*lines):
    return lines_per_page(SimpleNamespace(facts={"lines": lines}))


@pytest.mark.compiled
@given(st.integers(1, 64), st.floats(2, 8), st.integers(0, 2**31))
def test_lines_of_a_page_are_estimated_from_few_visits(lines, visits, seed):
    """4,096 pages, each visited so often in the mean in either half, at a random one of its lines."""
    one, other = np.random.default_rng(seed).poisson(visits / lines, (2, 4096, lines)) > 0
    pages = [each.any(axis=1) for each in (one, other)]
    seen = pages[0] | pages[1], pages[0] & pages[1], one | other, one & other
    assert estimated(*map(np.count_nonzero, seen)) == pytest.approx(lines, rel=0.25)


@pytest.mark.compiled
def test_lines_of_pages_that_were_not_seen_again_are_unknown():
    """A sweep, a cycle that is longer than the trace, few pages, old captures."""
    assert estimated(0, 0, 0, 0) == estimated(4096, 0, 4096, 0) == 64
    assert estimated(4096, 4096, 30_000, 0) == estimated(4096, 3, 4096, 3) == 64
    assert estimated(4096, 4096, 4096, 4096) == 1 and estimated(4096, 4096, 1 << 18, 1 << 18) == 64


def frame(payload, **fields):
    head = np.zeros(1, trace_files.FRAME_DTYPE)
    head["magic"], head["kind"], head["bytes"] = trace_codec.FRAME_MAGIC, 1, len(payload)
    for name, value in fields.items():
        head[name] = value
    head["crc"] = zlib.crc32(payload, zlib.crc32(head.tobytes()))
    return head.tobytes() + payload


@pytest.mark.parametrize(
    ("payload", "fields", "why"),
    [
        (b"\0", {"records": 2, "accesses": 2}, "more touches than bytes"),
        (b"\0\0\0", {"records": 2, "accesses": 2}, "bytes are left over"),
        (b"\x18\0", {"records": 1, "accesses": 1}, "run past"),
        (b"\x28\0", {"records": 1, "accesses": 1}, "beyond 57-bit"),
        (b"\x06\xff\xff\xff\xff", {"records": 1, "accesses": 1}, "2\\^18"),
        (b"\0", {"records": 1, "accesses": 7}, "do not add up"),
        (b"\0", {"records": 4_000_000_000, "accesses": 1}, "more touches than bytes"),
        (b"\0", {"kind": 3}, "neither a chunk nor an event"),
        (b"\0", {"kind": 2}, "neither a chunk nor an event"),
        (np.array((99, 0, 0, 0, 0, 0, 0), trace_files.PAYLOAD_DTYPE).tobytes(), {"kind": 2}, "no such event"),
    ],
)
def test_a_frame_with_a_good_checksum_and_bad_contents_is_refused(tmp_path, good, payload, fields, why):
    data = good[0][:HEADER_BYTES] + frame(b"\0", records=1, accesses=1) + frame(payload, **fields)
    with pytest.raises(CaptureError, match=why):
        read_bytes(tmp_path, with_header(data, bytes=len(data)))


def test_a_trace_without_touches_is_refused_with_the_likely_reason(tmp_path):
    with new_trace(tmp_path / "t.ptt", ended="exit") as writer:
        writer.event(Event.THREAD_START, a=1)
    with pytest.raises(CaptureError, match="region of interest"):
        read_trace(tmp_path / "t.ptt")


def test_a_guest_base_is_added_to_pages_and_events(tmp_path):
    with new_trace(tmp_path / "t.ptt", ended="exit") as writer:
        writer.chunk(*columns([(5, True, 1)]))
        writer.event(Event.MMAP, 0, 4096, result=5 << 12)
        writer.event(Event.MUNMAP, 5 << 12, 4096)
        writer.event(Event.MMAP, 0, 4096, result=-12)
        writer.event(Event.FIRST_TOUCH, 2 << 21)
    trace = read_bytes(tmp_path, with_header((tmp_path / "t.ptt").read_bytes(), guest_base=1 << 30))
    assert touches_of(trace) == [(5 + (1 << 18), True, 1)]
    assert trace.events["result"].tolist() == [(5 << 12) + (1 << 30), 0, -12, 0]
    assert trace.events["a"].tolist() == [0, (5 << 12) + (1 << 30), 0, (2 << 21) + (1 << 30)]


def test_regions_chosen_to_begin_in_the_same_places_of_the_table_do_not():
    inverse = pow(trace_codec.HASH_FACTOR, -1, 1 << trace_codec.HASH_BITS)
    keys = np.array([k * inverse % (1 << trace_codec.HASH_BITS) for k in range(18_000)])
    regions = keys[keys < 1 << 30][:2000]
    data, chunks = np.zeros(0, np.uint8), np.zeros(0, CHUNK_DTYPE)
    decoder = trace_files.TraceDecoder(Path("t"), data, chunks, [], [], 0, checked=True)
    decoder.grow(1 << 10)
    runs = {}
    for salt in (0, decoder.table[-1]):
        table = np.full((1 << 14) + 1, trace_codec.EMPTY, np.int64)
        table[-1] = salt
        page, known = np.empty(len(regions), np.uint32), np.empty(len(regions), np.int64)
        trace_codec.number_pages(regions << 9, len(regions), table, known, 0, len(regions), page)
        assert np.array_equal(page >> 9, np.arange(len(regions))) and np.array_equal(known, regions)
        free = np.flatnonzero(table[:-1] == trace_codec.EMPTY)  # a look-up may have to pass all between two
        runs[int(salt)] = int(np.diff(free, prepend=-1, append=1 << 14).max()) - 1
    assert runs[0] == len(regions) and max(runs[salt] for salt in runs if salt) < 200


# The index in the user's cache: the same Trace, without reading its touches.


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A sealed capture of a trace of several threads and events, which was opened once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    inside = tmp_path / "capture"
    inside.mkdir()
    rng = np.random.default_rng(1)
    with new_trace(inside / TRACE, tracer="test") as writer:
        for thread in range(3):
            writer.event(1, a=10 + thread, b=(1 << 64) - 1, thread=thread, time=thread)
            page = rng.integers(0, 1 << 20, 9000)
            writer.accesses_of(page, page % 2 == 0, thread=thread, time=np.arange(9000) * 5 + thread)
    seal(inside, "trace", {})
    assert open_capture(inside).trace.touches
    return inside


def contents(trace):
    batches = ((batch.page, batch.write, batch.count) for batch in trace.batches(5000))
    parts = [np.concatenate(columns) for columns in zip(*batches, strict=True)]
    return [trace.chunks, trace.events, trace.threads, trace.regions, *parts], trace.facts


def same(a, b):
    (arrays, facts), (others, more) = contents(a), contents(b)
    return facts == more and all(np.array_equal(x, y) for x, y in zip(arrays, others, strict=True))


def without_touches(directory):
    """Trace with other bytes in place of its touches, in a file that looks untouched, as on a broken disk."""
    text, written = bytearray((directory / TRACE).read_bytes()), (directory / TRACE).stat().st_mtime_ns
    index = read_index(directory / TRACE)
    for at, length in zip(index.payload.tolist(), index.length.tolist(), strict=True):
        text[at : at + length] = bytes(length)
    (directory / TRACE).write_bytes(text)
    os.utime(directory / TRACE, ns=(written, written))


@pytest.mark.compiled
def test_a_trace_opened_by_its_index_is_the_trace(directory):
    assert same(open_capture(directory).trace, read_trace(directory / TRACE))


@pytest.mark.compiled
def test_opening_describing_and_a_quick_check_read_no_touch(directory):
    before = describe(open_capture(directory))
    without_touches(directory)
    capture = open_capture(directory)
    assert describe(capture) == before
    assert all(finding.verdict != "failed" for finding in check_capture(capture, quick=True))
    assert next(check_capture(capture)).verdict == "failed"


@pytest.mark.compiled
def test_damaged_touches_are_found_when_they_are_decoded(directory):
    without_touches(directory)
    with pytest.raises(CaptureError, match=r"chunk 0.*CRC-32"):
        list(open_capture(directory).trace.batches(1))


def flipped(path):
    text = bytearray(path.read_bytes())
    text[-10] ^= 1
    path.write_bytes(text)
    os.utime(path, ns=(0, 0))


def replaced(path):
    when = path.stat().st_mtime_ns
    path.rename(path.with_suffix(".old"))
    path.write_bytes(path.with_suffix(".old").read_bytes()[:-10] + bytes(10))
    os.utime(path, ns=(when, when))


@pytest.mark.compiled
@pytest.mark.parametrize("damaged", [flipped, replaced])
def test_an_index_of_a_file_that_was_changed_since_is_no_answer_about_its_touches(directory, damaged):
    assert open_capture(directory).trace
    damaged(directory / TRACE)
    for _ in range(2):
        with pytest.raises(CaptureError, match="frame crc"):
            assert open_capture(directory).trace


@pytest.mark.compiled
def test_the_index_of_a_packed_trace_is_used_until_that_changes(directory):
    packed, plain = directory / f"{TRACE}.xz", (directory / TRACE).read_bytes()
    packed.write_bytes(lzma.compress(plain))
    (directory / TRACE).unlink()
    place = open_capture(directory).cache / INDEX
    assert open_capture(directory).trace and stored_index(place, directory / TRACE)
    os.utime(packed, ns=(0, 0))
    assert stored_index(place, directory / TRACE) is None


@pytest.mark.compiled
def test_a_damaged_index_or_one_of_another_trace_is_made_again(directory, tmp_path):
    place, expected = open_capture(directory).cache / INDEX, read_trace(directory / TRACE)
    sound = place.read_bytes()
    for damaged in (b"", sound[:100], sound[: len(sound) // 2], sound[:-1]):
        place.write_bytes(damaged)
        assert stored_index(place, directory / TRACE) is None
        assert same(open_capture(directory).trace, expected)
        assert stored_index(place, directory / TRACE) is not None
    (tmp_path / "other.ptt").write_bytes((directory / TRACE).read_bytes() + b"\0")
    assert stored_index(place, tmp_path / "other.ptt") is None


RESIDENT = """
import sys
from ptanalyze.formats.trace import read_trace
def resident():
    return sum(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssFile"))
def decode(path):
    trace, most = read_trace(path), 0
    for batch in trace.batches(1 << 16):
        most = max(most, resident())
    return most
decode(sys.argv[1])
print(decode(sys.argv[1]), decode(sys.argv[2]))
"""


@pytest.mark.compiled
def test_what_is_resident_of_a_trace_does_not_grow_with_its_length(tmp_path):
    """RssFile while decoding a trace of about 2 MB and one of about 60 MB, CRC and first pass included."""
    rng = np.random.default_rng(2)
    for name, rounds in (("short", 1), ("long", 30)):
        with new_trace(tmp_path / name, tracer="test") as writer:
            for k in range(rounds):
                page = rng.integers(0, 1 << 25, 500_000)
                writer.accesses_of(page, page < 0, thread=0, time=np.arange(500_000) + k * 500_000)
    argv = [sys.executable, "-c", RESIDENT, tmp_path / "short", tmp_path / "long"]
    short, long = map(int, subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
    assert (tmp_path / "long").stat().st_size > 50 << 20
    assert long - short < 8 << 10, (short, long)
