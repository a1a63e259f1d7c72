"""`NAME.tables` and `NAME.entries`: a page table on disk, as dumps/records.h describes it."""

import os
from os import PathLike
from pathlib import Path

import numpy as np

from ..core.errors import CaptureError, UsageError
from ..core.safe_files import open_inside
from ..core.snapshot import BAD_TYPE, CHANGED, ENTRIES_PER_TABLE, FAULT, INFERRED, NO_PARENT, TORN, Tree
from .atomic import atomic_write, map_new

TABLES_MAGIC = b"PTTABLES"
ENTRIES_MAGIC = b"PTENTRYS"
VERSION = 1
BYTE_ORDER = 0x01020304
ENTRIES_HEADER = 4096
ENCODINGS = ("x86", "ept", "kvm")
LEVELS = (4, 5)
BLOCK = 1 << 20  # records read and validated at a time
FLAGS = CHANGED | TORN | FAULT | BAD_TYPE | INFERRED

HEADER_DTYPE = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("byte_order", "<u4"),
        ("header_bytes", "<u4"),
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
    fields = (magic, VERSION, BYTE_ORDER, header_bytes, record_bytes, len(tree), tree.levels)
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
    expected = {
        "magic": magic,
        "byte_order": BYTE_ORDER,
        "version": VERSION,
        "header_bytes": header_bytes,
        "record_bytes": record_bytes,
    }
    for field, value in expected.items():
        if header[field] != value:
            raise CaptureError(path, field, header[field], f"expected {value}")
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
    level = records["level"]
    reject(path, "level", level, (level < 1) | (level > levels), f"expected 1 to {levels}")
    reject(path, "flags", records["flags"], records["flags"] & ~np.uint8(FLAGS) != 0, "unknown flag")
    reject(path, "node", records["node"], records["node"] < -1, "expected a node or -1")
    reject(
        path, "frame", records["frame"], (records["frame"] < -1) | (records["frame"] >> 40 > 0), "not a frame"
    )


def validate(path: Path, records: np.ndarray, levels: int) -> None:
    """CaptureError unless the records form depth-first trees: levels, parents, addresses, flags."""
    level, base, parent = (records[field].astype(np.int64) for field in ("level", "base", "parent"))
    validate_each(path, records, levels)
    expected = enclosing_tables(level, levels)
    reject(path, "parent", parent, parent != expected, "not the table before it one level up")
    span = np.int64(1) << (3 + 9 * level)  # bytes per entry
    reject(
        path,
        "base",
        base,
        (base & (span * ENTRIES_PER_TABLE - 1) != 0) | (base < 0),
        "not aligned to its level",
    )
    inside = parent >= 0
    slot = np.where(inside, (base - base[parent]) // (span * ENTRIES_PER_TABLE), 0)
    reject(path, "base", base, (slot < 0) | (slot >= ENTRIES_PER_TABLE), "outside its parent table")
    reject(path, "base", base, out_of_order(level, parent, slot, levels), "not after its elder sibling")


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


def out_of_order(level: np.ndarray, parent: np.ndarray, slot: np.ndarray, levels: int) -> np.ndarray:
    """bool[T]: tables whose slot in their parent does not come after that of the sibling before them."""
    wrong = np.zeros(len(level), bool)
    for here in range(1, levels):
        at = np.flatnonzero(level == here)
        wrong[at[1:]] = (parent[at[1:]] == parent[at[:-1]]) & (slot[at[1:]] <= slot[at[:-1]])
    return wrong


def reject(path: Path, field: str, values: np.ndarray, wrong: np.ndarray, why: str) -> None:
    if wrong.any():
        at = int(np.argmax(wrong))
        raise CaptureError(path, f"{field} of table {at}", values[at], why)


# `NAME.entries` filled in place, in any order, by a writer that knows the largest number of tables.

TABLE_BYTES = ENTRIES_PER_TABLE * 8
TABLES_STREAM_BLOCK = 4096  # tables moved at a time: 16 MiB


def reserve_entries(directory: str | PathLike[str], name: str, room: int) -> np.ndarray:
    """uint64[room, 512], all zero: the writable map of a new `name`.entries (0600), with its blocks on disk.

    The directory must not be in use yet (capture_dir.new_capture); close_entries completes the file. OSError
    if the disk is full.
    """
    path = Path(directory) / f"{name}.entries"
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    with os.fdopen(fd, "r+b") as file:
        return np.asarray(map_new(file, "<u8", (room, ENTRIES_PER_TABLE), ENTRIES_HEADER))


def keep_tables(entries: np.ndarray, kept: np.ndarray) -> None:
    """Move tables `kept` (int64[n], ascending) to the front of uint64[room, 512], in place, in blocks."""
    moved = np.flatnonzero(kept != np.arange(len(kept)))
    for start in range(moved[0] if len(moved) else len(kept), len(kept), TABLES_STREAM_BLOCK):
        end = min(start + TABLES_STREAM_BLOCK, len(kept))
        entries[start:end] = entries[kept[start:end]]


def close_entries(directory: str | PathLike[str], name: str, tree: Tree) -> None:
    """Cut the file to the tables of `tree`, write its header, sync."""
    with open(Path(directory) / f"{name}.entries", "r+b") as file:
        head = header_of(tree, ENTRIES_MAGIC, ENTRIES_HEADER, TABLE_BYTES, ENTRIES_WORDS)
        file.write(head.ljust(ENTRIES_HEADER, b"\0"))
        file.truncate(ENTRIES_HEADER + len(tree) * TABLE_BYTES)
        file.flush()
        os.fsync(file.fileno())
