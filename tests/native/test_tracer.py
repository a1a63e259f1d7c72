"""The QEMU plugin against programs whose accesses are known exactly."""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import subprocess
import time
import zlib
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captures import pages_of
from naive import decode as naive
from naive.lines import PLACES, count_lines, is_sampled, ranked
from naive.strip import REACH
from native import tracing
from native.dumping import make
from native.tracing import PAGES, ROOT, counts, run, touched_once, traced, wait_written
from needs import needs_root, small_disk
from ptanalyze.capture.check import check_trace
from ptanalyze.capture.live.record import record
from ptanalyze.core.errors import CaptureError, PartialDataError
from ptanalyze.core.trace import MOST_THREADS, Event, lines_per_page
from ptanalyze.formats import trace
from ptanalyze.formats.trace import read_trace
from strategies import TOUCHES


@pytest.fixture
def out(tmp_path):
    return tmp_path / "trace.ptt"


def events_of(trace, kind):
    return trace.events[trace.events["kind"] == kind]


@pytest.mark.parametrize("flags", [("-no-pie",), ("-static",), ("-fPIE", "-pie")])
def test_every_access_is_counted_on_its_page_and_guest_addresses_are_host_addresses(tmp_path, out, flags):
    tracing.build_plugin()
    program = tracing.build(tmp_path, flags=("-O1", "-pthread", *flags))
    trace, (base,), status = run(program, "touch", out=out, roi_marker="on", instructions="on")
    assert status == 0 and trace.facts["guest_base"] == 0 and trace.facts["ended"] == "exit"
    assert counts(trace, base) == touched_once()
    inside = trace.accesses
    assert 11 * PAGES + 2 <= inside <= 11 * PAGES + 12  # a few of the marker's surroundings
    assert inside < trace.chunks["instructions"].sum() < 10 * inside


def test_without_a_region_of_interest_the_whole_run_is_traced(known, out):
    trace, (base,), _ = run(known, "touch", out=out)
    expect = touched_once()
    expect[-1] = [13, 4, 3]
    assert counts(trace, base) == expect
    assert len(events_of(trace, Event.ROI_START)) == 0


def test_the_tracer_notes_its_own_memory_and_nothing_of_the_program(known, out):
    trace, (base,), _ = run(known, "touch", out=out)
    own, first = events_of(trace, Event.TRACER_MAP), events_of(trace, Event.MMAP)
    ranges = [(int(e["a"]), int(e["a"] + e["b"])) for e in own]
    assert ranges and all(a < b for a, b in ranges) and ranges == sorted(ranges)
    assert all(b < c for (_, b), (c, _) in pairwise(ranges))
    theirs = [base, *first["result"].astype("int64").tolist()]
    assert not [p for p in theirs for a, b in ranges if a <= p < b]
    assert own["time"].max() <= trace.chunks["time"].min()


def test_two_symbols_bound_the_region_of_interest(known, out):
    trace, (base,), _ = run(known, "touch", out=out, roi_start_symbol="roi_begins", roi_end_symbol="roi_ends")
    assert counts(trace, base) == touched_once()
    assert len(events_of(trace, Event.ROI_START)) == len(events_of(trace, Event.ROI_END)) == 1
    assert len(events_of(trace, Event.MMAP)) > 5  # also those before the region of interest


def test_a_symbol_that_is_not_there_is_said(known, out):
    argv = traced(known, "touch", out=out, roi_start_symbol="no_such_function")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 126 and done.stderr.count("\n") == 1 and "no_such_function" in done.stderr


@pytest.mark.parametrize(("start", "length"), [(0, 1000), (1, 5000), (5000, 2000), (3000, 1)])
def test_a_number_of_accesses_bounds_the_region_of_interest(known, out, start, length):
    trace, _, _ = run(known, "touch", out=out, roi_start_access=start, roi_accesses=length)
    assert trace.accesses == length


def test_tracing_ends_after_its_time_and_the_program_does_not(known, out):
    whole, _, _ = run(known, "touch", out=out)
    trace, (base,), status = run(known, "touch", out=out, for_ms=1)
    (end,) = events_of(trace, Event.ROI_END)
    assert status == 0 and base and trace.facts["ended"] == "exit"
    assert end["time"] >= (trace.chunks["time"].min() + 1_000_000) > trace.chunks["time"].max()
    assert 0 < trace.accesses < whole.accesses
    assert (trace.events["time"] > end["time"]).any(), "memory calls are recorded to the end"


