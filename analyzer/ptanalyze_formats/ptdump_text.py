"""Importer of the text dumps of the Mitosis and vMitosis page-table dumper (`dodump` over /proc/ptdump).

A file holds `<numamap>` (lines "node first last", bytes) and `<ptdump process= count=>` blocks, a line per
table, the root level first: the table's frame and 512 numbers, 0 or a frame (level 2: "p" and the frame of a
table, else a frame of 2 MiB). "x" marks executable leaves, "n" leaves with bit 8 that are not present (NUMA
hints). Levels 1-4 only. It has no other flag bits, VMAs, CPUs or distances; 1 GiB leaves read as pointers.
"""

import mmap
import re
import tempfile
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

import ptanalyze as pt

from . import Head
from .kernels import EXECUTABLE, NUMA, POINTER, parse_entries

# Tables of a dump, known only by frame and level, assembled: which points to which, at which address.

GIB_FRAMES = 1 << 18


def assemble(
    path: Path, level: np.ndarray, frames: np.ndarray, entries: np.ndarray, encoding: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, int]]:
    """(base, parent, order, repaired): tables in depth-first `order`, with base addresses and parents.

    Pointers to no table of the dump become 1 GiB leaves (level 3, aligned) or are cleared in `entries`,
    tables that nothing points to are left out; `repaired` counts them. The kernel half of an x86 root is
    cleared. CaptureError unless there is exactly one root.
    """
    roots = np.flatnonzero(level == LEVELS)
    if len(roots) != 1:
        raise pt.errors.CaptureError(path, "level4", len(roots), "expected exactly one root table")
    if encoding == "x86":
        entries[roots[0], USER_SLOTS:] = 0
    repaired = {"leaves_1g": 0, "dropped_pointers": 0, "dropped_tables": 0}
    tables, bases = [roots], [np.zeros(1, np.int64)]
    parents, below = roots, bases[0]
    for height in range(LEVELS, 1, -1):
        parents, below = children(parents, below, height, level, frames, entries, encoding, repaired)
        tables.append(parents)
        bases.append(below)
    index, base = np.concatenate(tables), np.concatenate(bases)
    repaired["dropped_tables"] = len(level) - len(index)
    sort = np.lexsort((-level[index], base))
    order, base = index[sort], base[sort]
    return base, pt.formats.enclosing_tables(level[order], LEVELS), order, repaired


def tree_of(
    entries: np.ndarray,
    base: np.ndarray,
    frames: np.ndarray,
    parent: np.ndarray,
    level: np.ndarray,
    encoding: str,
) -> pt.snapshot.Tree:
    """The Tree of tables in the order of `assemble`, whose nodes are not known."""
    return pt.snapshot.Tree(
        entries=entries,
        base=base.astype(np.uint64),
        frame=frames,
        parent=parent.astype(np.int32),
        node=np.full(len(base), pt.errors.UNKNOWN_NODE, np.int16),
        level=level.astype(np.uint8),
        flags=np.zeros(len(base), np.uint8),
        levels=LEVELS,
        encoding=encoding,
    )


def children(
    parents: np.ndarray,
    base: np.ndarray,
    height: int,
    level: np.ndarray,
    frames: np.ndarray,
    entries: np.ndarray,
    encoding: str,
    repaired: dict[str, int],
) -> tuple[np.ndarray, np.ndarray]:
    """(tables, bases) of level height - 1 that `parents` at addresses `base` point to, by address."""
    rows = entries[parents]
    at, slot = np.nonzero(pt.snapshot.table(rows, height, encoding))
    wanted = pt.snapshot.frame(rows[at, slot], height, encoding, leaves=False)
    pool = np.flatnonzero(level == height - 1)
    pool = pool[np.argsort(frames[pool], kind="stable")]
    place = np.minimum(np.searchsorted(frames[pool], wanted), max(len(pool) - 1, 0))
    there = frames[pool][place] == wanted if len(pool) else np.zeros(len(wanted), bool)
    there[there] &= np.isin(np.arange(there.sum()), np.unique(pool[place[there]], return_index=True)[1])
    huge = ~there & (height == 3) & (wanted % GIB_FRAMES == 0)
    entries[parents[at[huge]], slot[huge]] |= pt.snapshot.HUGE
    lost = ~there & ~huge
    entries[parents[at[lost]], slot[lost]] = 0
    repaired["leaves_1g"] += int(huge.sum())
    repaired["dropped_pointers"] += int(lost.sum())
    return pool[place[there]], base[at[there]] + (slot[there] << (3 + 9 * height))


