"""Two captures of one series compared: which table pages moved, came and went, which leaf entries changed."""

from dataclasses import dataclass, field

import numpy as np

from .. import entries as bits
from ..errors import UsageError
from ..snapshot import NO_PARENT, UNKNOWN_NODE

BLOCK = 2048  # table pairs compared at once: 2 x 8 MiB
ABSENT = -2  # instead of a node: no such table page in that capture
KINDS = ("same", "moved", "other node", "created", "gone")


@dataclass(frozen=True)
class TreeDiff:
    """What became of one tree.

    pages    {(level, kind): table pages}; KINDS: same place and frame; another frame on the same node;
             another node (of known ones); only in the second capture; only in the first
    moves    {(level, node before, node after): table pages} of those on another node, created (None before)
             or gone (None after)
    entries  {(level, what): leaf entries} of tables in both: "appeared", "vanished", "other frame" or
             "other flags"; the hardware's accessed and dirty bits do not count
    """

    dimension: str
    pages: dict = field(default_factory=dict)
    moves: dict = field(default_factory=dict)
    entries: dict = field(default_factory=dict)

    @property
    def changed(self):
        """Table pages that are not the same."""
        return sum(count for (_, kind), count in self.pages.items() if kind != "same")

    def rows(self):
        """A dict a level, for people and JSON."""
        levels = sorted({level for level, _ in self.pages}, reverse=True)
        words = ("appeared", "vanished", "other frame", "other flags")
        return [
            {"tree": self.dimension, "level": level}
            | {kind: self.pages.get((level, kind), 0) for kind in KINDS}
            | {f"leaves {what}": self.entries.get((level, what), 0) for what in words}
            for level in levels
        ]

    def move_rows(self):
        name = lambda node: "-" if node is None else "unknown" if node == UNKNOWN_NODE else str(node)  # noqa: E731
        order = sorted(self.moves.items(), key=lambda item: (-item[0][0], *map(name, item[0][1:])))
        return [
            {
                "tree": self.dimension,
                "level": level,
                "from node": name(a),
                "to node": name(b),
                "table pages": count,
            }
            for (level, a, b), count in order
        ]


def diff(one, other):
    """[TreeDiff] from Capture `one` to Capture `other`: of a process, a VM, or a VM's host side.

    UsageError where their kinds, levels or encodings differ: they are not of one series.
    """
    first, second = trees(one), trees(other)
    if first.keys() != second.keys():
        kinds = f"{one.manifest.kind} and {other.manifest.kind}"
        raise UsageError(f"{one.directory} and {other.directory}: {kinds} cannot be compared")
    return [diff_trees(name, first[name], second[name]) for name in first]


def trees(capture):
    if capture.has_snapshot:
        snapshot = capture.snapshot
        if snapshot.native:
            return {"PT": snapshot.guest}
        return {"gPT": snapshot.guest, "ePT": snapshot.host}
    return {"ePT": capture.vm.tree}


def diff_trees(name, one, other):
    """TreeDiff of two Trees; memory for their table records and a block of entries at a time."""
    for what in ("levels", "encoding"):
        if getattr(one, what) != getattr(other, what):
            before, after = getattr(one, what), getattr(other, what)
            raise UsageError(f"{name}: {what} {before} became {after}: these are not of one series")
    pages, moves, changes = {}, {}, {}
    for level in range(other.levels, 0, -1):
        a, b, gone, created = pair(one, other, level)
        same_frame = (one.frame[a] == other.frame[b]) & (one.frame[a] >= 0)
        before, after = one.node[a], other.node[b]
        known = (before != UNKNOWN_NODE) & (after != UNKNOWN_NODE)
        other_node = ~same_frame & known & (before != after)
        unknown = (one.frame[a] < 0) & (other.frame[b] < 0)
        same = same_frame | unknown
        counts = (same.sum(), (~same & ~other_node).sum(), other_node.sum(), len(created), len(gone))
        pages |= {(level, kind): int(n) for kind, n in zip(KINDS, counts, strict=True)}
        tally(moves, level, before[other_node], after[other_node])
        tally(moves, level, None, other.node[created])
        tally(moves, level, one.node[gone], None)
        if level <= 3:
            changes |= {(level, what): n for what, n in leaf_changes(one, other, level, a, b).items()}
    return TreeDiff(name, pages, moves, changes)


def pair(one, other, level):
    """(in one, in other, only in one, only in other): tables of `level` by their root and first address."""
    ids = [np.flatnonzero(tree.level == level) for tree in (one, other)]
    keys = [place(tree)[at] for tree, at in zip((one, other), ids, strict=True)]
    _, a, b = np.intersect1d(*keys, assume_unique=True, return_indices=True)
    rest = [np.delete(at, found) for at, found in zip(ids, (a, b), strict=True)]
    return ids[0][a], ids[1][b], *rest


def place(tree):
    """A number for each table's root and first address; roots count in the order of the capture."""
    root = np.cumsum(tree.parent == NO_PARENT) - 1
    return tree.base | (root.astype(np.uint64) & np.uint64(0xFFF))


def tally(moves, level, before, after):
    """Count pairs of nodes (int16[n] each); None: not there."""
    length = len(after if before is None else before)
    columns = [np.full(length, ABSENT) if side is None else side.astype(np.int64) for side in (before, after)]
    pairs, counts = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        moves[level, *(None if node == ABSENT else node for node in pair)] = count


def leaf_changes(one, other, level, a, b):
    """{what: leaf entries} over the pairs of tables a[i], b[i]."""
    found = dict.fromkeys(("appeared", "vanished", "other frame", "other flags"), 0)
    ignored = used_bits(one.encoding)
    for start in range(0, len(a), BLOCK):
        old, new = one.entries[a[start : start + BLOCK]], other.entries[b[start : start + BLOCK]]
        differ = (old & ~ignored) != (new & ~ignored)
        old, new = old[differ], new[differ]
        was, is_now = (bits.leaf(raw, level, one.encoding) for raw in (old, new))
        found["appeared"] += int((~was & is_now).sum())
        found["vanished"] += int((was & ~is_now).sum())
        both = was & is_now
        frames = [bits.frame(raw[both], level, one.encoding) for raw in (old, new)]
        moved = int((frames[0] != frames[1]).sum())
        found["other frame"] += moved
        found["other flags"] += int(both.sum()) - moved
    return found


def used_bits(encoding):
    """Accessed and dirty: bits 5 and 6 of x86 and NPT, 8 and 9 of EPT; KVM's SPTEs may be either."""
    return np.uint64({"x86": 0x60, "ept": 0x300, "kvm": 0x360}[encoding])
