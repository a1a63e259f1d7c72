"""The native tools: where they are found, what is typed after sudo, how much memory the tracer takes."""

import os
import re
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from native.dumping import wait_for
from ptanalyze.capture.live import locate, tracers
from ptanalyze.capture.live.process import state
from ptanalyze.capture.live.record import emulator_ranges
from ptanalyze.capture.live.supervise import RssPeak
from ptanalyze.core import errors
from ptanalyze.core.errors import PACKAGE, UsageError, this_program
from ptanalyze.core.snapshot import VMA_DTYPE
from ptanalyze.core.trace import Event
from strategies import PAGE, REGION, build_trace

# Memory of the tracer in a recorded process: what it had when it began, and what nobody else used.

HEAP = 1 << 40
KINDS = {"mmap": Event.MMAP, "mremap": Event.MREMAP, "tracer": Event.TRACER_MAP}


def event(kind, start, length):
    if kind == "mmap":
        return 0, 0, Event.MMAP, (0, length, 3, 0x22), start
    if kind == "mremap":
        return 0, 0, Event.MREMAP, (start, PAGE, length, 1), start
    return 0, 0, Event.TRACER_MAP, (start, length), 0


def found(vmas, touches=(), events=(), heap=()):
    calls = [event(*one) for one in events] + [(0, 0, Event.BRK, (end,), end) for end in heap]
    trace = build_trace([(0, list(touches))] if touches else [], calls, threads=1)
    table = np.zeros(len(vmas), VMA_DTYPE)
    table["start"], table["end"] = np.array(vmas, np.uint64).reshape(-1, 2).T
    return emulator_ranges(trace, table)


def test_what_the_tracer_had_when_it_began_is_its_own_beside_pages_that_the_program_touched():
    vmas = [(HEAP, HEAP + 4 * PAGE), (HEAP + 8 * PAGE, HEAP + 12 * PAGE)]
    events = [("mmap", HEAP, 4 * PAGE), ("tracer", HEAP + 8 * PAGE, 4 * PAGE)]
    assert found(vmas, [HEAP], events) == [[HEAP + 8 * PAGE, HEAP + 12 * PAGE]]
    assert found(vmas, [HEAP], events[:1]) == []  # older traces: the 2 MiB are one


