"""The emulated NUMA host: its QEMU command line, the truth that a dumper must find out."""

import shlex
from dataclasses import dataclass

import numpy as np

from .touched import DEFAULT, Policy

# AMD's nested paging as KVM wants it, without what TCG warns that it does not have.
SVM_CPU = (
    "EPYC-v1,+svm,+npt,-sha-ni,-fxsr-opt,-misalignsse,-3dnowprefetch,-osvw,-topoext,-nrip-save,-xsavec,"
    "-rdseed"
)
KERNEL_OPTIONS = (
    "console=ttyS0 mitigations=off nowatchdog tsc=reliable loglevel=4 panic=-1 oops=panic "
    "rcupdate.rcu_cpu_stall_timeout=21 sysctl.kernel.panic_on_rcu_stall=1"
)


@dataclass(frozen=True)
class Machine:
    """`nodes` NUMA nodes of one CPU and `node_mib` each; `fast` boots the uncompressed kernel (no KASLR)."""

    nodes: int = 4
    node_mib: int = 1024
    cpu: str = "max,la57=off"
    fast: bool = False
    options: str = "numa_balancing=disable"

    @property
    def node_bytes(self):
        return self.node_mib << 20

    @property
    def bytes(self):
        return self.nodes * self.node_bytes

    def distance(self, a, b):
        return 10 if a == b else 20 + abs(a - b)

    def qemu(self, kernel, initramfs, share, ram, log):
        """Command line; node i's memory is the shared file `ram`/i, the directory `share` appears on /mnt."""
        count = self.nodes
        command = ["qemu-system-x86_64", "-machine", "q35,hpet=off", "-accel", "tcg,thread=multi,tb-size=512"]
        command += ["-cpu", self.cpu, "-smp", f"{count},sockets={count},cores=1,threads=1"]
        command += ["-m", f"{self.bytes >> 20}M", "-nodefaults", "-display", "none", "-no-reboot"]
        command += ["-kernel", kernel.elf if self.fast else kernel.image, "-initrd", initramfs]
        command += ["-append", f"{KERNEL_OPTIONS} {self.options}", "-serial", f"file:{log}"]
        command += ["-virtfs", f"local,path={share},mount_tag=share,security_model=none,id=share"]
        for i in range(count):
            memory = f"memory-backend-file,id=m{i},size={self.node_mib}M,share=on,mem-path={ram / str(i)}"
            command += ["-object", memory, "-numa", f"node,nodeid={i},cpus={i},memdev=m{i}"]
            for j in range(i):
                command += ["-numa", f"dist,src={j},dst={i},val={self.distance(j, i)}"]
        return command


# The emulated machine's raw memory, seen from outside.

FOUR_GIB = 1 << 32
PAGE = 4096


class Ram:
    """Guest-physical pages of a Machine after it ran: `directory`/i holds the memory of node i.

    The q35 board leaves a hole below 4 GiB (QEMU hw/i386/pc_q35.c): of 2.75 GiB or more, what is beyond the
    first 2 GiB begins at 4 GiB.
    """

    def __init__(self, machine, directory):
        self.node_pages = machine.node_bytes // PAGE
        self.low = min(machine.bytes, 0x80000000 if machine.bytes >= 0xB0000000 else 0xB0000000) // PAGE
        self.count = machine.bytes // PAGE
        self.files = [
            np.memmap(directory / str(node), np.uint64, "r", shape=(self.node_pages, 512))
            for node in range(machine.nodes)
        ]

    def page(self, frames):
        """int64: each frame's page in the nodes' files laid end to end, -1 where there is no memory."""
        frames = np.asarray(frames, np.int64)
        high = frames >= FOUR_GIB // PAGE
        page = np.where(high, frames - FOUR_GIB // PAGE + self.low, frames)
        return np.where((frames >= 0) & (page < self.count) & (high | (frames < self.low)), page, -1)

    def node(self, frames):
        """int16: node of each frame, -1 where there is no memory."""
        page = self.page(frames)
        return np.where(page < 0, -1, page // self.node_pages).astype(np.int16)

    def tables(self, frames):
        """uint64[n, 512]: contents of page frames, all of which must be memory."""
        return self.gather(frames, slice(None))

    def first_words(self, frames):
        """uint64[n]: the first eight bytes of page frames, all of which must be memory."""
        return self.gather(frames, 0)

    def gather(self, frames, words):
        page = self.page(frames)
        if (page < 0).any():
            raise ValueError(f"frame {np.asarray(frames)[page < 0][0]:#x} is no memory of this machine")
        found = np.zeros((len(page), *self.files[0][:1, words].shape[1:]), np.uint64)
        for node, file in enumerate(self.files):
            here = page // self.node_pages == node
            found[here] = file[page[here] % self.node_pages, words]
        return found


# The KVM guest inside the emulated host: its VMM's command line and the layout of its memory.

GUEST_OPTIONS = (
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
        line += ["-name", "guest,debug-threads=on", "-machine", "pc,smm=off,usb=off,hpet=off"]
        line += ["-accel", "kvm"]
        line += ["-cpu", "host", "-smp", f"{self.cpus},sockets={self.cpus},cores=1,threads=1"]
        line += ["-m", f"{self.mib}M", "-nodefaults", "-display", "none", "-no-reboot"]
        line += ["-kernel", "/mnt/vmlinux", "-initrd", "/mnt/guest.cpio", "-append", GUEST_OPTIONS]
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
