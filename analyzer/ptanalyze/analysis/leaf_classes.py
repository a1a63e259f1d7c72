"""Location of leaf entries, seen from each socket: local or remote, in both dimensions of a walk.

vMitosis, section 2.2, Figure 2: translate every mapped address in software and record the nodes of the
gPT's and the ePT's leaf entry; a thread on socket s sees Local-Local, Local-Remote, Remote-Local or
Remote-Remote, the guest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import UsageError
from ..core.interval import share_bounds
from ..core.trace import Placement, Trace, WalkStream, chunk_runs, give_back, read_only
from ..kernels import classify as kernels
from ..kernels.walker import CODES, Segments, count_mapped
from ..world import address_space
from ..world.address_space import AddressSpace, leaves_of
from .setup import heat_of

if TYPE_CHECKING:
    import pandas as pd


MAX_NODES = 60  # classes are stored as bytes


@dataclass(frozen=True)
class Classification:
    """Counts of leaf entries by location.

    weight      "leaf": each guest leaf entry once (with the host's entry of its first frame); "walks": each
                walk of a trace, seen only by the socket that walked; "heat": each leaf entry by the walks
                that samples of accessed bits estimate
    groups      names: ("all",), or VMAs, or threads
    sockets     NUMA nodes of the observing CPUs
    nodes       node ids of the tables
    counts      int64[groups, sockets, N + 1, N + 1]: guest leaf's node, host leaf's node (by position in
                `nodes`, the last: unknown); native int64[groups, sockets, N + 1, 1]
    unresolved  counts without a class, by reason
    tracers     mapped entries of the tracer's own memory: they are not counted
    left_out    of an estimate: int64[groups of samples, *counts.shape] without each of them, else None
    """

    weight: str
    native: bool
    groups: tuple[str, ...]
    sockets: tuple[int, ...]
    nodes: tuple[int, ...]
    counts: np.ndarray
    unresolved: dict[str, int]
    tracers: int = 0
    left_out: np.ndarray | None = None

    @property
    def classes(self) -> tuple[str, ...]:
        words = ("Local", "Remote")
        return words if self.native else tuple(f"{guest}-{host}" for guest in words for host in words)

    def by_class(self, counts: np.ndarray | None = None) -> np.ndarray:
        """int64[groups, sockets, classes]: known nodes only; of `counts`, or one of `left_out`."""
        placed = (self.counts if counts is None else counts)[:, :, :-1]
        local = np.equal.outer(np.array(self.sockets), np.array(self.nodes))
        sides = np.stack([local, ~local], axis=1).astype(np.int64)  # [socket, side, node]
        if self.native:
            return np.asarray(np.einsum("gsnx,sin->gsi", placed, sides))
        both = np.einsum("gsnm,sin,sjm->gsij", placed[..., :-1], sides, sides)
        return np.asarray(both.reshape(*both.shape[:2], 4))

    def frame(self) -> pd.DataFrame:
        """pandas DataFrame, tidy: group, socket, class, count, share of its group and socket.

        Of an estimate also share_low and share_high, a 95 % interval (core.interval).
        """
        import pandas as pd

        counts = self.by_class()
        total, share = counts.sum(axis=2, keepdims=True), shares(counts)
        names = {"group": self.groups, "socket": self.sockets, "class": self.classes}
        index = pd.MultiIndex.from_product(names.values(), names=names)
        columns = {"count": counts.ravel(), "share": share.ravel()}
        if self.left_out is not None:
            without = np.stack([shares(self.by_class(counts), np.nan) for counts in self.left_out])
            low, high = share_bounds(share, without) if len(self.nodes) > 1 else (share, share)
            columns |= {"share_low": low.ravel(), "share_high": high.ravel()}
        table = pd.DataFrame(columns, index=index)
        return table[np.broadcast_to(total > 0, counts.shape).ravel()].reset_index()


def shares(counts: np.ndarray, of_nothing: float = 0.0) -> np.ndarray:
    """float64, the shape of `counts`: shares of the sum over the last axis, `of_nothing` where that is 0."""
    total = counts.sum(axis=-1, keepdims=True)
    return np.divide(counts, total, out=np.full(counts.shape, of_nothing), where=total > 0)


def classify_pages(space: AddressSpace, by: str = "all") -> Classification:
    """Classification of every leaf entry of a snapshot (AddressSpace), the tracer's VMAs left out.

    by  "all" or "vma"
    """
    tree, snapshot = space.snapshot.guest, space.snapshot
    groups, group_of_vma = address_space.groups(snapshot, by)
    of_table, host, shape = _places(space)
    table, lo, hi, row = address_space.segments(tree, snapshot.vmas, group_of_vma)
    hist = np.zeros((len(groups), *shape), np.int64)
    flat = hist.reshape(-1, shape[1])
    segments = Segments(table, lo, hi, row * shape[0] + of_table[table])
    if space.native:
        mapped = np.zeros(len(table), np.int64)
        count_mapped(read_only(tree.entries), segments, CODES[tree.encoding], mapped)
        np.add.at(flat[:, 0], segments.row, mapped)
    else:
        kernels.count_nested(read_only(tree.entries), segments, host, np.zeros(512, np.uint8), flat)
    for level in (2, 3):
        table, slot, va = address_space.huge_leaves(tree, level)
        group = group_of_vma[address_space.vma_of(va, snapshot.vmas)]
        table, slot, group = (column[group >= 0] for column in (table, slot, group))
        np.add.at(hist, (group, of_table[table], _host_classes(space, host, table, slot)), 1)
    tracers = sum(address_space.tracers_leaves(snapshot).values())
    return replace(_classification("leaf", space, groups, hist), tracers=tracers)


def classify_walks(
    space: AddressSpace,
    stream: WalkStream,
    placement: Placement,
    trace: Trace,
    by: str = "all",
    batch: int = 1 << 20,
) -> Classification:
    """Classification weighted by the walks of a WalkStream, each seen by the socket whose CPU walked.

    by  "all", "vma" or "thread"
    """
    snapshot = space.snapshot
    of_table, host, shape = _places(space)
    sockets = int(placement.cpu_node.max(initial=0)) + 1
    groups, group_of_vma = address_space.groups(snapshot, "vma" if by == "vma" else "all")
    region_row, page_row = address_space.of_regions(space.regions.va, snapshot.vmas, group_of_vma, sockets)
    chunk_row = placement.cpu_node[placement.chunk_cpu].astype(np.int64)
    if by == "thread":
        groups = tuple(f"thread {tid}" for tid in trace.threads["tid"])
        chunk_row += trace.chunks["thread"].astype(np.int64) * sockets
    guest = read_only(np.zeros((0, 512), np.uint64) if space.native else snapshot.guest.entries)
    hist = np.zeros((len(groups) * sockets, *shape), np.int64)
    for first, last in chunk_runs(stream.offset, batch):
        row = np.repeat(chunk_row[first:last], np.diff(stream.offset[first : last + 1]))
        page = read_only(stream.page[stream.offset[first] : stream.offset[last]])
        kernels.count_walks(page, row, region_row, page_row, space.regions, of_table, guest, host, hist)
        give_back(page)
    return _classification("walks", space, groups, hist.reshape(len(groups), sockets, *shape))


GONE = "page gone from the snapshot"


def classify_heat(space: AddressSpace, by: str = "all") -> Classification:
    """Classification of the leaf entries of a snapshot that has Heat, by estimated walks.

    by  "all", "vma" or "page": each page that some sample found used, without an interval, for a page's leaf
        entry is in one place. A huge page of a VM counts with the host's entry of its first frame.
    """
    tree, snapshot, heat = space.snapshot.guest, space.snapshot, heat_of(space.snapshot)
    groups, group_of_vma = address_space.groups(snapshot, "vma" if by == "page" else by)
    of_table, host, shape = _places(space)
    group = group_of_vma[address_space.vma_of(heat.address, snapshot.vmas)]
    table, slot = leaves_of(tree, heat)
    lost = int(heat.walks[(table < 0) & (group >= 0)].sum())
    here = (table >= 0) & (group >= 0)
    table, slot, group = table[here], slot[here], group[here]
    if by == "page":
        groups = tuple(pages_of(heat.address[here], heat.level[here], [groups[k] for k in group]))
        group = np.arange(len(groups))
    columns = [heat.walks]
    if by != "page":
        columns.append(heat.walks_without if heat.enough else np.zeros_like(heat.walks_without))
    weights = np.column_stack(columns)[here]
    hist = np.zeros((len(groups), *shape, weights.shape[1]), np.int64)
    np.add.at(hist, (group, of_table[table], _host_classes(space, host, table, slot)), weights)
    whole, *parts = (_classification("heat", space, groups, one) for one in np.moveaxis(hist, -1, 0))
    left_out = np.stack([part.counts for part in parts]) if parts else None
    return replace(whole, unresolved=whole.unresolved | {GONE: lost}, left_out=left_out)


def pages_of(address: np.ndarray, level: np.ndarray, vmas: Sequence[str]) -> Iterator[str]:
    """Names of pages as those of VMAs, "7f0b27f62000-7f0b27f63000 [heap]"."""
    end = address + (np.uint64(1) << (np.uint64(3) + np.uint64(9) * level.astype(np.uint64)))
    for first, after, vma in zip(address.tolist(), end.tolist(), vmas, strict=True):
        yield f"{first:x}-{after:x} {vma.partition(' ')[2]}".rstrip()


def _places(space: AddressSpace) -> tuple[np.ndarray, kernels.Host, tuple[int, int]]:
    """(uint8[T] position of each table's node in the topology, their number N for an unknown node;
    address_space.host_classes, empty natively; numbers of the guest's classes and of the host's)."""
    nodes = [node.id for node in space.snapshot.topology.nodes]
    n = len(nodes)
    if n > MAX_NODES:
        raise UsageError(f"topology: {n} NUMA nodes, at most {MAX_NODES} are classified")
    of_table = np.full(len(space.tables.node), n, np.uint8)
    for position, node in enumerate(nodes):
        of_table[space.tables.node == node] = position
    if space.native:
        empty, entries = np.zeros(0, np.uint8), read_only(np.zeros((0, 512), np.uint64))
        return of_table, kernels.Host(empty, empty, np.zeros(0, np.int32), entries, 0, 0, 0, 0), (n + 1, 1)
    return of_table, address_space.host_classes(space, of_table, n), (n + 1, n + 4)


def _host_classes(space: AddressSpace, host: kernels.Host, table: np.ndarray, slot: np.ndarray) -> np.ndarray:
    """int64: class of the host's leaf entry for the first frame of each guest leaf entry; native 0."""
    kind, tree = np.zeros(len(table), np.int64), space.snapshot.guest
    if space.native:
        return kind
    first = slot << 9 * (tree.level[table].astype(np.int64) - 1)  # page number below the table
    kernels.classify_frames(address_space.pages_of(tree, table, first)[0], host, kind)
    return kind


def _classification(
    weight: str, space: AddressSpace, groups: tuple[str, ...], counts: np.ndarray
) -> Classification:
    """Classification of int64[groups, sockets, N + 1, classes of the host], or [groups, N + 1, classes] of
    entries that every socket sees."""
    once = counts.sum(axis=1) if counts.ndim == 4 else counts
    nodes = tuple(node.id for node in space.snapshot.topology.nodes)
    n, sockets = len(nodes), nodes if counts.ndim == 3 else tuple(range(counts.shape[1]))
    if counts.ndim == 3:
        counts = np.broadcast_to(counts[:, None], (len(groups), n, *counts.shape[1:]))
    unresolved = {"node unknown": int(once[:, n].sum())}
    if not space.native:
        unresolved["node unknown"] = int(once[..., : n + 1].sum() - once[:, :n, :n].sum())
        unresolved["guest leaf unmapped in the host"] = int(once[..., n + 1].sum())
        if weight == "walks":
            unresolved["guest leaf gone from the snapshot"] = int(once[..., n + 2].sum())
    return Classification(weight, space.native, groups, sockets, nodes, counts[..., : n + 1], unresolved)
