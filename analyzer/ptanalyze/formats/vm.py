"""`vm.json` and the nested table beside it: the output of `ptdump vm PID -o DIR`, a VM seen from its host.

DIR holds ept.tables and ept.entries (formats/tables.py; base = guest-physical address, several roots may
follow one another, each with its tables, depth first), maps (of the VMM, byte for byte) and vm.json:

 {"format": "ptanalyze-vm", "version": 1,
  "levels": 4, "encoding": "kvm",                as in ept.tables
  "nodes": [...],                                the host's, as in snapshot.json
  "slots": [{"gpa": 0, "bytes": 655360, "hva": 140000000000000, "flags": 0, "space": 0}, ...],
  "vcpus": [{"tid": 11, "cpu": 3, "node": 1, "root": 25000}, ...],         in the order of vCPU numbers
  "roots": [{"frame": 25000, "table": 0, "kind": "tdp_mmu", "levels": 4, "smm": false}, ...],
  "facts": {...}}
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from ..core.errors import CaptureError
from ..core.snapshot import NO_PARENT, Topology, Tree
from .record import decode_facts, decode_record, write_record
from .snapshot import NodeRecord, Reading, Strict, node_records, read_bytes, topology_of
from .tables import read_tree

FILE = "vm.json"
FORMAT = "ptanalyze-vm"
VERSION = 1
NAME = "ept"
PAGE = 4096
TOP = 1 << 52  # guest-physical addresses end below it


class Slot(Strict):
    """A KVM memory slot: guest-physical `gpa` is the VMM's virtual `hva`; in bytes, whole pages."""

    gpa: int
    bytes: int
    hva: int
    flags: int = 0  # KVM_MEM_* of linux/kvm.h
    space: int = 0  # KVM address space: 1 is the guest's system management mode


class Vcpu(Strict):
    """A vCPU thread: the CPU and NUMA node it was on, the frame of the root it walks; null unknown."""

    tid: int
    cpu: int | None = None
    node: int | None = None
    root: int | None = None


class Root(Strict):
    """A root of nested tables. `table`: its index in ept.tables, null when it was not dumped (say why)."""

    frame: int
    kind: Literal["tdp_mmu", "legacy", "shadow"]  # shadow: maps guest-virtual, not guest-physical addresses
    table: int | None = None
    levels: int | None = None
    smm: bool = False
    why: str = ""


class Quiescence(Strict):
    """Counters that move when KVM changes its tables, e.g. {"mmu_notifier_seq": 9, "tdp_mmu_pages": 130}."""

    before: dict[str, int]
    after: dict[str, int]
    quiet: bool


class Facts(msgspec.Struct, kw_only=True):
    """The facts a dumper records; it may leave any of them out and add others."""

    pid: int | None = None
    comm: str | None = None
    uid: int | None = None
    kernel: str | None = None
    cpu: str | None = None
    time: datetime | None = None  # UTC
    uptime_s: float | None = None  # of the host, at that time
    process_s: float | None = None  # for which the VMM had run then
    duration_s: float | None = None
    method: str | None = None  # "bpf"
    quiescence: Quiescence | None = None
    reading: Reading | None = None
    retries: int | None = None
    stopped: bool | None = None
    unknown: tuple[str, ...] = ()  # columns that hold no data


class VmRecord(Strict):
    format: str
    version: int
    levels: int
    encoding: str
    nodes: tuple[NodeRecord, ...]
    slots: tuple[Slot, ...]
    vcpus: tuple[Vcpu, ...]
    roots: tuple[Root, ...]
    facts: msgspec.Raw


@dataclass(frozen=True)
class HostDump:
    """A VM as the host sees it: nested tables, memory slots, vCPUs, roots; topology is the host's."""

    tree: Tree
    topology: Topology
    slots: tuple[Slot, ...]
    vcpus: tuple[Vcpu, ...]
    roots: tuple[Root, ...]
    facts: dict[str, Any]


def read_vm(directory: str | PathLike[str]) -> HostDump:
    """HostDump of `directory`. CaptureError names file, field and value where it is damaged; UsageError names
    a missing file."""
    path = Path(directory) / FILE
    record = decode_record(path, read_bytes(path), VmRecord, FORMAT, VERSION)
    facts = decode_facts(path, record.facts, Facts, FORMAT)
    tree = read_tree(directory, NAME)
    for field in ("levels", "encoding"):
        if getattr(record, field) != getattr(tree, field):
            why = f"{NAME}.tables says {getattr(tree, field)}"
            raise CaptureError(path, field, getattr(record, field), why)
    check_slots(path, record.slots)
    check_roots(path, record.roots, tree)
    topology = topology_of(path, record.nodes)
    return HostDump(tree, topology, record.slots, record.vcpus, record.roots, facts)


def write_vm(directory: str | PathLike[str], host: HostDump) -> None:
    """Write vm.json of a HostDump into `directory`; its tree goes there with tables_file.write_tree."""
    record = VmRecord(
        format=FORMAT,
        version=VERSION,
        levels=host.tree.levels,
        encoding=host.tree.encoding,
        nodes=node_records(host.topology),
        slots=host.slots,
        vcpus=host.vcpus,
        roots=host.roots,
        facts=msgspec.Raw(msgspec.json.encode(host.facts)),
    )
    write_record(Path(directory) / FILE, record)


def check_slots(path: Path, slots: Iterable[Slot]) -> None:
    """CaptureError unless slots are whole pages below TOP and disjoint within their address space."""
    for slot in slots:
        if slot.gpa % PAGE or slot.bytes % PAGE or slot.hva % PAGE:
            raise CaptureError(path, "slot", slot, "not whole pages")
        if slot.gpa < 0 or slot.bytes <= 0 or slot.gpa + slot.bytes > TOP or not 0 <= slot.hva < 1 << 64:
            raise CaptureError(path, "slot", slot, "empty or out of range")
    ordered = sorted(slots, key=lambda slot: (slot.space, slot.gpa))
    for before, after in pairwise(ordered):
        if before.space == after.space and before.gpa + before.bytes > after.gpa:
            raise CaptureError(path, "slot", after, "overlaps the slot before it")


def check_roots(path: Path, roots: Sequence[Root], tree: Tree) -> None:
    """CaptureError unless the dumped roots are exactly the tables without a parent."""
    tables = [root.table for root in roots if root.table is not None]
    parentless = np.flatnonzero(tree.parent == NO_PARENT).tolist()
    if sorted(tables) != parentless:
        raise CaptureError(path, "roots", tables, f"{NAME}.tables has its roots at {parentless[:8]}")
    for root in roots:
        if root.table is not None and int(tree.frame[root.table]) != root.frame:
            why = f"{NAME}.tables says {int(tree.frame[root.table])}"
            raise CaptureError(path, "frame of a root", root.frame, why)
