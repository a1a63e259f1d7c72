"""Dump the nested tables of a running VM from its host, by eBPF (`ptdump vm`)."""

import os
from collections.abc import Sequence

from ...core.errors import UsageError
from ...formats.record import new_capture, seal
from ...formats.snapshot import read_vm
from .dump import run_ptdump, stopping
from .guests import dump_guest_tables, kvm_vcpus
from .locate import native
from .process import open_process

KIND = "vm-host"


def dump_vm(
    pid: int,
    out: str | os.PathLike[str],
    *,
    stop: bool = False,
    max_stop: int | None = None,
    vm: int | None = None,
    guest: bool = False,
    cr3: Sequence[int] = (),
) -> list[str]:
    """Dump the VM of the VMM process `pid` into the new capture `out` (kind "vm-host"); lines for people.

    stop     hold the VMM, and with it the guest, still while its tables are read
    max_stop milliseconds after which it is continued whatever was read; None: no limit
    vm       the VM's file descriptor in the VMM, needed only if that holds several VMs
    guest    read the guest's own tables too, into captures OUT/cr3-FRAME: those that its vCPUs use, as far as
             KVM knows
    cr3      guest-physical addresses of the root tables to read in their place

    UsageError if `pid` is no VMM or its VM cannot be read, PartialDataError if it ended; nothing is kept.
    """
    guest = guest or bool(cr3)
    if guest and stop:
        raise UsageError(
            "--stop: holds the VM for its nested tables alone; with --guest-tables pause the VM itself "
            "(virsh suspend, or stop in QEMU's monitor)"
        )
    if max_stop is not None and not stop:
        raise UsageError("--max-stop: goes with --stop")
    command = [str(native("ptdump")), "vm", str(pid), *stopping(stop, max_stop)]
    if vm is not None:
        command += ["--vm", str(vm)]
    with open_process(pid) as process, new_capture(out) as inside:
        lines = run_ptdump([*command, "-o", str(inside)])
        facts = read_vm(inside).facts
        if guest:
            slots, vcpus = kvm_vcpus(pid, vm)
            lines += dump_guest_tables(process, inside, slots, vcpus, cr3)[1]
        seal(inside, KIND, {key: facts[key] for key in ("pid", "comm", "time") if key in facts})
    return lines
