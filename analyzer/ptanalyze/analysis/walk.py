"""A translation step by step: every table that the hardware walker reads for an address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core import snapshot as entries
from ..core.columns import described
from ..core.errors import UNKNOWN_NODE, UsageError
from ..core.snapshot import NO_PARENT, Snapshot, Tree
from ..formats.capture import CaptureLike, load

if TYPE_CHECKING:
    from pandas import DataFrame


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
    """Table of a translation: a row per table read, in the hardware's order, with walk.Step's columns.

    attrs["page"]: {"frame", "bytes", "node", "stopped"}; where the address is not mapped, frame is None and
    stopped is the reason. attrs: address, and nodes, the captured machine's ids. Shows physical addresses.
    """
    opened = load(capture)
    snapshot = opened.snapshot
    table = walk_frame(explain(snapshot, address), [node.id for node in snapshot.topology.nodes])
    table.attrs["provenance"] = {"capture": str(opened.directory)}
    return table


def walk_frame(translation: Translation, nodes: Sequence[int]) -> DataFrame:
    """Table of `walk`, without provenance."""
    from pandas import DataFrame

    page = {
        "frame": translation.page_frame,
        "bytes": translation.page_bytes,
        "node": translation.page_node,
        "stopped": translation.stopped,
    }
    table = DataFrame([vars(step) for step in translation.steps])
    return described(table, address=translation.address, nodes=list(nodes), page=page)
