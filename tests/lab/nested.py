"""A guest that ran on the emulated host, as both sides dumped it; from guest frames to host frames."""

import shutil
from dataclasses import dataclass, replace

import numpy as np

from ptanalyze.core.snapshot import NO_PARENT, Snapshot

from . import images
from .checks import snapshot_of
from .machine import SVM_CPU, Guest, Machine
from .runs import Run, boot
from .touched import arguments, read_log, translate

HOST = Machine(fast=True, cpu=SVM_CPU, options="nokaslr numa_balancing=disable quiet")
LIMIT = 900  # seconds: the end of a machine that hangs, however busy this one is
TRIES = 4  # TCG's SVM loses a vCPU now and then: a lost run is tried again, a wrong one is not
TOUCHER_BASE = 1 << 40


@dataclass(frozen=True)
class Nested:
    """A Guest that ran on HOST: its own dump `inside`, the dump of its VMM's process, what was touched."""

    guest: Guest
    run: Run
    inside: Snapshot
    vmm: Snapshot
    touched: list

    def pages(self, touched):
        """int64: guest frames of the touched addresses, by the guest's tables."""
        return translate(self.inside.guest, touched.addresses)[0]

    def by_vmm(self, frames):
        """int64: host frames of guest frames, by the VMM's own page tables: what KVM has to agree with."""
        address = np.asarray(frames, np.int64) * 4096
        size = self.guest.node_bytes
        virtual = self.memory()[address // size] + address % size
        found, _, _ = translate(self.vmm.guest, virtual.astype(np.uint64))
        assert (found >= 0).all(), "guest memory that is not mapped in the VMM"
        return found

    def memory(self):
        """int64[guest nodes]: where each node's memory begins in the VMM.

        The backends are its only mappings of that size; QEMU maps them downward one after the other.
        """
        vmas = self.vmm.vmas
        starts = vmas["start"][vmas["end"] - vmas["start"] == self.guest.node_bytes].astype(np.int64)
        assert len(starts) == self.guest.nodes, [hex(start) for start in starts]
        return starts[::-1]

    def said(self, name):
        return (self.run.share / f"{name}.output").read_text()


def run_guest(name, guest, regions, kernel, ptdump, programs, place):
    """Nested: boot `guest` on HOST with `kernel`, touch `regions` in it, dump both sides.

    The guest has this release's kernel: Linux 7.3 panics under TCG's nested SVM.
    """
    inner = images.kernel()
    plain = images.initramfs(inner, libraries_of=[ptdump])
    qemu = shutil.which("qemu-system-x86_64")
    image = images.initramfs(kernel, ["kvm_amd"], [qemu], [ptdump], images.bios_files())
    files = {
        "script": images.LAB / "scripts/nested.sh",
        "ptdump": ptdump,
        "placed": programs / "placed",
        "vmlinux": inner.elf,
        "guest.cpio": plain,
        "host.thp": guest.host_thp,
        "vcpus": str(guest.cpus),
        "vmm": guest.command(),
        "guest/stay": "a guest that powers off takes its VMM and its tables with it",
        "guest/script": images.LAB / "scripts/native.sh",
        "guest/ptdump": ptdump,
        "guest/toucher": programs / "toucher",
        "guest/toucher.arguments": arguments(TOUCHER_BASE, regions),
        "guest/ptdump.arguments": "--verify",
    }
    machine = replace(HOST, options=f"{HOST.options} {guest.kvm}")
    run = boot(f"KVM guest, {name}", machine, kernel, image, files, place, limit=LIMIT, tries=TRIES)
    for where in (run.share, run.share / "guest"):
        assert (where / "ptdump.status").read_text() == "0\n", (where / "ptdump.output").read_text()
    inside, vmm = snapshot_of(run.share / "guest/dump"), snapshot_of(run.share / "vmm.dump")
    return Nested(guest, run, inside, vmm, read_log((run.share / "guest/touched").read_text(), regions))


def walked_tree(dump):
    """The tables of the one root that all vCPUs of a HostDump walk."""
    (frame,) = {vcpu.root for vcpu in dump.vcpus}
    whole = dump.tree
    starts = np.flatnonzero(whole.parent == NO_PARENT)
    (first,) = starts[whole.frame[starts] == frame]
    last = next((start for start in starts if start > first), len(whole))
    names = ("entries", "base", "frame", "node", "level", "flags")
    columns = {name: getattr(whole, name)[first:last] for name in names}
    parent = np.maximum(whole.parent[first:last] - first, NO_PARENT)
    return replace(whole, **columns, parent=parent)


def through(tree):
    """Function from guest frames to host frames by nested tables; it asserts that all are mapped."""

    def host_frames(frames):
        found, _, _ = translate(tree, np.asarray(frames, np.uint64) << np.uint64(12))
        assert (found >= 0).all(), f"{np.count_nonzero(found < 0)} guest frames are not in the nested tables"
        return found

    return host_frames
