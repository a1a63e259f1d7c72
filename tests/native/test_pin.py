"""The tracer for Pin without Pin."""

import os
import re
import subprocess
import sys

import pytest

from captures import touches_of
from native.dumping import make
from native.tracing import ROOT, build_plugin, wait_written
from ptanalyze.core.trace import Event
from ptanalyze.formats.trace import CHUNK, map_file, read_events, read_frames, read_header, read_trace

# The script that tries the Pin tool, as far as it goes without Pin: refusals, and its probes under QEMU.

SCRIPT, RUN = ROOT / "pintool/try-pin.sh", ROOT / "pintool/probes/run.sh"
PROBES = ("plain", "threads", "fork", "exec", "gather")


def words(command, **environment):
    env = {name: value for name, value in os.environ.items() if name != "PIN_ROOT"}
    env |= {"PYTHON": sys.executable, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=300)


def fake_kit(place, rules):
    (place / "source/tools/Config").mkdir(parents=True)
    (place / "source/tools/Config/makefile.config").write_text(rules)
    (place / "pin").write_text("#!/bin/sh\necho Pin 0.0\n")
    (place / "pin").chmod(0o755)
    return place


WITHOUT = [
    (None, "PIN_ROOT is not set: get a Pin 3 kit for Linux (gcc) from Intel, unpack it"),
    ((), "no program pin in it"),
    (("pin",), "no source/tools/Config/makefile.config; unpack the whole kit"),
]


@pytest.mark.parametrize(("there", "says"), WITHOUT)
def test_without_a_kit_one_line_says_what_to_do(tmp_path, there, says):
    for name in there or ():
        (tmp_path / name).touch(0o755)
    done = words([SCRIPT, tmp_path / "report"], **{} if there is None else {"PIN_ROOT": str(tmp_path)})
    assert done.returncode == 2 and done.stdout == "" and not (tmp_path / "report").exists()
    assert says in done.stderr and len(done.stderr.splitlines()) == 1


def test_an_interpreter_without_ptanalyze_and_a_report_that_cannot_be_written_are_refused(tmp_path):
    kit = {"PIN_ROOT": str(fake_kit(tmp_path, ""))}
    assert "has no ptanalyze" in words([SCRIPT], **kit, PYTHON="/bin/false").stderr
    done = words([SCRIPT, tmp_path / "no/report"], **kit)
    assert done.returncode == 2 and "cannot be written; name another file" in done.stderr


def test_a_kit_that_does_not_build_leaves_a_report_that_says_why(tmp_path):
    kit = fake_kit(tmp_path / "kit", "$(error this kit is broken)\n")
    done, report = words([SCRIPT, tmp_path / "report"], PIN_ROOT=str(kit)), (tmp_path / "report").read_text()
    assert done.returncode == 1 and report == done.stdout
    assert "Pin 0.0" in report and "not built:" in report and "this kit is broken" in report


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    build_plugin()
    logs = tmp_path_factory.mktemp("probes")
    return words([RUN, "qemu", logs]), logs


@pytest.mark.full
def test_the_probes_find_nothing_wrong_with_the_tracer_that_was_tested_otherwise(ran):
    done, _ = ran
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == list(PROBES) and done.returncode == 0
    assert [row[3] for row in rows if row[0] != "gather"] == ["ok"] * 4
    assert rows[-1][3:] in (["ok"], ["not", "run:", "this", "CPU", "has", "no", "AVX2"])
    assert [row[2] for row in rows[:4]] == ["0", "0", "0", "3"]  # exec: the trace is shorter than the run


# The tracer for Pin without Pin: compiled against an interface of ours that plays a program which forks.

WRITER = ("tracer", "writer", "session_file", "watcher", "control", "own_maps")
KITS = {"3.7": [], "current": ["-DPTT_PIN_ELEMENTS"]}  # how a kit describes gathers
GATHERED = {50, 51, 53}  # 52 is masked out
PLAYED = {40: (5, True), 41: (2, True), 42: (2, True), 45: (1, True)}  # 43: not executed, 44: masked out
INLINED = ("is_more", "is_any", "block_executed")


@pytest.fixture(scope="module", params=KITS)
def tool(request, tmp_path_factory):
    make("pintool")
    program = tmp_path_factory.mktemp("pin") / "tool"
    sources = [ROOT / "pintool/pin_tool.cpp", *(ROOT / f"pintool/build/{name}.o" for name in WRITER)]
    includes = [f"-I{ROOT / where}" for where in ("tests/native/programs/pin", "pintool")]
    flags = ["-std=c++17", "-O2", "-Wall", *KITS[request.param]]
    subprocess.run(["g++", *flags, *includes, "-o", program, *sources], check=True)
    return program