def test_a_region_of_interest_that_never_begins_leaves_a_trace_without_touches(known, out):
    with pytest.raises(CaptureError, match="region of interest"):
        run(known, "memory", out=out, roi_marker="on")


def test_stripping_leaves_the_accesses_of_each_page_and_says_what_it_is_exact_for(known, tmp_path):
    whole, (base,), _ = run(known, "touch", out=tmp_path / "whole.ptt", strip="off")
    short, (moved,), _ = run(known, "touch", out=tmp_path / "short.ptt")
    accesses = [[row[0] for row in counts(trace, at)] for trace, at in ((whole, base), (short, moved))]
    assert accesses[0] == accesses[1] and short.touches < whole.touches
    assert whole.facts["stripped"] == () and short.facts["stripped"] == REACH


def test_memory_calls_are_recorded_with_arguments_and_results(known, out):
    trace, (mapped, moved, brk), _ = run(known, "memory", out=out)
    calls = [tuple(int(e[f]) for f in ("kind", "a", "b", "c", "d", "result")) for e in trace.events]
    at = calls.index((Event.MMAP, mapped, 8 * 4096, 3, 0x22, mapped))
    rest = [call for call in calls[at + 1 :] if call[0] != Event.BRK]
    assert rest == [
        (Event.MPROTECT, mapped, 8 * 4096, 1, 0, 0),
        (Event.MADVISE, mapped + 4096, 8192, 4, 0, 0),
        (Event.MREMAP, mapped, 8 * 4096, 16 * 4096, 1, moved),
        (Event.MUNMAP, moved, 16 * 4096, 0, 0, 0),
        (Event.MMAP, 1, 4096, 1, 0x32, -22),
    ]
    last = calls[-1]
    assert last[0] == Event.BRK and last[5] >= brk + 65536
    assert (trace.events["chunk"][1:] >= trace.events["chunk"][:-1]).all()


@pytest.mark.parametrize("n", [1, 4])
def test_each_thread_has_its_own_chunks_and_a_parent(known, out, n):
    trace, bases, _ = run(known, "threads", str(n), out=out)
    assert len(trace.threads) == n + 1 and set(trace.threads["parent"][1:]) <= {0, -1}
    assert (trace.threads["end"][1:] > trace.threads["start"][1:]).all()
    assert len(set(trace.threads["tid"].tolist())) == n + 1
    for base in bases:
        assert sum(row[0] for row in counts(trace, base)) == 1000
    for thread in range(1, n + 1):
        chunks = trace.chunks[trace.chunks["thread"] == thread]
        assert chunks["accesses"].sum() >= 1000 and (chunks["cpu"] >= 0).all()
        assert (chunks["time"] >= trace.threads["start"][thread]).all()


@pytest.mark.parametrize("follow", ["off", "on"])
def test_a_forked_child_leaves_the_parent_s_trace_alone_and_has_its_own_when_followed(known, out, follow):
    trace, (base,), status = run(known, "fork", out=out, follow_fork=follow)
    assert status == 0 and counts(trace, base) == touched_once()
    others = [path for path in out.parent.glob("*.ptt") if path != out]
    assert len(others) == 2 * (follow == "on"), "of a child and of its own"
    for path in others:
        wait_written(path)
        child = read_trace(path)
        assert counts(child, base) == touched_once()
        assert path.name == f"trace.{child.facts['pid']}.ptt" and child.facts["ended"] == "exit"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_program_leaves_a_valid_trace_up_to_its_last_accesses(known, out, number):
    process = subprocess.Popen(traced(known, "forever", out=out), stdout=subprocess.PIPE, text=True)
    base = int(process.stdout.readline(), 16)
    time.sleep(0.2)
    process.send_signal(number)
    assert process.wait(10) == -number
    wait_written(out)
    trace = read_trace(out)
    assert trace.facts["ended"] == "signal" and trace.facts["lost_bytes"] == 0
    assert min(row[0] for row in counts(trace, base)) > 12


