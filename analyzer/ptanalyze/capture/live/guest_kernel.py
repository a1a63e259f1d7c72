"""The Linux kernel of a guest, found in its memory from outside: its types (BTF) and its processes.

A root of its page tables shows where the image is mapped; the BTF in it says where members are, and the first
task, which is known by its name, its number 0 and its pointers to itself, heads the list of all. No symbols
and no KASLR offset are needed. All of it is untrusted: loops are bounded, and a pointer may lead nowhere.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TypeAlias

import numpy as np

from ...core import snapshot as bits
from ...formats.btf import MAGIC, Btf, NoBtf, read_btf, size_of
from .guest_tables import PAGE, Read, read_table

Stretches: TypeAlias = list[tuple[int, bytes]]  # of the image: (virtual address, bytes)

IMAGE, IMAGE_BYTES = 0xFFFF_FFFF_8000_0000, 1 << 30  # KERNEL_IMAGE_SIZE of arch/x86
FIRST_NAME = b"swapper/0\0"
COMM_BYTES = 16
MOST_IMAGE = 1 << 27  # bytes of it that are searched; Debian's has 60 MiB
MOST_TABLES = 1 << 14  # of its page tables kept in memory: 64 MiB
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
            if len(self.tables) >= MOST_TABLES:
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
