"""record(): the trace and the page tables of one run agree, and no failure leaves half a capture."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from native import tracing
from ptanalyze.analysis.setup import Setup
from ptanalyze.capture.live.record import record
from ptanalyze.capture.live.tracers import Options
from ptanalyze.core.errors import PartialDataError, UsageError
from ptanalyze.core.trace import Event
from ptanalyze.formats.capture_dir import damaged_files, read_manifest
from ptanalyze.formats.snapshot_file import read_snapshot
from ptanalyze.formats.trace_file import read_trace

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 and not os.environ.get("CI"), reason="reading page tables needs root"
)


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    tracing.build_plugin()
    subprocess.run(["make", "-s", "-C", tracing.ROOT / "dumps"], check=True)
    return tracing.build(tmp_path_factory.mktemp("programs"))


def mapped_pages(snapshot):
    """Page numbers with a present 4 KiB leaf."""
    tree = snapshot.guest
    leaf = np.flatnonzero(tree.level == 1)
    table, slot = np.nonzero(np.asarray(tree.entries[leaf]) & 1)
    return set(((tree.base[leaf[table]] >> np.uint64(12)).astype(np.int64) + slot).tolist())


def touched_pages(trace):
    pages = set()
    for batch in trace.batches(1 << 16):
        numbers = (trace.regions[batch.page >> 9].astype(np.int64) << 9) | (batch.page & 511)
        pages |= set(numbers.tolist())
    return pages


@pytest.mark.parametrize("options", [Options(), Options(marker=True), Options(end_symbol="roi_ends")])
def test_every_page_touched_before_the_snapshot_is_mapped_in_it(known, tmp_path, options):
    recording = record([known, "touch"], tmp_path / "c", options=options)
    roi = options != Options()
    assert recording.exit_status == 0 and recording.held == ("roi_end" if roi else "exit")
    snapshot, trace = read_snapshot(tmp_path / "c"), read_trace(tmp_path / "c" / "trace.ptt")
    gone = touched_pages(trace) - mapped_pages(snapshot)
    assert len(gone) < 20  # ld.so unmaps its cache file
    assert snapshot.facts["stopped"] and trace.facts["command"] == f"{known} touch"
    emulator = {name for vma, name in zip(snapshot.vmas, snapshot.vma_names, strict=True) if vma["emulator"]}
    program = {
        name for vma, name in zip(snapshot.vmas, snapshot.vma_names, strict=True) if not vma["emulator"]
    }
    assert any(name.endswith("qemu-x86_64") for name in emulator) and "[heap]" in emulator
    assert known in program and known not in emulator
    assert list(damaged_files(tmp_path / "c", read_manifest(tmp_path / "c"))) == []
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "c").iterdir()} == {0o600}


def test_page_tables_made_before_the_region_of_interest_are_with_the_thread_that_touched_them(tmp_path):
    tracing.build_plugin()
    program = tracing.build(tmp_path, "first_touches")
    record([program], tmp_path / "c", options=Options(marker=True))
    snapshot, trace = read_snapshot(tmp_path / "c"), read_trace(tmp_path / "c" / "trace.ptt")
    world = Setup.of(threads_on="main=0,rest=1").world(snapshot, trace)
    touched = trace.events[trace.events["kind"] == Event.FIRST_TOUCH]
    first = int(touched["a"][touched["thread"] == 4].min()) - (3 << 21)  # its store lies in regions 3 and 4
    tables, homes = world.space.tables, {}
    for table in np.flatnonzero(tables.level == 1):
        homes[(int(tables.base[table]) - first) >> 21] = int(world.first_homes[table])
    assert [homes[region] for region in range(10)] == [0, 1, 1, 1, 1, 1, 1, 0, 1, 0]
    assert world.first_touch_notes == []


def test_without_page_tables_a_trace_alone_is_a_capture(known, tmp_path):
    recording = record([known, "threads", "2"], tmp_path / "c", dump=False)
    assert not recording.snapshot and read_manifest(tmp_path / "c").kind == "trace"


def test_followed_children_have_their_traces_in_the_capture(known, tmp_path):
    record([known, "fork"], tmp_path / "c", options=Options(follow_fork=True), dump=False)
    assert len(list((tmp_path / "c").glob("trace.*.ptt"))) == 1


def test_a_program_that_dies_before_the_end_leaves_a_trace_and_says_so(known, tmp_path):
    with pytest.raises(PartialDataError, match="SIGSEGV"):
        record([known, "crash"], tmp_path / "c")
    assert read_trace(tmp_path / "c" / "trace.ptt").facts["ended"] == "signal"
    assert read_manifest(tmp_path / "c").kind == "trace"


def test_a_trace_that_hit_its_limit_is_partial_data(known, tmp_path):
    with pytest.raises(PartialDataError, match="size limit"):
        record([known, "touch"], tmp_path / "c", options=Options(max_bytes=20_000, strip=False))
    assert read_manifest(tmp_path / "c").kind == "process"


@pytest.mark.parametrize("handover", [True, False])
def test_ctrl_c_leaves_a_whole_capture_up_to_that_moment(known, tmp_path, handover):
    code = (
        "import sys; from ptanalyze.capture.live.record import record\n"
        f"r = record([{known!r}, 'forever'], {str(tmp_path / 'c')!r}, dump={handover})\n"
        "print(r.held, r.interrupted, r.exit_status)"
    )
    argv = [sys.executable, "-c", code]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout.readline().startswith("0x")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert said.split() == [*(["interrupt"] if handover else []), "True", str(-signal.SIGINT)]
    assert read_trace(tmp_path / "c" / "trace.ptt").facts["ended"] == "signal"
    assert read_manifest(tmp_path / "c").kind == ("process" if handover else "trace")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_whoever_ends_the_recorder_ends_the_program(known, tmp_path, number):
    argv = [sys.executable, "-m", "ptanalyze", "record", "-o", str(tmp_path / "c"), "--no-dump", "--", known]
    process = subprocess.Popen([*argv, "forever"], stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout.readline().startswith("0x")
    assert len(running(tmp_path)) >= 1
    process.send_signal(number)
    process.wait(30)
    for _ in range(300):
        if not running(tmp_path):
            break
        time.sleep(0.1)
    assert not running(tmp_path)
    if number == signal.SIGKILL:
        assert process.returncode == -number
        return
    assert process.returncode == 128 + number
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    assert read_trace(tmp_path / "c" / "trace.ptt").facts["ended"] == "signal"


def test_an_argument_that_is_no_utf_8_is_passed_on_and_kept_as_an_escape(known, tmp_path):
    record([known, "threads", "2", os.fsdecode(b"\xff")], tmp_path / "c", dump=False)
    kept = json.loads((tmp_path / "c" / "record.json").read_text())
    assert kept["command"][-1] == "\\xff"
    assert read_trace(tmp_path / "c" / "trace.ptt").facts["ended"] == "exit"


def running(directory):
    """PIDs of tracers that write into a directory."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (place / "cmdline").read_bytes()
            if b"libpt_qemu" in words and bytes(directory) in words:
                found.append(place.name)
    return found