def table_nodes(
    guest: pt.snapshot.Tree, host: pt.snapshot.Tree | None, topology: pt.snapshot.Topology
) -> np.ndarray:
    """int16[T]: NUMA node of each guest table's frame, through the host tree if there is one."""
    if host is None:
        return topology.node_of_frame(guest.frame)
    backing = np.full(len(guest), pt.errors.UNKNOWN_NODE, np.int64)
    address = guest.frame << 12
    for level in (3, 2, 1):
        span = 1 << (3 + 9 * level)
        at = np.flatnonzero(host.level == level)
        if not len(at):
            continue
        bases = host.base[at].astype(np.int64)
        place = np.clip(np.searchsorted(bases, address, side="right") - 1, 0, None)
        inside = (address >= bases[place]) & (address < bases[place] + 512 * span)
        entry = host.entries[at[place], (address // span) & 511]
        hit = inside & pt.snapshot.leaf(entry, level, host.encoding)
        offset = (address % span) >> 12
        backing = np.where(hit, pt.snapshot.frame(entry, level, host.encoding) + offset, backing)
    return topology.node_of_frame(backing)


LEVELS = 4
CHUNK = 1024  # tables converted at once: 4 MiB
USER_SLOTS = 256
NX = np.uint64(1 << 63)
X86_BITS = np.uint64(5)  # present, user
EPT_BITS = np.uint64(7)  # read, write, execute
BLOCK = re.compile(rb'<ptdump process="(\d{1,10})" (count|error)="(-?\d{1,10})">')
NUMA_LINE = re.compile(r"(\d{1,4}) (\d{1,19}) (\d{1,19})")
ROW = re.compile(rb'<level([1-4]) b="([0-9a-f]{1,10})">([0-9a-fnxp ]* )<')
UNKNOWN = ("entry flags", "vmas", "cpus", "distances", "leaves of 1 GiB (taken where no table is)")


BEGINS = re.compile(rb"^<(?:numamap>|ptdump )", re.MULTILINE)


def is_dump(head: Head) -> bool:
    return bool(BEGINS.search(head.data))


def import_ptdump(
    path: str | PathLike[str], directory: str | PathLike[str], nested: str | PathLike[str] | None = None
) -> pt.Snapshot:
    """Snapshot of the last whole dump in a text, also written into the existing `directory`.

    nested  dump of the VM's nested table (ePT), made on the host at the same time: gives `host`

    UsageError if a file is missing or holds no such dump; CaptureError where it is damaged.
    """
    with tempfile.TemporaryDirectory(prefix=".import.", dir=directory) as spill:
        guest, topology, pid, guest_notes = read_dump(path, "x86", spill)
        host = None
        notes: dict[str, Any] = {**guest_notes}
        if nested is not None:
            host, topology, _, host_notes = read_dump(nested, "ept", spill)
            notes = {"guest": guest_notes, "host": host_notes}
            host.node[:] = topology.node_of_frame(host.frame)
        guest.node[:] = table_nodes(guest, host, topology)
        facts = {"pid": pid, "method": "vMitosis ptdump", "import": notes, "unknown": [*UNKNOWN]}
        snapshot = pt.Snapshot(guest, np.zeros(0, pt.snapshot.VMA_DTYPE), (), topology, host, facts)
        pt.formats.write_snapshot(directory, snapshot)
    return snapshot


def read_dump(
    path: str | PathLike[str], encoding: str, spill: str
) -> tuple[pt.snapshot.Tree, pt.snapshot.Topology, int, dict[str, int]]:
    """(Tree, Topology, PID, counts of repairs) of the last whole dump in `path`; entries live in a file in
    `spill`."""
    path = Path(path)
    try:
        with open(path, "rb") as file:
            text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise pt.UsageError(f"{path}: no such file") from None
    except ValueError:
        raise pt.UsageError(f"{path}: empty; expected a page-table dump of vMitosis") from None
    if (at := text.find(b"\0")) >= 0:  # a hole of a sparse file is not searched to its end
        raise pt.errors.CaptureError(
            path, "bytes", f"a NUL at byte {at}", "expected a page-table dump of vMitosis, text"
        )
    start, end, pid, count = find_block(path, text)
    topology = read_numa_map(path, text, start)
    level, frame, words = read_rows(path, text, start, end, count, spill)
    entries = words.view(np.uint64)
    notes = {"inverted": 0}
    for height in range(1, LEVELS + 1):
        rows = np.flatnonzero(level == height)
        for at in range(0, len(rows), CHUNK):
            converted, inverted = to_entries(entries[rows[at : at + CHUNK]], height, encoding, topology)
            entries[rows[at : at + CHUNK]] = converted
            notes["inverted"] += inverted
    base, parent, order, repaired = assemble(path, level, frame, entries, encoding)
    with tempfile.TemporaryFile(dir=spill) as file:
        ordered = pt.formats.map_new(file, np.uint64, (len(order), 512))
    for at in range(0, len(order), CHUNK):
        ordered[at : at + CHUNK] = entries[order[at : at + CHUNK]]
    tree = tree_of(ordered, base, frame[order], parent, level[order], encoding)
    return tree, topology, pid, {**notes, **repaired}


def find_block(path: Path, text: mmap.mmap) -> tuple[int, int, int, int]:
    """(start, end, PID, tables) of the last whole <ptdump> block in the text: each dump appends one."""
    blocks = list(BLOCK.finditer(text))
    if not blocks:
        raise pt.UsageError(f"{path}: no <ptdump> block in it; expected a page-table dump of vMitosis")
    limits = [*(block.start() for block in blocks[1:]), len(text)]
    whole = [
        block
        for block, limit in zip(blocks, limits, strict=True)
        if block[2] == b"count" and text.find(b"</ptdump>", block.end(), limit) >= 0
    ]
    block = whole[-1] if whole else blocks[-1]
    if block[2] == b"error":
        raise pt.errors.CaptureError(
            path, "error", block[3].decode(), "the dumper failed to dump this process"
        )
    end, count = text.find(b"</ptdump>", block.end()), int(block[3])
    if end < 0:
        raise pt.errors.CaptureError(path, "size", len(text), "the file ends before </ptdump>")
    if not 0 < count <= (end - block.end()) // 1024:
        raise pt.errors.CaptureError(
            path, "count", count, f"{end - block.end()} bytes cannot hold that many tables"
        )
    return text.find(b"\n", block.end()) + 1, end, int(block[1]), count


def read_numa_map(path: Path, text: mmap.mmap, before: int) -> pt.snapshot.Topology:
    """Topology of the last <numamap> before a position; its CPUs and distances are unknown."""
    start = text.rfind(b"<numamap>", 0, before)
    if start < 0:
        raise pt.errors.CaptureError(path, "numamap", "missing", "no node ranges before the dump")
    end = text.find(b"</numamap>", start, before)
    ranges: dict[int, list[tuple[int, int]]] = {}
    for line in text[start + 9 : max(end, start + 9)].decode("ascii", "replace").split("\n"):
        if not line or line.startswith("#"):
            continue
        match = NUMA_LINE.fullmatch(line.strip())
        if not match:
            raise pt.errors.CaptureError(path, "numamap", line[:40], "expected node, first and last address")
        ranges.setdefault(int(match[1]), []).append((int(match[2]) >> 12, int(match[3]) >> 12))
    nodes = [(n, tuple((a, b) for a, b in frames if a < b)) for n, frames in sorted(ranges.items())]
    return pt.formats.topology_of(
        path, [pt.formats.NodeRecord(id=n, cpus=(), frames=frames) for n, frames in nodes]
    )


def read_rows(
    path: Path, text: mmap.mmap, start: int, end: int, count: int, spill: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """level int64[T], frame int64[T], words int64[T, 512] (in a file in `spill`) of the rows of a block."""
    level, frame = np.zeros(count, np.int64), np.zeros(count, np.int64)
    with tempfile.TemporaryFile(dir=spill) as file:
        words = np.asarray(pt.formats.map_new(file, np.int64, (count, 512)))
    rows = 0
    while start < end:
        after = text.find(b"\n", start, end)
        line = text[start : after if after >= 0 else end]
        if line.startswith(b"<l"):
            row = ROW.match(line)
            if (
                row is None
                or rows == count
                or not parse_entries(np.frombuffer(row[3], np.uint8), words[rows])
            ):
                number = text[:start].count(b"\n") + 1
                why = f"not one of {count} tables: a frame and 512 numbers, each with a blank behind it"
                raise pt.errors.CaptureError(path, f"line {number}", repr(line[:20]), why)
            level[rows], frame[rows] = int(row[1]), int(row[2], 16)
            rows += 1
        start += len(line) + 1
    if rows != count:
        raise pt.errors.CaptureError(path, "count", count, f"{rows} tables follow")
    return level, frame, words


def to_entries(
    words: np.ndarray, level: int, encoding: str, topology: pt.snapshot.Topology
) -> tuple[np.ndarray, int]:
    """(raw entries, number of inverted frames) from the words of tables of one level.

    Kernels with the L1TF mitigation invert the frame of an entry that is not present, older ones do not; the
    text does not say which wrote it: a frame outside every node whose complement is on a node was inverted.
    """
    empty = words == 0
    number = words & np.uint64(NUMA - 1)
    hint, pointer, runs = (words & np.uint64(bit) != 0 for bit in (NUMA, POINTER, EXECUTABLE))
    huge = ~pointer & (level == 2)
    frame = np.where(huge, number << np.uint64(9), number)
    inverted = 0
    if encoding == "ept":
        entries = frame << np.uint64(12) | EPT_BITS
    else:
        entries = frame << np.uint64(12) | X86_BITS | np.where((level == 1) | huge, np.where(runs, 0, NX), 0)
        if hint.any():
            complement = ~frame & np.where(huge, np.uint64((1 << 36) - 512), np.uint64((1 << 36) - 1))
            known, other = (topology.node_of_frame(one.astype(np.int64)) >= 0 for one in (frame, complement))
            flip = hint & ~known & other
            frame, inverted = np.where(flip, complement, frame), int(flip.sum())
            entries = np.where(
                hint,
                ~(frame << np.uint64(12)) & pt.snapshot.ADDRESS | pt.snapshot.PROTNONE | entries & NX,
                entries,
            )
    return np.where(empty, 0, entries | np.where(huge, pt.snapshot.HUGE, 0)), inverted
