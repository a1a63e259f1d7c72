"""Page tables on disk: `NAME.tables` and `NAME.entries` (dumps/records.h); `snapshot.json`, `maps` and the
tables beside them; and `vm.json` with the nested table, the output of `ptdump vm PID -o DIR`.

A VM seen from its host holds ept.tables and ept.entries (base = guest-physical address, several roots may
follow one another, each with its tables, depth first), maps (of the VMM, byte for byte) and vm.json:

 {"format": "ptanalyze-vm", "version": 1,
  "levels": 4, "encoding": "kvm",                as in ept.tables
  "nodes": [...],                                the host's, as in snapshot.json
  "slots": [{"gpa": 0, "bytes": 655360, "hva": 140000000000000, "flags": 0, "space": 0}, ...],
  "vcpus": [{"tid": 11, "cpu": 3, "node": 1, "root": 25000}, ...],         in the order of vCPU numbers
  "roots": [{"frame": 25000, "table": 0, "kind": "tdp_mmu", "levels": 4, "smm": false}, ...],
  "facts": {...}}
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from ..core.errors import CaptureError, UsageError
from ..core.machine import LEAST, Strict
from ..core.safe_files import MANY, open_inside, read_inside
from ..core.snapshot import (
    BAD_TYPE,
    CHANGED,
    EMULATOR,
    ENTRIES_PER_TABLE,
    FAULT,
    INFERRED,
    MOST_SCALED,
    NO_PARENT,
    TORN,
    VMA_DTYPE,
    Node,
    Snapshot,
    Topology,
    Tree,
)
from .atomic import atomic_write
from .record import BYTE_ORDER, HEAD, Versioned, decode_facts, decode_record, must_say, write_record

TABLES_MAGIC = b"PTTABLES"
ENTRIES_MAGIC = b"PTENTRYS"
TABLES_VERSION = 1
ENTRIES_HEADER = 4096
ENCODINGS = ("x86", "ept", "kvm")
LEVELS = (4, 5)
BLOCK = 1 << 20  # records read and validated at a time
FLAGS = CHANGED | TORN | FAULT | BAD_TYPE | INFERRED

HEADER_DTYPE = np.dtype(
    [
        *HEAD,
        ("record_bytes", "<u4"),
        ("count", "<u8"),
        ("levels", "<u4"),
        ("encoding", "S12"),
        ("words", "S464"),
    ]
)
COLUMNS = [
    ("base", "<u8"),
    ("frame", "<i8"),
    ("parent", "<i4"),
    ("node", "<i2"),
    ("level", "u1"),
    ("flags", "u1"),
]
TABLE_DTYPE = np.dtype(COLUMNS)
TABLES_WORDS = (
    "One 24-byte record a table page, little endian, depth first, root first: "
    "u64 first address mapped, i64 page frame (-1 unknown), i32 index of the parent (-1 root), "
    "i16 NUMA node (-1 unknown), u8 level (1 = table of 4 KiB entries), u8 flags (1 changed, "
    "2 torn, 4 fault, 8 bad type, 16 inferred).\n"
)
ENTRIES_WORDS = (
    "512 raw u64 page-table entries a table page, little endian, in the order of the tables "
    "file, from byte 4096 on. Encodings: x86 = x86-64, a memory-encryption bit cleared; ept = "
    "Intel EPT; kvm = KVM SPTE, present when bits 0 and 11 are set.\n"
)


def read_tree(directory: str | PathLike[str], name: str = "gpt") -> Tree:
    """Tree of `name`.tables and `name`.entries in `directory`; entries stay a read-only memory map.

    The columns a walker indexes with (parents, levels, addresses) are validated: CaptureError names file,
    field and value; UsageError if a file is missing. Entries are not validated.
    """
    tables, entries = Path(directory) / f"{name}.tables", Path(directory) / f"{name}.entries"
    header = read_header(tables, TABLES_MAGIC, HEADER_DTYPE.itemsize, TABLE_DTYPE.itemsize)
    twin = read_header(entries, ENTRIES_MAGIC, ENTRIES_HEADER, ENTRIES_PER_TABLE * 8)
    for field in ("count", "levels", "encoding"):
        if header[field] != twin[field]:
            raise CaptureError(entries, field, twin[field], f"{tables.name} says {header[field]}")
    count, levels = int(header["count"]), int(header["levels"])
    records = read_records(tables, count, levels)
    validate(tables, records, levels)
    base, frame, parent, node, level, flags = (np.ascontiguousarray(records[field]) for field, _ in COLUMNS)
    with open_inside(entries) as file:
        raw = np.memmap(file, "<u8", "r", ENTRIES_HEADER, (count, ENTRIES_PER_TABLE))
    return Tree(raw, base, frame, parent, node, level, flags, levels, header["encoding"].decode())


def read_records(path: Path, count: int, levels: int) -> np.ndarray:
    """TABLE_DTYPE[count]; CaptureError at the first block with a record that cannot be."""
    records = np.empty(count, TABLE_DTYPE)
    with open_inside(path) as file:
        file.seek(HEADER_DTYPE.itemsize)
        for start in range(0, count, BLOCK):
            block = records[start : start + BLOCK]
            if file.readinto(block.view(np.uint8).data) != block.nbytes:
                raise CaptureError(path, "size", "cut short", f"{count} records were promised")
            validate_each(path, block, levels)
    return records


def write_tree(directory: str | PathLike[str], name: str, tree: Tree) -> None:
    """Write `tree` as `name`.entries and `name`.tables (0600, each whole or not at all)."""
    with atomic_write(Path(directory) / f"{name}.entries") as out:
        head = header_of(tree, ENTRIES_MAGIC, ENTRIES_HEADER, ENTRIES_PER_TABLE * 8, ENTRIES_WORDS)
        out.write(head.ljust(ENTRIES_HEADER, b"\0"))
        out.write(np.ascontiguousarray(tree.entries, "<u8").data)
    write_records(directory, name, tree)


def write_records(directory: str | PathLike[str], name: str, tree: Tree) -> None:
    """Write `name`.tables alone, beside entries that are there; flags that readers derive are left out."""
    records = np.empty(len(tree), TABLE_DTYPE)
    for field, _ in COLUMNS:
        records[field] = getattr(tree, field)
    records["flags"] &= FLAGS
    with atomic_write(Path(directory) / f"{name}.tables") as out:
        out.write(header_of(tree, TABLES_MAGIC, HEADER_DTYPE.itemsize, TABLE_DTYPE.itemsize, TABLES_WORDS))
        out.write(records.data)


def header_of(tree: Tree, magic: bytes, header_bytes: int, record_bytes: int, words: str) -> bytes:
    fields = (magic, TABLES_VERSION, BYTE_ORDER, header_bytes, record_bytes, len(tree), tree.levels)
    return np.array([(*fields, tree.encoding.encode(), words.encode())], HEADER_DTYPE).tobytes()


def read_header(path: Path, magic: bytes, header_bytes: int, record_bytes: int) -> np.void:
    """The header of `path`, a HEADER_DTYPE scalar, validated against the format and the file's size."""
    try:
        with open_inside(path) as file:
            raw = file.read(HEADER_DTYPE.itemsize)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; is this a capture with page tables?") from None
    if len(raw) < HEADER_DTYPE.itemsize:
        raise CaptureError(path, "size", size, f"shorter than its {HEADER_DTYPE.itemsize}-byte header")
    header: np.void = np.frombuffer(raw, HEADER_DTYPE)[0]
    must_say(path, header, magic=magic, byte_order=BYTE_ORDER, version=TABLES_VERSION)
    must_say(path, header, header_bytes=header_bytes, record_bytes=record_bytes)
    if header["encoding"] not in [encoding.encode() for encoding in ENCODINGS]:
        raise CaptureError(path, "encoding", header["encoding"], f"expected one of {', '.join(ENCODINGS)}")
    if header["levels"] not in LEVELS:
        raise CaptureError(path, "levels", header["levels"], "expected 4 or 5")
    count = int(header["count"])
    if not 0 < count < 1 << 31:
        raise CaptureError(path, "count", count, "expected at least the root and less than 2^31 tables")
    if size != header_bytes + count * record_bytes:
        raise CaptureError(path, "size", size, f"{count} records make {header_bytes + count * record_bytes}")
    return header


