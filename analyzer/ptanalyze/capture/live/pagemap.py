"""A snapshot from /proc/PID/pagemap alone: leaves as the kernel shows them, tables above them inferred.

Unknown, because pagemap lacks it, and named in the facts: frames and nodes of table pages, flags of
entries, tables that map nothing; without the PAGEMAP_SCAN ioctl (Linux 6.7) also the size of leaves.
"""

import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...core import pagemap_word
from ...core.errors import PartialDataError, UsageError
from ...core.pte import HUGE, PRESENT, PROTNONE
from ...core.snapshot import ENTRIES_PER_TABLE, INFERRED, Snapshot, Tree
from ...core.unknown_node import UNKNOWN_NODE
from ...formats.maps import parse_maps
from ...formats.room import map_new
from ...formats.snapshot_file import now, write_snapshot
from ...formats.tables_file import enclosing_tables
from ..completeness import completeness
from .pagemap_scan import Range, present_ranges
from .process import Process, check_process, five_levels, identity, signature
from .topology import read_topology

USER = np.uint64(4)
SHIFT = np.uint64(12)
CAP_SYS_PTRACE = 19  # include/uapi/linux/capability.h
REGION = 1 << 21
BLOCK = 256 * REGION  # address range per read: 1 MiB of pagemap
HOLE = 2 * REGION
USER_HALF = 1 << 56
UNKNOWN = ("table frame", "table node", "entry flags", "empty tables", "leaves of 1 GiB (shown as 2 MiB)")


class Leaves:
    """Leaf tables and huge leaves, collected by address; the rows of leaf tables wait in a nameless file."""

    def __init__(self, directory: Path) -> None:
        self.spill = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self.regions: list[int] = []
        self.huge: dict[int, np.uint64] = {}
        self.row = np.zeros((0, ENTRIES_PER_TABLE), np.uint64)  # of the last region: more of it may follow

    def add(self, start: int, entries: np.ndarray) -> None:
        """Add entries uint64[n] of the 4 KiB pages from `start` on; zero where nothing is mapped."""
        here = np.flatnonzero(entries)
        if not len(here):
            return
        pages = start // 4096 + here
        regions, at = np.unique(pages >> 9, return_inverse=True)
        rows = np.zeros((len(regions), ENTRIES_PER_TABLE), np.uint64)
        rows[at, pages & 511] = entries[here]
        if self.regions and self.regions[-1] == regions[0]:
            rows[0] |= self.row[0]
            self.regions.pop()
        else:
            self.flush()
        self.regions += regions.tolist()
        self.spill.write(rows[:-1].data)
        self.row = rows[-1:].copy()

    def flush(self) -> None:
        self.spill.write(self.row.data)
        self.row = self.row[:0]

    def rows(self) -> np.ndarray:
        """uint64[leaf tables, 512], memory-mapped; call once, at the end."""
        self.flush()
        self.spill.flush()
        if not self.regions:
            return np.zeros((0, ENTRIES_PER_TABLE), np.uint64)
        return np.memmap(self.spill, np.uint64, "r", 0, (len(self.regions), ENTRIES_PER_TABLE))


def dump_pagemap(process: Process, directory: Path, extra: Mapping[str, Any] | None = None) -> Snapshot:
    """Snapshot of process `pid`, also written (gpt.*, maps, snapshot.json) into the existing `directory`.

    extra  facts to record beside our own

    UsageError if there is no such process, it has no memory or may not be read; PartialDataError if it ends
    meanwhile (nothing is written then).
    """
    pid, proc = process.pid, process.proc
    check_process(proc, pid)
    started, begun = now(), time.monotonic()
    before = signature(proc)
    try:
        text = (proc / "maps").read_bytes()
        with open(proc / "pagemap", "rb", buffering=0) as pagemap:
            vmas, names = parse_maps(text, f"/proc/{pid}/maps")
            leaves, sized = read_leaves(pagemap.fileno(), vmas, directory)
        after = signature(proc)
    except PermissionError:
        raise UsageError(f"PID {pid}: {why_not_permitted()}") from None
    except (ProcessLookupError, FileNotFoundError, EOFError):
        raise PartialDataError(f"PID {pid}: ended while it was read; nothing was kept") from None
    topology, source = read_topology()
    tree = infer_tree(leaves, 5 if five_levels() else 4, directory)
    facts = {
        **identity(proc, pid),
        "time": started,
        "duration_s": time.monotonic() - begun,
        "method": "pagemap",
        "quiescence": {"before": before, "after": after, "quiet": before == after},
        "completeness": completeness(tree, len(leaves.huge), after["pgtables_bytes"]),
        "page_type": "unknown: table pages were not read",
        "node_source": source,
        **(extra or {}),
        "unknown": [*UNKNOWN, *([] if sized else ["leaf size (4 KiB assumed)"])],
    }
    if not frames_visible():
        facts["unknown"].append("page frame (zero without CAP_SYS_ADMIN)")
    snapshot = Snapshot(tree, vmas, names, topology, None, facts)
    write_snapshot(directory, snapshot, maps=text)
    return snapshot