def test_a_program_that_closes_every_descriptor_keeps_a_valid_trace(known, out):
    trace, _, status = run(known, "closefds", out=out)
    assert status == 0 and trace.facts["ended"] == "file lost"
    assert trace.touches > 100


def test_exec_ends_the_trace_and_a_failed_exec_does_not(known, out):
    trace, _, status = run(known, "exec", out=out)
    assert status == 0 and trace.facts["ended"] == "exec"
    assert trace.accesses > 11 * PAGES


def test_the_size_limit_ends_the_trace_and_not_the_program(known, out):
    """Nothing is dropped where it is an event that does not fit: then another limit lies within touches."""
    dropped = 0
    for limit in range(20_000, 10_000, -500):
        trace, (base,), status = run(known, "touch", out=out, max_bytes=limit, strip="off")
        assert status == 0 and trace.facts["ended"] == "size limit" and out.stat().st_size <= limit
        dropped = trace.facts["dropped_touches"]
        if dropped:
            break
    assert dropped > 0 and base


def test_a_file_size_limit_of_the_system_ends_the_trace_and_not_the_program(known, out):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    argv = traced(known, "touch", out=out, strip="off")
    assert subprocess.run(argv, preexec_fn=limit, capture_output=True, check=False).returncode == 0
    assert read_trace(out).facts["ended"] == "size limit"


@needs_root
def test_a_full_disk_ends_the_trace_and_not_the_program(known, tmp_path):
    with small_disk(tmp_path / "small", 24 << 10) as disk:
        trace, _, status = run(known, "touch", out=disk / "trace.ptt", strip="off")
    assert status == 0 and trace.facts["ended"] == "disk full" and trace.facts["lost_bytes"] == 0
    assert trace.touches > 100


WRONG = "max_bytes=many roi_marker=perhaps no_such=1 out=/no/such/dir/t.ptt strip=l2 every_ms=1000"


@pytest.mark.parametrize("option", [*WRONG.split(), "sample=sets:1/8", "classes=257"])
def test_a_wrong_option_is_one_line(known, out, option):
    key, value = option.split("=")
    argv = traced(known, **{"out": out, key: value})
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("ptanalyze:")]
    assert done.returncode and len(lines) == 1 and value in lines[0]


def test_nobody_at_the_control_socket_never_hangs_the_program(known, tmp_path, out):
    began = time.monotonic()
    trace, _, status = run(known, "touch", out=out, control=tmp_path / "nobody")
    assert status == 0 and trace.facts["ended"] == "exit" and time.monotonic() - began < 10


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "control"))
        server.listen()
        server.settimeout(20)
        yield server


def test_a_controller_that_goes_away_lets_the_program_go_on(known, out, listener):
    argv = traced(known, "touch", out=out, control=listener.getsockname())
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    connection, _ = listener.accept()
    assert connection.recv(64) == f"exit {process.pid}\n".encode()
    assert process.poll() is None
    connection.close()
    assert process.wait(10) == 0 and read_trace(out).facts["ended"] == "exit"


def test_a_controller_that_accepts_nobody_holds_the_program_no_longer_than_the_timeout(known, out, listener):
    listener.listen(0)
    with socket.socket(socket.AF_UNIX) as first:
        first.connect(listener.getsockname())
        argv = traced(known, "touch", out=out, control=listener.getsockname(), control_timeout=1)
        assert subprocess.run(argv, stdout=subprocess.DEVNULL, timeout=20, check=True).returncode == 0


