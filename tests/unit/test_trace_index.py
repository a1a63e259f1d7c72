"""The index beside a trace: the same Trace, without reading its touches; what does not fit is made again."""

import io
import os
import shutil
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest

from ptanalyze.capture.check import check_capture
from ptanalyze.capture.describe import describe
from ptanalyze.core.errors import CaptureError
from ptanalyze.core.safe_files import read_inside
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.manifest import TRACE, seal
from ptanalyze.formats.trace import read_index, read_trace
from ptanalyze.formats.trace_index import INDEX, stored_index, write_index
from ptanalyze.formats.trace_writer import trace_writer


@pytest.fixture
def directory(tmp_path):
    """A sealed capture of a trace of several threads and events, with its index."""
    inside = tmp_path / "capture"
    inside.mkdir()
    rng = np.random.default_rng(1)
    with trace_writer(inside / TRACE, tracer="test") as writer:
        for thread in range(3):
            writer.event(1, a=10 + thread, b=(1 << 64) - 1, thread=thread, time=thread)
            page = rng.integers(0, 1 << 20, 9000)
            writer.accesses_of(page, page % 2 == 0, thread=thread, time=np.arange(9000) * 5 + thread)
    write_index(inside / INDEX, inside / TRACE, read_index(inside / TRACE))
    seal(inside, "trace", {})
    return inside


def contents(trace):
    parts = [
        np.concatenate(columns)
        for columns in zip(*((b.page, b.write, b.count) for b in trace.batches(5000)), strict=True)
    ]
    return [trace.chunks, trace.events, trace.threads, trace.regions, *parts], trace.facts


def same(a, b):
    (arrays, facts), (others, more) = contents(a), contents(b)
    return facts == more and all(np.array_equal(x, y) for x, y in zip(arrays, others, strict=True))


def test_reading_takes_memory_for_what_a_file_has_not_for_what_it_may_have(tmp_path):
    """An index may have 8 times the bytes of its trace: of 10 GB more than the memory of many machines."""
    (tmp_path / "file").write_bytes(b"few")
    assert read_inside(tmp_path / "file", 1 << 60) == b"few"


def without_touches(directory):
    """The same trace with other bytes in place of its touches."""
    text = bytearray((directory / TRACE).read_bytes())
    index = read_index(directory / TRACE)
    for at, length in zip(index.payload.tolist(), index.length.tolist(), strict=True):
        text[at : at + length] = bytes(length)
    (directory / TRACE).write_bytes(text)


def test_a_trace_opened_by_its_index_is_the_trace(directory):
    assert same(open_capture(directory).trace, read_trace(directory / TRACE))


def test_opening_describing_and_a_quick_check_read_no_touch(directory):
    before = describe(open_capture(directory))
    without_touches(directory)
    capture = open_capture(directory)
    assert describe(capture) == before
    assert all(finding.verdict != "failed" for finding in check_capture(capture, quick=True))
    assert next(check_capture(capture)).verdict == "failed"


def test_damaged_touches_are_found_when_they_are_decoded(directory):
    without_touches(directory)
    with pytest.raises(CaptureError, match=r"chunk 0.*CRC-32"):
        list(open_capture(directory).trace.batches(1))


def test_a_capture_without_an_index_gets_one_beside_its_derived_data_once(directory):
    (directory / INDEX).unlink()
    seal(directory, "trace", {})
    capture = open_capture(directory)
    assert same(capture.trace, read_trace(directory / TRACE))
    made = (capture.cache / INDEX).stat().st_mtime_ns
    without_touches(directory)
    assert open_capture(directory).trace.touches == capture.trace.touches
    assert (capture.cache / INDEX).stat().st_mtime_ns == made


