"""Guest page tables without help from the guest: CR3s, followed through the VMM's memory."""

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...core import snapshot as bits
from ...core.errors import UsageError
from ...core.snapshot import VMA_DTYPE, Snapshot, Topology
from ...formats.capture_dir import seal
from ...formats.snapshot_file import now, write_snapshot
from ...formats.vm_file import Slot
from .guest_memory import GuestMemory
from .guest_tables import MAX_TABLES, USER_SLOTS, GuestTables, Read, read_guest_tables, read_table
from .pause import paused
from .process import Process, opened
from .qmp import ROOT_MASK, Registers
from .vcpus import look

IGNORED = ~np.uint64(
    1 << 63 | 0x60
)  # no-execute and accessed, dirty: differ between the two roots of a process
UNKNOWN = ("vmas", "cpus", "topology")


@dataclass(frozen=True)
class Space:
    """An address space of the guest: its root's frame, levels, the vCPUs that had it, a pair under PTI?"""

    root: int
    levels: int
    vcpus: tuple[int, ...]
    pti: bool


def dump_guest_tables(
    pid: int,
    socket: str | os.PathLike[str] | None,
    directory: str | os.PathLike[str],
    *,
    slots: Sequence[Slot] | None = None,
    stop: bool = False,
    limit: int = MAX_TABLES,
    process: Process | None = None,
    roots: Sequence[int] = (),
    vm: int | None = None,
) -> tuple[list[Path], list[str]]:
    """Write a sealed capture cr3-FRAME/ for each address space of the guest into the existing `directory`.

    pid     of the VMM; socket: its QMP socket, None: what KVM knows of its vCPUs
    slots   (Slot, ...) of the VM, e.g. from vm.json; None asks QEMU's monitor, or KVM
    stop    hold the VMM still while tables are read; it is always continued
    process the VMM, where its number might be another's by now
    roots   CR3s to follow, e.g. of survey_guest; () those that the vCPUs have now
    vm      the VM's file descriptor in the VMM, needed only if that holds several and there is no socket

    Returns ([directories], [lines for people]). Address spaces without a user half are not written.
    UsageError if QEMU or its memory cannot be read, or if no vCPU is in 64-bit mode.
    """
    slots, (cpus,) = look(pid, socket, vm=vm, slots=slots)
    made: list[Path] = []
    lines: list[str] = []
    with ExitStack() as stack:
        process = process or stack.enter_context(opened(pid))
        if stop:
            stack.enter_context(paused(process))
        memory = stack.enter_context(GuestMemory(process, slots))
        spaces, left_out = address_spaces(memory.read, cpus)
        lines += left_out
        if roots:
            spaces = [space_of(memory.read, cr3, spaces[0].levels) for cr3 in roots]
        for space in spaces:
            tables = read_guest_tables(memory.read, space.root, space.levels, limit)
            on = ", ".join(map(str, space.vcpus))
            name = f"root {space.root:#x}" + (f" of vCPU {on}" if on else "")
            if tables is None:
                lines.append(f"{name}: gone before it was read")
                continue
            if len(tables.tree) == 1 and not tables.tree.entries.any():
                lines.append(f"{name}: nothing in the user half; the kernel's own")
                continue
            place = Path(directory) / f"cr3-{space.root:x}"
            write_guest(place, space, tables, pid, stop, "kvm" if socket is None else "qmp")
            made.append(place)
            lines.append(f"{name}: {len(tables.tree)} tables{' (PTI)' if space.pti else ''}")
            lines += [f"{name}: {count} entries not followed: {why}" for why, count in tables.dropped.items()]
    return made, lines


def address_spaces(read: Read, cpus: Iterable[Registers]) -> tuple[list[Space], list[str]]:
    """([Space], lines about vCPUs left out): a Space per root, both roots of a process under PTI merged."""
    roots: dict[tuple[int, int, bool], list[int]] = {}
    left_out: list[str] = []
    for cpu in cpus:
        if not cpu.levels:
            left_out.append(f"vCPU {cpu.vcpu}: not in 64-bit mode")
        elif read_table(read, cpu.root) is None:
            left_out.append(
                f"vCPU {cpu.vcpu}: its root {cpu.root:#x} cannot be read: garbage, or the guest's memory is "
                "private (SEV, TDX)"
            )
        else:
            paired = is_pti_pair(read, cpu.root)
            root = cpu.root & ~1 if paired else cpu.root
            roots.setdefault((root, cpu.levels, paired), []).append(cpu.vcpu)
    if not roots:
        raise UsageError(f"no vCPU's page tables can be read: {'; '.join(left_out)}")
    spaces = [Space(root, levels, tuple(on), paired) for (root, levels, paired), on in roots.items()]
    return spaces, left_out


def space_of(read: Read, cr3: int, levels: int) -> Space:
    """The Space of a CR3 that no vCPU need have now."""
    root = cr3 >> 12 & ROOT_MASK
    paired = is_pti_pair(read, root)
    return Space(root & ~1 if paired else root, levels, (), paired)


def is_pti_pair(read: Read, root: int) -> bool:
    """Linux under page-table isolation has two roots side by side that differ in bit 12 of CR3: even
    the kernel's, odd the user's (arch/x86/mm/pti.c); their user halves point to the same tables."""
    halves = [half for frame in (root & ~1, root | 1) if (half := read_table(read, frame)) is not None]
    if len(halves) < 2:
        return False
    kernel, user = (half[:USER_SLOTS] & IGNORED for half in halves)
    return bool(bits.present(kernel).any() and np.array_equal(kernel, user))


def write_guest(place: Path, space: Space, tables: GuestTables, pid: int, stopped: bool, method: str) -> None:
    """The capture of an address space, sealed; `place` is made."""
    facts = {
        "method": method,
        "time": now(),
        "stopped": stopped,
        "vmm_pid": pid,
        "cr3_frame": space.root,
        "vcpus": list(space.vcpus),
        "page_table_isolation": space.pti,
        "kernel_tables": {str(level): count for level, count in tables.kernel.items()},
        "not_followed": tables.dropped,
        "unknown": [*UNKNOWN],
    }
    place.mkdir(mode=0o700)
    snapshot = Snapshot(tables.tree, np.zeros(0, VMA_DTYPE), (), Topology(()), None, facts)
    write_snapshot(place, snapshot)
    seal(place, "process", {"vmm_pid": pid, "cr3_frame": space.root, "time": facts["time"]})
