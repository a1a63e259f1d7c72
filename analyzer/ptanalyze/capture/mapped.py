"""A snapshot from pages that another tool listed: leaves as it says, tables above them inferred."""

import tempfile
from pathlib import Path

import numpy as np

from ..core.errors import UNKNOWN_NODE
from ..core.regular import open_inside
from ..core.snapshot import (
    ENTRIES_PER_TABLE,
    HUGE,
    INFERRED,
    PRESENT,
    VMA_DTYPE,
    Node,
    Snapshot,
    Topology,
    Tree,
)
from ..formats.atomic import map_new
from ..formats.capture import open_capture
from ..formats.capture_dir import copy_private
from ..formats.recognise import REGION, MappedPages
from ..formats.snapshot_file import write_snapshot
from ..formats.tables_file import enclosing_tables

TABLES = ("gpt.tables", "gpt.entries", "maps", "snapshot.json")
NESTED_TABLES = ("ept.tables", "ept.entries", "vm.json")
UNKNOWN = ("table frame", "table node", "data node", "entry flags", "vmas", "cpus", "distances")
FOUR_LEVELS = 1 << 48
USER = np.uint64(4)


def copy_tables(source: Path, directory: Path) -> str:
    """Copy the page tables of a capture into `directory`; returns the kind of capture that this makes.

    CaptureError where the source is damaged, UsageError where it has no page tables.
    """
    capture = open_capture(source)
    nested = capture.snapshot.host is not None
    for name in TABLES + (NESTED_TABLES if nested else ()):
        with open_inside(source / name) as file:
            copy_private(file, directory / name)
    return "vm" if nested else "process"


def write_mapped(pages: MappedPages, directory: Path) -> None:
    """Write the snapshot (gpt.*, maps, snapshot.json) of MappedPages into the existing `directory`.

    Of the machine nothing is known: one node has all memory.
    """
    entries = pages.frame.astype(np.uint64) << 12 | PRESENT | USER
    levels = 4 if int(pages.address[-1]) < FOUR_LEVELS else 5
    facts = {
        "method": f"pages listed in {pages.source}",
        "import": {"pages": len(entries), "absent": pages.absent},
        "unknown": [*UNKNOWN, *([] if pages.frame.any() else ["page frame (all hidden)"])],
    }
    topology = Topology((Node(0, (), np.zeros((0, 2), np.int64)),))
    leaf_level = 2 if pages.size == REGION else 1
    if leaf_level == 2:
        entries |= HUGE
    tree = infer_tree(pages.address, entries, leaf_level, levels, directory)
    write_snapshot(directory, Snapshot(tree, np.zeros(0, VMA_DTYPE), (), topology, None, facts))


def infer_tree(
    address: np.ndarray, leaves: np.ndarray, leaf_level: int, levels: int, directory: Path
) -> Tree:
    """Tree with the leaf entries `leaves` uint64[n] of level `leaf_level` at `address` int64[n], sorted.

    Its entries are a memory map of a nameless file in `directory`.
    """
    bases, heights, below = [], [], address
    for height in range(leaf_level, levels + 1):
        span = 1 << (12 + 9 * height)
        below = np.unique(below & -span) if height < levels else np.zeros(1, np.int64)
        bases.append(below)
        heights.append(np.full(len(below), height))
    base, level = np.concatenate(bases), np.concatenate(heights)
    order = np.lexsort((-level, base))
    base, level = base[order], level[order]
    parent = enclosing_tables(level, levels)
    with tempfile.TemporaryFile(dir=directory) as file:
        entries = map_new(file, np.uint64, (len(base), ENTRIES_PER_TABLE))
    child = np.flatnonzero(level < levels)
    entries[parent[child], base[child] >> (3 + 9 * (level[child] + 1)) & 511] = PRESENT | USER
    tables = np.flatnonzero(level == leaf_level)
    above = tables[np.searchsorted(base[tables], address, side="right") - 1]
    entries[above, address >> (3 + 9 * leaf_level) & 511] = leaves
    return Tree(
        entries=entries,
        base=base.astype(np.uint64),
        frame=np.full(len(base), -1),
        parent=parent.astype(np.int32),
        node=np.full(len(base), UNKNOWN_NODE, np.int16),
        level=level.astype(np.uint8),
        flags=np.full(len(base), INFERRED, np.uint8),
        levels=levels,
    )
