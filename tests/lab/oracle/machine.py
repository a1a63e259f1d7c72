"""An emulated machine of four nodes that stops on demand: its console, its QMP socket, its memory."""

import json
import re
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from lab.machine import Machine, Ram

NODES, NODE_MIB, LIMIT = 4, 256, 600
OPTIONS = (
    "console=ttyS0 hydra numa_balancing=disable nowatchdog tsc=reliable panic=-1 oops=panic loglevel=5 "
    "nopti mitigations=off rcupdate.rcu_cpu_stall_timeout=300"
)


def command(kernel, initramfs, directory, cpus):
    """QEMU's; CPU c is on node c % 4, node n's memory is the file n of the directory."""
    machine = Machine(NODES, NODE_MIB)
    found = ["qemu-system-x86_64", "-machine", "q35,hpet=off", "-accel", "tcg,thread=multi,tb-size=128"]
    found += ["-cpu", "max,la57=off,-pcid,-invpcid", "-smp", f"{cpus},sockets={cpus},cores=1,threads=1"]
    found += ["-m", f"{machine.bytes >> 20}M", "-nodefaults", "-display", "none", "-no-reboot"]
    found += ["-kernel", kernel, "-initrd", initramfs, "-append", OPTIONS]
    found += ["-chardev", f"socket,id=s,path={directory}/serial,server=on,wait=on", "-serial", "chardev:s"]
    found += ["-qmp", f"unix:{directory}/qmp,server=on,wait=off"]
    for n in range(NODES):
        memory = f"memory-backend-file,id=m{n},size={NODE_MIB}M,share=on,mem-path={directory}/{n}"
        here = ",".join(f"cpus={c}" for c in range(n, cpus, NODES))
        found += ["-object", memory, "-numa", f"node,nodeid={n},{here},memdev=m{n}"]
        for m in range(n):
            found += ["-numa", f"dist,src={m},dst={n},val={machine.distance(m, n)}"]
    return found


class Running:
    """A booted machine; its memory is less than 2.75 GiB, so that it has no hole."""

    def __init__(self, directory):
        self.console = connected(directory / "serial")
        self.console.settimeout(LIMIT)
        self.qmp = connected(directory / "qmp").makefile("rw")
        self.qmp.readline()
        self.ask("qmp_capabilities")
        self.ram = Ram(Machine(NODES, NODE_MIB), directory)

    def ask(self, what, **arguments):
        self.qmp.write(json.dumps({"execute": what, "arguments": arguments}) + "\n")
        self.qmp.flush()
        while True:
            answer = json.loads(self.qmp.readline())
            if "error" in answer:
                raise RuntimeError(f"QEMU: {what}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]

    def lines(self):
        """Iterate the lines of the console until the machine is off."""
        rest = b""
        while data := self.console.recv(65536):
            *whole, rest = (rest + data).split(b"\n")
            yield from (line.decode("latin1").strip() for line in whole)

    @contextmanager
    def stopped(self):
        """Frame of the root table of each CPU, while it is stopped."""
        self.ask("stop")
        try:
            registers = self.ask("human-monitor-command", **{"command-line": "info registers -a"})
            yield [int(cr3, 16) >> 12 for cr3 in re.findall(r"CR3=([0-9a-f]+)", registers)]
        finally:
            self.ask("cont")

    def go_on(self):
        self.console.sendall(b"g\n")


def connected(path):
    found = socket.socket(socket.AF_UNIX)
    for _ in range(300):
        try:
            found.connect(str(path))
            return found
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{path}: QEMU did not open it within 30 s")


@contextmanager
def booted(kernel, initramfs, cpus):
    directory = Path(tempfile.mkdtemp(prefix="oracle-", dir="/dev/shm"))
    machine = subprocess.Popen(command(str(kernel), str(initramfs), directory, cpus))
    try:
        yield Running(directory)
    finally:
        machine.terminate()
        machine.wait()
        shutil.rmtree(directory)
