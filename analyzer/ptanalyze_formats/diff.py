"""Two captures of a series compared: table pages moved, created and gone, leaf entries changed."""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
from pandas import DataFrame

import ptanalyze as pt

Change: TypeAlias = tuple[str, int, str, int | None, int | None, int]  # a row of `diff`

BLOCK = 2048  # table pairs compared at once: 2 x 8 MiB
USED = {"x86": 0x60, "ept": 0x300, "kvm": 0x360}  # accessed and dirty bits; KVM's SPTEs may be either
KINDS = {  # of table pages: meaning, and heading on a terminal of 80 columns
    "same": ("table pages at the same addresses, in the same frame", ""),
    "moved": ("in another frame of the node", ""),
    "other node": ("in a frame of another node", ""),
    "created": ("in the second capture alone", "new"),
    "gone": ("in the first alone", ""),
}
LEAVES = {  # of leaf entries, the same
    "leaves appeared": ("leaf entries of table pages in both captures: in the second alone", "leaves new"),
    "leaves vanished": ("in the first alone", "leaves gone"),
    "leaves other frame": ("of another page frame", ""),
    "leaves other flags": ("of other rights or attributes; accessed and dirty do not count", ""),
}
COLUMNS = (  # of `by_level`
    pt.columns.Column("tree", "PT, or gPT and ePT", itemgetter("tree")),
    pt.columns.Column("level", "1: leaf tables", itemgetter("level")),
    *(
        pt.columns.Column(what, meaning, itemgetter(what), title=title)
        for what, (meaning, title) in {**KINDS, **LEAVES}.items()
    ),
)


def diff(one: pt.Capture, other: pt.Capture) -> DataFrame:
    """Changes from Capture `one` to Capture `other`: of a process, a VM, or a VM's host side.

    Columns dimension, level, what (of KINDS and LEAVES), from_node, to_node, count. A node is NaN where it
    did not change (same, moved: within a node) or does not exist (created, gone), -1 where unknown. Rows of
    KINDS "same" and "moved" and of all LEAVES are there for each level, zeros too.
    UsageError where their kinds, levels or encodings differ: they are not of the same series.
    """
    first, second = one.trees, other.trees
    if first.keys() != second.keys():
        kinds = f"{one.manifest.kind} and {other.manifest.kind}"
        raise pt.UsageError(f"{one.directory} and {other.directory}: {kinds} cannot be compared")
    changes = [change for name in first for change in diff_trees(name, first[name], second[name])]
    columns = ["dimension", "level", "what", "from_node", "to_node", "count"]
    return DataFrame(changes, columns=columns).astype({"from_node": float, "to_node": float})


def table_pages(changes: DataFrame) -> DataFrame:
    """The rows of `diff` on table pages alone, with table_pages in place of count."""
    pages = changes[changes["what"].isin([*KINDS])].reset_index(drop=True)
    return pt.columns.described(pages.rename(columns={"count": "table_pages"}))


def by_level(changes: DataFrame) -> list[dict[str, Any]]:
    """{key of COLUMNS: value} for each tree and level, for people and JSON."""
    counts = changes.pivot_table("count", ["dimension", "level"], "what", "sum", fill_value=0, sort=False)
    counts = counts.reindex(columns=[*KINDS, *LEAVES], fill_value=0).astype(int)
    return [{"tree": tree, "level": level, **row} for (tree, level), row in counts.to_dict("index").items()]


def by_node(changes: DataFrame) -> list[dict[str, Any]]:
    """Table pages created, gone or on another node by tree, level and nodes, for people and JSON."""
    rows: list[dict[str, Any]] = [
        {
            "tree": str(row.dimension),
            "level": int(row.level),
            "from node": node_name(row.from_node),
            "to node": node_name(row.to_node),
            "table pages": int(row.table_pages),
        }
        for row in table_pages(changes).itertuples()
        if row.what not in ("same", "moved")
    ]
    trees = [*changes["dimension"].unique()]
    return sorted(rows, key=lambda row: (trees.index(row["tree"]), -row["level"], *[*row.values()][2:4]))


