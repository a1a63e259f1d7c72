"""The QEMU plugin against a program whose accesses are known exactly."""

import os
import resource
import signal
import socket
import subprocess
import time
from itertools import pairwise

import pytest

from native import tracing
from native.tracing import PAGES, counts, run, touched_once, traced, wait_written
from needs_root import needs_root
from ptanalyze.core.errors import CaptureError
from ptanalyze.core.machine import load_machine
from ptanalyze.core.trace import Event
from ptanalyze.formats.trace import read_trace
from ptanalyze.kernels.trace_codec import REACH
from ptanalyze.world.captured_world import captured_world
from ptanalyze.world.site import bare_snapshot
from trace_copy import without_calls_outside


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


def test_a_recorded_region_run_once_more_is_not_interrupted_by_its_loader_s_calls(known, out):
    recorded, _, _ = run(known, "touch", out=out, roi_marker="on")
    bare, machine = without_calls_outside(recorded), load_machine("vmitosis-cascade-lake")
    assert len(bare.events) < len(recorded.events) - 5
    once, without = (captured_world(bare_snapshot(trace), trace, machine) for trace in (recorded, bare))
    assert len(once.stream) >= PAGES
    assert len(once.again_stream) == len(without.again_stream) == 0


def test_a_symbol_that_is_not_there_is_said(known, out):
    argv = traced(known, "touch", out=out, roi_start_symbol="no_such_function")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 126 and done.stderr.count("\n") == 1 and "no_such_function" in done.stderr


def test_a_symbol_of_no_file_is_said(known, out):
    argv = traced(known, "touch", out=out, roi_start_symbol="main")
    argv = [word.replace(f",program={known}", "") for word in argv]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 126 and done.stderr.count("\n") == 1 and "program=FILE" in done.stderr


@pytest.mark.parametrize(("start", "length"), [(0, 1000), (1, 5000), (5000, 2000), (3000, 1)])
def test_a_number_of_accesses_bounds_the_region_of_interest(known, out, start, length):
    trace, _, _ = run(known, "touch", out=out, roi_start_access=start, roi_accesses=length)
    assert trace.accesses == length


def test_tracing_ends_after_its_time_and_the_program_does_not(known, out):
    whole, _, _ = run(known, "touch", out=out)
    trace, (base,), status = run(known, "touch", out=out, for_ms=1)
    (end,) = events_of(trace, Event.ROI_END)
    assert status == 0 and base and trace.facts["ended"] == "exit"
    over = trace.chunks["time"].min() + 1_000_000
    assert end["time"] >= over > trace.chunks["time"].max()
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


def test_the_program_s_first_mappings_are_events_too(known, out):
    trace, _, _ = run(known, "memory", out=out)
    start = int(events_of(trace, Event.MMAP)["result"].min())
    assert all(region << 21 >= start - (1 << 21) for region in trace.regions.tolist())


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
    assert len(others) == (follow == "on")
    for path in others:
        wait_written(path)
        child = read_trace(path)
        assert counts(child, base) == touched_once()
        assert path.name == f"trace.{child.facts['pid']}.ptt" and child.facts["ended"] == "exit"


def start_forever(known, out, **options):
    process = subprocess.Popen(
        traced(known, "forever", out=out, **options), stdout=subprocess.PIPE, text=True
    )
    base = int(process.stdout.readline(), 16)
    return process, base


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_program_leaves_a_valid_trace_up_to_its_last_accesses(known, out, number):
    process, base = start_forever(known, out)
    time.sleep(0.2)
    process.send_signal(number)
    assert process.wait(10) == -number
    wait_written(out)
    trace = read_trace(out)
    assert trace.facts["ended"] == "signal" and trace.facts["lost_bytes"] == 0
    assert min(row[0] for row in counts(trace, base)) > 12


def test_a_crash_loses_nothing(known, out):
    trace, (base,), status = run(known, "crash", out=out)
    assert status == -signal.SIGSEGV and trace.facts["ended"] == "signal"
    assert counts(trace, base) == touched_once()


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


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@needs_root
def test_a_full_disk_ends_the_trace_and_not_the_program(known, small_disk):
    trace, _, status = run(known, "touch", out=small_disk / "trace.ptt", strip="off")
    assert status == 0 and trace.facts["ended"] == "disk full" and trace.facts["lost_bytes"] == 0
    assert trace.touches > 100


@pytest.mark.parametrize(
    "option",
    [
        "max_bytes=many",
        "roi_marker=perhaps",
        "no_such=1",
        "out=/no/such/dir/t.ptt",
        "strip=l2",
        "every_ms=1000",
        "sample=sets:1/8",
        "classes=257",
    ],
)
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


def test_the_trace_file_is_private(known, out):
    run(known, "touch", out=out)
    assert os.stat(out).st_mode & 0o777 == 0o600


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


def test_a_controller_that_never_answers_holds_the_program_no_longer_than_the_timeout(known, out, listener):
    argv = traced(known, "touch", out=out, control=listener.getsockname(), control_timeout=1)
    assert subprocess.run(argv, stdout=subprocess.DEVNULL, timeout=20, check=True).returncode == 0


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
