"""Guest page tables without help from the guest: CR3s, followed through the VMM's memory."""

from __future__ import annotations

import json
import os
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import IO, Self, TypeAlias

import numpy as np

import ptanalyze as pt

from .dump import PROVENANCE, run_ptdump, stopping

ROOT_MASK = (1 << 40) - 1  # of CR3 >> 12


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
        return 0 if not (self.efer >> 10 & 1 and self.cr0 >> 31 & 1) else 5 if self.cr4 >> 12 & 1 else 4

    @property
    def root(self) -> int:
        """Page frame of the root table; PCID, LAM and no-flush bits left out (Intel SDM 3A, 4.5)."""
        return self.cr3 >> 12 & ROOT_MASK


# A guest's page tables read from outside, through its physical memory: untrusted. Levels strictly decrease,
# every frame is visited once, and tables and entries followed are limited; so self-maps, loops, frames
# beyond memory and garbage cost bounded time and memory and leave a closed tree.

Read: TypeAlias = Callable[[int, int], bytes | None]  # of (guest-physical address, bytes)
Row: TypeAlias = tuple[int, int, int, int]  # base, frame, parent, level

PAGE = 4096
MAX_TABLES = 1 << 20  # 4 GiB of tables: enough for 2 TiB in 4 KiB pages
FOLLOWED_PER_TABLE = 4  # entries followed, as a multiple of the most tables: bounds the cost of loops
USER_SLOTS = 256  # of the root; the other half is the kernel's
SELF_MAP, SEEN, BEYOND, LIMIT = "points to a table above it", "seen before", "beyond memory", "over the limit"


@dataclass(frozen=True)
class GuestTables:
    """An address space of a guest, read from its root.

    tree     the user half; nodes are unknown, entries that lead to no dumped table are zero
    dropped  {reason: entries} of the user half that were cleared; empty for a sane guest
    """

    tree: pt.snapshot.Tree
    dropped: dict[str, int]


def read_guest_tables(read: Read, root: int, levels: int, limit: int = MAX_TABLES) -> GuestTables | None:
    """GuestTables below the page frame `root`, None if that cannot be read.

    read    read(guest-physical address, bytes) -> bytes, or None where there is no memory
    levels  4 or 5, as CR4.LA57 says
    limit   most tables to read
    """
    with tempfile.TemporaryFile(prefix="ptanalyze-") as spill:
        user = Reader(read, limit, spill)
        if user.visit(root, levels, 0, pt.snapshot.NO_PARENT):
            return None
        return GuestTables(tree_of(user.rows, spill, levels), dict(user.dropped))


def read_table(read: Read, frame: int) -> np.ndarray | None:
    """uint64[512] of a page frame, a copy; None where there is no whole page of memory."""
    raw = read(frame * PAGE, PAGE)
    if raw is None or len(raw) != PAGE:
        return None
    return np.frombuffer(raw, "<u8").astype(np.uint64)


class Reader:
    """Depth-first reading of the user half of an address space into `spill`, an open file."""

    def __init__(self, read: Read, limit: int, spill: IO[bytes]) -> None:
        self.read, self.limit, self.spill = read, limit, spill
        self.left = limit * FOLLOWED_PER_TABLE
        self.rows: list[Row] = []
        self.seen: set[int] = set()
        self.above: list[int] = []
        self.dropped: Counter[str] = Counter()

    def visit(self, frame: int, level: int, base: int, parent: int) -> str:
        """Read the table and all below it; the reason for a refusal, else ""."""
        why = self.refusal(frame)
        raw = None if why else read_table(self.read, frame)
        if raw is None:
            return why or BEYOND
        me = len(self.rows)
        self.rows.append((base, frame, parent, level))
        self.seen.add(frame)
        if parent == pt.snapshot.NO_PARENT:
            raw[USER_SLOTS:] = 0
        self.store(me, raw)
        if level > 1:
            self.above.append(frame)
            self.visit_children(me, raw, level, base)
            self.above.pop()
        return ""

    def refusal(self, frame: int) -> str:
        self.left -= 1
        if frame in self.seen:
            return SELF_MAP if frame in self.above else SEEN
        return LIMIT if len(self.rows) >= self.limit else ""

    def visit_children(self, me: int, raw: np.ndarray, level: int, base: int) -> None:
        slots = np.flatnonzero(pt.snapshot.table(raw, level))
        frames, gone = pt.snapshot.frame(raw[slots], level, leaves=False), []
        for slot, frame in zip(slots.tolist(), frames.tolist(), strict=True):
            if self.left <= 0:
                rest = slots[slots >= slot].tolist()
                gone += rest
                self.dropped[LIMIT] += len(rest)
                break
            if why := self.visit(frame, level - 1, base + (slot << (3 + 9 * level)), me):
                gone.append(slot)
                self.dropped[why] += 1
        if gone:
            raw[gone] = 0
            self.store(me, raw)

    def store(self, table: int, raw: np.ndarray) -> None:
        self.spill.seek(table * PAGE)
        self.spill.write(raw.data)


