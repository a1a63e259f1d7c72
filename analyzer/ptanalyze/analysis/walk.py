"""A translation step by step: every table that the hardware walker reads for an address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np

from ..core import snapshot as entries
from ..core.columns import described
from ..core.errors import UNKNOWN_NODE, UsageError
from ..core.options import Keywords
from ..core.snapshot import NO_PARENT, Snapshot, Tree
from ..core.trace import REGION_SHIFT
from ..formats.capture import CaptureLike, load
from ..world import address_space
from .frames import walk_frame
from .replay import windows_of
from .setup import Setup, from_the_beginning, open_replay_capture, provenance_of, setup_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..world.scenario import Scenario


PAGE_BITS = 12
INDEX_MASK = 511


@dataclass(frozen=True)
class Step:
    """A read of a page-table entry.

    dimension  "gPT" (or "PT" on a native capture) or "ePT"
    level      level of the table read, 1 = leaf table
    address    address translated in this dimension: virtual, or guest-physical for "ePT"
    table      frame of the table page (-1 unknown), node its NUMA node (UNKNOWN_NODE if so)
    entry      raw entry; frame: its target; leaf: whether it maps a page
    """

    dimension: str
    level: int
    address: int
    slot: int
    table: int
    node: int
    entry: int
    present: bool
    leaf: bool
    frame: int


@dataclass(frozen=True)
class Translation:
    """The steps in the order of the hardware, their end, and the reason when they end early."""

    address: int
    steps: tuple[Step, ...]
    page_frame: int | None
    page_bytes: int | None
    page_node: int
    stopped: str = ""


class Leaf(NamedTuple):
    """End of a dimension's walk: a page frame, and the number of address bits within the page."""

    frame: int
    bits: int


def explain(snapshot: Snapshot, address: int) -> Translation:
    """Reads of a cold walk for a virtual address: up to 4 or 5 native, 24 or 35 in two dimensions."""
    top = 1 << (PAGE_BITS + 9 * snapshot.guest.levels)
    if not 0 <= address < top:
        raise UsageError(
            f"address {address:#x} is outside what {snapshot.guest.levels} levels map (below {top:#x})"
        )
    steps: list[Step] = []
    guest = Dimension("PT" if snapshot.native else "gPT", snapshot.guest)
    nested = None if snapshot.host is None else Dimension("ePT", snapshot.host)
    page, stopped = translated(guest, address, steps, nested)
    if page is not None and nested is not None:
        within = page.bits
        page, stopped = translated(nested, page.frame << PAGE_BITS, steps, None)
        page = page and Leaf(page.frame, min(page.bits, within))
    if page is None:
        return Translation(address, tuple(steps), None, None, UNKNOWN_NODE, stopped)
    node = int(snapshot.topology.node_of_frame(np.array([page.frame]))[0])
    return Translation(address, tuple(steps), page.frame, 1 << page.bits, node)


class Dimension:
    """A tree and the lookup of child tables by base address."""

    def __init__(self, name: str, tree: Tree) -> None:
        self.name, self.tree = name, tree
        self.root = int(np.flatnonzero(tree.parent == NO_PARENT)[0])

    def child(self, table: int, base: int) -> int | None:
        tables = np.flatnonzero((self.tree.parent == table) & (self.tree.base == np.uint64(base)))
        return int(tables[0]) if len(tables) else None


def translated(
    dimension: Dimension, address: int, steps: list[Step], nested: Dimension | None
) -> tuple[Leaf | None, str]:
    """(the frame of the address itself, even within a huge page, or None; reason of an early stop)."""
    leaf, stopped = descend(dimension, address, steps, nested)
    if leaf is None:
        return None, stopped
    return Leaf(leaf.frame + ((address & ((1 << leaf.bits) - 1)) >> PAGE_BITS), leaf.bits), ""


def descend(
    dimension: Dimension, address: int, steps: list[Step], nested: Dimension | None
) -> tuple[Leaf | None, str]:
    """Walk a dimension from its root; with `nested`, each table's own frame is translated first."""
    tree, table = dimension.tree, dimension.root
    for level in range(tree.levels, 0, -1):
        own, node = int(tree.frame[table]), int(tree.node[table])
        if nested is not None:
            if own < 0:
                return None, f"the frame of the {dimension.name} table at level {level} is unknown"
            behind, stopped = translated(nested, own << PAGE_BITS, steps, None)
            if behind is None:
                return None, f"the table's own frame is not mapped: {stopped}"
            own = behind.frame
        shift = PAGE_BITS + 9 * (level - 1)
        slot = address >> shift & INDEX_MASK
        raw = tree.entries[table, slot : slot + 1]
        present = bool(entries.present(raw, tree.encoding)[0])
        leaf = present and bool(entries.leaf(raw, level, tree.encoding)[0])
        frame = int(entries.frame(raw, level, tree.encoding, leaves=leaf)[0]) if present else -1
        steps.append(Step(dimension.name, level, address, slot, own, node, int(raw[0]), present, leaf, frame))
        if not present:
            return None, f"the {dimension.name} entry at level {level} is not present"
        if leaf:
            return Leaf(frame, shift), ""
        child = dimension.child(table, address >> shift << shift)
        if child is None:
            return None, f"the {dimension.name} table below level {level} was not dumped"
        table = child
    return None, "the walk ran past the last level"


