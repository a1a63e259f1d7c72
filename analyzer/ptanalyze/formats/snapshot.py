"""`snapshot.json`, `maps` and the tables beside them: a Snapshot as a directory of files."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, dataclass_transform

import msgspec
import numpy as np
from msgspec import Meta

from ..core.errors import CaptureError, UsageError
from ..core.safe_files import MANY, read_inside
from ..core.snapshot import EMULATOR, MOST_SCALED, NO_PARENT, VMA_DTYPE, Node, Snapshot, Topology, Tree
from .atomic import atomic_write
from .record import decode_facts, decode_record, write_record
from .tables import read_tree, write_tree

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


FILE = "snapshot.json"
FORMAT = "ptanalyze-snapshot"
VERSION = 1
MOST_MAPS = 1 << 27  # bytes: over a million lines, as many as any kernel is set to allow


@dataclass_transform(frozen_default=True)  # as in msgspec: a struct derived from a frozen struct is frozen
class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class NodeRecord(Strict):
    """A NUMA node: `frames` are half-open ranges of page frames."""

    id: int
    cpus: tuple[int, ...]
    distance: tuple[int, ...] = ()
    frames: tuple[tuple[int, int], ...] = ()


class Signature(Strict):
    """Counters that move when an address space changes; null where the kernel has none."""

    minflt: int
    majflt: int
    mm_lock_seq: int | None = None
    pgtables_bytes: int | None = None


class Quiescence(Strict):
    before: Signature
    after: Signature
    quiet: bool


class Completeness(Strict):
    """Table pages read compared with mm->pgtables_bytes, which counts levels 1 to 3."""

    tables: int
    counted_by_kernel: int | None
    huge_leaves: int
    difference: int | None
    explained: bool
    explanation: str


class Reading(Strict):
    """Tables that were not read cleanly, and interior entries cleared because their table was gone."""

    changed: int
    torn: int
    fault: int
    bad_type: int
    dropped: int


class Verified(Strict):
    """Leaves compared with /proc/PID/pagemap, in 4 KiB pages."""

    checked: int
    mismatched: int
    hidden: int  # mapped, but pagemap hides VM_PFNMAP areas such as [vvar]
    examples: tuple[str, ...] = ()


class Sides(msgspec.Struct, kw_only=True):
    """What `ptanalyze join` says about both sides of a VM."""

    fit: dict[str, Any] | None = None
    guest_nodes: tuple[Any, ...] | None = None
    numa_oblivious: bool | None = None
    seconds_apart: float | None = None


class ReplicaTree(Strict):
    """A tree: the name of its files, and the nodes whose CPUs walk it."""

    name: Annotated[str, Meta(pattern=r"^gpt(-node\d{1,3})?$")]
    nodes: tuple[int, ...]


class ReplicaRecord(Strict):
    """`owners`: [first byte, one past the last, node] of each area; null where the kernel knows none."""

    trees: Annotated[tuple[ReplicaTree, ...], Meta(min_length=2)]
    owners: tuple[tuple[int, int, int], ...] | None = None


class NativeTime(Strict):
    """The program outside the tracer (`record --native-run`, `--seconds`): seconds of all its threads, in
    user mode and in the kernel's; ghz: of the CPU then; instructions: of the trace of the same work."""

    how: str  # "run" or "given"
    seconds: Annotated[float, Meta(gt=0, le=1e9)]  # elapsed
    user_seconds: Annotated[float, Meta(gt=0, le=1e12)]
    system_seconds: Annotated[float, Meta(ge=0, le=1e12)]
    ghz: Annotated[float, Meta(gt=0, le=100)]
    instructions: Annotated[int, Meta(gt=0, le=(1 << 63) - 1)]


