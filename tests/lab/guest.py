"""The KVM guest inside the emulated host: its VMM's command line and the layout of its memory."""

import shlex
from dataclasses import dataclass

import numpy as np

from .touched import DEFAULT, Policy

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
    kvm      options of the host's KVM modules
    """

    nodes: int = 4
    cpus: int = 4
    mib: int = 1024
    bound: bool = False
    policy: Policy = DEFAULT
    host_thp: str = "never"
    kvm: str = ""

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
