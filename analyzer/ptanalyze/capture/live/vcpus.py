"""Control registers of a guest's vCPUs and its memory slots, as KVM has them, of any VMM (`ptdump vcpus`)."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from ...core.errors import PartialDataError, UsageError
from ...formats.vm_file import Slot
from .native import native
from .qmp import Qmp, Registers, registers, slots_of

EVERY_MS = 100


def kvm_vcpus(
    pid: int, samples: int = 1, vm: int | None = None
) -> tuple[tuple[Slot, ...], list[list[Registers]]]:
    """(memory slots, [[Registers] of the vCPUs of each sample]) of the VM of VMM `pid`, EVERY_MS apart.

    vm  the VM's file descriptor in the VMM, needed only if that holds several VMs

    CR3 is what KVM last saw: with NPT at the vCPU's last exit, with EPT sometimes earlier. UsageError if
    `pid` is no VMM, its VM cannot be read, or its memory is encrypted; PartialDataError if it ended.
    """
    command = [str(native("ptdump")), "vcpus", str(pid), "--samples", str(samples), "--every", str(EVERY_MS)]
    if vm is not None:
        command += ["--vm", str(vm)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        why = done.stderr.strip().removeprefix("ptdump: ") or f"ptdump ended with {done.returncode}"
        raise (PartialDataError if done.returncode == 3 else UsageError)(why)
    memory, *seen = (json.loads(line) for line in done.stdout.splitlines())
    if secret := memory["confidential"]:
        raise UsageError(f"PID {pid}: a confidential guest ({secret}): its memory is encrypted")
    slots = tuple(Slot(**slot) for slot in memory["slots"] if slot["space"] == 0)
    return slots, [registers_of(sample["vcpus"]) for sample in seen]


def look(
    pid: int,
    socket: str | os.PathLike[str] | None,
    samples: int = 1,
    vm: int | None = None,
    slots: Sequence[Slot] | None = None,
) -> tuple[Sequence[Slot], list[list[Registers]]]:
    """The same.

    socket  QMP socket of QEMU, whose monitor then tells instead of KVM
    slots   those of the VM, where they are known
    """
    if socket is None:
        known, seen = kvm_vcpus(pid, samples, vm)
        return known if slots is None else slots, seen
    with Qmp(socket) as qmp:
        seen = [registers(qmp)]
        slots = slots_of(qmp) if slots is None else slots
        for _ in range(samples - 1):
            time.sleep(EVERY_MS / 1000)
            seen.append(registers(qmp))
    return slots, seen


def registers_of(vcpus: list[dict[str, Any]]) -> list[Registers]:
    return sorted((Registers(**vcpu) for vcpu in vcpus), key=lambda one: one.vcpu)
