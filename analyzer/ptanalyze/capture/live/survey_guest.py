"""Every process of a guest, surveyed from its host: its page tables by the host's nodes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ...core.errors import UsageError, is_whole
from ...core.snapshot import FRAME
from ...core.snapshot import PAGEMAP_PRESENT as PRESENT
from ...formats.vm_file import Slot
from .check_live import Pagemap
from .guest_counts import Counts, count_tables
from .guest_kernel import find_kernel, tasks_of
from .guest_memory import GuestMemory
from .guest_tables import MAX_TABLES, PAGE, Read
from .guests import Space, address_spaces
from .placed import Placed
from .process import Process, opened
from .qmp import Registers
from .survey import PROC, facts, is_vm, nodes_of_cpus, runs_on, vm_name
from .topology import read_topology
from .vcpus import EVERY_MS, look

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
    with opened(pid) as process:
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
