"""Cache lines that hold the leaf entries of a capture: what its walks read without a trace."""

import numpy as np

from ..core.machine import LINE_BYTES
from ..core.snapshot import ENTRIES_PER_TABLE, Tree, blocks, leaf
from .heat_leaves import leaves_of
from .site import Site

ENTRIES_PER_LINE = LINE_BYTES // 8


def leaf_lines(world: Site) -> int:
    """Lines with a leaf entry of the program: by Heat those that samples found used, else all; of a VM, and
    of all that its host maps."""
    snapshot = world.snapshot
    guest, heat = snapshot.guest, snapshot.heat
    if heat is None:
        lines = mapped_lines(guest, world.space.program_tables[: len(guest)])
    else:
        table, slot = leaves_of(guest, heat)
        line = (table * ENTRIES_PER_TABLE + slot)[table >= 0] // ENTRIES_PER_LINE
        lines = len(np.unique(line))
    return lines if snapshot.native else lines + mapped_lines(snapshot.nested)


def mapped_lines(tree: Tree, of: np.ndarray | None = None) -> int:
    """Lines with a leaf entry; `of`: bool[T], of these tables alone."""
    lines = 0
    for level, ids, raw in blocks(tree, (1, 2, 3)):
        there = leaf(raw if of is None else raw[of[ids]], level, tree.encoding)
        lines += int(np.count_nonzero(there.reshape(-1, ENTRIES_PER_LINE).any(axis=1)))
    return lines
