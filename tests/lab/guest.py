"""The KVM guest inside the emulated host: its VMM's command line, and where its memory is in that process."""

import shlex
from dataclasses import dataclass

import numpy as np

from .touched import DEFAULT, Policy, translate

KERNEL_OPTIONS = (
    "console=ttyS0 nokaslr mitigations=off numa_balancing=disable nowatchdog no_timer_check quiet loglevel=3 "
    "panic=-1 oops=panic transparent_hugepage=madvise"
)


@dataclass(frozen=True)
class Guest:
    """A guest of `cpus` vCPUs, vCPU i on host CPU i.

    nodes    of the guest; 1: it does not see the host's (NUMA-oblivious). Guest node i has vCPU i
    bound    guest node i's memory is bound to host node i
    policy   of the VMM: places its other memory and, in its vCPU threads, the nested tables
    host_thp the host's /sys/kernel/mm/transparent_hugepage/enabled
    """

    nodes: int = 4
    cpus: int = 4
    mib: int = 1024
    bound: bool = False
    policy: Policy = DEFAULT
    host_thp: str = "never"

    @property
    def node_bytes(self):
        return (self.mib << 20) // self.nodes

    def command(self):
        """A line of shell that becomes the VMM; the guest mounts the directory /mnt/guest of the host."""
        line = ["exec", "/tmp/placed", str(self.policy), "qemu-system-x86_64", "-L", "/usr/share/qemu"]
        line += [
            "-name",
            "guest,debug-threads=on",
            "-machine",
            "pc,smm=off,usb=off,hpet=off",
            "-accel",
            "kvm",
        ]
        line += ["-cpu", "host", "-smp", f"{self.cpus},sockets={self.cpus},cores=1,threads=1"]
        line += ["-m", f"{self.mib}M", "-nodefaults", "-display", "none", "-no-reboot"]
        line += ["-kernel", "/mnt/vmlinux", "-initrd", "/mnt/guest.cpio", "-append", KERNEL_OPTIONS]
        line += ["-serial", "file:/mnt/guest/console"]
        line += ["-virtfs", "local,path=/mnt/guest,mount_tag=share,security_model=none,id=share"]
        line += ["-qmp", "unix:/tmp/qmp,server=on,wait=off"]
        for i in range(self.nodes):
            where = f",host-nodes={i},policy=bind" if self.bound else ""
            cpus = f"{i}" if self.nodes > 1 else f"0-{self.cpus - 1}"
            line += ["-object", f"memory-backend-ram,id=m{i},size={self.node_bytes >> 20}M{where}"]
            line += ["-numa", f"node,nodeid={i},cpus={cpus},memdev=m{i}"]
        return shlex.join(line)

    def node(self, frames):
        """int16: guest node of each guest-physical frame; all memory is below the i440fx board's hole."""
        page = np.asarray(frames, np.int64) * 4096
        return np.where((page >= 0) & (page < self.mib << 20), page // self.node_bytes, -1).astype(np.int16)


def memory_slots(guest, vmm):
    """int64[nodes]: where each guest node's memory begins in the VMM, from the Snapshot of that process.

    The backends are its only mappings of that size; QEMU maps them downward one after the other.
    """
    vmas = vmm.vmas
    starts = vmas["start"][vmas["end"] - vmas["start"] == guest.node_bytes].astype(np.int64)
    assert len(starts) == guest.nodes, [hex(start) for start in starts]
    return starts[::-1]


def through_vmm(guest, vmm):
    """Function from guest frames to host frames, by the VMM's own page tables: KVM has to agree with it."""
    starts = memory_slots(guest, vmm)

    def host_frames(frames):
        address = np.asarray(frames, np.int64) * 4096
        node = address // guest.node_bytes
        virtual = starts[node] + address % guest.node_bytes
        found, _ = translate(vmm.guest, virtual.astype(np.uint64))
        assert (found >= 0).all(), "guest memory that is not mapped in the VMM"
        return found

    return host_frames


def through_nested_tables(tree):
    """Function from guest frames to the host's frames, by the dumped nested tables."""

    def host_frames(frames):
        found, _ = translate(tree, np.asarray(frames, np.uint64) << np.uint64(12))
        assert (found >= 0).all(), f"{np.count_nonzero(found < 0)} guest frames are not in the nested tables"
        return found

    return host_frames
