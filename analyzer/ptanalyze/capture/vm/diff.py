"""Two captures of a series compared: table pages moved, created and gone, leaf entries changed."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ...core import snapshot as bits
from ...core.columns import Column
from ...core.errors import UNKNOWN_NODE, UsageError
from ...core.snapshot import NO_PARENT, Tree
from ...formats.capture import Capture

Counts = dict[tuple[int, str], int]
Moves = dict[tuple[int, int | None, int | None], int]

BLOCK = 2048  # table pairs compared at once: 2 x 8 MiB
ABSENT = -2  # instead of a node: no such table page in that capture
KINDS = {  # of table pages: meaning, and heading on a terminal of 80 columns
    "same": ("table pages at the same addresses, in the same frame", ""),
    "moved": ("in another frame of the node", ""),
    "other node": ("in a frame of another node", ""),
    "created": ("in the second capture alone", "new"),
    "gone": ("in the first alone", ""),
}
CHANGES = {  # of leaf entries, the same
    "appeared": ("leaf entries of table pages in both captures: in the second alone", "leaves new"),
    "vanished": ("in the first alone", "leaves gone"),
    "other frame": ("of another page frame", ""),
    "other flags": ("of other rights or attributes; accessed and dirty do not count", ""),
}


def counted(row: tuple["TreeDiff", int], of: str, what: str) -> int:
    """Table pages of a kind (of "pages") or changed leaf entries (of "entries") of a tree's level."""
    counts: Counts = getattr(row[0], of)
    return counts.get((row[1], what), 0)


COLUMNS = (  # of (TreeDiff, level)
    Column("tree", "PT, or gPT and ePT", lambda row: row[0].dimension),
    Column("level", "1: leaf tables", lambda row: row[1]),
    *(
        Column(kind, meaning, partial(counted, of="pages", what=kind), title=title)
        for kind, (meaning, title) in KINDS.items()
    ),
    *(
        Column(f"leaves {what}", meaning, partial(counted, of="entries", what=what), title=title)
        for what, (meaning, title) in CHANGES.items()
    ),
)


@dataclass(frozen=True)
class TreeDiff:
    """Changes of a tree.

    pages    {(level, kind): table pages}; KINDS: same place and frame; another frame on the same node;
             another node (of known ones); only in the second capture; only in the first
    moves    {(level, node before, node after): table pages} of those on another node, created (None before)
             or gone (None after)
    entries  {(level, change): leaf entries} of tables in both: "appeared", "vanished", "other frame" or
             "other flags"; the hardware's accessed and dirty bits do not count
    """

    dimension: str
    pages: Counts = field(default_factory=dict)
    moves: Moves = field(default_factory=dict)
    entries: Counts = field(default_factory=dict)

    @property
    def changed(self) -> int:
        """Table pages that are not the same."""
        return sum(count for (_, kind), count in self.pages.items() if kind != "same")

    def rows(self) -> list[dict[str, str | int]]:
        """{column: value} of COLUMNS per level, for people and JSON."""
        levels = sorted({level for level, _ in self.pages}, reverse=True)
        return [{one.key: one.of((self, level)) for one in COLUMNS} for level in levels]

    def move_rows(self) -> list[dict[str, str | int]]:
        order = sorted(self.moves.items(), key=lambda item: (-item[0][0], *map(node_name, item[0][1:])))
        return [
            {
                "tree": self.dimension,
                "level": level,
                "from node": node_name(a),
                "to node": node_name(b),
                "table pages": count,
            }
            for (level, a, b), count in order
        ]


def node_name(node: int | None) -> str:
    return "-" if node is None else "unknown" if node == UNKNOWN_NODE else str(node)


def diff(one: Capture, other: Capture) -> list[TreeDiff]:
    """[TreeDiff] from Capture `one` to Capture `other`: of a process, a VM, or a VM's host side.

    UsageError where their kinds, levels or encodings differ: they are not of the same series.
    """
    first, second = trees(one), trees(other)
    if first.keys() != second.keys():
        kinds = f"{one.manifest.kind} and {other.manifest.kind}"
        raise UsageError(f"{one.directory} and {other.directory}: {kinds} cannot be compared")
    return [diff_trees(name, first[name], second[name]) for name in first]