def tree_of(rows: list[Row], spill: IO[bytes], levels: int) -> pt.snapshot.Tree:
    """Tree of the tables that a Reader stored in `spill`, whose entries stay there."""
    spill.flush()
    count = len(rows)
    base, frame, parent, level = (np.array(column) for column in zip(*rows, strict=True))
    return pt.snapshot.Tree(
        np.memmap(spill, "<u8", "r", shape=(count, pt.snapshot.ENTRIES_PER_TABLE)),
        base.astype(np.uint64),
        frame.astype(np.int64),
        parent.astype(np.int32),
        np.full(count, pt.errors.UNKNOWN_NODE, np.int16),
        level.astype(np.uint8),
        np.zeros(count, np.uint8),
        levels,
    )


# A guest's physical memory, read through its VMM: memory slots and /proc/PID/mem. Never written.


class GuestMemory:
    """read(gpa, n): bytes, or None where no slot holds all of them or the VMM has nothing there.

    Memory of confidential guests (SEV, TDX) is not mapped in the VMM, or is ciphertext: None, or no tables.
    """

    def __init__(self, process: pt.live.Process, slots: Iterable[pt.formats.Slot]) -> None:
        """UsageError if the VMM's memory cannot be opened."""
        self.slots = sorted((slot.gpa, slot.gpa + slot.bytes, slot.hva) for slot in slots if slot.space == 0)
        self.starts = [start for start, _, _ in self.slots]
        try:
            self.file = os.open(process.proc / "mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise pt.UsageError(
                f"/proc/{process.pid}/mem: {error.strerror}; is PID {process.pid} the VMM, are you root, "
                "and is kernel.yama.ptrace_scope below 3?"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.file)

    def read(self, gpa: int, n: int) -> bytes | None:
        at = bisect_right(self.starts, gpa) - 1
        if at < 0:
            return None
        start, end, hva = self.slots[at]
        if gpa + n > end:
            return None
        try:
            content = os.pread(self.file, n, hva + gpa - start)
        except (OSError, OverflowError):
            return None
        return content if len(content) == n else None


# Control registers of a guest's vCPUs, as KVM has them, of any VMM (`ptdump vcpus`).


def kvm_vcpus(pid: int, vm: int | None = None) -> tuple[tuple[pt.formats.Slot, ...], list[Registers]]:
    """(memory slots, [Registers] of the vCPUs) of the VM of VMM `pid`.

    vm  the VM's file descriptor in the VMM, needed only if that holds several VMs

    CR3 is what KVM last saw: with NPT at the vCPU's last exit, with EPT sometimes earlier. UsageError if
    `pid` is no VMM, its VM cannot be read, or its memory is encrypted; PartialDataError if it ended.
    """
    command = [str(pt.live.native("ptdump")), "vcpus", str(pid)]
    command += [] if vm is None else ["--vm", str(vm)]
    memory, registers = (json.loads(line) for line in run_ptdump(command) if line.startswith("{"))
    if secret := memory["confidential"]:
        raise pt.UsageError(
            f"PID {pid}: a confidential guest ({secret}): its memory is encrypted, leave out --guest-tables"
        )
    slots = tuple(pt.formats.Slot(**slot) for slot in memory["slots"] if slot["space"] == 0)
    return slots, sorted((Registers(**vcpu) for vcpu in registers["vcpus"]), key=attrgetter("vcpu"))


# no-execute and accessed, dirty: differ between the two roots of a process
IGNORED = ~np.uint64(1 << 63 | 0x60)
UNKNOWN = ("vmas", "cpus", "topology")


@dataclass(frozen=True)
class Space:
    """An address space of the guest: its root's frame, levels, the vCPUs that had it, a pair under PTI?"""

    root: int
    levels: int
    vcpus: tuple[int, ...]
    pti: bool


