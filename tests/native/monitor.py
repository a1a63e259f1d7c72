"""What QEMU's monitor says of a guest, by its QMP socket: registers of its vCPUs, where its memory is."""

import json
import re
import socket
from contextlib import contextmanager

from ptanalyze.formats.snapshot import Slot
from ptanalyze_host.guests import Registers

REGISTER = re.compile(r"\b(CR0|CR3|CR4|EFER)=([0-9a-fA-F]{1,16})\b")
RAM = re.compile(r"^\s*([0-9a-f]{16})-([0-9a-f]{16}) \(prio -?\d+, (?:ram|rom|nv-ram)\)", re.M)


@contextmanager
def monitor(path):
    """ask(command, **arguments): what QEMU returns; ask(line=...): text of the human monitor."""
    with socket.socket(socket.AF_UNIX) as link, link.makefile("rw") as lines:
        link.connect(str(path))
        lines.readline()  # its greeting

        def ask(command="human-monitor-command", line=None, **arguments):
            if line is not None:
                arguments["command-line"] = line
            print(json.dumps({"execute": command, "arguments": arguments}), file=lines, flush=True)
            return next(answer["return"] for answer in map(json.loads, lines) if "return" in answer)

        ask("qmp_capabilities")
        yield ask


def registers(ask):
    """[Registers] of every vCPU."""
    vcpus = []
    for cpu in ask("query-cpus-fast"):
        values = dict(REGISTER.findall(ask(line="info registers", **{"cpu-index": cpu["cpu-index"]})))
        named = (int(values[name], 16) for name in ("CR0", "CR3", "CR4", "EFER"))
        vcpus.append(Registers(cpu["cpu-index"], cpu["thread-id"], *named))
    return vcpus


def slots(ask):
    """[Slot] of the guest's memory, also without KVM."""
    views = ask(line="info mtree -f").replace("\r", "").split("FlatView #")
    view = next(text for text in views if ' AS "memory"' in text)
    found = []
    for first, last in RAM.findall(view):
        start, end = int(first, 16), int(last, 16) + 1
        host = re.search(r"is (0x[0-9a-f]{1,16})\b", ask(line=f"gpa2hva {start:#x}"))
        if host and not start % 4096 and not end % 4096:
            found.append(Slot(gpa=start, bytes=end - start, hva=int(host[1], 16)))
    return found