def accesses(path):
    """{page: (accesses, whether one was a store)}"""
    wait_written(path)
    found = {}
    for page, write, count in touches_of(read_trace(path)):
        times, stored = found.get(page, (0, False))
        found[page] = times + count, stored or write
    return found


def run(tool, trace, *options):
    command = [tool, "-out", trace, *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()


@pytest.mark.parametrize("follow", ["off", "on"])
def test_a_forked_child_goes_on_traced_only_when_followed(tool, tmp_path, follow):
    child, status, _ = run(tool, tmp_path / "t.ptt", "-follow_fork", follow)
    assert status == "0" and accesses(tmp_path / "t.ptt").keys() == {100, 101, *GATHERED, *PLAYED}
    assert (tmp_path / f"t.{child}.ptt").exists() == (follow == "on")
    assert follow == "off" or accesses(tmp_path / f"t.{child}.ptt").keys() == {102, 512 + 102}


def first_touches(path):
    wait_written(path)
    data = map_file(path)
    frames, offset, _ = read_frames(path, data, read_header(path, data))
    events, _ = read_events(path, data, frames, offset, frames["kind"] == CHUNK, 0)
    return events["a"][events["kind"] == Event.FIRST_TOUCH].tolist()


def test_a_forked_child_inherits_the_tables_that_fork_copied_and_with_them_what_was_touched(tool, tmp_path):
    child, _, _ = run(tool, tmp_path / "t.ptt", "-follow_fork", "on", "-roi_marker", "on")
    assert first_touches(tmp_path / "t.ptt") == [0]
    assert first_touches(tmp_path / f"t.{child}.ptt") == [1 << 21]


@pytest.mark.parametrize("options", [(), ("-instructions", "on"), ("-roi_accesses", "1000000")])
def test_every_access_that_happens_is_counted_inlined_or_not(tool, tmp_path, options):
    run(tool, tmp_path / "t.ptt", *options)
    wait_written(tmp_path / "t.ptt")
    assert read_trace(tmp_path / "t.ptt").chunks["instructions"].sum() == 15 * ("-instructions" in options)
    gathered = dict.fromkeys(GATHERED, (1, False))  # each element that the mask lets through
    assert accesses(tmp_path / "t.ptt") == {**PLAYED, **gathered, 100: (1, True), 101: (1, True)}


def test_what_pin_is_to_inline_has_no_jumps_and_no_calls(tool):
    """What it inlines, by its manual ("Rewriting Conditional Analysis Code")."""
    listed = words(["objdump", "-d", "--no-show-raw-insn", "-C", tool]).stdout
    for name in INLINED:
        body = re.search(rf"<{name}\(.*?>:\n(.*?)\n\n", listed, re.DOTALL)[1]
        does = [line.split()[1] for line in body.splitlines()]
        assert does.count("ret") == 1 and not [word for word in does if re.match("j|call|rep", word)]


def test_the_tool_leaves_undefined_only_what_libraries_of_kits_define(tmp_path):
    """Without a kit, its calls by name; with PIN_ROOT, compiled by the kit's rules, all symbols."""
    known = set((ROOT / "tests/native/programs/pin/kit_symbols.txt").read_text().split("\n"))
    sources = [(ROOT / f"pintool/{name}").read_text() for name in ("pin_tool.cpp", "pin_elements.h")]
    calls = set(re.findall(r"\b((?:INS|BBL|TRACE|PIN|IMG|RTN)_[A-Z][A-Za-z]+)\(", "".join(sources)))
    assert len(calls) > 40
    assert not [name for name in calls if not any(f"{len(name)}{name}E" in symbol for symbol in known)]
    if kit := os.environ.get("PIN_ROOT"):
        rules = ["make", "-k", "-f", "pin.mk", f"PIN_ROOT={kit}", "TARGET=intel64", f"OBJDIR={tmp_path}/"]
        subprocess.run(rules, cwd=ROOT / "pintool", capture_output=True, timeout=300, check=False)
        objects = [tmp_path / f"{name}.o" for name in ("pin_tool", *WRITER)]
        listed = words(["nm", *objects]).stdout.splitlines()
        own = {line.split()[2] for line in listed if len(line.split()) == 3}
        assert {line.split()[1] for line in listed if " U " in line} - own <= known


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
    assert run(tool, tmp_path / "t.ptt", *bound)[2] == str(int(bool(bound)))
