"""Nested tables of VMMs with every kind of memory, all in one emulated host, against its raw memory."""

import json
import shlex
import shutil
from dataclasses import dataclass

import numpy as np
import pytest

from ptanalyze.formats.snapshot import read_vm

from . import images
from .checks import equal_raw_memory, snapshot_of
from .nested import HOST, TRIES, walked_tree
from .runs import a_place, boot
from .touched import DEFAULT, Policy, magic, translate

# VMMs as people run them: where QEMU has the guest's memory, and what else has memory slots.

STEP = 0x101000  # of programs/pages.S
FIRST = 16 * STEP


@dataclass(frozen=True)
class Backend:
    """Options of a VMM whose guest is programs/pages.S.

    options  of QEMU, beside what all have
    mib      of memory
    machine  QEMU's -machine
    maxmem   up to which memory may be added
    nodes    where the guest's memory must be on the host, by halves of it; () wherever
    huge     nested leaves are of 2 MiB
    policy   of the VMM
    """

    options: tuple[str, ...]
    mib: int = 128
    machine: str = "pc,smm=off"
    maxmem: str = ""
    nodes: tuple[int, ...] = ()
    huge: bool = False
    policy: Policy = DEFAULT

    def command(self, name):
        """A line of shell that becomes the VMM."""
        line = ["exec", "/tmp/placed", str(self.policy), "qemu-system-x86_64", "-L", "/usr/share/qemu"]
        line += ["-name", f"guest={name},debug-threads=on", "-machine", self.machine, "-accel", "kvm"]
        line += ["-cpu", "host", "-m", f"{self.mib}M{self.maxmem}"]
        line += ["-nodefaults", "-display", "none", "-no-reboot"]
        line += ["-kernel", "/mnt/pages", "-debugcon", f"file:/tmp/{name}.said", *self.options]
        return shlex.join(line)


def memory(kind, more="", mib=128):
    """Options for one backend that holds all memory."""
    return ("-object", f"memory-backend-{kind},id=m0,size={mib}M{more}", "-numa", "node,memdev=m0")


def bound(mib=128):
    """Options for two backends, guest node i on host node 3 - i."""
    objects = [
        ["-object", f"memory-backend-ram,id=m{i},size={mib // 2}M,host-nodes={3 - i},policy=bind"]
        for i in (0, 1)
    ]
    nodes = [["-numa", "node,nodeid=0,cpus=0,memdev=m0"], ["-numa", "node,nodeid=1,memdev=m1"]]
    return tuple(word for words in (*objects, *nodes) for word in words)


BACKENDS = {
    "anonymous": Backend(()),
    "memfd": Backend(memory("memfd", ",share=on")),
    "hugetlb": Backend(memory("memfd", ",hugetlb=on,hugetlbsize=2M"), huge=True),
    "file": Backend(memory("file", ",share=on,mem-path=/tmp/backing")),
    "numa-bound": Backend(bound(), nodes=(3, 2)),
    "above-4g": Backend(memory("memfd", ",share=on,reserve=off", 4608), 4608, "q35,smm=off"),
    "smm": Backend((), machine="q35,smm=on"),
    "pflash": Backend(("-drive", "if=pflash,format=raw,readonly=on,file=/usr/share/qemu/bios-256k.bin")),
    "balloon-virtio-mem": Backend(
        (
            *("-device", "virtio-balloon-pci"),
            *("-object", "memory-backend-ram,id=more,size=1G,reserve=off"),
            *("-device", "virtio-mem-pci,memdev=more,requested-size=0"),
        ),
        maxmem=",maxmem=2G",
    ),
}


def expected(slots, above):
    """uint64[n]: guest-physical addresses that pages.S writes, by the slots: where it is memory, not ROM.

    above  it has memory above 4 GiB that it knows of. The last MiB of a slot may be ACPI's.
    """
    at = np.arange(FIRST, 8 << 30, STEP, dtype=np.uint64)
    kept = np.zeros(len(at), bool)
    for slot in slots:
        if slot.space == 0 and not slot.flags & 2:
            kept |= (at >= slot.gpa) & (at < slot.gpa + slot.bytes - (1 << 20))
    return at[kept & (above | (at < 1 << 32))]