def node_name(node: float) -> str:
    return "-" if np.isnan(node) else "unknown" if node == pt.errors.UNKNOWN_NODE else f"{node:.0f}"


def diff_trees(name: str, first: pt.snapshot.Tree, second: pt.snapshot.Tree) -> Iterator[Change]:
    """Yield the rows of `diff` for two Trees; memory: their table records and a block of entries."""
    for what in ("levels", "encoding"):
        if getattr(first, what) != getattr(second, what):
            before, after = getattr(first, what), getattr(second, what)
            raise pt.UsageError(f"{name}: {what} {before} became {after}: these are not of one series")
    for level in range(second.levels, 0, -1):
        a, b, gone, created = pair(first, second, level)
        same = first.frame[a] == second.frame[b]  # both are -1 where frames are not known
        before, after = first.node[a], second.node[b]
        known = (before != pt.errors.UNKNOWN_NODE) & (after != pt.errors.UNKNOWN_NODE)
        moved = ~same & known & (before != after)
        yield name, level, "same", None, None, int(same.sum())
        yield name, level, "moved", None, None, int((~same & ~moved).sum())
        for (old, new), count in tally(np.stack([before[moved], after[moved]], axis=1)):
            yield name, level, "other node", old, new, count
        for (node,), count in tally(second.node[created][:, None]):
            yield name, level, "created", None, node, count
        for (node,), count in tally(first.node[gone][:, None]):
            yield name, level, "gone", node, None, count
        if level <= 3:
            for what, count in leaf_changes(first, second, level, a, b).items():
                yield name, level, what, None, None, count


def pair(
    before: pt.snapshot.Tree, after: pt.snapshot.Tree, level: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(in both: first, second; only first, only second): tables of `level` by root and address."""
    first, second = np.flatnonzero(before.level == level), np.flatnonzero(after.level == level)
    keys = place(before)[first], place(after)[second]
    _, a, b = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    return first[a], second[b], np.delete(first, a), np.delete(second, b)


def place(tree: pt.snapshot.Tree) -> np.ndarray:
    """A number for each table's root and first address; roots count in the order of the capture."""
    root = np.cumsum(tree.parent == pt.snapshot.NO_PARENT) - 1
    return np.asarray(tree.base | (root.astype(np.uint64) & np.uint64(0xFFF)))


def tally(nodes: np.ndarray) -> Iterator[tuple[list[int], int]]:
    """Yield each distinct row of `nodes`, int[n, 1 or 2], and how often it is there."""
    rows, counts = np.unique(nodes, axis=0, return_counts=True)
    return zip(rows.tolist(), counts.tolist(), strict=True)


def leaf_changes(
    first: pt.snapshot.Tree, second: pt.snapshot.Tree, level: int, a: np.ndarray, b: np.ndarray
) -> dict[str, int]:
    """{of LEAVES: leaf entries} over the pairs of tables a[i], b[i]."""
    changes, encoding = dict.fromkeys(LEAVES, 0), first.encoding
    ignored = np.uint64(USED[encoding])
    for start in range(0, len(a), BLOCK):
        old, new = first.entries[a[start : start + BLOCK]], second.entries[b[start : start + BLOCK]]
        differ = (old & ~ignored) != (new & ~ignored)
        old, new = old[differ], new[differ]
        was, is_now = (pt.snapshot.leaf(raw, level, encoding) for raw in (old, new))
        changes["leaves appeared"] += int((~was & is_now).sum())
        changes["leaves vanished"] += int((was & ~is_now).sum())
        both = was & is_now
        frames = [pt.snapshot.frame(raw[both], level, encoding) for raw in (old, new)]
        moved = int((frames[0] != frames[1]).sum())
        changes["leaves other frame"] += moved
        changes["leaves other flags"] += int(both.sum()) - moved
    return changes