def environment():
    return {**os.environ, "PYTHONPATH": str(tracing.ROOT / "analyzer")}


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["/no/such/program"], "no such program"),
        (["no-such-program-either"], "no such program"),
        (["SCRIPT"], "a script"),
        (["TEXT"], "no ELF"),
        (["ARM"], "ELF machine 183"),
        (["I386"], "32-bit"),
    ],
)
def test_what_cannot_be_traced_is_one_line_and_leaves_nothing(tmp_path, command, why):
    files = {
        "SCRIPT": b"#!/bin/sh\n",
        "TEXT": b"hello",
        "ARM": b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\0\xb7\0" + bytes(44),
        "I386": b"\x7fELF\x01\x01\x01" + bytes(9) + b"\x02\0\x03\0" + bytes(44),
    }
    if command[0] in files:
        path = tmp_path / command[0]
        path.write_bytes(files[command[0]])
        path.chmod(0o755)
        command = [str(path)]
    before = set(tmp_path.iterdir())
    with pytest.raises(UsageError, match=why):
        record(command, tmp_path / "c")
    assert set(tmp_path.iterdir()) == before


def test_a_region_of_interest_that_never_began_leaves_nothing(known, tmp_path):
    with pytest.raises(UsageError, match="region of interest"):
        record([known, "memory"], tmp_path / "c", options=Options(marker=True))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_tool_says_how_to_build_it(known, tmp_path, monkeypatch):
    monkeypatch.setattr("ptanalyze.capture.live.native.BUILT_IN", ())
    with pytest.raises(UsageError, match="make -C dumps"):
        record([known, "touch"], tmp_path / "c")


def test_a_controller_that_is_killed_leaves_no_program_behind(known, tmp_path):
    call = f"record([{known!r}, 'forever'], {str(tmp_path / 'c')!r})"
    code = f"from ptanalyze.capture.live.record import record\n{call}"
    argv = [sys.executable, "-c", code]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment())
    process.stdout.readline()
    left = next(tmp_path.glob(".c.*.tmp"))
    program = read_header_pid(left / "trace.ptt")
    assert state(program) in "RS"
    process.kill()
    process.wait()
    for _ in range(300):
        if state(program) in "XZ":
            break
        time.sleep(0.1)
    assert state(program) in "XZ"


def state(pid):
    """Of a process, as ps shows it; X: gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0]
    except FileNotFoundError:
        return "X"


def read_header_pid(path):
    return int.from_bytes(path.read_bytes()[24:28], "little")


def test_the_program_waits_while_its_page_tables_are_read_and_goes_on_afterwards(
    known, tmp_path, monkeypatch
):
    slow = tmp_path / "tools"
    slow.mkdir()
    script = slow / "ptdump"
    script.write_text(f'#!/bin/sh\nsleep 0.5\nexec {tracing.ROOT}/dumps/build/ptdump "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PTANALYZE_NATIVE", str(slow))
    began = time.monotonic()
    recording = record([known, "touch"], tmp_path / "c")
    assert recording.snapshot and recording.exit_status == 0 and time.monotonic() - began > 0.5