@pytest.mark.full
def test_a_lock_on_the_trace_file_is_not_waited_for_without_end(known, out):
    with open(out, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        argv = traced(known, "touch", out=out)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr.count("\n") == 1 and read_trace(out).facts["ended"] == "exit"


def test_a_lock_that_nobody_gives_back_ends_the_trace_and_not_the_program(tmp_path):
    parts = [ROOT / f"pintool/{name}.cpp" for name in ("writer", "session_file", "watcher")]
    command = ["g++", "-std=c++17", "-DLOCK_SECONDS=1", "-o", tmp_path / "stuck", *parts]
    subprocess.run([*command, tracing.PROGRAMS / "stuck.cpp"], check=True)
    argv = [tmp_path / "stuck", tmp_path / "out.ptt"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True)
    assert done.stderr.count("\n") == 1
    tracing.wait_written(tmp_path / "out.ptt")
    trace = read_trace(tmp_path / "out.ptt")
    assert trace.facts["ended"] == "signal" and trace.chunks["touches"].sum() == 1


def test_the_hand_over_comes_once_at_the_end_of_the_region_of_interest(known, out, listener):
    argv = traced(known, "touch", out=out, control=listener.getsockname(), roi_marker="on")
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    connection, _ = listener.accept()
    assert connection.recv(64).startswith(b"roi_end ")
    connection.sendall(b"go on\n")
    assert process.wait(10) == 0
    listener.settimeout(0.1)
    with pytest.raises(TimeoutError):
        listener.accept()


# What the tracer leaves out changes no first-level TLB that its header names: plain LRU lists say so.

CHUNK = 4096
LARGER = [(1, 32, 4), (1, 16, 6), (1, 48, 5), (2, 16, 4), (2, 8, 5)]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return tracing.encoder(tmp_path_factory.mktemp("strip"))


def strip(library, accesses, room=CHUNK, whole=False):
    """[[(page, store, count)] of each chunk] that the tracer writes for [(page, store)]."""
    packed = np.array([page << 1 | store for page, store in accesses], np.uint64)
    out = np.zeros(2 * len(packed) + 2, np.uint64)
    library.strip.restype = ctypes.c_size_t
    n = library.strip(
        ctypes.c_void_p(packed.ctypes.data), ctypes.c_size_t(len(packed)), ctypes.c_uint32(room),
        ctypes.c_int(whole), ctypes.c_void_p(out.ctypes.data),
    )  # fmt: skip
    chunks = [[]]
    for word in out[:n].tolist():
        if word:
            chunks[-1].append((word >> 19, bool(word & 1), word >> 1 & (1 << 18) - 1))
        else:
            chunks.append([])
    return chunks[:-1]


def merged(accesses):
    """[(page, store, count)] of consecutive accesses."""
    touches = []
    for page, store in accesses:
        if touches and touches[-1][0] == page:
            touches[-1] = (page, touches[-1][1] or store, touches[-1][2] + 1)
        else:
            touches.append((page, store, 1))
    return touches


def after(touches, array):
    """([(page, store) of each touch that misses], what each set holds at the end, the oldest first)."""
    size, sets, ways = array
    held, misses = {}, []
    for page, store, _ in touches:
        entry = page >> 9 * (size - 1)
        lru = held.setdefault(entry % sets, {})
        if entry in lru:
            del lru[entry]
        else:
            misses.append((page, store))
            if len(lru) == ways:
                del lru[next(iter(lru))]
        lru[entry] = True
    return misses, {number: [*lru] for number, lru in held.items()}


def stored(touches):
    return {page for page, store, _ in touches if store}


def stays_exact(library, accesses, room=CHUNK):
    """The stripped records of each chunk, after checking them; returns how many there are."""
    chunks, every = strip(library, accesses, room), merged(accesses)
    whole = [every[at : at + room] for at in range(0, len(every), room)]
    for array in (*REACH, *LARGER) if chunks != whole else ():
        assert after(chain(*chunks), array) == after(chain(*whole), array), array
    for kept, touches in zip(chunks, whole, strict=True):
        assert sum(count for *_, count in kept) == sum(count for *_, count in touches)
        assert stored(kept) == stored(touches)
    return sum(map(len, chunks))


def test_the_header_names_the_arrays_that_the_tests_check(library):
    n = ctypes.c_size_t.in_dll(library, "reaches").value
    rows = np.ctypeslib.as_array((ctypes.c_uint16 * (4 * n)).in_dll(library, "reach")).reshape(n, 4)
    assert [tuple(row) for row in rows[:, :3].tolist()] == [*REACH]
    assert not rows[:, 3].any()


GIB, REGION = 1 << 18, 1 << 9  # in pages
DRAWN_PAGES = {
    "one set of 16": st.integers(0, 7).map(lambda k: 5 + 16 * k),
    "sets of 16 and their neighbours": st.integers(0, 120),
    "regions of one set of 8": st.integers(0, 6).map(lambda k: 8 * REGION * k + 3 * k),
    "regions of one set of 4": st.integers(0, 10).map(lambda k: 4 * REGION * k + 3 * k),
    "many pages, many regions": st.integers(0, 90).map(lambda k: (k * 37 % 101) * REGION + k),
    "several GiB": st.integers(0, 70).map(lambda k: k * GIB + k % 16 * REGION + 11 * k),
}


@pytest.mark.parametrize("kind", DRAWN_PAGES)
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_misses_and_what_the_tlb_holds_are_those_of_all_touches(library, kind, data):
    pages = st.one_of(DRAWN_PAGES[kind], DRAWN_PAGES["one set of 16"], st.sampled_from([1, 2 * GIB]))
    accesses = data.draw(st.lists(st.tuples(pages, st.booleans()), min_size=1, max_size=300))
    stays_exact(library, accesses, data.draw(st.sampled_from([7, 64, CHUNK])))


@pytest.mark.parametrize("kind", DRAWN_PAGES)
def test_long_runs_of_hot_pages_between_others_stay_exact(library, kind):
    """Working sets that drift: a few hot pages, a stream, now and then a jump; runs beyond a chunk."""
    rng = np.random.default_rng(list(DRAWN_PAGES).index(kind))
    spread = {"one set of 16": 16, "regions of one set of 8": 8 * REGION, "several GiB": GIB + REGION + 1}
    step = spread.get(
        kind,
        {"regions of one set of 4": 4 * REGION, "many pages, many regions": 37 * REGION + 1}.get(kind, 1),
    )
    for hot, every in ((3, 2), (5, 3), (20, 5), (45, 9), (70, 4)):
        base = rng.integers(0, 200, 6000) // 50 * hot + rng.zipf(1.3, 6000) % hot
        stream = np.arange(6000) // every
        page = np.where(rng.integers(0, every, 6000) == 0, 7000 + stream, base) * step
        accesses = list(zip(page.tolist(), (rng.integers(0, 3, 6000) == 0).tolist(), strict=True))
        stays_exact(library, accesses)


def test_the_first_store_to_a_page_is_a_record_of_its_own(library):
    accesses = [(1 + k % 2, k in (4, 6)) for k in range(9)]
    (chunk,) = strip(library, accesses)
    first = [(1, False), (2, False), (1, True), (2, False), (1, True)]
    assert [(page, store) for page, store, _ in chunk] == first
    assert sum(count for *_, count in chunk) == len(accesses)


def test_nothing_is_forgotten_and_nothing_remembered_across_chunks(library):
    chunks = strip(library, [(page, False) for _ in range(20) for page in (1, 2)], room=10)
    assert [sum(count for *_, count in chunk) for chunk in chunks] == [10] * 4
    for chunk in chunks:
        assert [page for page, *_ in chunk] == [1, 2, 1, 2]


def test_a_page_that_is_touched_without_end_fills_no_count(library):
    (chunk,) = strip(library, [(3, True)] * 200_000 + [(4, False)] + [(3, False)] * 200_000)
    assert all(count < 1 << 18 for *_, count in chunk)
    assert sum(count for *_, count in chunk) == 400_001


# Lines of sampled pages.

SAMPLED_PAGES = [page for page in range(1 << 35, (1 << 35) + 40_000) if is_sampled(page)]
RIVALS = {}  # sampled pages by their place
for page in SAMPLED_PAGES:
    RIVALS.setdefault(ranked(page) % PLACES, []).append(page)
SOME_PAGES = st.sampled_from(SAMPLED_PAGES[:6] + [p for two in RIVALS.values() if len(two) > 1 for p in two])
PAGE_NUMBERS = st.one_of(SOME_PAGES, st.integers(1, (1 << 36) - 1))
LINE_ACCESSES = st.tuples(st.integers(0, 9), PAGE_NUMBERS, st.integers(0, 4095))


@given(accesses=st.lists(LINE_ACCESSES, max_size=200))
def test_lines_of_pages_are_counted_like_by_their_naive_twin(library, accesses):
    packed = np.array([chunk << 48 | page << 12 | at for chunk, page, at in accesses], np.uint64)
    found = np.zeros(4, np.uint32)
    library.lines(
        ctypes.c_void_p(packed.ctypes.data), ctypes.c_size_t(len(packed)), ctypes.c_void_p(found.ctypes.data)
    )
    assert found.tolist() == count_lines([(chunk, page << 12 | at) for chunk, page, at in accesses])


@pytest.mark.parametrize("lines", [1, 8, 64])
def test_a_trace_knows_how_many_lines_of_a_page_were_used(known, out, lines):
    trace, *_ = run(known, "lines", "4096", str(lines), out=out, roi_marker="on")
    pages, again, *_ = trace.facts["lines"]
    assert 48 <= pages <= 80 and pages - again <= 2  # some of the program's own
    assert lines_per_page(trace) == pytest.approx(lines, rel=0.05)


# The native writer and the Python package mean the same bytes.


class Field(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("offset", ctypes.c_size_t), ("bytes", ctypes.c_size_t))


@pytest.mark.parametrize(
    ("symbol", "dtype"),
    [
        ("header_fields", trace.HEADER_DTYPE),
        ("frame_fields", trace.FRAME_DTYPE),
        ("event_fields", trace.PAYLOAD_DTYPE),
    ],
)
def test_the_structs_and_the_dtypes_have_the_same_fields_at_the_same_places(library, symbol, dtype):
    fields = (Field * (len(dtype.names) + 1)).in_dll(library, symbol)
    found = {field.name.decode(): (field.offset, field.bytes) for field in fields[:-1]}
    assert found == {name: (offset, kind.itemsize) for name, (kind, offset, *_) in dtype.fields.items()}
    assert fields[-1].name is None and fields[-1].offset == dtype.itemsize


@given(touches=st.lists(TOUCHES, max_size=60))
def test_the_native_encoder_and_its_naive_twin_write_the_same_bytes(library, touches):
    packed = np.array([page << 19 | count << 1 | write for page, write, count in touches], np.uint64)
    out = (ctypes.c_uint8 * (10 * len(touches) + 1))()
    accesses = ctypes.c_uint64(0)
    library.encode.restype = ctypes.c_size_t
    n = library.encode(
        ctypes.c_void_p(packed.ctypes.data), ctypes.c_size_t(len(touches)), out, ctypes.byref(accesses)
    )
    assert bytes(out[:n]) == naive.encode(touches)
    assert accesses.value == sum(count for _, _, count in touches)


@given(data=st.binary(max_size=200))
def test_the_native_checksum_is_zlib_s(library, data):
    library.checksum.restype = ctypes.c_uint32
    assert library.checksum(data, ctypes.c_size_t(len(data))) == zlib.crc32(data)


# More threads than a trace has room for are said; those that only follow each other are all there.

AT_ONCE = 2048  # that a tracer follows


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    tracing.build_plugin()
    return tracing.build(tmp_path_factory.mktemp("programs"), "many_threads")


def test_no_thread_is_lost_however_high_the_numbers_that_the_emulator_gives_them(many, tmp_path):
    number = AT_ONCE + 200
    trace, (base,), status = run(many, str(number), "overlap", out=tmp_path / "t.ptt")
    assert status == 0 and "lost_threads" not in trace.facts
    who = np.full(number, -1)  # touched each page
    for batch in trace.batches(1 << 20):
        chunks = trace.chunks[batch.chunks]
        page = pages_of(trace, batch.page) - (base >> 12)
        inside = (page >= 0) & (page < number)
        who[page[inside]] = np.repeat(chunks["thread"], chunks["touches"])[inside]
    assert (who >= 0).all() and len(np.unique(who)) == number


@pytest.mark.full
def test_threads_beyond_what_is_traced_at_once_are_counted_and_said(many, tmp_path):
    number = AT_ONCE + 52
    with pytest.raises(PartialDataError) as refused:
        record([many, str(number), "together"], tmp_path / "c", dump=False)
    lost = number + 1 - AT_ONCE  # the first thread is one, too
    assert f"{lost} threads were not traced: {MOST_THREADS}" in str(refused.value)
    trace = read_trace(tmp_path / "c/trace.ptt")
    assert trace.facts["lost_threads"] == lost and len(trace.threads) == AT_ONCE
    said = {found.name: found for found in check_trace(trace, quick=True)}["trace: all threads"]
    assert said.verdict == "partial" and said.wrong == lost and said.examined == number + 1


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="the writer is the same")
def test_threads_after_the_65536th_are_counted(tmp_path):
    make("pintool")
    source = tmp_path / "start.cpp"
    source.write_text(
        '#include "tracer.h"\n'
        "int main() {\n"
        f'    tracer_option("out", "{tmp_path}/t.ptt");\n'
        '    if (tracer_start("a test")) return 1;\n'
        "    for (int i = 0; i < 65536 + 3; i++) {\n"
        "        struct ptt_thread *thread = tracer_thread();\n"
        "        if (!thread) continue;\n"
        "        if (i == 65535) tracer_access(thread, 1 << 20, 8, 1);\n"
        "        ptt_thread_exit(thread);\n"
        "    }\n"
        "    tracer_exit();\n"
        "}\n"
    )
    parts = "tracer", "writer", "session_file", "watcher", "control"
    objects = [ROOT / f"pintool/build/{name}.o" for name in parts]
    command = ["g++", "-std=c++17", "-O1", f"-I{ROOT}/pintool", "-o", tmp_path / "start", source, *objects]
    subprocess.run(command, check=True)
    subprocess.run([tmp_path / "start"], check=True, timeout=120)
    wait_written(tmp_path / "t.ptt")
    trace = read_trace(tmp_path / "t.ptt")
    assert trace.facts["lost_threads"] == 3 and len(trace.threads) == 65536
    assert trace.chunks["thread"].tolist() == [65535]


