"""Guest tables read from outside a running QEMU, against a guest whose tables are known to the last entry."""

import shutil
import subprocess
import time
from contextlib import contextmanager

import numpy as np
import pytest

from native.dumping import PROGRAMS, state
from ptanalyze.capture.check import FAILED, check_capture
from ptanalyze.capture.live.guest_memory import GuestMemory
from ptanalyze.capture.live.guest_tables import BEYOND, SEEN, SELF_MAP
from ptanalyze.capture.live.guests import dump_guest_tables
from ptanalyze.capture.live.process import opened
from ptanalyze.capture.live.qmp import Qmp, registers, slots_of
from ptanalyze.core.errors import UsageError
from ptanalyze.formats.capture import open_capture

pytestmark = pytest.mark.native
ADDRESSES = {"header": 0x102000, "tables": 0x110000}
ROOT = ADDRESSES["tables"] >> 12


def build_guest(where, levels):
    out = where / f"guest{levels}"
    command = ["gcc", "-m32", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-Ttext=0x103000"]
    command += [f"-Wl,--section-start=.{name}={at:#x}" for name, at in ADDRESSES.items()]
    command += ["-Wl,-z,max-page-size=4096", *["-DLA57"] * (levels == 5), "-o", out, PROGRAMS / "guest.S"]
    subprocess.run(command, check=True, capture_output=True)
    return out


@contextmanager
def qemu(where, program):
    """(process, socket path) of a guest of two vCPUs whose first one halted behind its page tables."""
    socket = where / "qmp"
    command = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "64", "-smp", "2", "-nodefaults"]
    command += ["-display", "none", "-no-reboot", "-qmp", f"unix:{socket},server=on,wait=off"]
    process = subprocess.Popen([*command, "-kernel", program])
    try:
        end = time.monotonic() + 60
        while not (socket.exists() and paging(socket)):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        yield process, socket
    finally:
        process.kill()
        process.wait()


def paging(socket):
    with Qmp(socket) as qmp:
        return registers(qmp)[0].levels > 0


@pytest.fixture(scope="module", params=[4, 5])
def guest(request, tmp_path_factory):
    """(levels, process, socket path)"""
    assert shutil.which("qemu-system-x86_64"), "install qemu-system-x86"
    where = tmp_path_factory.mktemp("guest")
    with qemu(where, build_guest(where, request.param)) as (process, socket):
        yield request.param, process, socket


@pytest.mark.parametrize("stop", [False, True])
def test_the_tables_of_a_running_guest_are_those_it_was_built_with(guest, tmp_path, stop):
    levels, process, socket = guest
    made, lines = dump_guest_tables(process.pid, socket, tmp_path, stop=stop)
    assert [path.name for path in made] == [f"cr3-{ROOT:x}"] and lines[0] == "vCPU 1: not in 64-bit mode"
    assert state(process.pid) in "SR"
    capture = open_capture(made[0])
    tree = capture.snapshot.guest
    assert tree.level.tolist() == list(range(levels, 0, -1))
    assert tree.frame.tolist() == list(range(ROOT, ROOT + levels))
    assert tree.base.tolist() == [0] * (levels - 1) + [2 << 20]
    above = tree.entries[:-2, :256]
    assert (np.count_nonzero(above, axis=1) == 1).all()
    assert above[:, 0].tolist() == [int(frame) << 12 | 0x67 for frame in tree.frame[1:-1]]
    assert {k: int(tree.entries[-2, k]) for k in np.flatnonzero(tree.entries[-2])} == {
        0: 0xE7,
        1: int(tree.frame[-1]) << 12 | 0x67,
    }
    assert {k: int(tree.entries[-1, k]) for k in np.flatnonzero(tree.entries[-1])} == {
        0: 0x200067,
        7: 0x207067,
        511: 0x3FF067,
    }
    assert [finding.name for finding in check_capture(capture) if finding.verdict == FAILED] == []


def test_what_was_not_followed_and_the_kernels_half_are_told(guest, tmp_path):
    levels, process, socket = guest
    made, _ = dump_guest_tables(process.pid, socket, tmp_path)
    facts = open_capture(made[0]).snapshot.facts
    assert facts["not_followed"] == {SELF_MAP: 1, SEEN: 1 if levels == 4 else 2, BEYOND: 1}
    assert facts["kernel_tables"] == ({"1": 1, "2": 1, "3": 1} if levels == 4 else {})
    assert facts["vcpus"] == [0] and not facts["page_table_isolation"]


def test_memory_is_read_where_the_monitor_says_and_nowhere_else(guest):
    _, process, socket = guest
    with Qmp(socket) as qmp:
        slots = slots_of(qmp)
    with opened(process.pid) as vmm, GuestMemory(vmm, slots) as memory:
        assert memory.read(ADDRESSES["header"], 4) == (0x1BADB002).to_bytes(4, "little")
        end = max(slot.gpa + slot.bytes for slot in slots if slot.gpa < 1 << 31)
        assert memory.read(end - 4096, 4096) is not None
        for gpa in (end, end - 8, 1 << 45, 0xFEC00000):
            assert memory.read(gpa, 4096) is None


def test_a_vmm_that_has_gone_is_an_error(tmp_path):
    with qemu(tmp_path, build_guest(tmp_path, 4)) as (process, socket):
        with Qmp(socket) as qmp:
            process.kill()
            process.wait()
            with pytest.raises(UsageError, match=r"QEMU is gone|not a QMP answer|does not answer"):
                registers(qmp)
        with pytest.raises(UsageError, match="cannot talk to QEMU"):
            Qmp(socket)
