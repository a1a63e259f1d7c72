"""A snapshot from pages that another tool listed: leaves as it says, tables above them inferred."""

from pathlib import Path

import numpy as np

from ..core.pte import HUGE, PRESENT
from ..core.regular import open_inside
from ..core.snapshot import VMA_DTYPE, Node, Snapshot, Topology
from ..formats.capture import open_capture
from ..formats.capture_dir import copy_private
from ..formats.mapped_pages import REGION, MappedPages
from ..formats.snapshot_file import write_snapshot
from .live.pagemap import SHIFT, USER, Leaves, infer_tree

TABLES = ("gpt.tables", "gpt.entries", "maps", "snapshot.json")
NESTED_TABLES = ("ept.tables", "ept.entries", "vm.json")
UNKNOWN = ("table frame", "table node", "data node", "entry flags", "vmas", "cpus", "distances")
FOUR_LEVELS = 1 << 48


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
    leaves = Leaves(directory)
    entries = pages.frame.astype(np.uint64) << SHIFT | PRESENT | USER
    if pages.size == REGION:
        leaves.huge = dict(zip(pages.address.tolist(), entries | HUGE, strict=True))
    else:
        regions, first = np.unique(pages.address // REGION, return_index=True)
        for region, begin, end in zip(
            regions.tolist(), first.tolist(), [*first[1:].tolist(), len(entries)], strict=True
        ):
            row = np.zeros(512, np.uint64)
            row[pages.address[begin:end] // 4096 & 511] = entries[begin:end]
            leaves.add(region * REGION, row)
    levels = 4 if int(pages.address[-1]) < FOUR_LEVELS else 5
    facts = {
        "method": f"pages listed in {pages.source}",
        "import": {"pages": len(entries), "absent": pages.absent},
        "unknown": [*UNKNOWN, *([] if pages.frame.any() else ["page frame (all hidden)"])],
    }
    topology = Topology((Node(0, (), np.zeros((0, 2), np.int64)),))
    tree = infer_tree(leaves, levels, directory)
    write_snapshot(directory, Snapshot(tree, np.zeros(0, VMA_DTYPE), (), topology, None, facts))
