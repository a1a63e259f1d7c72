"""One translation, step by step: every table the hardware walker reads for an address."""

from dataclasses import dataclass

import numpy as np

from . import entries
from .errors import UsageError
from .snapshot import NO_PARENT, UNKNOWN_NODE

PAGE_BITS = 12
INDEX_MASK = 511


@dataclass(frozen=True)
class Step:
    """One read of a page-table entry.

    dimension  "gPT" (or "PT" on a native capture) or "ePT"
    level      level of the table read, 1 = leaf table
    address    what is being translated in this dimension: virtual, or guest-physical for "ePT"
    table      frame of the table page (-1 unknown), node its NUMA node (UNKNOWN_NODE if so)
    entry      raw entry, frame what it points at; leaf says whether it maps a page
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
class Path:
    """The steps in the order of the hardware, where they end, and why when they end early."""

    address: int
    steps: tuple[Step, ...]
    page_frame: int | None
    page_bytes: int | None
    page_node: int
    stopped: str = ""


def explain(snapshot, address):
    """Path of a cold walk for a virtual address: up to 4 or 5 reads native, 24 or 35 in two dimensions."""
    top = 1 << (PAGE_BITS + 9 * snapshot.guest.levels)
    if not 0 <= address < top:
        raise UsageError(
            f"address {address:#x} is outside what {snapshot.guest.levels} levels map (below {top:#x})"
        )
    steps = []
    guest = Dimension("PT" if snapshot.native else "gPT", snapshot.guest)
    nested = None if snapshot.native else Dimension("ePT", snapshot.host)
    frame, bits, stopped = descend(guest, address, steps, nested)
    node = UNKNOWN_NODE
    if frame is not None:
        offset = (address & ((1 << bits) - 1)) >> PAGE_BITS
        physical = frame + offset
        if nested is not None:
            physical, host_bits, stopped = nested_frame(nested, physical, steps)
            bits = min(bits, host_bits or bits)
        if physical is not None:
            frame = physical
            node = int(snapshot.topology.node_of_frame(np.array([physical]))[0])
    return Path(address, tuple(steps), frame, 1 << bits if bits else None, node, stopped)


class Dimension:
    """A tree with a way down: table by (level, base)."""

    def __init__(self, name, tree):
        self.name, self.tree = name, tree
        self.root = int(np.flatnonzero(tree.parent == NO_PARENT)[0])

    def child(self, table, base):
        found = np.flatnonzero((self.tree.parent == table) & (self.tree.base == np.uint64(base)))
        return int(found[0]) if len(found) else None


def nested_frame(nested, guest_frame, steps):
    """Translate a guest frame: (host frame or None, page bits, why it stopped)."""
    frame, bits, stopped = descend(nested, guest_frame << PAGE_BITS, steps, None)
    if frame is None:
        return None, bits, stopped
    return frame + ((guest_frame << PAGE_BITS & ((1 << bits) - 1)) >> PAGE_BITS), bits, ""


def descend(dimension, address, steps, nested):
    """Walk one dimension from its root; with `nested`, each table's own frame is translated first."""
    tree, table = dimension.tree, dimension.root
    for level in range(tree.levels, 0, -1):
        own, node = int(tree.frame[table]), int(tree.node[table])
        if nested is not None:
            own, _, stopped = nested_frame(nested, own, steps)
            if own is None:
                return None, None, f"the table's own frame is not mapped: {stopped}"
        shift = PAGE_BITS + 9 * (level - 1)
        slot = address >> shift & INDEX_MASK
        raw = tree.entries[table, slot : slot + 1]
        present = bool(entries.present(raw, tree.encoding)[0])
        leaf = present and bool(entries.leaf(raw, level, tree.encoding)[0])
        frame = int(entries.frame(raw, level, tree.encoding, leaves=leaf)[0]) if present else -1
        steps.append(Step(dimension.name, level, address, slot, own, node, int(raw[0]), present, leaf, frame))
        if not present:
            return None, None, f"the {dimension.name} entry at level {level} is not present"
        if leaf:
            return frame, shift, ""
        table = dimension.child(table, address >> shift << shift)
        if table is None:
            return None, None, f"the {dimension.name} table below level {level} was not dumped"
    return None, None, "the walk ran past the last level"