def naive(vmas, touches, events, heap):
    """Addresses of pages that are the tracer's, page by page."""

    def pages(start, length):
        return set(range(start // PAGE, -(-(start + length) // PAGE)))

    mapped = set().union(*(pages(a, n) for kind, a, n in events if kind != "tracer"))
    installed = set().union(*(pages(a, n) for kind, a, n in events if kind == "tracer"))
    if heap:
        mapped |= pages(min(heap), max(heap) - min(heap))
    touched = set().union(*(pages(t // REGION * REGION, REGION) for t in touches))
    program = [bool(pages(a, b - a) & mapped) for a, b in vmas]
    ends = {b for (_, b), its in zip(vmas, program, strict=True) if its}
    own = set()
    for (a, b), its in zip(vmas, program, strict=True):
        here = pages(a, b - a)
        if not its and (not here & touched or (here & installed and a not in ends)):
            own |= here
    return own


PLACES = st.integers(0, 40).map(lambda n: HEAP + n * (REGION // 8))
SIZES = st.integers(1, 20).map(lambda n: n * (REGION // 16))


@pytest.mark.twin
@given(
    st.lists(st.tuples(PLACES, SIZES), min_size=1, max_size=8),
    st.lists(PLACES, max_size=4),
    st.lists(st.tuples(st.sampled_from(sorted(KINDS)), PLACES, SIZES), max_size=6),
    st.lists(PLACES, max_size=3),
)
def test_every_page_is_whose_its_twin_says(wanted, touches, events, heap):
    vmas, last = [], 0
    for start, size in sorted(wanted):
        if start >= last:
            vmas.append((start, start + size))
            last = start + size
    ranges = found(vmas, touches, events, heap)
    assert {p for a, b in ranges for p in range(a // PAGE, b // PAGE)} == naive(vmas, touches, events, heap)
    assert all(a[1] < b[0] for a, b in pairwise(ranges))


MAIN_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_program_whose_main_thread_has_ended_is_resident():
    with subprocess.Popen([sys.executable, "-c", MAIN_ENDS]) as process:
        try:
            wait_for(lambda: state(f"/proc/{process.pid}") == "Z")
            assert RssPeak(process.pid).resident() > 1 << 20
        finally:
            process.kill()
    assert RssPeak(process.pid).resident() == 0


def test_of_a_small_program_the_page_tables_of_its_peak_are_read_beside_the_tracers_own_memory():
    """Page tables are due when the program has grown, not when it has doubled its tracer."""
    peak, mib = RssPeak(1), 1 << 20
    kept = []
    for resident in (40 * mib, 40.5 * mib, 42 * mib, 42.2 * mib, 44 * mib, 41 * mib):
        peak.resident = lambda resident=resident: resident
        if peak.due():
            peak.kept = peak.resident()
            kept.append(resident / mib)
    assert kept == [40, 42, 44]
    assert peak.resident() < peak.kept


# Which QEMU traces: that of PTANALYZE_NATIVE, of the PATH, or of the package; and which are refused.


@pytest.fixture
def nothing_built(monkeypatch, tmp_path):
    """No tool is named, built or in the PATH."""
    monkeypatch.setattr(locate, "CHECKOUT", tmp_path / "nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PTANALYZE_NATIVE", raising=False)
    monkeypatch.setattr(locate, "PACKAGE", "native_tools_of_a_test")


@pytest.fixture
def places(nothing_built, monkeypatch, tmp_path):
    """Directories for a QEMU; the package has both builds of the plugin."""
    package = tmp_path / "site" / locate.PACKAGE
    (package / "qemu").mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in ("libpt_qemu.so", "libpt_qemu_api2.so"):
        (package / name).touch()
    (tmp_path / "path").mkdir()
    (tmp_path / "named").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.syspath_prepend(tmp_path / "site")
    return {"named": tmp_path / "named", "path": tmp_path / "path", "package": package / "qemu"}


def put(directory, version="7.2.22", options="-plugin"):
    """A QEMU that says of itself what is told here."""
    path = directory / "qemu-x86_64"
    answers = f"--version) echo qemu-x86_64 version {version};; --help) echo {options};;"
    path.write_text(f"#!/bin/sh\ncase $1 in {answers} esac\n")
    path.chmod(0o755)
    return path


def test_the_one_that_is_named_comes_before_the_systems_and_that_before_the_packages(places, monkeypatch):
    monkeypatch.setenv("PTANALYZE_NATIVE", str(places["named"]))
    put(places["package"])
    assert tracers.qemu().path.parent == places["package"]
    put(places["path"])
    assert tracers.qemu().path.parent == places["path"]
    put(places["named"])
    assert tracers.qemu().path.parent == places["named"]


def test_one_that_was_named_and_cannot_trace_is_refused_not_replaced(places, monkeypatch):
    monkeypatch.setenv("PTANALYZE_NATIVE", str(places["named"]))
    put(places["path"])
    put(places["package"])
    put(places["named"], options="-cpu")
    with pytest.raises(UsageError, match=f"{places['named']}/qemu-x86_64: .*without plugins"):
        tracers.qemu()


@pytest.mark.parametrize(
    ("version", "options", "told"),
    [
        ("6.2.0", "-plugin", "QEMU 6.2 is too old"),
        ("10.0.13", "-cpu", r"built without plugins.*--enable-plugins"),
        ("none", "-plugin", "no version of QEMU"),
    ],
)
def test_the_only_one_is_refused_with_the_reason_if_it_cannot_trace(places, version, options, told):
    put(places["path"], version, options)
    with pytest.raises(UsageError, match=told):
        tracers.qemu()


@pytest.mark.parametrize(("version", "plugin"), [("8.2.2", "libpt_qemu.so"), ("9.0.0", "libpt_qemu_api2.so")])
def test_each_gets_the_build_of_its_interface(places, version, plugin):
    put(places["path"], version)
    assert tracers.qemu().plugin.name == plugin
    assert tracers.qemu().version == (int(version[0]), int(version[2]))


# Where the native tools are looked for, and what a person reads who has none.

TOOLS = {"ptdump": "dumps/build", "libpt_qemu.so": "pintool/build", "pin_tool.so": "pintool/build/pin"}


@pytest.mark.parametrize("as_checkout", [True, False])
def test_a_checkout_and_a_flat_directory_hold_all_tools(nothing_built, monkeypatch, tmp_path, as_checkout):
    for name, place in TOOLS.items():
        file = tmp_path / "here" / (place if as_checkout else "") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    monkeypatch.setenv("PTANALYZE_NATIVE", str(tmp_path / "here"))
    assert {locate.native(name).name for name in TOOLS} == set(TOOLS)


def test_what_is_named_comes_before_a_checkout_a_package_and_the_path(nothing_built, monkeypatch, tmp_path):
    names = "named", "nowhere/dumps/build", "site/native_tools_of_a_test", "."
    places = [tmp_path / name for name in names]
    monkeypatch.setenv("PTANALYZE_NATIVE", str(places[0]))
    monkeypatch.syspath_prepend(tmp_path / "site")
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        (place / "ptdump").touch(0o755)
    (places[2] / "__init__.py").touch()
    for place in places:
        assert locate.native("ptdump") == place / "ptdump"
        (place / "ptdump").unlink()


@pytest.mark.parametrize("name", TOOLS)
def test_who_has_no_checkout_is_told_how_to_get_a_tool(nothing_built, name):
    """No name that is on no index, where anybody could take it, without --no-index."""
    with pytest.raises(UsageError, match=r"in a clone of ptanalyze.*PTANALYZE_NATIVE") as told:
        locate.native(name)
    by_pip = re.findall("pip install.*?`", str(told.value))
    assert len(by_pip) == (name != "pin_tool.so") and all("--no-index --find-links" in one for one in by_pip)


# What to type after sudo, which searches no virtual environment.


@pytest.fixture
def program(tmp_path, monkeypatch):
    """The program in an environment, and that in the PATH."""
    path = tmp_path / "my env/bin/ptanalyze"
    path.parent.mkdir(parents=True)
    path.write_text('#!/bin/sh\necho "$0"\n')
    path.chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my env"))
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    return path


@pytest.mark.parametrize("where", [".", "work"])
@pytest.mark.parametrize("known", [True, False])
def test_what_to_type_next_is_found_whatever_is_in_the_path(program, tmp_path, monkeypatch, where, known):
    """The second as sudo runs it, which searches a path of its own."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / where)
    if not known:
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for typed in (errors.program(), f"env PATH=/usr/bin:/bin {this_program()}"):
        done = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=True)
        assert (tmp_path / where / done.stdout.strip()).samefile(program)
    assert (errors.program() == "ptanalyze") is known and (len(this_program()) < 25 or not known)


@pytest.mark.parametrize(("uid", "behind"), [(0, None), (0, "1000"), (1000, None)])
def test_root_is_not_sent_through_sudo(monkeypatch, uid, behind):
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.delenv("SUDO_UID", raising=False)
    if behind:
        monkeypatch.setenv("SUDO_UID", behind)
    root = uid == 0 and behind is None
    assert errors.as_root() == (errors.program() if root else f"sudo {this_program()}")
    assert errors.as_root(anywhere=True) == f"{'' if root else 'sudo '}{sys.prefix}/bin/ptanalyze"
    sources = PACKAGE.parent.glob("ptanalyze*/**/*.py")
    assert [path.name for path in sources if "sudo {" in path.read_text("utf-8")] == ["errors.py"]
