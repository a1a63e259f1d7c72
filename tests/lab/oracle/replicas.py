"""The trees of a process's nodes, on a kernel that replicates page tables: read and compared.

A CPU uses what its own node's tree says. So a leaf is wrong that the owner's tree does not have, has with
another frame, or with less permission: a change did not reach the replica. A replica that lacks a leaf, or
allows less, is not wrong: replicas are filled lazily (Hydra, 4.1), and a fault mends it. Accessed and dirty
bits count as the OR of all trees, which vMitosis reads (3.3).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ptanalyze.capture.check.tables import FAILED, NOTE, OK, PARTIAL, Check, check_tree
from ptanalyze.core import snapshot as bits
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.snapshot import NO_PARENT, Tree
from ptanalyze.formats.capture import Capture
from ptanalyze.formats.snapshot import ReplicaRecord, read_tree

FIELD = "facts.replicas"
SIZES = {1: "4 KiB", 2: "2 MiB", 3: "1 GiB"}
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
OWNER_DTYPE = np.dtype(
    [
        ("start", np.uint64),  # first byte
        ("end", np.uint64),  # one past the last byte
        ("tree", np.int16),  # index of the owner's tree
    ]
)


@dataclass(frozen=True)
class Replicas:
    """What one address space looks like from each node.

    trees   the first is the Snapshot's own (mm->pgd), then those of other nodes
    nodes   of each tree: the nodes whose CPUs walk it; nodes may share a tree
    owners  OWNER_DTYPE[V], sorted, disjoint: the areas of the process, and the tree that has every entry of
            each (Hydra's master_pgd_node). None: the kernel knows no owners, the first tree has every entry
    """

    trees: tuple[Tree, ...]
    nodes: tuple[tuple[int, ...], ...]
    owners: np.ndarray | None = None

    def owner_of(self, addresses: np.ndarray) -> np.ndarray:
        """int16, the shape of `addresses`: the owner's tree, -1 where the process has no area."""
        if self.owners is None:
            return np.zeros(addresses.shape, np.int16)
        if not len(self.owners):
            return np.full(addresses.shape, -1, np.int16)
        at = np.searchsorted(self.owners["start"], addresses, side="right") - 1
        area = self.owners[np.clip(at, 0, None)]
        inside = (at >= 0) & (addresses < area["end"])
        return np.where(inside, area["tree"], -1).astype(np.int16)


def read_replicas(capture: Capture) -> Replicas:
    """Replicas of a capture.

    CaptureError where they are damaged or contradict themselves, UsageError for a missing file and where the
    process had one tree for all.
    """
    directory, guest, facts = capture.directory, capture.snapshot.guest, capture.snapshot.facts
    if not facts.get("replicas"):
        raise UsageError(f"{directory}: holds one tree for all nodes: dump it on a kernel that replicates")
    record = msgspec.convert(facts["replicas"], ReplicaRecord)
    names = [tree.name for tree in record.trees]
    path = directory / "snapshot.json"
    if names[0] != "gpt" or len(set(names)) < len(names):
        raise CaptureError(path, f"{FIELD}.trees", names, "expected gpt, then a tree of each other name")
    trees = [guest, *(read_tree(directory, name) for name in names[1:])]
    for name, tree in zip(names, trees, strict=True):
        if (tree.levels, tree.encoding) != (guest.levels, "x86"):
            found = f"{tree.levels} levels, {tree.encoding}"
            raise CaptureError(directory / f"{name}.tables", "header", found, "not as gpt.tables, or not x86")
    nodes = [node for tree in record.trees for node in tree.nodes]
    if len(set(nodes)) < len(nodes) or any(not 0 <= node < 1 << 15 for node in nodes):
        raise CaptureError(path, f"{FIELD}.trees", nodes[:8], "a node walks one tree")
    return Replicas(tuple(trees), tuple(tree.nodes for tree in record.trees), owners_of(path, record))


def owners_of(path: Path, record: ReplicaRecord) -> np.ndarray | None:
    """OWNER_DTYPE[V]; CaptureError for areas that overlap, or whose owner has no tree."""
    if record.owners is None:
        return None
    tree_of = {node: index for index, tree in enumerate(record.trees) for node in tree.nodes}
    owners = np.zeros(len(record.owners), OWNER_DTYPE)
    last = 0
    for row, (start, end, node) in zip(owners, record.owners, strict=True):
        if not last <= start < end < 1 << 64:
            raise CaptureError(path, f"{FIELD}.owners", [start, end], "empty, overlapping or out of order")
        if node not in tree_of:
            raise CaptureError(path, f"{FIELD}.owners", node, "no tree is of this node")
        row["start"], row["end"], row["tree"] = start, end, tree_of[node]
        last = end
    return owners


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


def check_replicas(replicas: Replicas, facts: Mapping[str, Any]) -> Iterator[Check]:
    """Yield Findings: each replica is a tree, and its leaves are its owners', by size.

    facts  of the dump: unless the process stood still, what differs may have changed while it was read
    """
    quiet = bool((facts.get("quiescence") or {}).get("quiet"))
    for tree, nodes in zip(replicas.trees[1:], replicas.nodes[1:], strict=True):
        yield from (one for one in check_tree(tree, name_of(nodes), None) if one.wrong)
    for compared in compare_trees(replicas):
        yield judged(compared, replicas, quiet)


def judged(compared: Compared, replicas: Replicas, quiet: bool) -> Check:
    counts = compared.counts
    wrong = sum(counts[kind] for kind in WRONG)
    told = [f"{counts['same']:,} the same", f"{counts['missing']:,} not filled in"]
    told += [f"{counts['less']:,} that allow less"] * bool(counts["less"])
    told += [f"{counts['marks']:,} accessed or dirty here alone"] * bool(counts["marks"])
    reason = ", ".join(told)
    if wrong:
        kinds = ", ".join(f"{counts[kind]:,} {what}" for kind, what in WRONG.items() if counts[kind])
        reason = f"are wrong ({kinds}); {reason}. {'; '.join(compared.examples)}"
    if wrong and not quiet:
        reason += ". The process changed while its trees were read: dump it with --stop"
    examined = wrong + counts["same"] + counts["missing"] + counts["less"]
    verdict = (FAILED if quiet else PARTIAL) if wrong else NOTE if counts["less"] else OK
    name = f"{name_of(replicas.nodes[compared.tree])}: {SIZES[compared.level]} leaves"
    return Check(name, examined, wrong, verdict, reason)
