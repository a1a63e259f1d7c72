"""The emulated NUMA host: its QEMU command line, the truth that a dumper must find out."""

from dataclasses import dataclass

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
