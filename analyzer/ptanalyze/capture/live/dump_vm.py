"""Dump the nested tables of a running VM from its host, by eBPF (`ptdump vm`): once, or periodically."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import PartialDataError, PtanalyzeError, UsageError
from ...formats.record import new_capture, seal
from ...formats.snapshot import HostDump, read_vm
from .dump import RETRIES, collecting, run_ptdump, stopping
from .guests import dump_guest_tables
from .locate import native
from .process import Process, open_process

KIND = "vm-host"


def dump_vm(
    pid: int,
    out: str | os.PathLike[str],
    *,
    stop: bool = False,
    max_stop: int | None = None,
    retries: int = RETRIES,
    vm: int | None = None,
    qmp: str | os.PathLike[str] | None = None,
    guest: bool = False,
    cr3: Sequence[int] = (),
    memory: int | None = None,
) -> list[str]:
    """Dump the VM of the VMM process `pid` into the new capture `out` (kind "vm-host"); lines for people.

    stop     hold the VMM, and with it the guest, still while its tables are read
    max_stop milliseconds after which it is continued whatever was read; None: no limit
    retries  read again at most this often while they change
    vm       the VM's file descriptor in the VMM, needed only if that holds several VMs
    guest    read the guest's own tables too, into captures OUT/cr3-FRAME: those that its vCPUs use now
    qmp      QEMU's QMP socket, for the vCPUs' CR3s, and means `guest`; None: those that KVM knows
    cr3      guest-physical addresses of the root tables to read in their place
    memory   bytes of nested tables to collect before they go to the disk, in whole MiB; None: 4 GiB

    UsageError if `pid` is no VMM or its VM cannot be read, PartialDataError if it ended; nothing is kept.
    """
    guest = guest or qmp is not None or bool(cr3)
    if max_stop is not None and (guest or not stop):
        raise UsageError("--max-stop: goes with --stop, and not with --guest-tables")
    command = [str(native("ptdump")), "vm", str(pid), "--retries", str(retries), *stopping(stop, max_stop)]
    command += collecting(memory)
    if vm is not None:
        command += ["--vm", str(vm)]
    with open_process(pid) as process, new_capture(out) as inside:
        lines, _ = run_ptdump([*command, "-o", str(inside)])
        host = read_vm(inside)
        facts = host.facts
        if guest:
            lines += guest_tables(process, qmp, inside, host, stop, cr3, vm)
        seal(inside, KIND, {key: facts[key] for key in ("pid", "comm", "time") if key in facts})
    return lines


def guest_tables(
    process: Process,
    qmp: str | os.PathLike[str] | None,
    inside: Path,
    host: HostDump,
    stop: bool,
    cr3: Sequence[int],
    vm: int | None,
) -> list[str]:
    """Lines about the guest's tables, read through the VM's memory slots into `inside`."""
    if secret := host.facts.get("confidential"):
        raise UsageError(
            f"PID {process.pid}: a confidential guest ({secret}): its memory is encrypted, leave out "
            "--guest-tables"
        )
    ordinary = tuple(slot for slot in host.slots if slot.space == 0)
    return dump_guest_tables(
        process.pid, qmp, inside, slots=ordinary, stop=stop, process=process, roots=cr3, vm=vm
    )[1]


def dump_vm_series(
    pid: int, out: str | os.PathLike[str], every: float, count: int, **options: Any
) -> Iterator[tuple[Path, list[str]]]:
    """Yield (capture, lines) of `count` dumps, OUT.0001 and on, started `every` seconds after one another.

    Each capture is whole when it is yielded. PartialDataError if the VM goes away before the last dump; a
    dump that takes longer than `every` delays the next, and none is left out. Options as of dump_vm.
    """
    captures = [Path(f"{out}.{number:04d}") for number in range(1, count + 1)]
    for capture in captures:
        if capture.exists():
            raise UsageError(f"{capture}: exists already; name a new series, captures are never overwritten")
    begun = time.monotonic()
    for done, capture in enumerate(captures):
        time.sleep(max(0.0, begun + done * every - time.monotonic()))
        try:
            lines = dump_vm(pid, capture, **options)
        except PtanalyzeError as error:
            if not done:
                raise
            raise PartialDataError(f"{out}: {done} of {count} dumps made: {error}") from None
        yield capture, lines
