"""QEMU's machine protocol, the part needed to read a guest from outside. Nothing here changes the guest."""

import json
import os
import re
import socket
from dataclasses import dataclass
from typing import Any, Self

from ...core.errors import UsageError
from ...core.safe_files import Undecodable, plain_json
from ...formats.snapshot import Slot

TIMEOUT_S = 30
ROOT_MASK = (1 << 40) - 1  # of CR3 >> 12
MOST_BYTES = 1 << 26  # of an answer
MOST_VCPUS = 4096
REGISTER = re.compile(r"\b(CR0|CR3|CR4|EFER)=([0-9a-fA-F]{1,16})\b")
FLAT_VIEW = re.compile(r"^FlatView #\d+\n(.*?)(?=^FlatView|\Z)", re.M | re.S)
RAM = re.compile(r"^\s*([0-9a-f]{16})-([0-9a-f]{16}) \(prio -?\d+, (ram|rom|nv-ram)\)", re.M)
HOST_ADDRESS = re.compile(r"is (0x[0-9a-f]{1,16})\b")


@dataclass(frozen=True)
class Registers:
    """Control registers of a vCPU, and its thread in the VMM."""

    vcpu: int
    tid: int
    cr0: int
    cr3: int
    cr4: int
    efer: int

    @property
    def levels(self) -> int:
        """5 with CR4.LA57, else 4; 0 outside 64-bit mode, where tables have another form."""
        long_mode = self.efer >> 10 & 1 and self.cr0 >> 31 & 1
        return 0 if not long_mode else 5 if self.cr4 >> 12 & 1 else 4

    @property
    def root(self) -> int:
        """Page frame of the root table; PCID, LAM and no-flush bits left out (Intel SDM 3A, 4.5)."""
        return self.cr3 >> 12 & ROOT_MASK


class Qmp:
    """A connection to QEMU's QMP socket. UsageError, naming the socket, for every failure."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(TIMEOUT_S)
        self.lines = self.socket.makefile("rb")
        try:
            self.socket.connect(str(path))
            if "QMP" not in self.answer():
                raise UsageError(
                    f"{path}: not a QMP socket; start QEMU with -qmp unix:{path},server=on,wait=off"
                )
            self.execute("qmp_capabilities")
        except OSError as error:
            self.close()
            raise UsageError(f"{path}: cannot talk to QEMU: {error.strerror or error}") from None
        except UsageError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.lines.close()
        self.socket.close()

    def answer(self) -> dict[str, Any]:
        """The next JSON object from QEMU."""
        try:
            line = self.lines.readline(MOST_BYTES)
        except OSError as error:
            raise UsageError(f"{self.path}: QEMU does not answer: {error.strerror or error}") from None
        try:
            value = plain_json(line)
        except Undecodable:
            value = None
        if not isinstance(value, dict):
            raise UsageError(f"{self.path}: not a QMP answer: {line[:60]!r}; is this QEMU's QMP socket?")
        return value

    def execute(self, command: str, **arguments: Any) -> Any:
        """The return value of `command`; events before it are skipped."""
        request = {"execute": command, **({"arguments": arguments} if arguments else {})}
        try:
            self.socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise UsageError(f"{self.path}: QEMU is gone: {error.strerror or error}") from None
        while True:
            value = self.answer()
            if "return" in value:
                return value["return"]
            if "error" in value:
                raise UsageError(f"{self.path}: {command}: {describe(value['error'])}")

    def monitor(self, line: str, **arguments: Any) -> str:
        """Text that the human monitor prints for `line`."""
        said = self.execute("human-monitor-command", **{"command-line": line, **arguments})
        return said if isinstance(said, str) else ""


def describe(error: object) -> str:
    return str(error.get("desc", error)) if isinstance(error, dict) else str(error)


def registers(qmp: Qmp) -> list[Registers]:
    """[Registers] of every vCPU, in the order of vCPU numbers."""
    cpus = qmp.execute("query-cpus-fast")
    if not isinstance(cpus, list) or not 0 < len(cpus) <= MOST_VCPUS:
        raise UsageError(f"{qmp.path}: query-cpus-fast names no vCPUs")
    vcpus = []
    for cpu in cpus:
        try:
            number, tid = int(cpu["cpu-index"]), int(cpu["thread-id"])
        except (KeyError, TypeError, ValueError):
            raise UsageError(f"{qmp.path}: query-cpus-fast: {str(cpu)[:60]} is no vCPU") from None
        said = dict(REGISTER.findall(qmp.monitor("info registers", **{"cpu-index": number})))
        if len(said) != 4:
            raise UsageError(
                f"{qmp.path}: info registers of vCPU {number} shows no CR0, CR3, CR4 and EFER; is it x86?"
            )
        vcpus.append(Registers(number, tid, *(int(said[name], 16) for name in ("CR0", "CR3", "CR4", "EFER"))))
    return sorted(vcpus, key=lambda vcpu: vcpu.vcpu)


def slots_of(qmp: Qmp) -> tuple[Slot, ...]:
    """(Slot, ...) of the guest's memory and where QEMU has it, from the monitor: also without KVM."""
    text = qmp.monitor("info mtree -f").replace("\r", "")
    views = [view for view in FLAT_VIEW.findall(text) if re.search(r'^ AS "memory"', view, re.M)]
    slots = []
    for first, last, _ in RAM.findall(views[0] if views else ""):
        start, end = int(first, 16), int(last, 16) + 1
        said = HOST_ADDRESS.search(qmp.monitor(f"gpa2hva {start:#x}"))
        if said and not start % 4096 and not end % 4096 and start < end:
            slots.append(Slot(gpa=start, bytes=end - start, hva=int(said[1], 16)))
    if not slots:
        raise UsageError(f"{qmp.path}: the monitor shows no guest memory (info mtree -f, gpa2hva)")
    return tuple(slots)
