"""The tracer for Pin without Pin: compiled against an interface of ours that plays a program which forks."""

import subprocess

import pytest

from native.tracing import ROOT, wait_written
from ptanalyze.formats.trace_file import read_trace

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
    assert follow == "off" or pages(tmp_path / f"t.{child}.ptt") == {102}