def validate_each(path: Path, records: np.ndarray, levels: int) -> None:
    """CaptureError for a record that is wrong by itself."""
    level, frame = records["level"], records["frame"]
    reject(path, "level", level, (level < 1) | (level > levels), f"expected 1 to {levels}")
    reject(path, "flags", records["flags"], records["flags"] & ~np.uint8(FLAGS) != 0, "unknown flag")
    reject(path, "node", records["node"], records["node"] < -1, "expected a node or -1")
    reject(path, "frame", frame, (frame < -1) | (frame >> 40 > 0), "not a frame")


def validate(path: Path, records: np.ndarray, levels: int) -> None:
    """CaptureError unless the records, each sound by itself, form depth-first trees."""
    level, base, parent = (records[field].astype(np.int64) for field in ("level", "base", "parent"))
    expected = enclosing_tables(level, levels)
    wrong = (parent != expected) | (expected < NO_PARENT)
    reject(path, "parent", parent, wrong, "not the table before it one level up")
    span = np.int64(1) << (3 + 9 * level)  # bytes per entry
    askew = (base & (span * ENTRIES_PER_TABLE - 1) != 0) | (base < 0)
    reject(path, "base", base, askew, "not aligned to its level")
    inside = parent >= 0
    slot = np.where(inside, (base - base[parent]) // (span * ENTRIES_PER_TABLE), 0)
    reject(path, "base", base, (slot < 0) | (slot >= ENTRIES_PER_TABLE), "outside its parent table")
    later = np.append(True, (base[1:] > base[:-1]) | (base[1:] == base[:-1]) & (level[1:] < level[:-1]))
    reject(path, "base", base, inside & ~later, "not after its elder sibling")


def enclosing_tables(level: np.ndarray, levels: int) -> np.ndarray:
    """int64[T]: the last table one level higher before each table, NO_PARENT for roots."""
    index = np.arange(len(level))
    expected = np.full(len(level), -2)
    expected[level == levels] = NO_PARENT
    for above in range(levels, 1, -1):
        last = np.maximum.accumulate(np.where(level == above, index, -2))
        here = level == above - 1
        expected[here] = last[here]
    return expected


def reject(path: Path, field: str, values: np.ndarray, wrong: np.ndarray, why: str) -> None:
    if wrong.any():
        at = int(np.argmax(wrong))
        raise CaptureError(path, f"{field} of table {at}", values[at], why)


# `maps`: the text of /proc/PID/maps, byte for byte, as a VMA array.

LINE = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([r-])([w-])([x-])([ps]) [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ [0-9]+ *(.*)"
)


def parse_maps(text: str | bytes, file: str | PathLike[str] = "maps") -> tuple[np.ndarray, tuple[str, ...]]:
    r"""(VMA_DTYPE[V], names) of the text (str or bytes) of /proc/PID/maps (proc(5)).

    Names are the last column, "" for anonymous memory; a byte that is no UTF-8 is \xNN in them. CaptureError
    names the first line that does not parse or overlaps the one before it.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    lines = text.split("\n")
    if lines.pop():
        raise CaptureError(file, f"line {len(lines) + 1}", "end of file", "the last line is cut short")
    vmas = np.zeros(len(lines), VMA_DTYPE)
    names = []
    end = 0
    for i, line in enumerate(lines):
        match = LINE.fullmatch(line)
        if not match:
            raise CaptureError(file, f"line {i + 1}", line[:60], "not a line of /proc/PID/maps")
        start, stop = int(match[1], 16), int(match[2], 16)
        if not end <= start < stop or start % 4096 or stop % 4096:
            raise CaptureError(file, f"line {i + 1}", line[:33], "empty, not whole pages, or out of order")
        end = stop
        prot = sum(1 << bit for bit in range(3) if match[3 + bit] != "-")
        vmas[i] = (start, stop, prot, match[6] == "s", False)
        names.append(match[7])
    return vmas, tuple(names)


def format_maps(vmas: np.ndarray, names: Sequence[str]) -> str:
    """Text of /proc/PID/maps for `vmas`; offset, device and inode are zero."""
    lines = []
    for vma, name in zip(vmas, names, strict=True):
        flags = "".join(letter if vma["prot"] >> bit & 1 else "-" for bit, letter in enumerate("rwx"))
        flags += "s" if vma["shared"] else "p"
        lines.append(f"{vma['start']:x}-{vma['end']:x} {flags} 00000000 00:00 0 {name}".rstrip(" ") + "\n")
    return "".join(lines)


SNAPSHOT_FILE = "snapshot.json"
FORMAT = "ptanalyze-snapshot"
VERSION = 1
MOST_MAPS = 1 << 27  # bytes: over a million lines, as many as any kernel is set to allow


class NodeRecord(Strict):
    """A NUMA node: `frames` are half-open ranges of page frames."""

    id: int
    cpus: tuple[int, ...]
    distance: tuple[int, ...] = ()
    frames: tuple[tuple[int, int], ...] = ()


class Quiescence(msgspec.Struct):
    """Whether the counters that move when an address space changes stood still; null where there are none."""

    before: dict[str, int | None]
    after: dict[str, int | None]
    quiet: bool


class Completeness(msgspec.Struct):
    """Table pages read compared with mm->pgtables_bytes, which counts levels 1 to 3."""

    tables: int
    counted_by_kernel: int | None
    huge_leaves: int
    explained: bool
    explanation: str


class Verified(msgspec.Struct):
    """Leaves compared with /proc/PID/pagemap, in 4 KiB pages, some of which it hides (VM_PFNMAP: [vvar])."""

    checked: int
    mismatched: int
    hidden: int


class Sides(msgspec.Struct, kw_only=True):
    """What `ptanalyze join` says about both sides of a VM."""

    fit: dict[str, Any] | None = None
    guest_nodes: tuple[Any, ...] | None = None
    numa_oblivious: bool | None = None
    seconds_apart: float | None = None


class NativeTime(Strict):
    """The program outside the tracer (`record --seconds`): seconds of all its threads, in
    user mode and in the kernel's; ghz: of the CPU then; instructions: of the trace of the same work."""

    how: str  # "given"; "run" in older captures
    seconds: Annotated[float, Meta(ge=LEAST, le=1e9)]  # elapsed
    user_seconds: Annotated[float, Meta(ge=LEAST, le=1e12)]
    system_seconds: Annotated[float, Meta(ge=0, le=1e12)]
    ghz: Annotated[float, Meta(ge=LEAST, le=100)]
    instructions: Annotated[int, Meta(gt=0, le=(1 << 63) - 1)]


class Facts(msgspec.Struct, kw_only=True):
    """The facts of a dumper that something reads; it may leave any of them out, and add others."""

    pid: int | None = None
    kernel: str | None = None
    huge_pages: str | None = None  # "always", "madvise", "never"; "forbidden" to the process
    uptime_s: float | None = None  # of the kernel, when the dump was made
    process_s: float | None = None  # for which the process or VMM had run then
    quiescence: Quiescence | None = None
    completeness: Completeness | None = None
    unknown: tuple[str, ...] = ()  # columns that hold no data
    native: NativeTime | None = None
    emulator: tuple[tuple[int, int], ...] = ()  # address ranges that belong to the tracer
    verify: Verified | None = None
    scale: Annotated[int, Meta(ge=1, le=MOST_SCALED)] = 1  # Snapshot.scale
    vm: Sides | None = None


class SnapshotRecord(Versioned):
    levels: int
    encoding: str
    nodes: tuple[NodeRecord, ...]
    facts: msgspec.Raw


def read_snapshot(directory: str | PathLike[str], nested: bool | None = None) -> Snapshot:
    """Snapshot of `directory`: snapshot.json, maps, gpt.* and, for a VM, ept.*.

    nested  whether there are ept.* that belong to it; None: if they are there
    CaptureError names file, field and value where it is damaged; UsageError names a missing file.
    """
    directory = Path(directory)
    path = directory / SNAPSHOT_FILE
    record = decode_record(path, read_bytes(path), SnapshotRecord, FORMAT, VERSION)
    facts = decode_facts(path, record.facts, Facts, FORMAT)
    guest = read_tree(directory, "gpt")
    must_agree(path, record, guest, "gpt")
    vmas, names = parse_maps(read_bytes(directory / "maps", MOST_MAPS), directory / "maps")
    for start, end in facts.get("emulator", ()):
        vmas["emulator"] |= (vmas["start"] >= start) & (vmas["end"] <= end)
    if vmas["emulator"].any():  # tables in whose range the tracer has VMAs and the program has none
        start, end = (vmas[~vmas["emulator"]][name] for name in ("start", "end"))
        above = guest.base + (np.uint64(1) << (12 + 9 * guest.level.astype(np.uint64)))
        none = np.searchsorted(end, guest.base, side="right") == np.searchsorted(start, above)
        guest.flags[none & (guest.parent != NO_PARENT)] |= EMULATOR
    nested = (directory / "ept.tables").exists() if nested is None else nested
    host = read_tree(directory, "ept") if nested else None
    return Snapshot(guest, vmas, names, topology_of(directory / SNAPSHOT_FILE, record.nodes), host, facts)


def must_agree(path: Path, record: SnapshotRecord, tree: Tree, name: str) -> None:
    """CaptureError unless a record has the levels and encoding of its tree: else they are of two dumps."""
    for field in ("levels", "encoding"):
        value, of_tree = getattr(record, field), getattr(tree, field)
        if value != of_tree:
            raise CaptureError(path, field, value, f"{name}.tables says {of_tree}")


def write_snapshot(directory: str | PathLike[str], snapshot: Snapshot) -> None:
    """Write `snapshot` into the existing `directory`, snapshot.json last."""
    directory = Path(directory)
    write_tree(directory, "gpt", snapshot.guest)
    if snapshot.host is not None:
        write_tree(directory, "ept", snapshot.host)
    with atomic_write(directory / "maps") as out:
        out.write(format_maps(snapshot.vmas, snapshot.vma_names).encode())
    write_json(directory, snapshot)


def write_json(directory: str | PathLike[str], snapshot: Snapshot) -> None:
    """Write snapshot.json."""
    record = SnapshotRecord(format=FORMAT, version=VERSION, **fields_of(snapshot.guest, snapshot))
    write_record(Path(directory) / SNAPSHOT_FILE, record)


def fields_of(tree: Tree, dump: "Snapshot | HostDump") -> dict[str, Any]:
    """Fields of a SnapshotRecord of a dump and its tree."""
    facts, nodes = msgspec.Raw(msgspec.json.encode(dump.facts)), node_records(dump.topology)
    return {"levels": tree.levels, "encoding": tree.encoding, "nodes": nodes, "facts": facts}


def node_records(topology: Topology) -> tuple[NodeRecord, ...]:
    """NUMA nodes as snapshot.json has them."""
    return tuple(
        NodeRecord(id=n.id, cpus=n.cpus, distance=n.distance, frames=tuple(map(tuple, n.frames.tolist())))
        for n in topology.nodes
    )


def read_bytes(path: Path, most: int = MANY) -> bytes:
    try:
        return read_inside(path, most)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; is this a capture with page tables?") from None


def topology_of(path: Path, records: Sequence[NodeRecord]) -> Topology:
    """Topology of NodeRecords; CaptureError if nodes or frame ranges overlap or are empty."""
    ids = [record.id for record in records]
    if len(set(ids)) < len(ids) or any(not 0 <= i < 1 << 15 for i in ids):
        raise CaptureError(path, "nodes", ids, "node numbers must be distinct and not negative")
    cpus = [cpu for record in records for cpu in record.cpus]
    if len(set(cpus)) < len(cpus) or any(not 0 <= cpu < 1 << 20 for cpu in cpus):
        raise CaptureError(path, "cpus", cpus[:8], "CPUs must be distinct and not negative")
    end = 0
    for start, stop in sorted(r for record in records for r in record.frames):
        if not end <= start < stop < 1 << 40:
            raise CaptureError(path, "frames", [start, stop], "empty, negative or overlapping frame range")
        end = stop
    frames = [np.array(record.frames, np.int64).reshape(-1, 2) for record in records]
    return Topology(tuple(Node(r.id, r.cpus, f, r.distance) for r, f in zip(records, frames, strict=True)))


def now() -> str:
    """The current time as a fact: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


VM_FILE = "vm.json"
VM_FORMAT = "ptanalyze-vm"
VM_VERSION = 1
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


class VmRecord(SnapshotRecord):
    slots: tuple[Slot, ...]
    vcpus: tuple[Vcpu, ...]
    roots: tuple[Root, ...]


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
    """HostDump of `directory`. CaptureError: file, field and value of damage; UsageError: a missing file."""
    path = Path(directory) / VM_FILE
    record = decode_record(path, read_bytes(path), VmRecord, VM_FORMAT, VM_VERSION)
    facts = decode_facts(path, record.facts, Facts, VM_FORMAT)
    tree = read_tree(directory, NAME)
    must_agree(path, record, tree, NAME)
    check_slots(path, record.slots)
    check_roots(path, record.roots, tree)
    return HostDump(tree, topology_of(path, record.nodes), record.slots, record.vcpus, record.roots, facts)


def write_vm(directory: str | PathLike[str], host: HostDump) -> None:
    """Write vm.json of a HostDump into `directory`; its tree goes there with write_tree."""
    record = VmRecord(
        format=VM_FORMAT,
        version=VM_VERSION,
        slots=host.slots,
        vcpus=host.vcpus,
        roots=host.roots,
        **fields_of(host.tree, host),
    )
    write_record(Path(directory) / VM_FILE, record)


def check_slots(path: Path, slots: Iterable[Slot]) -> None:
    """CaptureError unless slots are whole pages below TOP and disjoint within their address space."""
    for slot in slots:
        if slot.gpa % PAGE or slot.bytes % PAGE or slot.hva % PAGE:
            raise CaptureError(path, "slot", slot, "not whole pages")
        if slot.gpa < 0 or slot.bytes <= 0 or slot.gpa + slot.bytes > TOP or not 0 <= slot.hva < 1 << 64:
            raise CaptureError(path, "slot", slot, "empty or out of range")
    for before, after in pairwise(sorted(slots, key=lambda slot: (slot.space, slot.gpa))):
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
