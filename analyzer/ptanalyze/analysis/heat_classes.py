"""Location of leaf entries, each weighted by the walks that samples of accessed bits estimate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import UsageError
from ..world import address_space
from ..world.address_space import leaves_of
from .leaf_classes import Classification, leaf_host_classes, node_classes, result_of

if TYPE_CHECKING:
    from ..core.snapshot import Heat, Snapshot
    from ..world.address_space import AddressSpace

GONE = "page gone from the snapshot"


def heat_of(snapshot: Snapshot) -> Heat:
    """UsageError where the capture has none."""
    if snapshot.heat is None:
        raise UsageError(
            "weight = heat: the capture has no samples of accessed bits; add them with "
            "`ptanalyze heat PID --add CAPTURE`, or make one with `ptanalyze heat PID -o CAPTURE`"
        )
    return snapshot.heat


def classify_heat(space: AddressSpace, *, by: str = "all") -> Classification:
    """Classification of the leaf entries of a snapshot that has Heat, by estimated walks.

    by  "all", "vma" or "page": each page that some sample found used, without an interval, for a page's leaf
        entry is in one place. A huge page of a VM counts with the host's entry of its first frame, as "leaf"
        does.
    """
    if by not in ("all", "vma", "page"):
        raise UsageError(f"by = {by}: samples of accessed bits do not know threads; one of all, vma, page")
    tree, snapshot, heat = space.snapshot.guest, space.snapshot, heat_of(space.snapshot)
    groups, group_of_vma = address_space.groups(snapshot, "vma" if by == "page" else by)
    nodes, of_table = node_classes(space)
    n = len(nodes)
    group = group_of_vma[address_space.vma_of(heat.address, snapshot.vmas)]
    table, slot = leaves_of(tree, heat)
    lost = int(heat.walks[(table < 0) & (group >= 0)].sum())
    here = (table >= 0) & (group >= 0)
    table, slot, group = table[here], slot[here], group[here]
    if by == "page":
        groups = tuple(pages_of(heat.address[here], heat.level[here], [groups[k] for k in group]))
        group = np.arange(len(groups))
    kind = leaf_host_classes(space, of_table, n, table, slot)
    without = heat.walks_without if heat.enough else np.zeros_like(heat.walks_without)
    weights = np.column_stack([heat.walks] if by == "page" else [heat.walks, without])[here]
    shape = (len(groups), n + 1, 1 if space.native else n + 4)
    hist = np.zeros((*shape, weights.shape[1]), np.int64)
    np.add.at(hist, (group, of_table[table], kind), weights)
    sockets = tuple(node.id for node in snapshot.topology.nodes)
    every = np.broadcast_to(hist[:, None], (len(groups), len(sockets), *hist.shape[1:]))
    found = result_of("heat", space.native, groups, sockets, nodes, every[..., 0], hist[..., 0])
    if by == "page":
        return replace(found, unresolved=found.unresolved | {GONE: lost})
    keep = 1 if space.native else n + 1
    left_out = np.moveaxis(every[..., :keep, 1:], -1, 0)
    return replace(found, unresolved=found.unresolved | {GONE: lost}, left_out=left_out)


def pages_of(address: np.ndarray, level: np.ndarray, vmas: Sequence[str]) -> Iterator[str]:
    """Names of pages as those of VMAs, "7f0b27f62000-7f0b27f63000 [heap]"."""
    end = address + (np.uint64(1) << (np.uint64(3) + np.uint64(9) * level.astype(np.uint64)))
    for first, after, vma in zip(address.tolist(), end.tolist(), vmas, strict=True):
        yield f"{first:x}-{after:x} {vma.partition(' ')[2]}".rstrip()