def walk(capture: CaptureLike, address: int) -> DataFrame:
    """A translation: a row per table read, in the hardware's order, with walk.Step's columns.

    attrs["page"]: {"frame", "bytes", "node", "stopped"}; where the address is not mapped, frame is None and
    stopped is the reason. attrs: address, and nodes, the captured machine's ids. Shows physical addresses.
    """
    opened = load(capture)
    snapshot = opened.snapshot
    table = walk_frame(explain(snapshot, address), [node.id for node in snapshot.topology.nodes])
    table.attrs["provenance"] = provenance_of(opened)
    return table


# Which memory is walked when: walks by address and time.

WINDOWS, ROWS = 40, 48
FINER = 8  # times as many parts as rows, as far as a part is a page or more
MAP_PAGE_BITS = 9  # of a page's number within its region
BATCH = 1 << 22  # walks counted at a time


def walk_map(
    capture: CaptureLike = None, setup: Setup | None = None, *, rows: int = ROWS, **options: Unpack[Keywords]
) -> DataFrame:
    """Walks by address and time: start, end (addresses), vma, time_ns (the window's end), walks.

    rows  the most rows of addresses; memory that no walk leads to is left out, and a row is within one VMA
          as far as there are rows enough
    40 windows of equal time unless the setup has another number (of equal walks, and time_ns 0, where the
    trace has no times). UsageError without a trace.
    """
    known = open_replay_capture(capture)
    how = setup_of(setup, options)
    if known.trace is None:
        raise UsageError(f"{known.capture.directory}: no trace, so no walks over time: record the program")
    table = counted(known.scenario(from_the_beginning(how)), how.windows or WINDOWS, rows)
    return described(table, provenance=known.provenance | {"machine": how.machine.name})


def counted(scenario: Scenario, windows: int, rows: int) -> DataFrame:
    from pandas import DataFrame

    times, ends, _ = windows_of(scenario, windows)
    va, vmas = scenario.space.regions.va, scenario.snapshot.vmas
    shift = MAP_PAGE_BITS - min((FINER * rows // max(len(va), 1)).bit_length(), MAP_PAGE_BITS)
    counts = by_part(scenario.stream.page, ends, shift, len(va) << (MAP_PAGE_BITS - shift))
    part = np.flatnonzero(counts.any(axis=1))
    inside = MAP_PAGE_BITS - shift
    start = (va[part >> inside] << np.uint64(REGION_SHIFT)) + (
        (part & ((1 << inside) - 1)).astype(np.uint64) << np.uint64(12 + shift)
    )
    order = np.argsort(start)
    start, counts = start[order], counts[part[order]]
    names, groups = address_space.groups(scenario.snapshot, "vma")
    vma = groups[address_space.vma_of(start, vmas)] if len(vmas) else np.zeros(len(start), np.int64)
    row = rows_of(vma, rows)
    first = np.flatnonzero(np.diff(row, prepend=-1))
    last = np.append(first[1:], len(row)) - 1 if len(row) else first
    summed = np.add.reduceat(counts, first, axis=0) if len(row) else counts
    return DataFrame(
        {
            "start": np.repeat(start[first], windows),
            "end": np.repeat(start[last] + np.uint64(1 << (12 + shift)), windows),
            "vma": np.repeat(np.array([names[k] for k in vma[first]], object), windows),
            "time_ns": np.tile(times, len(first)),
            "walks": summed.ravel(),
        }
    )


def by_part(page: np.ndarray, ends: np.ndarray, shift: int, parts: int) -> np.ndarray:
    """int64[parts, windows]: walks to each part of 2**shift pages."""
    counts = np.zeros((parts, len(ends)), np.int64)
    begin = 0
    for window, end in enumerate(ends.tolist()):
        for at in range(begin, end, BATCH):
            some = page[at : min(at + BATCH, end)] >> np.uint32(shift)
            counts[:, window] += np.bincount(some, minlength=parts)
        begin = end
    return counts


def rows_of(vma: np.ndarray, rows: int) -> np.ndarray:
    """int64: row of each part; VMAs share `rows` by their parts, the smallest of too many share one."""
    if len(vma) <= rows:
        return np.arange(len(vma))
    change = np.flatnonzero(np.diff(vma, prepend=vma[0] - 1))
    sizes = np.diff(np.append(change, len(vma)))
    if len(sizes) >= rows:
        return np.arange(len(vma)) * rows // len(vma)
    share = 1 + np.floor(sizes * (rows - len(sizes)) / len(vma)).astype(np.int64)
    before = np.repeat(np.cumsum(share) - share, sizes)
    within = np.arange(len(vma)) - np.repeat(change, sizes)
    row: np.ndarray = before + within * np.repeat(share, sizes) // np.repeat(sizes, sizes)
    return row
