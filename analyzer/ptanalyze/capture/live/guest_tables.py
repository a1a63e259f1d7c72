"""A guest's page tables read from outside, through its physical memory: untrusted.

Levels strictly decrease, every frame is visited once, and tables and entries followed are limited; so
self-maps, loops, frames beyond memory and garbage cost bounded time and memory and leave a closed tree.
"""

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, TypeAlias

import numpy as np

from ...core import snapshot as bits
from ...core.errors import UNKNOWN_NODE
from ...core.snapshot import ENTRIES_PER_TABLE, NO_PARENT, Tree

Read: TypeAlias = Callable[[int, int], bytes | None]  # of (guest-physical address, bytes)
Row: TypeAlias = tuple[int, int, int, int]  # base, frame, parent, level

PAGE = 4096
MAX_TABLES = 1 << 20  # 4 GiB of tables: enough for 2 TiB in 4 KiB pages
FOLLOWED_PER_TABLE = 4  # entries followed, as a multiple of the most tables: bounds the cost of loops
USER_SLOTS = 256  # of the root; the other half is the kernel's
SELF_MAP, SEEN, BEYOND, LIMIT = "points to a table above it", "seen before", "beyond memory", "over the limit"


@dataclass(frozen=True)
class GuestTables:
    """An address space of a guest, read from its root.

    tree     the user half; nodes are unknown, entries that lead to no dumped table are zero
    kernel   {level: tables} of the kernel half, counted only
    dropped  {reason: entries} of the user half that were cleared; empty for a sane guest
    """

    tree: Tree
    kernel: dict[int, int]
    dropped: dict[str, int]


def read_guest_tables(read: Read, root: int, levels: int, limit: int = MAX_TABLES) -> GuestTables | None:
    """GuestTables below the page frame `root`, None if that cannot be read.

    read    read(guest-physical address, bytes) -> bytes, or None where there is no memory
    levels  4 or 5, as CR4.LA57 says
    limit   most tables to read, of either half
    """
    with tempfile.TemporaryFile(prefix="ptanalyze-") as spill:
        user = Reader(read, limit, spill)
        if user.visit(root, levels, 0, NO_PARENT, slice(0, USER_SLOTS)):
            return None
        kernel = Reader(read, limit, None)
        kernel.visit(root, levels, 0, NO_PARENT, slice(USER_SLOTS, ENTRIES_PER_TABLE))
        tree = tree_of(user.rows, spill, levels)
    counted = Counter(level for _, _, _, level in kernel.rows[1:])
    return GuestTables(tree, dict(sorted(counted.items())), dict(user.dropped))


def read_table(read: Read, frame: int) -> np.ndarray | None:
    """uint64[512] of a page frame, a copy; None where there is no whole page of memory."""
    raw = read(frame * PAGE, PAGE)
    if raw is None or len(raw) != PAGE:
        return None
    return np.frombuffer(raw, "<u8").astype(np.uint64)


class Reader:
    """Depth-first reading of half an address space into `spill`, an open file; None only counts."""

    def __init__(self, read: Read, limit: int, spill: IO[bytes] | None) -> None:
        self.read, self.limit, self.spill = read, limit, spill
        self.left = limit * FOLLOWED_PER_TABLE
        self.rows: list[Row] = []
        self.seen: set[int] = set()
        self.above: list[int] = []
        self.dropped: Counter[str] = Counter()

    def visit(self, frame: int, level: int, base: int, parent: int, slots: slice = slice(None)) -> str:
        """Read the table and all below it; the reason for a refusal, else ""."""
        why = self.refusal(frame)
        raw = None if why else read_table(self.read, frame)
        if raw is None:
            return why or BEYOND
        me = len(self.rows)
        self.rows.append((base, frame, parent, level))
        self.seen.add(frame)
        if parent == NO_PARENT:
            kept = np.zeros_like(raw)
            kept[slots] = raw[slots]
            raw = kept
        self.store(me, raw)
        if level > 1:
            self.above.append(frame)
            self.visit_children(me, raw, level, base)
            self.above.pop()
        return ""

    def refusal(self, frame: int) -> str:
        self.left -= 1
        if frame in self.seen:
            return SELF_MAP if frame in self.above else SEEN
        return LIMIT if len(self.rows) >= self.limit else ""

    def visit_children(self, me: int, raw: np.ndarray, level: int, base: int) -> None:
        slots = np.flatnonzero(bits.table(raw, level))
        frames = bits.frame(raw[slots], level, leaves=False)
        gone = []
        for slot, frame in zip(slots.tolist(), frames.tolist(), strict=True):
            if self.left <= 0:
                rest = slots[slots >= slot].tolist()
                gone += rest
                self.dropped[LIMIT] += len(rest)
                break
            if why := self.visit(frame, level - 1, base + (slot << (3 + 9 * level)), me):
                gone.append(slot)
                self.dropped[why] += 1
        if gone:
            raw[gone] = 0
            self.store(me, raw)

    def store(self, table: int, raw: np.ndarray) -> None:
        if self.spill is not None:
            self.spill.seek(table * PAGE)
            self.spill.write(raw.data)


def tree_of(rows: list[Row], spill: IO[bytes], levels: int) -> Tree:
    """Tree of the tables that a Reader stored in `spill`, whose entries stay there."""
    spill.flush()
    count = len(rows)
    base, frame, parent, level = (np.array(column) for column in zip(*rows, strict=True))
    return Tree(
        np.memmap(spill, "<u8", "r", shape=(count, ENTRIES_PER_TABLE)),
        base.astype(np.uint64),
        frame.astype(np.int64),
        parent.astype(np.int32),
        np.full(count, UNKNOWN_NODE, np.int16),
        level.astype(np.uint8),
        np.zeros(count, np.uint8),
        levels,
    )
