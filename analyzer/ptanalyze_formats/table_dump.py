"""Binary dumps of a guest's and its nested page tables, GPTDUMP1 and NPTDUMP1, a table per record.

A magic of 8 bytes, the number of records (u64), then 4,128 bytes for each: u64 physical address of the table,
u64 first address mapped, u32 level (4 = root), u32 children, u32 root, u32 zero, 512 raw u64 entries; little
endian. NPTDUMP1 holds KVM's SPTEs. The files know nothing of NUMA nodes: these come from a list beside them.
"""

import os
import re
from itertools import pairwise
from operator import itemgetter
from os import PathLike
from pathlib import Path

import numpy as np

from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.safe_files import open_inside, read_given
from ptanalyze.core.snapshot import VMA_DTYPE, Node, Snapshot, Topology, Tree
from ptanalyze.formats.record import TRACE, copy_private
from ptanalyze.formats.snapshot import FILE as SNAPSHOT
from ptanalyze.formats.snapshot import VM_FILE, read_snapshot, write_snapshot
from ptanalyze.formats.trace import read_trace

from . import Head
from .ptdump_text import LEVELS, assemble, table_nodes, tree_of

GUEST, NESTED = b"GPTDUMP1", b"NPTDUMP1"
RECORD = np.dtype(
    [
        ("address", "<u8"),
        ("base", "<u8"),
        ("level", "<u4"),
        ("children", "<u4"),
        ("root", "<u4"),
        ("zero", "<u4"),
        ("entries", "<u8", 512),
    ]
)
HEADER = 16
MOST_FRAME = 1 << 40
NODE_LINE = re.compile(r"(\d{1,4})\s+(0x[0-9a-fA-F]{1,16}|\d{1,19})\s+(0x[0-9a-fA-F]{1,16}|\d{1,19})")
UNKNOWN = ("vmas", "cpus", "distances")


def is_directory(head: Head) -> bool:
    """Whether ptdump wrote the directory, of a process or a VM."""
    return (head.path / "gpt.tables").exists() or (head.path / VM_FILE).exists()


def import_directory(source: str | PathLike[str], directory: str | PathLike[str]) -> Snapshot:
    """Copy what `ptdump process PID -o DIR` wrote on a machine without Python, for example inside a guest,
    into the existing `directory`; its Snapshot. UsageError for a host's dump of a VM alone."""
    source, directory = Path(source), Path(directory)
    if (source / VM_FILE).exists() and not (source / SNAPSHOT).exists():
        raise UsageError(
            f"{source}: a host's dump of a VM, without the guest's tables: ptanalyze join {source} GUEST"
        )
    snapshot = read_snapshot(source)
    for path in source.iterdir():
        if path.is_file():
            with open_inside(path) as file:
                copy_private(file, directory / path.name)
    if (directory / TRACE).exists():
        read_trace(directory / TRACE)
    return snapshot


def import_table_dump(
    path: str | PathLike[str],
    directory: str | PathLike[str],
    nested: str | PathLike[str] | None = None,
    nodes: str | PathLike[str] | None = None,
) -> Snapshot:
    """Snapshot of a GPTDUMP1 file, also written into the existing `directory`; the caller seals it.

    nested  NPTDUMP1 file of the same VM; nodes  file that says which physical memory is on which node, the
            host's where there is `nested`: lines "NODE FIRST LAST" in bytes. None: one node has all of it.
    UsageError for a missing file, CaptureError for a damaged one.
    """
    topology = read_nodes(Path(nodes)) if nodes is not None else one_node()
    guest, notes = read_dump(Path(path), GUEST)
    host, both = None, {"guest": notes}
    if nested is not None:
        host, both["host"] = read_dump(Path(nested), NESTED)
        host.node[:] = topology.node_of_frame(host.frame)
    guest.node[:] = table_nodes(guest, host, topology)
    unknown = [*UNKNOWN, *([] if nodes is not None else ["nodes (one assumed)"])]
    facts = {"method": "GPTDUMP1", "import": both, "unknown": unknown}
    snapshot = Snapshot(guest, np.zeros(0, VMA_DTYPE), (), topology, host, facts)
    write_snapshot(directory, snapshot)
    return snapshot


def read_dump(path: Path, magic: bytes) -> tuple[Tree, dict[str, int]]:
    """(Tree with unknown nodes, counts of repairs) of a file of that magic."""
    records = read_records(path, magic)
    encoding = "x86" if magic == GUEST else "kvm"
    level, frame = records["level"].astype(np.int64), (records["address"] >> np.uint64(12)).astype(np.int64)
    entries = records["entries"].copy()
    base, parent, order, repaired = assemble(path, level, frame, entries, encoding)
    differs = base != records["base"][order].astype(np.int64)
    if differs.any():
        at = int(order[np.argmax(differs)])
        why = f"the tables above it lead to {int(base[np.argmax(differs)]):#x}"
        raise CaptureError(path, f"first address of table {at}", hex(int(records["base"][at])), why)
    return tree_of(entries[order], base, frame[order], parent, level[order], encoding), repaired


def read_records(path: Path, magic: bytes) -> np.ndarray:
    """RECORD[n], memory-mapped, each field as it can be."""
    try:
        size = os.path.getsize(path)
        head = path.open("rb").read(HEADER)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    if head[:8] != magic:
        raise CaptureError(path, "magic", head[:8], f"expected {magic.decode()}")
    count = int.from_bytes(head[8:], "little")
    if len(head) < HEADER or not count or size != HEADER + count * RECORD.itemsize:
        raise CaptureError(path, "size", size, f"{count} tables make {HEADER + count * RECORD.itemsize}")
    records: np.ndarray = np.memmap(path, RECORD, "r", HEADER, (count,))
    reject(path, "level", records["level"], (records["level"] < 1) | (records["level"] > LEVELS), "1 to 4")
    address = records["address"]
    bad = (address % np.uint64(4096) != 0) | (address >> np.uint64(12) >= MOST_FRAME)
    reject(path, "address", address, bad, "no physical address of a table")
    return records


def reject(path: Path, field: str, values: np.ndarray, wrong: np.ndarray, why: str) -> None:
    if wrong.any():
        at = int(np.argmax(wrong))
        raise CaptureError(path, f"{field} of table {at}", int(values[at]), why)


def one_node() -> Topology:
    return Topology((Node(0, (), np.array([[0, MOST_FRAME - 1]], np.int64)),))


def read_nodes(path: Path) -> Topology:
    """Topology of a list of nodes; CaptureError names the line that is none or overlaps another."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    taken: list[tuple[int, int, int, str]] = []
    for number, line in enumerate(read_given(path).decode("ascii", "replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = NODE_LINE.fullmatch(line.strip())
        begin, end = (int(match[k], 16 if "x" in match[k] else 10) for k in (2, 3)) if match else (1, 0)
        first, last = begin >> 12, end >> 12
        if not match or begin > end or last >= MOST_FRAME - 1:
            raise CaptureError(path, f"line {number}", repr(line[:40]), "write NODE FIRST LAST, in bytes")
        taken.append((first, last, number, line))
        ranges.setdefault(int(match[1]), []).append((first, last + 1))
    for one, next_one in pairwise(sorted(taken)):
        if next_one[0] <= one[1]:
            _, _, number, line = max(one, next_one, key=itemgetter(2))
            raise CaptureError(path, f"line {number}", repr(line[:40]), "overlaps an earlier line")
    if not ranges:
        raise CaptureError(path, "nodes", 0, "no line NODE FIRST LAST in it")
    return Topology(tuple(Node(n, (), np.array(sorted(r), np.int64)) for n, r in sorted(ranges.items())))
