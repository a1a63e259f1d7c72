"""The tracer for Pin without Pin: compiled against an interface of ours that plays a program which forks."""

import subprocess

import pytest

from native.tracing import ROOT, wait_written
from ptanalyze.core.trace import Event
from ptanalyze.formats.trace_file import read_events, read_trace
from ptanalyze.formats.trace_frames import CHUNK, map_file, read_frames, read_header

pytestmark = pytest.mark.native
WRITER = ("tracer", "writer", "session_file", "watcher", "control")


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    subprocess.run(["make", "-s", "-C", ROOT / "pintool"], check=True)
    program = tmp_path_factory.mktemp("pin") / "tool"
    sources = [ROOT / "pintool/pin_tool.cpp", *(ROOT / f"pintool/build/{name}.o" for name in WRITER)]
    includes = [f"-I{ROOT / where}" for where in ("tests/native/programs/pin", "pintool")]
    subprocess.run(["g++", "-std=c++17", "-Wall", *includes, "-o", program, *sources], check=True)
    return program


def pages(path):
    wait_written(path)
    trace = read_trace(path)
    return {
        int(trace.regions[page >> 9]) << 9 | int(page & 511)
        for batch in trace.batches(1 << 10)
        for page in batch.page
    }


@pytest.mark.parametrize("follow", ["off", "on"])
def test_a_forked_child_goes_on_traced_only_when_followed(tool, tmp_path, follow):
    command = [tool, "-out", tmp_path / "t.ptt", "-follow_fork", follow]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    child, status = done.stdout.split()
    assert status == "0" and pages(tmp_path / "t.ptt") == {100, 101}
    assert (tmp_path / f"t.{child}.ptt").exists() == (follow == "on")
    assert follow == "off" or pages(tmp_path / f"t.{child}.ptt") == {102, 512 + 102}


def first_touches(path):
    """Addresses of the FIRST_TOUCH events of a trace that may have no touches."""
    wait_written(path)
    data = map_file(path)
    frames, offset, _ = read_frames(path, data, read_header(path, data))
    events, _ = read_events(path, data, frames, offset, frames["kind"] == CHUNK, 0)
    return events["a"][events["kind"] == Event.FIRST_TOUCH].tolist()


def test_a_forked_child_inherits_the_tables_that_fork_copied_and_with_them_what_was_touched(tool, tmp_path):
    command = [tool, "-out", tmp_path / "t.ptt", "-follow_fork", "on", "-roi_marker", "on"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    child, _ = done.stdout.split()
    assert first_touches(tmp_path / "t.ptt") == [0]
    assert first_touches(tmp_path / f"t.{child}.ptt") == [1 << 21]
