"""The tracer for Pin without Pin: compiled against an interface of ours that plays a program which forks."""

import subprocess

import pytest

from native.dumping import make
from native.tracing import ROOT, wait_written
from ptanalyze.core.trace import Event
from ptanalyze.formats.trace import CHUNK, map_file, read_events, read_frames, read_header, read_trace

pytestmark = pytest.mark.native
WRITER = ("tracer", "writer", "session_file", "watcher", "control", "own_maps")
KITS = {"3.7": [], "current": ["-DPTT_PIN_ELEMENTS"]}  # how a kit describes gathers
GATHERED = {50, 51, 53}  # 52 is masked out


@pytest.fixture(scope="module", params=KITS)
def tool(request, tmp_path_factory):
    make("pintool")
    program = tmp_path_factory.mktemp("pin") / "tool"
    sources = [ROOT / "pintool/pin_tool.cpp", *(ROOT / f"pintool/build/{name}.o" for name in WRITER)]
    includes = [f"-I{ROOT / where}" for where in ("tests/native/programs/pin", "pintool")]
    flags = ["-std=c++17", "-Wall", *KITS[request.param]]
    subprocess.run(["g++", *flags, *includes, "-o", program, *sources], check=True)
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
    child, status, _ = done.stdout.split()
    assert status == "0" and pages(tmp_path / "t.ptt") == {100, 101} | GATHERED
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
    child, _, _ = done.stdout.split()
    assert first_touches(tmp_path / "t.ptt") == [0]
    assert first_touches(tmp_path / f"t.{child}.ptt") == [1 << 21]


def accesses(path):
    """{page: (accesses, whether one was a store)}"""
    wait_written(path)
    trace, found = read_trace(path), {}
    for batch in trace.batches(1 << 10):
        for page, write, count in zip(batch.page.tolist(), batch.write, batch.count, strict=True):
            number = int(trace.regions[page >> 9]) << 9 | page & 511
            times, stored = found.get(number, (0, False))
            found[number] = times + int(count), stored or bool(write)
    return found


@pytest.mark.parametrize("options", [(), ("-roi_accesses", "1000000")])
def test_a_gather_reads_each_element_that_its_mask_lets_through(tool, tmp_path, options):
    subprocess.run([tool, "-out", tmp_path / "t.ptt", *options], check=True, timeout=60, capture_output=True)
    found = accesses(tmp_path / "t.ptt")
    assert {page: found[page] for page in GATHERED} == dict.fromkeys(GATHERED, (1, False))
    assert found[100] == (1, True)


def test_the_tool_notes_what_it_had_mapped_but_not_the_stack_that_the_kernel_gave_the_program(tool, tmp_path):
    command = ["setarch", "-R", tool, "-out", tmp_path / "t.ptt"]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    wait_written(tmp_path / "t.ptt")
    events = read_trace(tmp_path / "t.ptt").events
    own = events[events["kind"] == Event.TRACER_MAP]
    assert int(own["b"].sum()) > 100 << 20  # the threads' buffers are among it
    stack = 0x7FFFFFF00000  # and above, where addresses are not randomised
    assert 0x7FFFF0000000 < int((own["a"] + own["b"]).max()) < stack


@pytest.mark.parametrize("bound", [(), ("-roi_start_symbol", "main")])
def test_symbols_are_read_only_for_a_region_that_is_bound_by_them(tool, tmp_path, bound):
    command = [tool, "-out", tmp_path / "t.ptt", *bound]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split()[2] == str(int(bool(bound)))
