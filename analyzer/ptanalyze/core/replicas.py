"""The page tables of a process on a kernel that replicates them by NUMA node: a tree per node."""

from dataclasses import dataclass

import numpy as np

from .snapshot import Tree

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
