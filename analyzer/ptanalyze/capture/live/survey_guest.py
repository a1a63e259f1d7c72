"""Every process of a guest, surveyed from its host: its page tables by the host's nodes."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import TypeAlias

import numpy as np

from ...core import snapshot as bits
from ...core.errors import UsageError, is_whole
from ...core.snapshot import ENTRIES_PER_TABLE, FRAME
from ...core.snapshot import PAGEMAP_PRESENT as PRESENT
from ...formats.btf import MAGIC, Btf, NoBtf, read_btf, size_of
from ...formats.snapshot import Slot
from ..check.vm import Pagemap
from .guests import (
    EVERY_MS,
    MAX_TABLES,
    PAGE,
    USER_SLOTS,
    GuestMemory,
    Read,
    Space,
    address_spaces,
    look,
    read_table,
)
from .process import Process, open_process, read_topology
from .qmp import Registers
from .survey import PROC, Placed, facts, is_vm, nodes_of_cpus, runs_on, vm_name

# The Linux kernel of a guest, found in its memory from outside: its types (BTF) and its processes.
#
# A root of its page tables shows where the image is mapped; the BTF in it says where members are, and the
# first task, which is known by its name, its number 0 and its pointers to itself, heads the list of all. No
# symbols and no KASLR offset are needed. All of it is untrusted: loops are bounded, and a pointer may lead
# nowhere.

Stretches: TypeAlias = list[tuple[int, bytes]]  # of the image: (virtual address, bytes)

IMAGE, IMAGE_BYTES = 0xFFFF_FFFF_8000_0000, 1 << 30  # KERNEL_IMAGE_SIZE of arch/x86
FIRST_NAME = b"swapper/0\0"
COMM_BYTES = 16
MOST_IMAGE = 1 << 27  # bytes of it that are searched; Debian's has 60 MiB
GUEST_KERNEL_MOST_TABLES = 1 << 14  # of its page tables kept in memory: 64 MiB
MOST_TRIED = 1000  # places of the image that may be BTF, or the first task
MOST_TASKS = 1 << 16  # processes; a list may have no end
TRIES = 5  # to read the list while processes come and go
MEMBERS = (
    ("task_struct", "tasks"),
    ("task_struct", "mm"),
    ("task_struct", "tgid"),
    ("task_struct", "comm"),
    ("task_struct", "group_leader"),
    ("mm_struct", "pgd"),
)


@dataclass(frozen=True)
class Task:
    """A process of the guest: its number and name there, the page frame of its root table."""

    pid: int
    name: str
    root: int


@dataclass(frozen=True)
class Tasks:
    """Processes with memory, of those that share it the first; whole: the list was read to its end."""

    tasks: tuple[Task, ...]
    whole: bool


class GuestKernel:
    """Virtual memory of a guest's kernel below the page frame `root`.

    offsets  {member: bytes from the beginning of its struct}; first: address of the first task
    """

    def __init__(self, read: Read, root: int, levels: int) -> None:
        self.read, self.root, self.levels = read, root, levels
        self.tables: dict[int, np.ndarray | None] = {}
        self.offsets: dict[str, int] = {}
        self.first = 0

    def table(self, frame: int) -> np.ndarray | None:
        if frame not in self.tables:
            if len(self.tables) >= GUEST_KERNEL_MOST_TABLES:
                self.tables.clear()
            self.tables[frame] = read_table(self.read, frame)
        return self.tables[frame]

    def entry(self, virtual: int, down_to: int = 1) -> tuple[int, int]:
        """(entry, its level) that maps `virtual`, or that of level `down_to`; (0, 0): nothing is mapped."""
        frame = self.root
        for level in range(self.levels, 0, -1):
            table = self.table(frame)
            raw = 0 if table is None else int(table[virtual >> (3 + 9 * level) & 511])
            if not raw & 1:
                return 0, 0
            if level == down_to or (level <= 3 and raw & 1 << 7):
                return raw, level
            frame = frame_of(raw, level, leaf=False)
        return 0, 0

    def physical(self, virtual: int) -> int | None:
        raw, level = self.entry(virtual)
        return (frame_of(raw, level) << 12) + virtual % (1 << (3 + 9 * level)) if level else None

    def at(self, virtual: int, n: int) -> bytes:
        """n bytes; NoBtf where not all are mapped."""
        content = b""
        while len(content) < n:
            here = virtual + len(content)
            physical = self.physical(here) if 0 <= here < 1 << 64 else None
            part = min(n - len(content), PAGE - here % PAGE)
            piece = None if physical is None else self.read(physical, part)
            if piece is None or len(piece) != part:
                raise NoBtf(f"nothing is mapped at {here:#x}")
            content += piece
        return content

    def number(self, virtual: int, n: int = 8) -> int:
        return int.from_bytes(self.at(virtual, n), "little")

    def member(self, task: int, name: str, n: int = 8) -> int:
        return self.number(task + self.offsets[name], n)

    def image(self) -> Iterator[tuple[int, bytes]]:
        """Yield (virtual address, bytes) of each stretch of pages that the kernel's image is mapped by."""
        pages = list(islice(self.image_pages(), MOST_IMAGE // PAGE))
        for _, run in groupby(enumerate(pages), lambda each: each[1][0] - (each[0] << 12)):
            stretch = [page for _, page in run]
            content = [self.read(physical, PAGE) or bytes(PAGE) for _, physical in stretch]
            yield stretch[0][0], b"".join(content)

    def image_pages(self) -> Iterator[tuple[int, int]]:
        for virtual in range(IMAGE, IMAGE + IMAGE_BYTES, 1 << 21):
            raw, level = self.entry(virtual, down_to=2)
            if level == 2 and not raw & 1 << 7:
                below = self.table(frame_of(raw, 2, leaf=False))
                if below is not None:
                    for slot in np.flatnonzero(bits.present(below)).tolist():
                        yield virtual + (slot << 12), frame_of(int(below[slot]), 1) << 12
            elif level:
                first = self.physical(virtual) or 0
                yield from ((virtual + at, first + at) for at in range(0, 1 << 21, PAGE))


def frame_of(raw: int, level: int, leaf: bool = True) -> int:
    return int(bits.frame(np.array([raw], np.uint64), level, leaves=leaf)[0])


def find_kernel(read: Read, root: int, levels: int) -> GuestKernel | None:
    """The GuestKernel whose page tables begin at the page frame `root`; None if that maps no Linux with BTF.

    read, levels  as of read_guest_tables
    """
    kernel = GuestKernel(read, root, levels)
    stretches = [(at, content) for at, content in kernel.image() if len(content) > PAGE]
    types = next(iter(btfs(stretches)), None)
    if types is None:
        return None
    try:
        kernel.offsets = {member: types.offset(structure, member) for structure, member in MEMBERS}
    except NoBtf:
        return None
    kernel.first = next(first_tasks(kernel, stretches), 0)
    return kernel if kernel.first else None


def btfs(stretches: Stretches) -> Iterator[Btf]:
    left = MOST_IMAGE  # bytes of what may be BTF
    for _, content, at in places(MAGIC, stretches):
        with suppress(NoBtf):
            size = size_of(content[at : at + 64].ljust(64, b"\0"))
            left -= size
            if left < 0:
                return
            yield read_btf(content[at : at + size])


def first_tasks(kernel: GuestKernel, stretches: Stretches) -> Iterator[int]:
    """Yield addresses of what may be the first task."""
    for start, _, at in places(FIRST_NAME, stretches):
        task = start + at - kernel.offsets["comm"]
        with suppress(NoBtf):
            if is_first(kernel, task):
                yield task


def places(wanted: bytes, stretches: Stretches) -> Iterator[tuple[int, bytes, int]]:
    """Yield (start, content, offset in it) of each occurrence of `wanted`, the first MOST_TRIED alone."""
    found = (
        (start, content, one.start())
        for start, content in stretches
        for one in re.finditer(re.escape(wanted), content)
    )
    return islice(found, MOST_TRIED)


def is_first(kernel: GuestKernel, task: int) -> bool:
    links = task + kernel.offsets["tasks"]
    return (
        kernel.member(task, "tgid", 4) == 0
        and kernel.member(task, "group_leader") == task
        and kernel.number(kernel.number(links) + 8) == links
    )


def tasks_of(kernel: GuestKernel) -> Tasks:
    """Tasks of a kernel, read again where the list changes meanwhile; cut short if it never holds still."""
    tasks: tuple[Task, ...] = ()
    for _ in range(TRIES):
        kernel.tables.clear()
        found, whole, steps = walk_list(kernel)
        if whole:
            return Tasks(found, True)
        tasks = max(tasks, found, key=len)
        if steps == MOST_TASKS:
            break
    return Tasks(tasks, False)


def walk_list(kernel: GuestKernel) -> tuple[tuple[Task, ...], bool, int]:
    """(tasks, whether it came to the list's head again, steps that it made)."""
    roots: dict[int, Task] = {}
    seen: set[int] = set()
    task = kernel.first
    with suppress(NoBtf):
        while len(seen) < MOST_TASKS:
            task = kernel.member(task, "tasks") - kernel.offsets["tasks"]
            if task == kernel.first:
                return tuple(roots.values()), True, len(seen)
            if task in seen:
                break
            seen.add(task)
            if found := task_at(kernel, task):
                roots.setdefault(found.root, found)
    return tuple(roots.values()), False, len(seen)


def task_at(kernel: GuestKernel, task: int) -> Task | None:
    """None: a kernel thread, or it is ending."""
    memory = kernel.member(task, "mm")
    root = kernel.physical(kernel.number(memory + kernel.offsets["pgd"])) if memory else None
    if root is None:
        return None
    name = kernel.at(task + kernel.offsets["comm"], COMM_BYTES).partition(b"\0")[0]
    return Task(kernel.member(task, "tgid", 4), name.decode("utf-8", "surrogateescape"), root >> 12)


# Page tables of a guest's address space, counted a level at a time: their frames, and what they map.

AT_ONCE = 1024  # tables in memory together: 4 MiB
MOST_POINTERS = 1 << 22  # to tables of the next level, before those that are the same are merged: 32 MiB


@dataclass(frozen=True)
class Counts:
    """The user half of an address space.

    frames  {level: int64[n], guest frames of its tables, each once, ascending}; the root's level first
    mapped  {level: entries that map a page of 4 KiB (1), 2 MiB (2), 1 GiB (3)}
    unread  tables that lie in no memory, or were too many: of these one may be counted several times
    """

    frames: dict[int, np.ndarray]
    mapped: dict[int, int]
    unread: int

    @property
    def mapped_bytes(self) -> int:
        return sum(count << (3 + 9 * level) for level, count in self.mapped.items())

    @property
    def huge_bytes(self) -> int:
        """Mapped by entries above the leaf tables."""
        return self.mapped_bytes - (self.mapped.get(1, 0) << 12)


def count_tables(read: Read, root: int, levels: int, limit: int = MAX_TABLES) -> Counts | None:
    """Counts below the page frame `root`, None if that cannot be read.

    limit  most tables of a level

    Each frame is read at most once per level, so that loops and garbage cost bounded time.
    """
    frames, mapped, unread = {}, {}, 0
    wanted = np.array([root], np.int64)
    for level in range(levels, 0, -1):
        there: list[np.ndarray] = []
        below = np.zeros(0, np.int64)
        mapped[level] = 0
        for start in range(0, len(wanted), AT_ONCE):
            some, raw = tables_in(read, wanted[start : start + AT_ONCE])
            if level == levels:
                raw = raw[:, :USER_SLOTS]
            there.append(some)
            mapped[level] += int(np.count_nonzero(bits.leaf(raw, level)))
            below = np.append(below, bits.frame(raw[bits.table(raw, level)], level, leaves=False))
            if len(below) > MOST_POINTERS:
                below, over = at_most(limit, below)
                unread += over
        frames[level] = np.concatenate(there) if there else np.zeros(0, np.int64)
        if level == levels and not len(frames[level]):
            return None
        unread += len(wanted) - len(frames[level])
        wanted, over = at_most(limit, below)
        unread += over
    return Counts(frames, mapped, unread)


def at_most(limit: int, frames: np.ndarray) -> tuple[np.ndarray, int]:
    """(the first `limit` of the different frames, ascending; how many more there are)."""
    found = np.unique(frames)
    return found[:limit], max(len(found) - limit, 0)


def tables_in(read: Read, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64[k] those of `frames` that can be read, uint64[k, 512] what is in them)."""
    raw = np.zeros((len(frames), ENTRIES_PER_TABLE), np.uint64)
    kept = np.zeros(len(frames), bool)
    for k, frame in enumerate(frames.tolist()):
        content = read(frame * PAGE, PAGE)
        if content is not None and len(content) == PAGE:
            raw[k], kept[k] = np.frombuffer(content, "<u8"), True
    return frames[kept], raw[kept]


MOST_TABLES = 1 << 24  # of all processes: 64 GiB, since all may claim the same ones

NodesOf: TypeAlias = Callable[[np.ndarray], np.ndarray]  # guest frames -> the host's node of each


@dataclass(frozen=True)
class Host:
    """Where the guest is on its host: nodes, of guest frames; runs, {node: share of its vCPUs' CPU time}."""

    nodes: NodesOf
    runs: dict[int, float]


@dataclass(frozen=True)
class GuestProcess(Placed):
    """An address space of a guest.

    cr3          guest-physical address of its root table
    pid, name    in the guest; None and "" where its kernel was not found
    leaf, upper  {node of the host: table pages}: those that map 4 KiB pages, and those above them
    mapped_bytes of its user half; huge_bytes: of them by 2 MiB and 1 GiB pages
    runs         {node of the host: share of the CPU time of the guest's vCPUs}: that of the whole guest
    seen         of the samples in which some vCPU had this CR3, None where the kernel's list names it
    unread       tables that could not be read
    """

    cr3: int
    pid: int | None
    name: str
    leaf: dict[int, int]
    upper: dict[int, int]
    mapped_bytes: int
    huge_bytes: int
    runs: dict[int, float]
    seen: int | None
    unread: int

    @property
    def tables(self) -> int:
        return sum(self.leaf.values()) + sum(self.upper.values())


@dataclass(frozen=True)
class GuestSurvey:
    """Address spaces of the guest of VMM `pid`, the worst first.

    by_kernel  the list is the guest kernel's own; else the CR3s that its vCPUs had in `samples` samples
    notes      lines for people: what is missing
    """

    pid: int
    found: tuple[GuestProcess, ...]
    by_kernel: bool
    samples: int
    notes: tuple[str, ...] = ()


def survey_guest(
    vm: str,
    *,
    seconds: float = 3,
    socket: str | os.PathLike[str] | None = None,
    descriptor: int | None = None,
) -> GuestSurvey:
    """GuestSurvey of a running VM from outside, through its VMM's memory. Nothing is stopped or written.

    vm          PID of its VMM, or its name as `survey` prints it
    seconds     for how long CR3s are sampled where the guest's kernel is not found
    socket      QMP socket of QEMU, for registers and memory; None: KVM's, of any VMM
    descriptor  of the VM in the VMM, needed only if that holds several

    UsageError if there is no such VM, it cannot be read, or none of its vCPUs is in 64-bit mode.
    """
    pid = find_vm(vm)
    with open_process(pid) as process:
        slots, first = look(pid, socket, 1, descriptor)
        with GuestMemory(process, slots) as memory:
            spaces, notes = address_spaces(memory.read, first[0])
            host = Host(
                host_nodes(process, slots), runs_on(pid, nodes_of_cpus(), [vcpu.tid for vcpu in first[0]])
            )
            found, whole = by_kernel(memory.read, spaces, host)
            if found is None:
                samples = max(1, round(1000 * seconds / EVERY_MS))
                _, seen = look(pid, socket, samples, descriptor)
                rows = by_cr3(memory.read, seen, host)
                notes.append(
                    "no Linux kernel with BTF was found in the guest: these are the CR3s that were seen"
                )
                return GuestSurvey(pid, rows, False, len(seen), tuple(notes))
    if not whole:
        notes.append(
            "the guest's list of processes changed while it was read, or has no end: some may be missing"
        )
    return GuestSurvey(pid, found, True, 1, tuple(notes))


def find_vm(vm: str) -> int:
    """PID of the VMM that `vm` names; UsageError where none does, or several."""
    if is_whole(vm):
        return int(vm)
    called = [pid for pid in vmms() if name_of(pid) == vm]
    if len(called) == 1:
        return called[0]
    if called:
        raise UsageError(f"{vm}: {len(called)} VMs have this name: give a PID: {', '.join(map(str, called))}")
    others = ", ".join(sorted({name_of(pid) for pid in vmms()})[:8])
    raise UsageError(
        f"{vm}: no VM here has this name; " + (f"there are: {others}" if others else "none runs")
    )


def vmms() -> list[int]:
    """PIDs of processes that hold a VM of KVM, by their descriptors."""
    found = []
    for entry in os.scandir(PROC):
        if entry.name.isdecimal():
            with suppress(OSError):
                if is_vm(int(entry.name)):
                    found.append(int(entry.name))
    return sorted(found)


def name_of(pid: int) -> str:
    """As `survey` prints it; "" if the process has ended."""
    with suppress(OSError):
        return vm_name((PROC / str(pid) / "cmdline").read_bytes()) or facts(pid).get("Name", "")
    return ""


def by_kernel(
    read: Read, spaces: Iterable[Space], host: Host
) -> tuple[tuple[GuestProcess, ...] | None, bool]:
    """(processes that the guest's kernel lists, whether that was all of the list); (None, False): no kernel.

    spaces  those of its vCPUs: any of them maps the kernel
    """
    for space in spaces:
        if kernel := find_kernel(read, space.root, space.levels):
            found = tasks_of(kernel)
            rows, left = [], MOST_TABLES
            for task in found.tasks:
                limit = min(left, MAX_TABLES)
                row = counted(read, host, task.root, space.levels, pid=task.pid, name=task.name, limit=limit)
                left = max(left - (row.tables if row else 1), 0)
                rows.append(row)
            return worst_first(rows), found.whole
    return None, False


def by_cr3(read: Read, samples: Iterable[Iterable[Registers]], host: Host) -> tuple[GuestProcess, ...]:
    """Address spaces that vCPUs had in `samples`."""
    times: Counter[Space] = Counter()
    for sample in samples:
        with suppress(UsageError):  # none of its vCPUs is in 64-bit mode now
            times.update({replace(space, vcpus=()) for space in address_spaces(read, sample)[0]})
    return worst_first(counted(read, host, one.root, one.levels, seen=n) for one, n in times.items())


def worst_first(rows: Iterable[GuestProcess | None]) -> tuple[GuestProcess, ...]:
    there = (one for one in rows if one is not None)
    return tuple(sorted(there, key=lambda one: (-one.remote_bytes, -one.tables, one.cr3)))


def host_nodes(process: Process, slots: Iterable[Slot]) -> NodesOf:
    """The host's node of each guest frame, by the VMM's pagemap; -1 where no host page is behind it."""
    topology, _ = read_topology()
    ordered = sorted(slots, key=lambda slot: slot.gpa)

    def nodes(frames: np.ndarray) -> np.ndarray:
        words = np.zeros(len(frames), np.uint64)
        with Pagemap(process.pid) as pagemap:
            for slot in ordered:
                first, count = slot.gpa // PAGE, slot.bytes // PAGE
                for k in np.flatnonzero((frames >= first) & (frames < first + count)).tolist():
                    words[k] = pagemap.words(slot.hva + (int(frames[k]) - first) * PAGE, 1)[0]
        there = words & PRESENT != 0
        host = np.where(there, (words & FRAME).astype(np.int64), -1)
        if there.any() and not host[there].any():
            raise UsageError("page frames are hidden from us (CAP_SYS_ADMIN): run as root")
        return topology.node_of_frame(host)

    return nodes


def counted(
    read: Read,
    host: Host,
    root: int,
    levels: int,
    *,
    pid: int | None = None,
    name: str = "",
    seen: int | None = None,
    limit: int = MAX_TABLES,
) -> GuestProcess | None:
    """None for an address space that is gone, or has nothing in its user half."""
    counts = count_tables(read, root, levels, limit)
    if counts is None or not (counts.mapped_bytes or counts.unread or len(counts.frames[levels - 1])):
        return None
    return GuestProcess(
        cr3=root * PAGE,
        pid=pid,
        name=name,
        leaf=by_node(counts, host, {1}),
        upper=by_node(counts, host, set(counts.frames) - {1}),
        mapped_bytes=counts.mapped_bytes,
        huge_bytes=counts.huge_bytes,
        runs=host.runs,
        seen=seen,
        unread=counts.unread,
    )


def by_node(counts: Counts, host: Host, levels: set[int]) -> dict[int, int]:
    """{node: table pages} of these levels, those on no known node as -1."""
    frames = np.concatenate([counts.frames[level] for level in levels])
    found, pages = np.unique(host.nodes(frames), return_counts=True)
    return dict(zip(found.tolist(), pages.tolist(), strict=True))