class Facts(msgspec.Struct, kw_only=True):
    """The facts a dumper records; an importer may leave any of them out and add others."""

    pid: int | None = None
    comm: str | None = None
    uid: int | None = None
    huge_pages: str | None = (
        None  # transparent ones: "always", "madvise", "never", "forbidden" to the process
    )
    kernel: str | None = None
    cpu: str | None = None
    time: datetime | None = None  # UTC
    uptime_s: float | None = None  # of the kernel, at that time
    process_s: float | None = None  # for which the process had run then
    duration_s: float | None = None
    method: str | None = None  # "bpf", "pagemap", or the importer
    quiescence: Quiescence | None = None
    completeness: Completeness | None = None
    reading: Reading | None = None
    retries: int | None = None
    stopped: bool | None = None
    streamed: bool | None = None
    page_type: str | None = None
    node_source: str | None = None
    unknown: tuple[str, ...] = ()  # columns that hold no data
    native: NativeTime | None = None
    emulator: tuple[tuple[int, int], ...] = ()  # address ranges that belong to the tracer
    verify: Verified | None = None
    scale: Annotated[int, Meta(ge=1, le=MOST_SCALED)] = 1  # Snapshot.scale
    vm: Sides | None = None
    replicas: ReplicaRecord | None = None


class SnapshotRecord(Strict):
    format: str
    version: int
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
    path = directory / FILE
    record = decode_record(path, read_bytes(path), SnapshotRecord, FORMAT, VERSION)
    facts = decode_facts(path, record.facts, Facts, FORMAT)
    guest = read_tree(directory, "gpt")
    for field in ("levels", "encoding"):
        if getattr(record, field) != getattr(guest, field):
            why = f"gpt.tables says {getattr(guest, field)}"
            raise CaptureError(directory / FILE, field, getattr(record, field), why)
    vmas, names = parse_maps(read_bytes(directory / "maps", MOST_MAPS), directory / "maps")
    for start, end in facts.get("emulator", ()):
        vmas["emulator"] |= (vmas["start"] >= start) & (vmas["end"] <= end)
    mark_emulator(guest, vmas)
    nested = (directory / "ept.tables").exists() if nested is None else nested
    host = read_tree(directory, "ept") if nested else None
    return Snapshot(guest, vmas, names, topology_of(directory / FILE, record.nodes), host, facts)


def mark_emulator(tree: Tree, vmas: np.ndarray) -> None:
    """Flag the table pages in whose range the tracer has VMAs and the program has none."""
    if not vmas["emulator"].any():
        return
    start, end = (vmas[~vmas["emulator"]][name] for name in ("start", "end"))
    above = tree.base + (np.uint64(1) << (12 + 9 * tree.level.astype(np.uint64)))
    none = np.searchsorted(end, tree.base, side="right") == np.searchsorted(start, above)
    tree.flags[none & (tree.parent != NO_PARENT)] |= EMULATOR


def write_snapshot(
    directory: str | PathLike[str],
    snapshot: Snapshot,
    extra: dict[str, Any] | None = None,
    maps: bytes | None = None,
) -> None:
    """Write `snapshot` into the existing `directory`, snapshot.json last.

    extra  facts beside snapshot.facts; maps  bytes of /proc/PID/maps, else made from snapshot.vmas
    """
    directory = Path(directory)
    write_tree(directory, "gpt", snapshot.guest)
    if snapshot.host is not None:
        write_tree(directory, "ept", snapshot.host)
    if maps is None:
        maps = format_maps(snapshot.vmas, snapshot.vma_names).encode()
    with atomic_write(directory / "maps") as out:
        out.write(maps)
    write_json(directory, snapshot, {**snapshot.facts, **(extra or {})})


def write_json(directory: str | PathLike[str], snapshot: Snapshot, facts: dict[str, Any]) -> None:
    record = SnapshotRecord(
        format=FORMAT,
        version=VERSION,
        levels=snapshot.guest.levels,
        encoding=snapshot.guest.encoding,
        nodes=node_records(snapshot.topology),
        facts=msgspec.Raw(msgspec.json.encode(facts)),
    )
    write_record(Path(directory) / FILE, record)


def node_records(topology: Topology) -> tuple[NodeRecord, ...]:
    return tuple(
        NodeRecord(
            id=n.id, cpus=n.cpus, distance=n.distance, frames=tuple((int(a), int(b)) for a, b in n.frames)
        )
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