def test_an_index_of_another_trace_or_damaged_is_not_used(directory, tmp_path):
    other = tmp_path / "other.ptt"
    shutil.copy(directory / TRACE, other)
    text = bytearray(other.read_bytes())
    other.write_bytes(text + b"\0")
    assert stored_index(directory / INDEX, directory / TRACE) is not None
    assert stored_index(directory / INDEX, other) is None
    sound = (directory / INDEX).read_bytes()
    for cut in (0, 100, len(sound) // 2):
        (directory / INDEX).write_bytes(sound[:cut])
        assert stored_index(directory / INDEX, directory / TRACE) is None


@pytest.mark.parametrize(
    ("name", "value"), [("payload", 1 << 40), ("payload", 5), ("length", -1), ("length", 1 << 40)]
)
def test_an_index_that_points_outside_the_file_is_not_used(directory, name, value):
    index = read_index(directory / TRACE)
    getattr(index, name)[2] = value
    write_index(directory / INDEX, directory / TRACE, index)
    assert stored_index(directory / INDEX, directory / TRACE) is None


def test_an_index_whose_chunks_do_not_add_up_is_not_used(directory):
    for field in ("first", "thread"):
        index = read_index(directory / TRACE)
        index.chunks[field][1] += 90
        write_index(directory / INDEX, directory / TRACE, index)
        assert stored_index(directory / INDEX, directory / TRACE) is None


def one_more(array):
    return np.concatenate([array, array[-1:]])


LEAST, MOST = -(1 << 63), (1 << 63) - 1
LIES = {
    "a region twice": lambda index: {"regions": one_more(index.regions)},
    "a region beyond all addresses": lambda index: {"regions": index.regions | np.uint64(1 << 60)},
    "an event of no thread": lambda index: {"events": with_field(index.events, "thread", 9)},
    "an event of no kind": lambda index: {"events": with_field(index.events, "kind", 99)},
    "an event 2^63 chunks before the first": lambda index: {
        "events": with_field(index.events, "chunk", LEAST, -1)
    },
    "more touches than there are numbers": lambda index: {
        "chunks": with_field(index.chunks, "touches", MOST, -1)
    },
    "events out of order": lambda index: {"events": with_field(index.events, "chunk", 3)},
    "a parent that is no thread": lambda index: {"threads": with_field(index.threads, "parent", 3)},
    "other facts": lambda index: {"facts": index.facts | {"guest_base": 0, "tracer": 5}},
    "no facts": lambda index: {"facts": {}},
    "facts that are none": lambda index: {"facts": [[]]},
    "fewer bytes than none lost": lambda index: {"facts": index.facts | {"lost_bytes": -1}},
}


def with_field(rows, name, value, at=0):
    rows = rows.copy()
    rows[name][at] = value
    return rows


@pytest.mark.parametrize("lie", LIES)
def test_an_index_that_says_what_cannot_be_is_not_used(directory, lie):
    index = read_index(directory / TRACE)
    write_index(directory / INDEX, directory / TRACE, index._replace(**LIES[lie](index)))
    assert stored_index(directory / INDEX, directory / TRACE) is None
    seal(directory, "trace", {})
    assert same(open_capture(directory).trace, read_trace(directory / TRACE))


def test_touches_of_memory_that_the_index_lacks_are_refused_before_they_are_used(directory):
    index = read_index(directory / TRACE)
    write_index(directory / INDEX, directory / TRACE, index._replace(regions=index.regions[:-1]))
    seal(directory, "trace", {})
    with pytest.raises(CaptureError, match="memory that the trace's index lacks"):
        list(open_capture(directory).trace.batches(1 << 20))


def array_file(shape):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return file.getvalue()


def archive(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(f"{name}.npy", content)
    return file.getvalue()


NO_INDEX = {
    "an array": array_file((1 << 50,)),
    "an array longer than memory in an archive": archive(said=array_file((1 << 50,))),
    "an archive larger than any index": archive(said=array_file((64 << 20,)) + bytes(64 << 20)),
    "brackets": archive(said=array_file((100_000,)) + b"[" * 100_000),
    "an archive of damaged data": archive(said=bytes(range(256)) * 9).replace(
        bytes(range(100, 110)), b"x" * 10
    ),
    "an array without a header": archive(said=b"\x93NUMPY\1\0\x08\0(((((((\n"),
}


@pytest.mark.parametrize("content", NO_INDEX.values(), ids=NO_INDEX)
def test_what_is_no_index_takes_no_memory_and_is_not_used(directory, content):
    (directory / INDEX).write_bytes(content)
    tracemalloc.start()
    try:
        assert stored_index(directory / INDEX, directory / TRACE) is None
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_pipe_beside_a_trace_is_not_read(directory):
    (directory / INDEX).unlink()
    os.mkfifo(directory / INDEX)
    assert stored_index(directory / INDEX, directory / TRACE) is None


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


def test_what_is_resident_of_a_trace_does_not_grow_with_its_length(tmp_path):
    """RssFile while decoding a trace of about 2 MB and one of about 60 MB, CRC and first pass included."""
    rng = np.random.default_rng(2)
    for name, rounds in (("short", 1), ("long", 30)):
        with trace_writer(tmp_path / name, tracer="test") as writer:
            for k in range(rounds):
                page = rng.integers(0, 1 << 25, 500_000)
                writer.accesses_of(page, page < 0, thread=0, time=np.arange(500_000) + k * 500_000)
    argv = [sys.executable, "-c", RESIDENT, tmp_path / "short", tmp_path / "long"]
    short, long = map(int, subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
    assert (tmp_path / "long").stat().st_size > 50 << 20
    assert long - short < 8 << 10, (short, long)
