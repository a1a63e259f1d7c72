"""The leaves of the trees of several nodes, each against the tree that owns its address.

A CPU uses what its own node's tree says. So a leaf is wrong that the owner's tree does not have, has with
another frame, or with less permission: a change did not reach the replica. A replica that lacks a leaf, or
allows less, is not wrong: replicas are filled lazily (Hydra, 4.1), and a fault mends it. Accessed and dirty
bits count as the OR of all trees, which vMitosis reads (3.3).
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...core import pte as bits
from ...core.replicas import Replicas
from ...core.snapshot import NO_PARENT, Tree

WRITE, USER, NX = np.uint64(2), np.uint64(4), np.uint64(1 << 63)
RIGHTS = WRITE | USER | NX  # what an entry allows: NX is inverted
MARKS = np.uint64(0x60)  # accessed, dirty
TABLES = 1024  # looked at together, of all trees
SHOWN = 3  # differences of a tree and level

WRONG = {
    "stale": "that the owner's tree does not have",
    "frame": "with another frame than the owner's",
    "more": "that allow more than the owner's",
}


@dataclass
class Compared:
    """Leaves of one level in one tree, against the owners'.

    counts    same, missing, less; the names of WRONG; marks: same, but accessed or dirty here and not there
    examples  what is wrong, by address, at most SHOWN
    """

    tree: int
    level: int
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)


class TablesOfLevel:
    """The tables of one level of a tree, found by the address that they map from."""

    def __init__(self, tree: Tree, rights: np.ndarray, level: int) -> None:
        self.tree, self.level = tree, level
        self.ids = np.flatnonzero(tree.level == level)
        self.base, self.rights = tree.base[self.ids], rights[self.ids]

    def leaves(self, bases: np.ndarray) -> "Leaves":
        """Leaves of the tables that map from `bases` on; a table that is not there maps nothing."""
        at = np.searchsorted(self.base, bases)
        there = at < len(self.base)
        there[there] = self.base[at[there]] == bases[there]
        raw = np.zeros((len(bases), 512), np.uint64)
        above = np.zeros((len(bases), 1), np.uint64)
        raw[there] = self.tree.entries[self.ids[at[there]]]
        above[there, 0] = self.rights[at[there]]
        return Leaves(raw, above, self.level)


@dataclass(frozen=True)
class Leaves:
    """raw: uint64[n, 512], entries of n tables of a level; above: uint64[n, 1], what the way there grants."""

    raw: np.ndarray
    above: np.ndarray
    level: int

    @cached_property
    def there(self) -> np.ndarray:
        """bool[n, 512]: entries that a CPU uses to map a page."""
        return bits.present(self.raw) & bits.leaf(self.raw, self.level)

    @cached_property
    def frame(self) -> np.ndarray:
        """int64[n, 512]"""
        return bits.frame(self.raw, self.level)

    @cached_property
    def rights(self) -> np.ndarray:
        """uint64[n, 512]: the bits of RIGHTS that the whole way grants."""
        granted: np.ndarray = allowed(self.raw) & self.above
        return granted


def allowed(entries: np.ndarray) -> np.ndarray:
    """uint64: the bits of RIGHTS that each entry grants (Intel SDM 3A, 4.6.1)."""
    granted: np.ndarray = (entries ^ NX) & RIGHTS
    return granted


def rights_from_above(tree: Tree) -> np.ndarray:
    """uint64[T]: what the entries on the way to each table grant together."""
    granted = np.full(len(tree), RIGHTS, np.uint64)
    for level in range(tree.levels - 1, 0, -1):
        ids = np.flatnonzero((tree.level == level) & (tree.parent != NO_PARENT))
        parent = tree.parent[ids]
        slot = (tree.base[ids] - tree.base[parent]) >> np.uint64(3 + 9 * (level + 1)) & np.uint64(511)
        granted[ids] = granted[parent] & allowed(tree.entries[parent, slot.astype(np.int64)])
    return granted


def compare_trees(replicas: Replicas) -> list[Compared]:
    """Each tree's leaves, level by level; levels at which no tree has leaves are left out."""
    rights = [rights_from_above(tree) for tree in replicas.trees]
    step = max(TABLES // len(replicas.trees), 1)
    found = []
    for level in (1, 2, 3):
        tables = [TablesOfLevel(tree, r, level) for tree, r in zip(replicas.trees, rights, strict=True)]
        of_level = [Compared(tree, level) for tree in range(len(tables))]
        bases = np.unique(np.concatenate([one.base for one in tables]))
        for start in range(0, len(bases), step):
            compare_leaves(replicas, tables, bases[start : start + step], of_level)
        found += [compared for compared in of_level if compared.counts]
    return found


def compare_leaves(
    replicas: Replicas, tables: list[TablesOfLevel], bases: np.ndarray, of_level: list[Compared]
) -> None:
    """Count into `of_level`, by tree, the leaves of the tables that map from `bases` on."""
    leaves = [one.leaves(bases) for one in tables]
    span = np.uint64(1 << (3 + 9 * tables[0].level))
    addresses = bases[:, None] + np.arange(512, dtype=np.uint64)[None, :] * span
    owner = replicas.owner_of(addresses)
    theirs = of_owners(leaves, owner)
    for compared, mine in zip(of_level, leaves, strict=True):
        other = owner != compared.tree
        both = mine.there & theirs.there & other
        moved = both & (mine.frame != theirs.frame)
        more = both & ~moved & (mine.rights & ~theirs.rights != bits.NONE)
        less = both & ~moved & ~more & (mine.rights != theirs.rights)
        same = both & ~moved & ~more & ~less
        stale = mine.there & ~theirs.there & other
        kinds = {
            "same": same,
            "missing": theirs.there & ~mine.there & other,
            "less": less,
            "stale": stale,
            "frame": moved,
            "more": more,
            "marks": same & (mine.raw & ~theirs.raw & MARKS != bits.NONE),
        }
        compared.counts.update({kind: n for kind, at in kinds.items() if (n := int(np.count_nonzero(at)))})
        for row, slot in np.argwhere(stale | moved | more)[: SHOWN - len(compared.examples)].tolist():
            owned = "the process has no area there"
            if (tree := int(owner[row, slot])) >= 0:
                owned = f"the owner, {name_of(replicas.nodes[tree])}, has {said(theirs, row, slot)}"
            where = f"{int(addresses[row, slot]):#x} (level {compared.level})"
            compared.examples.append(f"{where} has {said(mine, row, slot)}, {owned}")


def of_owners(leaves: list[Leaves], owner: np.ndarray) -> Leaves:
    """The entry of each address in its owner's tree, zero where nobody owns it; with the rights above it."""
    raw = np.zeros_like(leaves[0].raw)
    above = np.zeros_like(raw)
    for tree, one in enumerate(leaves):
        np.copyto(raw, one.raw, where=owner == tree)
        np.copyto(above, one.above, where=owner == tree)
    return Leaves(raw, above, leaves[0].level)


def name_of(nodes: tuple[int, ...]) -> str:
    listed = ", ".join(map(str, nodes))
    return f"node{'s' * (len(nodes) != 1)} {listed}" if nodes else "no node"


def said(leaves: Leaves, row: int, slot: int) -> str:
    """ "frame 0x123 rw-", "nothing"; (kernel): no user's code may use it."""
    if not leaves.there[row, slot]:
        return "nothing"
    rights = int(leaves.rights[row, slot])
    letters = "r" + "-w"[bool(rights & int(WRITE))] + "-x"[bool(rights & int(NX))]
    return f"frame {int(leaves.frame[row, slot]):#x} {letters}" + " (kernel)" * (not rights & int(USER))
