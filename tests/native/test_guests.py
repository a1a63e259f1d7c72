"""Guests of any VMM by KVM alone: their tables, slots and vCPUs."""

import os
import random
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from naive.trees import read_guest_tables as naive
from native.dumping import HIGH, LOW, MIB, PROGRAMS, PTDUMP, need_kvm, running, state
from native.monitor import monitor, registers, slots
from needs import needs_root
from ptanalyze.capture.check import FAILED, check_capture
from ptanalyze.capture.live.process import open_process
from ptanalyze.capture.vm.join import join
from ptanalyze.core.errors import CaptureError
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.snapshot import HostDump, Root, Slot, Vcpu, write_tree, write_vm
from ptanalyze_host import guests
from strategies import Page, build_topology, build_tree

# Guest tables read from outside a running QEMU, against a guest whose tables are known to the last entry.

ADDRESSES = {"header": 0x102000, "tables": 0x110000}
ROOT = ADDRESSES["tables"] >> 12


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
    with suppress(OSError), monitor(socket) as ask:  # it may not listen yet
        return registers(ask)[0].levels > 0
    return False


def dump(pid, socket, place):
    """dump_guest_tables of the VMM `pid` by what its monitor says."""
    with monitor(socket) as ask, open_process(pid) as vmm:
        return guests.dump_guest_tables(vmm, place, slots(ask), registers(ask))