def trees(capture: Capture) -> dict[str, Tree]:
    if capture.has_snapshot:
        snapshot = capture.snapshot
        if snapshot.host is None:
            return {"PT": snapshot.guest}
        return {"gPT": snapshot.guest, "ePT": snapshot.host}
    return {"ePT": capture.vm.tree}


def diff_trees(name: str, first: Tree, second: Tree) -> TreeDiff:
    """TreeDiff of two Trees; memory: their table records and a block of entries."""
    for what in ("levels", "encoding"):
        if getattr(first, what) != getattr(second, what):
            before, after = getattr(first, what), getattr(second, what)
            raise UsageError(f"{name}: {what} {before} became {after}: these are not of one series")
    pages: Counts = {}
    moves: Moves = {}
    changes: Counts = {}
    for level in range(second.levels, 0, -1):
        a, b, gone, created = pair(first, second, level)
        same_frame = (first.frame[a] == second.frame[b]) & (first.frame[a] >= 0)
        before, after = first.node[a], second.node[b]
        known = (before != UNKNOWN_NODE) & (after != UNKNOWN_NODE)
        other_node = ~same_frame & known & (before != after)
        unknown = (first.frame[a] < 0) & (second.frame[b] < 0)
        same = same_frame | unknown
        counts = (same.sum(), (~same & ~other_node).sum(), other_node.sum(), len(created), len(gone))
        pages |= {(level, kind): int(n) for kind, n in zip(KINDS, counts, strict=True)}
        tally(moves, level, before[other_node], after[other_node])
        tally(moves, level, np.full(len(created), ABSENT), second.node[created])
        tally(moves, level, first.node[gone], np.full(len(gone), ABSENT))
        if level <= 3:
            changes |= {(level, what): n for what, n in leaf_changes(first, second, level, a, b).items()}
    return TreeDiff(name, pages, moves, changes)


def pair(before: Tree, after: Tree, level: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(in both: first, second; only first, only second): tables of `level` by root and address."""
    first, second = np.flatnonzero(before.level == level), np.flatnonzero(after.level == level)
    keys = place(before)[first], place(after)[second]
    _, a, b = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    return first[a], second[b], np.delete(first, a), np.delete(second, b)


def place(tree: Tree) -> np.ndarray:
    """A number for each table's root and first address; roots count in the order of the capture."""
    root = np.cumsum(tree.parent == NO_PARENT) - 1
    number: np.ndarray = tree.base | (root.astype(np.uint64) & np.uint64(0xFFF))
    return number


def tally(moves: Moves, level: int, before: np.ndarray, after: np.ndarray) -> None:
    """Count pairs of nodes (integers[n] each), ABSENT among them."""
    pairs, counts = np.unique(np.stack([before, after], axis=1), axis=0, return_counts=True)
    for (a, b), count in zip(pairs.tolist(), counts.tolist(), strict=True):
        moves[level, None if a == ABSENT else a, None if b == ABSENT else b] = count


def leaf_changes(first: Tree, second: Tree, level: int, a: np.ndarray, b: np.ndarray) -> dict[str, int]:
    """{change: leaf entries} over the pairs of tables a[i], b[i]."""
    changes = dict.fromkeys(CHANGES, 0)
    ignored = used_bits(first.encoding)
    for start in range(0, len(a), BLOCK):
        old, new = first.entries[a[start : start + BLOCK]], second.entries[b[start : start + BLOCK]]
        differ = (old & ~ignored) != (new & ~ignored)
        old, new = old[differ], new[differ]
        was, is_now = (bits.leaf(raw, level, first.encoding) for raw in (old, new))
        changes["appeared"] += int((~was & is_now).sum())
        changes["vanished"] += int((was & ~is_now).sum())
        both = was & is_now
        frames = [bits.frame(raw[both], level, first.encoding) for raw in (old, new)]
        moved = int((frames[0] != frames[1]).sum())
        changes["other frame"] += moved
        changes["other flags"] += int(both.sum()) - moved
    return changes


def used_bits(encoding: str) -> np.uint64:
    """Accessed and dirty: bits 5 and 6 of x86 and NPT, 8 and 9 of EPT; KVM's SPTEs may be either."""
    return np.uint64({"x86": 0x60, "ept": 0x300, "kvm": 0x360}[encoding])
