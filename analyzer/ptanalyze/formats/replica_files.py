"""Trees of other nodes beside gpt.*: gpt-nodeN.tables and gpt-nodeN.entries, named in snapshot.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from ..core.errors import CaptureError
from ..core.replicas import OWNER_DTYPE, Replicas
from ..core.snapshot import Tree
from .tables_file import read_tree

FIELD = "facts.replicas"


class ReplicaTree(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tree: the name of its files, and the nodes whose CPUs walk it."""

    name: Annotated[str, Meta(pattern=r"^gpt(-node\d{1,3})?$")]
    nodes: tuple[int, ...]


class ReplicaRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`owners`: [first byte, one past the last, node] of each area; null where the kernel knows none."""

    trees: Annotated[tuple[ReplicaTree, ...], Meta(min_length=2)]
    owners: tuple[tuple[int, int, int], ...] | None = None


def read_replicas(directory: Path, guest: Tree, facts: Mapping[str, Any]) -> Replicas:
    """Replicas of a capture, whose snapshot has the tree `guest` and these facts.

    CaptureError where they are damaged or contradict themselves, UsageError for a missing file.
    """
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
