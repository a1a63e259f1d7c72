"""A translation step by step: every table that the hardware walker reads for an address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core import snapshot as entries
from ..core.columns import described, table_of
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
    page_frame: int | None = None
    page_bytes: int | None = None
    page_node: int = UNKNOWN_NODE
    stopped: str = ""


class NotMappedError(Exception):
    """The walk ends early; its text is the reason."""


def explain(snapshot: Snapshot, address: int) -> Translation:
    """Reads of a cold walk for a virtual address: up to 4 or 5 native, 24 or 35 in two dimensions."""
    guest, host, steps = snapshot.guest, snapshot.host, list[Step]()
    top = 1 << (PAGE_BITS + 9 * guest.levels)
    if not 0 <= address < top:
        raise UsageError(f"address {address:#x} is outside what {guest.levels} levels map (below {top:#x})")
    try:
        frame, bits = translated("PT" if snapshot.native else "gPT", guest, address, steps, host)
        if host is not None:
            frame, host_bits = translated("ePT", host, frame << PAGE_BITS, steps)
            bits = min(bits, host_bits)
    except NotMappedError as why:
        return Translation(address, tuple(steps), stopped=str(why))
    node = int(snapshot.topology.node_of_frame(np.array([frame]))[0])
    return Translation(address, tuple(steps), frame, 1 << bits, node)


def translated(
    name: str, tree: Tree, address: int, steps: list[Step], host: Tree | None = None
) -> tuple[int, int]:
    """(frame of the address itself, even within a huge page; number of address bits within the page) by a
    walk of one dimension from its root, which adds its steps; with a host, of each table's frame first."""
    table = int(np.flatnonzero(tree.parent == NO_PARENT)[0])
    for level in range(tree.levels, 0, -1):
        own, node = int(tree.frame[table]), int(tree.node[table])
        if host is not None:
            if own < 0:
                raise NotMappedError(f"the frame of the {name} table at level {level} is unknown")
            try:
                own, _ = translated("ePT", host, own << PAGE_BITS, steps)
            except NotMappedError as why:
                raise NotMappedError(f"the table's own frame is not mapped: {why}") from None
        shift = PAGE_BITS + 9 * (level - 1)
        slot = address >> shift & INDEX_MASK
        raw = tree.entries[table, slot : slot + 1]
        present = bool(entries.present(raw, tree.encoding)[0])
        leaf = present and bool(entries.leaf(raw, level, tree.encoding)[0])
        frame = int(entries.frame(raw, level, tree.encoding, leaves=leaf)[0]) if present else -1
        steps.append(Step(name, level, address, slot, own, node, int(raw[0]), present, leaf, frame))
        if not present:
            raise NotMappedError(f"the {name} entry at level {level} is not present")
        if leaf:
            return frame + ((address & ((1 << shift) - 1)) >> PAGE_BITS), shift
        below = np.flatnonzero((tree.parent == table) & (tree.base == np.uint64(address >> shift << shift)))
        if not len(below):
            raise NotMappedError(f"the {name} table below level {level} was not dumped")
        table = int(below[0])
    raise NotMappedError("the walk ran past the last level")


def walk(capture: CaptureLike, address: int) -> DataFrame:
    """Table of a translation: a row per table read, in the hardware's order, with walk.Step's columns.

    attrs["page"]: {"frame", "bytes", "node", "stopped"}; where the address is not mapped, frame is None and
    stopped is the reason. attrs: address, and nodes, the captured machine's ids. Shows physical addresses.
    """
    opened = load(capture)
    found = explain(opened.snapshot, address)
    page = {name: getattr(found, f"page_{name}") for name in ("frame", "bytes", "node")}
    return described(
        table_of([vars(step) for step in found.steps]),
        provenance=opened.source,
        address=address,
        nodes=[node.id for node in opened.snapshot.topology.nodes],
        page=page | {"stopped": found.stopped},
    )