@pytest.fixture(scope="module", params=[4, 5])
def guest(request, tmp_path_factory):
    """(levels, process, socket path)"""
    assert shutil.which("qemu-system-x86_64"), "install qemu-system-x86"
    where, la57 = tmp_path_factory.mktemp("guest"), ["-DLA57"] * (request.param == 5)
    command = ["gcc", "-m32", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-Ttext=0x103000"]
    command += [f"-Wl,--section-start=.{name}={at:#x}" for name, at in ADDRESSES.items()]
    command += ["-Wl,-z,max-page-size=4096", *la57, "-o", where / "guest", PROGRAMS / "guest.S"]
    subprocess.run(command, check=True, capture_output=True)
    with qemu(where, where / "guest") as (process, socket):
        yield request.param, process, socket


def test_the_tables_of_a_running_guest_are_those_it_was_built_with(guest, tmp_path):
    levels, process, socket = guest
    made, lines = dump(process.pid, socket, tmp_path)
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
    *_, last_but_one, last = ({k: int(row[k]) for k in np.flatnonzero(row)} for row in tree.entries)
    assert last_but_one == {0: 0xE7, 1: int(tree.frame[-1]) << 12 | 0x67}
    assert last == {0: 0x200067, 7: 0x207067, 511: 0x3FF067}
    assert [finding.name for finding in check_capture(capture) if finding.verdict == FAILED] == []


def test_what_was_not_followed_and_the_kernels_half_are_told(guest, tmp_path):
    levels, process, socket = guest
    made, _ = dump(process.pid, socket, tmp_path)
    facts = open_capture(made[0]).snapshot.facts
    seen = 1 if levels == 4 else 2
    assert facts["not_followed"] == {guests.SELF_MAP: 1, guests.SEEN: seen, guests.BEYOND: 1}
    assert facts["vcpus"] == [0] and not facts["page_table_isolation"]


def test_memory_is_read_where_the_monitor_says_and_nowhere_else(guest):
    _, process, socket = guest
    with monitor(socket) as ask:
        parts = slots(ask)
    with open_process(process.pid) as vmm, guests.GuestMemory(vmm, parts) as memory:
        assert memory.read(ADDRESSES["header"], 4) == (0x1BADB002).to_bytes(4, "little")
        end = max(slot.gpa + slot.bytes for slot in parts if slot.gpa < 1 << 31)
        assert memory.read(end - 4096, 4096) is not None
        for gpa in (end, end - 8, 1 << 45, 0xFEC00000):
            assert memory.read(gpa, 4096) is None


MEMORY = 64 << 20
POOL = range(ROOT, ROOT + 24)  # frames that hold hostile tables
EDGES = (0, 1, 2, 255, 256, 300, 511)  # slots of both halves, and the last of each


def hostile_tables(chance, inside=False):
    """{frame: {slot: entry}}: cycles, self-references, reserved bits, frames beyond memory, huge pages.

    inside: none of the latter two, so that the host maps what the guest does
    """
    beyond = [chance.choice(POOL)] if inside else [chance.getrandbits(40), MEMORY >> 12]
    odd = [1] if inside else [0xE7, 0x80, chance.getrandbits(12)]

    def entry():
        frame = chance.choice((chance.choice(POOL), chance.choice(POOL), *beyond))
        outside = [1 << 51 | 1 << 46] * (not inside)
        high = chance.choice((0, 0, 1 << 63, *outside, chance.getrandbits(12) << 52))
        return frame << 12 | chance.choice((0x67, 0x67, 0x67, *odd)) | high

    return {frame: {slot: entry() for slot in chance.sample(EDGES, 4)} for frame in POOL}


class GuestWriter:
    """Writes to a guest's memory from outside of it, and puts back what was there."""

    def __init__(self, vmm, slots):
        low = next(slot for slot in slots if slot.gpa == 0)
        self.first, self.bytes = low.hva + (POOL[0] << 12), len(POOL) << 12
        self.file = os.open(f"/proc/{vmm}/mem", os.O_RDWR)
        self.before = os.pread(self.file, self.bytes, self.first)

    def write(self, tables):
        for frame, entries in tables.items():
            page = np.zeros(512, "<u8")
            page[list(entries)] = list(entries.values())
            os.pwrite(self.file, page.tobytes(), self.first + (frame - POOL[0] << 12))

    def close(self):
        os.pwrite(self.file, self.before, self.first)
        os.close(self.file)


@pytest.fixture
def hostile(guest, monkeypatch):
    """(levels, VMM's PID, socket, GuestWriter); each read of the VMM's memory is of a slot of the guest's."""
    levels, process, socket = guest
    with monitor(socket) as ask:
        parts = slots(ask)
    writer, pread = GuestWriter(process.pid, parts), os.pread

    def watched(file, n, at):
        inside = any(slot.hva <= at and at + n <= slot.hva + slot.bytes for slot in parts)
        assert inside or not os.readlink(f"/proc/self/fd/{file}").endswith("/mem"), hex(at)
        return pread(file, n, at)

    monkeypatch.setattr(os, "pread", watched)
    yield levels, process.pid, socket, writer
    monkeypatch.undo()
    writer.close()


def host_of_all(where):
    """A dump of a host that maps all of the guest's memory 1:1 by 2 MiB."""
    pages = [Page(at, at >> 12, 2) for at in range(0, MEMORY, 2 << 20)]
    tree = build_tree(pages, count(1 << 20), encoding="ept")
    root = int(tree.frame[0])
    vcpus = tuple(Vcpu(tid=9 + i, cpu=i, node=i, root=root) for i in range(2))
    slots = (Slot(gpa=0, bytes=MEMORY, hva=1 << 40),)
    roots = (Root(frame=root, kind="tdp_mmu", table=0),)
    where.mkdir()
    write_tree(where, "ept", tree)
    write_vm(where, HostDump(tree, build_topology(2), slots, vcpus=vcpus, roots=roots, facts={"pid": 7}))
    return where


def wrong(capture):
    return [finding.name for finding in check_capture(capture) if finding.verdict == FAILED]


def joined(host, guest, where):
    """True if they became a capture, without a failed check; False if they were refused in a line."""
    try:
        join(host, guest, where)
    except CaptureError as error:
        assert len(str(error).splitlines()) == 1 and not where.exists()
        return False
    assert wrong(open_capture(where)) == []
    return True


def test_hostile_tables_in_a_real_guest_become_what_the_naive_reader_keeps_of_them(hostile, tmp_path):
    levels, vmm, socket, writer = hostile
    host, reasons, fits = host_of_all(tmp_path / "host"), set(), set()
    for seed in range(12):
        memory = hostile_tables(random.Random(seed), inside=seed % 4 == 0)
        writer.write(memory)
        expected, _, dropped = naive(Everywhere(memory), ROOT, levels, 1 << 20)
        place = tmp_path / f"d{seed}"
        place.mkdir()
        made, lines = dump(vmm, socket, place)
        capture = open_capture(made[0])
        tree = capture.snapshot.guest
        rows = zip(*(getattr(tree, c).tolist() for c in ("base", "frame", "parent", "level")), strict=True)
        assert list(rows) == expected and capture.snapshot.facts["not_followed"] == dropped
        assert sum("not followed" in line for line in lines) == len(dropped)
        assert wrong(capture) == []
        reasons |= dropped.keys()
        fits.add(joined(host, made[0], place / "vm"))
    assert reasons == {guests.SELF_MAP, guests.SEEN, guests.BEYOND} and fits == {False, True}


class Everywhere(dict):
    """The hostile tables, and zeros in all other memory of the guest: its QEMU has nothing else there."""

    def __contains__(self, frame):
        return frame < MEMORY >> 12

    def __missing__(self, frame):
        return {}


def test_tables_that_change_while_they_are_read_become_a_closed_tree(hostile, tmp_path):
    _, vmm, socket, writer = hostile
    chance, ends = random.Random(1), threading.Event()
    some = [hostile_tables(chance) for _ in range(8)]

    def change():
        while not ends.is_set():
            writer.write(chance.choice(some))

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for k in range(10):
            place = tmp_path / f"d{k}"
            place.mkdir()
            made, _ = dump(vmm, socket, place)
            assert [wrong(open_capture(one)) for one in made] == [[]] * len(made)
    finally:
        ends.set()
        changing.join()


# vCPUs, slots and guest tables of any VMM, by KVM alone.

SIZE = 64 * MIB
CR3 = 0x1000  # of vm_guest.c, whose 512 GiB map the first, and 1 GiB + SIZE of that 2 MiB pages
BIOS = Path("/usr/share/seabios/bios-256k.bin")


@pytest.fixture(scope="module")
def vmm(vmm):
    need_kvm()
    return vmm


@contextmanager
def paused_qemu(where, name, *options):
    """(PID, QMP socket) of a QEMU that has made its VM and waits before the first instruction."""
    socket = where / "qmp"
    command = ["qemu-system-x86_64", "-accel", "kvm", "-S", "-cpu", "qemu64", "-nodefaults"]
    command += ["-display", "none"]
    command += ["-name", f"guest={name},debug-threads=on", "-qmp", f"unix:{socket},server=on,wait=off"]
    with open(where / "said", "w") as said:
        process = subprocess.Popen([*command, *options], stdout=said, stderr=said)
    try:
        end = time.monotonic() + 60
        while not socket.exists():
            assert process.poll() is None and time.monotonic() < end, (where / "said").read_text()
            time.sleep(0.05)
        with monitor(socket):  # it answers
            pass
        yield process.pid, socket
    finally:
        process.kill()
        process.wait()


def backend(kind, size, more=""):
    memory = f"memory-backend-{kind},id=m0,size={size}{more}"
    return ["-m", size, "-object", memory, "-numa", "node,memdev=m0"]


VARIANTS = {
    "anonymous": ["-m", "256M"],
    "memfd, above 4 GiB": ["-machine", "q35,smm=off", *backend("memfd", "5G", ",share=on,reserve=off")],
    "file": backend("file", "256M", ",share=on,mem-path={where}/memory"),
    "NUMA-bound": backend("ram", "256M", ",host-nodes=0,policy=bind"),
    "pflash": ["-drive", f"if=pflash,format=raw,readonly=on,file={BIOS}"],
    "balloon, virtio-mem": [
        "-m", "256M,maxmem=4G", "-device", "virtio-balloon-pci",
        "-object", "memory-backend-ram,id=more,size=1G,reserve=off",
        "-device", "virtio-mem-pci,memdev=more,requested-size=512M",
    ],
}  # fmt: skip


@needs_root
@pytest.mark.parametrize("variant", VARIANTS)
def test_slots_of_every_kind_of_memory_are_where_qemus_monitor_says(tmp_path, variant):
    need_kvm()
    assert shutil.which("qemu-system-x86_64"), "install qemu-system-x86"
    options = [word.format(where=tmp_path) for word in VARIANTS[variant]]
    with paused_qemu(tmp_path, "lone-guest", *options) as (pid, socket):
        parts, _ = guests.kvm_vcpus(pid)
        with monitor(socket) as ask:
            expected = {(slot.gpa, slot.bytes, slot.hva) for slot in slots(ask)}
        assert expected <= {(slot.gpa, slot.bytes, slot.hva) for slot in parts}
        above = variant in ("memfd, above 4 GiB", "balloon, virtio-mem")
        assert any(slot.gpa >= 1 << 32 for slot in parts) == above
        with open_process(pid) as process, guests.GuestMemory(process, parts) as memory:
            assert memory.read((1 << 32) - 4096, 4096) == BIOS.read_bytes()[-4096:]


@pytest.fixture(scope="module")
def vm(vmm):
    """It uses a CPU until the last test is over: those that do without it come first."""
    with running(vmm, 64, 4096, 1, "spin") as (process, words):
        yield process.pid, {name: int(value) for name, value in words.items()}


@needs_root
def test_registers_and_slots_are_those_that_the_vmm_set(vm):
    pid, words = vm
    (parts, *_), samples = zip(*(guests.kvm_vcpus(pid) for _ in range(3)), strict=True)
    assert [(slot.gpa, slot.bytes, slot.hva) for slot in parts] == [
        (0, LOW, words["low"]), (HIGH, SIZE, words["high"]),
    ]  # fmt: skip
    assert len(samples) == 3
    for (vcpu,) in samples:
        assert (vcpu.vcpu, vcpu.cr3, vcpu.levels, vcpu.root) == (0, CR3, 4, 1)
        assert Path(f"/proc/{pid}/task/{vcpu.tid}").exists()


@needs_root
@pytest.mark.parametrize(
    "words",
    [["vcpus"], ["vcpus", "1", "-o", "x"], ["vcpus", "1", "--verify"], ["vcpus", "1", "--retries", "x"]],
)
def test_wrong_use_of_vcpus_is_refused(vmm, tmp_path, words):
    done = subprocess.run([PTDUMP, *words], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2 and not any(tmp_path.iterdir())


@needs_root
@pytest.mark.parametrize("cr3", [(), (CR3,), (CR3 | 0x18,)])
def test_a_dump_has_the_guests_tables(vm, tmp_path, cr3):
    guests.dump_vm(vm[0], tmp_path / "d", guest=not cr3, cr3=cr3)
    capture = open_capture(tmp_path / "d/cr3-1")
    assert capture.snapshot.facts["method"] == "kvm" and not capture.snapshot.guest.flags.any()
    # all 256 entries of the root's half lead to one table: the first is followed, the others are dropped
    assert capture.snapshot.guest.level.tolist() == [4, 3, 2, 2]
    assert capture.snapshot.facts["not_followed"] == {"seen before": 255}


@needs_root
def test_a_root_that_is_no_memory_is_said(vm, tmp_path):
    lines = guests.dump_vm(vm[0], tmp_path / "d", cr3=[1 << 45])
    assert any("gone before it was read" in line for line in lines)
