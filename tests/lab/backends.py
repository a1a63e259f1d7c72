"""VMMs as people run them: where QEMU has the guest's memory, and what else has memory slots."""

import shlex
from dataclasses import dataclass

import numpy as np

from .touched import DEFAULT, Policy

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
        line += [
            "-cpu",
            "host",
            "-m",
            f"{self.mib}M{self.maxmem}",
            "-nodefaults",
            "-display",
            "none",
            "-no-reboot",
        ]
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