def dump_guest_tables(
    process: pt.live.Process,
    directory: Path,
    slots: Sequence[pt.formats.Slot],
    vcpus: Sequence[Registers],
    roots: Sequence[int] = (),
) -> tuple[list[Path], list[str]]:
    """Write a sealed capture cr3-FRAME/ for each address space of the guest into the existing `directory`.

    process       the VMM; slots, vcpus: of its VM
    roots         CR3s to follow; () those that the vCPUs have

    Returns ([directories], [lines for people]). Address spaces without a user half are not written.
    UsageError if the VMM's memory cannot be read, or if no vCPU is in 64-bit mode.
    """
    made: list[Path] = []
    lines: list[str] = []
    with GuestMemory(process, slots) as memory:
        spaces, left_out = address_spaces(memory.read, vcpus)
        lines += left_out
        if roots:
            spaces = [space_of(memory.read, cr3, spaces[0].levels) for cr3 in roots]
        for space in spaces:
            tables = read_guest_tables(memory.read, space.root, space.levels)
            on = ", ".join(map(str, space.vcpus))
            name = f"root {space.root << 12:#x}" + (f" of vCPU {on}" if on else "")
            if tables is None:
                lines.append(f"{name}: gone before it was read")
                continue
            if len(tables.tree) == 1 and not tables.tree.entries.any():
                lines.append(f"{name}: nothing in the user half; the kernel's own")
                continue
            place = directory / f"cr3-{space.root:x}"
            write_guest(place, space, tables, process.pid)
            made.append(place)
            lines.append(f"{name}: {len(tables.tree)} tables{' (PTI)' if space.pti else ''}")
            for why, count in tables.dropped.items():
                lines.append(f"{name}: {pt.errors.plural(count, 'entry', 'entries')} not followed: {why}")
    return made, lines


def address_spaces(read: Read, cpus: Iterable[Registers]) -> tuple[list[Space], list[str]]:
    """([Space], lines about vCPUs left out): a Space per root, both roots of a process under PTI merged."""
    found: dict[Space, list[int]] = {}
    left_out: list[str] = []
    for cpu in cpus:
        if not cpu.levels:
            left_out.append(f"vCPU {cpu.vcpu}: not in 64-bit mode")
        elif read_table(read, cpu.root) is None:
            left_out.append(
                f"vCPU {cpu.vcpu}: its root {cpu.root << 12:#x} cannot be read: garbage, or the guest's "
                "memory is private (SEV, TDX)"
            )
        else:
            found.setdefault(space_of(read, cpu.cr3, cpu.levels), []).append(cpu.vcpu)
    if not found:
        raise pt.UsageError(f"no vCPU's page tables can be read: {'; '.join(left_out)}")
    return [replace(space, vcpus=tuple(on)) for space, on in found.items()], left_out


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
    return bool(pt.snapshot.present(kernel).any() and np.array_equal(kernel, user))


def write_guest(place: Path, space: Space, tables: GuestTables, pid: int) -> None:
    """The capture of an address space, sealed; `place` is made."""
    facts = {
        "method": "kvm",
        "time": pt.formats.now(),
        "stopped": False,
        "vmm_pid": pid,
        "cr3_frame": space.root,
        "vcpus": list(space.vcpus),
        "page_table_isolation": space.pti,
        "not_followed": tables.dropped,
        "unknown": [*UNKNOWN],
    }
    place.mkdir(mode=0o700)
    snapshot = pt.Snapshot(
        tables.tree, np.zeros(0, pt.snapshot.VMA_DTYPE), (), pt.snapshot.Topology(()), None, facts
    )
    pt.formats.write_snapshot(place, snapshot)
    pt.formats.seal(place, "process", {"vmm_pid": pid, "cr3_frame": space.root, "time": facts["time"]})


# The nested tables of a running VM, from its host (`ptdump vm`), and with them its guest's.


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
        raise pt.UsageError(
            "--stop: holds the VM for its nested tables alone; with --guest-tables pause the VM itself "
            "(virsh suspend, or stop in QEMU's monitor)"
        )
    if max_stop is not None and not stop:
        raise pt.UsageError("--max-stop: goes with --stop")
    command = [str(pt.live.native("ptdump")), "vm", str(pid), *stopping(stop, max_stop)]
    if vm is not None:
        command += ["--vm", str(vm)]
    with pt.live.open_process(pid) as process, pt.formats.new_capture(out) as inside:
        lines = run_ptdump([*command, "-o", str(inside)])
        facts = pt.formats.read_vm(inside).facts
        if guest:
            slots, vcpus = kvm_vcpus(pid, vm)
            lines += dump_guest_tables(process, inside, slots, vcpus, cr3)[1]
        pt.formats.seal(inside, "vm-host", {key: facts[key] for key in PROVENANCE if key in facts})
    return lines