def read_leaves(pagemap: int, vmas: np.ndarray, directory: Path) -> tuple[Leaves, bool]:
    """(Leaves, whether their sizes are known) of `vmas` through the open `pagemap`; EOFError when it ends."""
    leaves, sized = Leaves(directory), True
    for vma in vmas[vmas["end"] <= USER_HALF]:
        for start, end, huge in joined(present_ranges(pagemap, int(vma["start"]), int(vma["end"]))):
            sized &= huge is not None
            for at in range(start, end, BLOCK):
                count = (min(end, at + BLOCK) - at) // 4096
                entries = to_entries(read_block(pagemap, at, count), bool(vma["prot"]))
                if huge:
                    add_huge(leaves, at, entries)
                else:
                    leaves.add(at, entries)
    return leaves, sized


def joined(ranges: Iterable[Range]) -> Iterator[Range]:
    """The ranges, those of small pages joined over holes that are cheaper to read than another call."""
    last = None
    for start, end, huge in ranges:
        if last and not huge and not last[2] and start - last[1] <= HOLE:
            last = (last[0], end, huge)
            continue
        if last:
            yield last
        last = (start, end, huge)
    if last:
        yield last


def read_block(pagemap: int, start: int, count: int) -> np.ndarray:
    raw = os.pread(pagemap, count * 8, start // 4096 * 8)
    if len(raw) < count * 8:
        raise EOFError("the address space is gone")
    return np.frombuffer(raw, np.uint64)


def to_entries(seen: np.ndarray, accessible: bool) -> np.ndarray:
    """x86 entries from pagemap's words; entries of PROT_NONE areas are inverted and not present."""
    address = (seen & pagemap_word.FRAME) << SHIFT
    present = seen & pagemap_word.PRESENT != 0
    entries = address | PRESENT | USER if accessible else ~address & ((1 << 52) - (1 << 12)) | PROTNONE
    return np.where(present, entries, 0).astype(np.uint64)


def add_huge(leaves: Leaves, start: int, entries: np.ndarray) -> None:
    """Whole 2 MiB pages become leaves of level 2; a page that is not whole or aligned stays 4 KiB pages."""
    if start % REGION or len(entries) % ENTRIES_PER_TABLE:
        leaves.add(start, entries)
        return
    for i, pages in enumerate(entries.reshape(-1, ENTRIES_PER_TABLE)):
        leaves.huge[start + i * REGION] = pages[0] | HUGE


def infer_tree(leaves: Leaves, levels: int, directory: Path) -> Tree:
    """Tree above the collected leaves; entries are a memory map of a nameless file in `directory`."""
    rows = leaves.rows()
    huge = np.array(sorted(leaves.huge), np.int64)
    below = np.array(leaves.regions, np.int64) << 21
    bases, heights = [below], [np.full(len(below), 1)]
    below = np.concatenate([below, huge])
    for height in range(2, levels + 1):
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
    entries[level == 1] = rows
    child = np.flatnonzero(level < levels)
    slot = base[child] >> (3 + 9 * (level[child] + 1)) & 511
    entries[parent[child], slot] = PRESENT | USER
    if len(huge):
        middle = np.flatnonzero(level == 2)
        above = middle[np.searchsorted(base[middle], huge, side="right") - 1]
        entries[above, huge >> 21 & 511] = [leaves.huge[address] for address in huge]
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


def why_not_permitted() -> str:
    """Why /proc/PID/pagemap of a process cannot be opened, and the way out. twin of dumps/proc.c"""
    status = Path("/proc/self/status").read_text()
    held = int(status.partition("CapEff:")[2].split()[0], 16)
    if held >> CAP_SYS_PTRACE & 1:
        return (
            "the kernel does not let us read its pagemap, though we have CAP_SYS_PTRACE: it may have more "
            "capabilities than we have, or a security module or a container protects it"
        )
    return "not permitted to read its pagemap: needs CAP_SYS_PTRACE; run as root"


def frames_visible() -> bool:
    """Whether this process may see page frame numbers (CAP_SYS_ADMIN), tried on a page of its own."""
    page = np.ones(8192, np.uint8)
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        seen = read_block(pagemap.fileno(), page.ctypes.data & -4096, 1)[0]
    return bool(seen & pagemap_word.FRAME)
