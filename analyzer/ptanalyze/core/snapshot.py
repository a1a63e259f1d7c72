"""Every page-table page of an address space: native, or a guest's tables over a VM's nested tables."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .heat import Heat
from .unknown_node import UNKNOWN_NODE

ENTRIES_PER_TABLE = 512
NO_PARENT = -1

CHANGED = 1  # the parent's entry changed between reading the parent and the child; the newer value was used
TORN = 2  # the parent's entry changed while the child was copied
FAULT = 4  # the table could not be read: its entries are zero
BAD_TYPE = 8  # the frame was no longer a page table when it was read
INFERRED = 16  # rebuilt from /proc/PID/pagemap: contents inferred; frame and node of the table are unknown
EMULATOR = 32  # all it can map belongs to the tracer: no table of the program's (set on reading, not on disk)

MOST_SCALED = 1_000_000  # of Snapshot.scale

VMA_DTYPE = np.dtype(
    [
        ("start", np.uint64),  # first byte
        ("end", np.uint64),  # one past the last byte
        ("prot", np.uint8),  # bit 0 read, 1 write, 2 execute
        ("shared", np.bool_),
        ("emulator", np.bool_),  # belongs to the tracer (QEMU, Pin), not to the traced program
    ]
)


@dataclass(frozen=True)
class Tree:
    """A radix page table, its T table pages in depth-first order: a parent comes before its children.

    entries  uint64[T, 512]  raw entries, usually memory-mapped; read them through `encoding`
    base     uint64[T]       first (guest-)virtual or guest-physical address the table page maps, bytes
    frame    int64[T]        page frame the table page lives in (host-physical for native and host trees,
                             guest-physical for a guest's tree); -1 unknown
    parent   int32[T]        index of the parent table page, NO_PARENT for a root
    node     int16[T]        NUMA node of `frame`, UNKNOWN_NODE where not known
    level    uint8[T]        1 = leaf table (4 KiB entries) ... `levels` = root
    flags    uint8[T]        CHANGED | TORN | FAULT | BAD_TYPE | INFERRED | EMULATOR
    encoding                 "x86", "ept" or "kvm" (KVM's SPTEs: present = bit 0 and bit 11)
    """

    entries: np.ndarray
    base: np.ndarray
    frame: np.ndarray
    parent: np.ndarray
    node: np.ndarray
    level: np.ndarray
    flags: np.ndarray
    levels: int
    encoding: str = "x86"

    def __len__(self) -> int:
        return len(self.level)


@dataclass(frozen=True)
class Node:
    """One NUMA node of the captured machine: `frames` is int64[k, 2], half-open ranges of page frames."""

    id: int
    cpus: tuple[int, ...]
    frames: np.ndarray
    distance: tuple[int, ...] = ()


@dataclass(frozen=True)
class Topology:
    nodes: tuple[Node, ...]

    def __len__(self) -> int:
        return len(self.nodes)

    def node_of_cpu(self) -> np.ndarray:
        """int16[max CPU + 1]: NUMA node of each CPU, UNKNOWN_NODE for holes."""
        last = max((cpu for node in self.nodes for cpu in node.cpus), default=-1)
        table = np.full(last + 1, UNKNOWN_NODE, np.int16)
        for node in self.nodes:
            table[list(node.cpus)] = node.id
        return table

    def node_of_frame(self, frames: np.ndarray) -> np.ndarray:
        """int16, the shape of `frames`: NUMA node of each page frame, UNKNOWN_NODE outside every node."""
        ranges = sorted((int(a), int(b), node.id) for node in self.nodes for a, b in node.frames)
        frames = np.asarray(frames, np.int64)
        if not ranges:
            return np.full(frames.shape, UNKNOWN_NODE, np.int16)
        start, end, ids = (np.array(column, np.int64) for column in zip(*ranges, strict=True))
        at = np.clip(np.searchsorted(start, frames, side="right") - 1, 0, None)
        inside = (frames >= start[at]) & (frames < end[at])
        return np.where(inside, ids[at], UNKNOWN_NODE).astype(np.int16)


@dataclass(frozen=True)
class Snapshot:
    """The tables of an address space. `host` is None when nothing is nested below `guest` (native)."""

    guest: Tree
    vmas: np.ndarray  # VMA_DTYPE[V], sorted by start, disjoint
    vma_names: tuple[str, ...]
    topology: Topology
    host: Tree | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # of the dumper: quiescence, completeness, retries
    heat: Heat | None = None  # of the guest's pages

    @property
    def native(self) -> bool:
        return self.host is None

    @property
    def numa_oblivious(self) -> bool:
        """Whether this is a VM whose guest sees a single node, whatever its host has."""
        return not self.native and bool((self.facts.get("vm") or {}).get("numa_oblivious"))

    @property
    def scale(self) -> int:
        """How many times its memory the program has that this stands for (`synth --scale`), 1 for itself."""
        return int(self.facts.get("scale") or 1)

    @property
    def nested(self) -> Tree:
        """`host`, for questions about two dimensions only; ValueError on a native snapshot."""
        if self.host is None:
            raise ValueError("a native snapshot has no nested tables")
        return self.host
