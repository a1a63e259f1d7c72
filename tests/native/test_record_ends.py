"""record(): however it, its program or its tracer ends, what was recorded is whole."""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from native.tracing import environment
from needs_root import needs_root
from ptanalyze.capture.check import check_capture, exit_code
from ptanalyze.capture.live.record import record
from ptanalyze.capture.live.tracers import Options
from ptanalyze.core.errors import PartialDataError, Strip
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.manifest import read_manifest
from ptanalyze.formats.trace import read_trace

pytestmark = needs_root


def interrupted(code, after=0.0):
    """What code prints that records a program and gets SIGINT `after` seconds after its first word."""
    argv = [sys.executable, "-c", code]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout.readline().startswith("0x")
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    return said


def test_a_program_that_dies_before_the_end_leaves_a_trace_and_says_so(known, tmp_path):
    with pytest.raises(PartialDataError, match="SIGSEGV"):
        record([known, "crash"], tmp_path / "c")
    assert read_trace(tmp_path / "c" / "trace.ptt").facts["ended"] == "signal"
    assert read_manifest(tmp_path / "c").kind == "trace"


def test_a_trace_that_hit_its_limit_is_partial_data(known, tmp_path):
    with pytest.raises(PartialDataError, match="size limit"):
        record([known, "touch"], tmp_path / "c", options=Options(max_bytes=20_000, strip=Strip.OFF))
    assert read_manifest(tmp_path / "c").kind == "process"


@pytest.mark.parametrize("handover", [True, False])
def test_ctrl_c_leaves_a_whole_capture_up_to_that_moment(known, tmp_path, handover):
    code = (
        "import sys; from ptanalyze.capture.live.record import record\n"
        f"r = record([{known!r}, 'forever'], {str(tmp_path / 'c')!r}, dump={handover})\n"
        "print(r.held, r.interrupted, r.exit_status)"
    )
    said = interrupted(code, after=0.1)
    assert said.split() == [
        *(["interrupt"] if handover else []),
        "True",
        str(-signal.SIGINT),
    ]
    assert read_trace(tmp_path / "c" / "trace.ptt").facts["ended"] == "signal"
    assert read_manifest(tmp_path / "c").kind == ("process" if handover else "trace")
    finished = [one for one in check_capture(open_capture(tmp_path / "c")) if one.name == "trace: finished"]
    assert [one.verdict for one in finished] == ["ok"]


@pytest.mark.parametrize("mode", ["handles", "outlives"])
def test_programs_that_end_by_themselves_on_ctrl_c_and_children_that_outlive_them_are_whole(
    known, tmp_path, mode
):
    code = (
        "from ptanalyze.capture.live.record import record\n"
        "from ptanalyze.capture.live.tracers import Options\n"
        f"r = record([{known!r}, {mode!r}], {str(tmp_path / 'c')!r}, options=Options(follow_fork=True))\n"
        "print(r.held, r.interrupted, r.exit_status)"
    )
    said = interrupted(code)
    capture = open_capture(tmp_path / "c")
    assert said.split() == (["interrupt", "True", "0"] if mode == "handles" else ["exit", "True", "0"])
    assert capture.trace.facts["ended"] == "exit"
    kinds = [(one.manifest.kind, one.trace.facts["ended"]) for one in capture.processes.values()]
    assert kinds == ([] if mode == "handles" else [("process", "exit")])
    assert exit_code(check_capture(capture)) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_whoever_ends_the_recorder_ends_the_program(known, tmp_path, number):
    argv = [sys.executable, "-m", "ptanalyze", "record", "-o", str(tmp_path / "c"), "--no-dump", "--", known]
    process = subprocess.Popen([*argv, "forever"], stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdout.readline().startswith("0x")
    scores = {Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in running(tmp_path)}
    assert scores == {"1000\n"}, "out of memory, the kernel would kill others first"
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


def running(directory):
    """PIDs of tracers that write into a directory."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (place / "cmdline").read_bytes()
            if b"libpt_qemu" in words and bytes(directory) in words:
                found.append(place.name)
    return found


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