# Who touched memory first, before the region of interest: the plugin against a program known in detail.

REGION_BYTES = 1 << 21
MAIN = 0


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    tracing.build_plugin()
    return tracing.build(tmp_path_factory.mktemp("programs"), "first_touches")


def noted(trace, base):
    """[(region counted from `base`, thread)] of the FIRST_TOUCH events of the program's 16 regions."""
    events = trace.events[trace.events["kind"] == Event.FIRST_TOUCH]
    assert not (events["a"] % REGION_BYTES).any()
    found = [((int(event["a"]) - base) // REGION_BYTES, int(event["thread"])) for event in events]
    return [(region, thread) for region, thread in found if 0 <= region < 16]


def test_each_region_s_first_thread_is_noted_and_after_an_unmapping_the_next_one(program, tmp_path):
    trace, (base,), status = run(program, out=tmp_path / "t.ptt", roi_marker="on")
    assert status == 0
    assert noted(trace, base) == [
        (0, MAIN), (1, 1), (2, 2), (3, 4), (4, 4),
        (5, 5), (5, 6), (5, 7),  # unmapped, then mapped over
        (6, 8),  # half of it unmapped: its table stays
        (7, MAIN),  # populated by mmap
        (8, 11), (9, MAIN), (8, 13),  # moved by mremap
    ]  # fmt: skip


def test_nothing_is_noted_once_the_region_of_interest_has_begun(program, tmp_path):
    trace, (base,), _ = run(program, out=tmp_path / "t.ptt", roi_marker="on")
    kinds = trace.events["kind"].tolist()
    assert Event.FIRST_TOUCH not in kinds[kinds.index(Event.ROI_START) :]
    assert {int(region) - (base >> 21) for region in trace.regions} & set(range(16)) == {10, 12}


def test_first_touches_carry_the_cpu_and_come_before_all_chunks(program, tmp_path):
    trace, _, _ = run(program, out=tmp_path / "t.ptt", roi_marker="on")
    events = trace.events[trace.events["kind"] == Event.FIRST_TOUCH]
    assert (events["cpu"] >= 0).all() and (events["chunk"] == 0).all()


def test_a_region_of_interest_by_number_of_accesses_has_first_touches_before_it_too(program, tmp_path):
    trace, _, _ = run(program, out=tmp_path / "t.ptt", roi_start_access=1000, roi_accesses=1000)
    kinds = trace.events["kind"].tolist()
    begin = kinds.index(Event.ROI_START)
    assert Event.FIRST_TOUCH in kinds[:begin] and Event.FIRST_TOUCH not in kinds[begin:]