# Their nested tables.

TABLES = 0x110000  # of pages.S, as it is linked
LIMIT = 1800  # seconds: the end of a machine that hangs, however busy this one is
FIRMWARE_END, READ_ONLY = 1 << 32, 2  # KVM_MEM_READONLY


@pytest.fixture(scope="module")
def run(kernel, ptdump, programs, request):
    qemu = shutil.which("qemu-system-x86_64")
    image = images.initramfs(kernel, ["kvm_amd"], [qemu], [ptdump], images.bios_files())
    files = {
        "script": images.LAB / "scripts/backends.sh",
        "ptdump": ptdump,
        "placed": programs / "placed",
        "pages": programs / "pages",
    }
    files |= {f"vmms/{name}/vmm": backend.command(name) for name, backend in BACKENDS.items()}
    with a_place("backends", request.config.getoption("--lab-keep", None)) as place:
        yield boot("backends", HOST, kernel, image, files, place, limit=LIMIT, tries=TRIES)


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.lab(full=True)) for name in BACKENDS]
)
def vmm(run, request):
    """(Backend, Run, HostDump, Snapshot of the VMM, its directory)"""
    place = run.share / "vmms" / request.param
    for what in ("vm", "process"):
        assert (place / f"{what}.status").read_text() == "0\n", (place / f"{what}.output").read_text()
    return BACKENDS[request.param], run, read_vm(place / "vm"), snapshot_of(place / "process"), place


def test_nested_tables_are_those_in_raw_memory_and_map_the_vmms_own_pages(vmm):
    _, run, host, own, _ = vmm
    assert (host.tree.node == run.ram.node(host.tree.frame)).all()
    equal_raw_memory(host.tree, host.tree.frame, run.ram, user_half=False)
    equal_raw_memory(own.guest, own.guest.frame, run.ram)
    tree, pages = walked_tree(host), 0
    for slot in host.slots:
        if slot.space:
            continue
        within = np.arange(0, slot.bytes, 4096, dtype=np.uint64)
        frames = translate(tree, within + np.uint64(slot.gpa))[0]
        virtual = translate(own.guest, within + np.uint64(slot.hva))[0]
        mapped = frames >= 0
        assert (frames[mapped] == virtual[mapped]).all(), slot
        pages += np.count_nonzero(mapped)
    assert pages


def test_what_the_guest_wrote_is_found_through_the_nested_tables(vmm):
    backend, run, host, _, place = vmm
    at = expected(host.slots, place.name == "above-4g")
    frames, level, _ = translate(walked_tree(host), at)
    assert len(at) > (backend.mib << 20) // STEP - 24 and (frames >= 0).all()
    assert (run.ram.first_words(frames) == magic(at)).all()
    assert set(level) == ({2} if backend.huge else {1})
    if backend.nodes:
        assert (run.ram.node(frames) == np.array(backend.nodes)[(at >= backend.mib << 19).astype(int)]).all()


def test_slots_are_those_of_the_variant(vmm):
    _, _, host, _, place = vmm
    memory, sample = map(json.loads, (place / "vcpus").read_text().splitlines())
    assert [vcpu["cr3"] for vcpu in sample["vcpus"]] == [TABLES]
    assert [slot["gpa"] for slot in memory["slots"]] == [slot.gpa for slot in host.slots]
    high = [slot for slot in host.slots if slot.gpa >= 1 << 32]
    assert bool(high) == (place.name in ("above-4g", "balloon-virtio-mem"))
    assert {slot.space for slot in host.slots} == ({0, 1} if place.name == "smm" else {0})
    assert any(slot.gpa + slot.bytes == FIRMWARE_END and slot.flags & READ_ONLY for slot in host.slots)
