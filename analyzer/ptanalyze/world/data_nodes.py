"""Nodes of the data: by page where the trace touches them, by table elsewhere."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core import snapshot as bits
from ..core.errors import UNKNOWN_NODE
from ..core.snapshot import Tree
from ..core.trace import chunk_runs, give_back, read_only
from ..kernels.steps import Rows, slot_range
from .address_space import AddressSpace
from .first_touches import place_pages, single_node
from .history import History
from .site import Site

if TYPE_CHECKING:
    from ..kernels.data_moves import Frames, State

WALKS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class DataNodes:
    """Nodes of data pages when the trace begins, as in kernels.data_moves: int8 by row and slot.

    guest     int8[L, 512]  by row (kernels.steps.Rows) and slot: as captured; pages of a native capture
                            with a single node, and pages that an event of the trace moved before the
                            capture was taken, are where they are first touched: mapped before the region
                            of interest, as first_touches.place_pages has them, else by their first walk
    host      int8[H, 512]  of the host's leaf entries, by host_row; NOWHERE where nothing is mapped
    host_row  int32[T]      row of each host table that maps something of these, else -1
    left      State         where an earlier run over the same memory left the schedules, None: there was none
    """

    guest: np.ndarray
    host: np.ndarray
    host_row: np.ndarray
    left: "State | None" = None


def data_nodes(site: Site, past: History) -> DataNodes:
    """DataNodes of a Site; past: its History before data moves."""
    from ..kernels.data_moves import NOT_MAPPED, NOWHERE, RANGE

    space, rows = site.space, past.rows
    host, host_row = _host_nodes(site, rows)
    node = np.full((len(rows.leaf), 512), NOWHERE, np.int8)
    known = np.flatnonzero(rows.leaf < space.guest_tables)
    node[known] = nodes_behind(site, space.snapshot.guest, rows.leaf[known], nested=not space.native)
    moved = np.zeros(node.shape, bool)
    for k in np.flatnonzero(past.steps.kind == RANGE):
        row, lo, hi = slot_range(past.steps, k)
        moved[row, lo:hi] = True
    node[moved] = NOWHERE
    place_pages(site, past, node)
    _first_touch(site, rows, node)
    if moved.any():
        _rewind(space, rows, node, moved, host, host_row)
    mapped = np.unpackbits(past.valid.view(np.uint8), axis=1, bitorder="little").astype(bool)
    guest = np.where(mapped | (node == NOWHERE), node, NOT_MAPPED - node).astype(np.int8)
    return DataNodes(guest, host, host_row)


def nodes_behind(site: Site, tree: Tree, tables: np.ndarray, nested: bool) -> np.ndarray:
    """int8[n, 512]: node of the data behind each leaf entry of tables of a Tree, -1 unknown."""
    from ..kernels.data_moves import read_nodes
    from ..kernels.walker import CODES

    out = np.empty((len(tables), 512), np.int8)
    entries, level, code = read_only(tree.entries), read_only(tree.level), CODES[tree.encoding]
    read_nodes(entries, tables.astype(np.int64), level, code, frames(site, nested), out)
    return out


def count_children(site: Site, tree: Tree, skip: np.ndarray, nested: bool) -> np.ndarray:
    """int16[T, nodes]: leaf entries of each table of a Tree with data on each node; zeros where skip[t]."""
    from ..kernels.data_moves import count_nodes
    from ..kernels.walker import CODES

    counts = np.zeros((len(tree), site.nodes), np.int16)
    entries, level, code = read_only(tree.entries), read_only(tree.level), CODES[tree.encoding]
    count_nodes(entries, level, code, frames(site, nested), skip, counts)
    return counts


def frames(site: Site, nested: bool) -> "Frames":
    """kernels.data_nodes.Frames; nodes the machine lacks, and a native capture's only one, are unknown."""
    from ..kernels.data_moves import Frames
    from ..kernels.walker import CODES

    space = site.space
    topology = space.snapshot.topology
    nodes = () if single_node(space) else topology.nodes
    ranges = sorted((int(a), int(b), node.id) for node in nodes for a, b in node.frames)
    start, end, node = np.array(ranges, np.int64).reshape(-1, 3).T.copy()
    node = np.where((node >= 0) & (node < site.sockets), node * site.domains, UNKNOWN_NODE)
    if not nested:
        none = np.zeros((0, 512), np.uint64)
        behind = np.zeros(0, np.int32), read_only(none), read_only(np.zeros(0, np.uint8)), 0
    else:
        host_of = np.where(space.host_of >= 0, space.host_of - space.guest_tables, -1).astype(np.int32)
        host = space.snapshot.nested
        behind = host_of, read_only(host.entries), read_only(host.level), CODES[host.encoding]
    return Frames(start, end, node.astype(np.int16), *behind)


def _host_nodes(site: Site, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """(int8[H, 512], int32[T]): the host's tables that map data or tables of the rows."""
    space, tables = site.space, site.space.tables
    touched = np.zeros(len(tables.level), bool)
    if not space.native:
        touched[_host_tables(space, rows.leaf[rows.leaf < space.guest_tables])] = True
        chain = np.unique(rows.leaf)
        while len(chain):
            below = tables.host_leaf[chain]
            touched[below[below >= 0]] = True
            chain = np.unique(tables.parent[chain])
            chain = chain[chain >= 0]
    ids = np.flatnonzero(touched)
    ids = ids[np.argsort(tables.base[ids], kind="stable")]
    host_row = np.full(len(touched), -1, np.int32)
    host_row[ids] = np.arange(len(ids))
    if not len(ids):
        return np.zeros((0, 512), np.int8), host_row
    return nodes_behind(site, space.snapshot.nested, ids - space.guest_tables, nested=False), host_row


def _host_tables(space: AddressSpace, leaves: np.ndarray) -> np.ndarray:
    """Flat ids of the host tables behind the pages of guest tables `leaves`."""
    tree, behind = space.snapshot.guest, np.zeros(len(space.tables.level), bool)
    for begin in range(0, len(leaves), bits.BLOCK):
        at = leaves[begin : begin + bits.BLOCK]
        for level in np.unique(tree.level[at]).tolist():
            raw = tree.entries[at[tree.level[at] == level]]
            raw = raw[bits.leaf(raw, level, tree.encoding)]
            regions = bits.frame(raw, level, tree.encoding)[:, None] >> 9
            regions = np.unique(regions + np.arange(512 ** max(level - 2, 0)))
            host = space.host_of[regions[(regions >= 0) & (regions < len(space.host_of))]]
            behind[host[host >= 0]] = True
    return np.flatnonzero(behind)


def _first_touch(site: Site, rows: Rows, node: np.ndarray) -> None:
    """Pages that are nowhere are where the first walk to them comes from."""
    from ..kernels.data_moves import first_touch

    stream, placement = site.stream, site.placement
    chunk_node = placement.cpu_node[placement.chunk_cpu].astype(np.int16)
    offset = np.ascontiguousarray(stream.offset, np.int64)
    for first, last in chunk_runs(offset, WALKS_AT_ONCE):
        page = read_only(stream.page[offset[first] : offset[last]])
        walks = page, offset[first : last + 1] - offset[first], chunk_node[first:last]
        first_touch(*walks, rows.of_region, site.space.regions.slot, node)
        give_back(page)


def _rewind(
    space: AddressSpace,
    rows: Rows,
    node: np.ndarray,
    moved: np.ndarray,
    host: np.ndarray,
    host_row: np.ndarray,
) -> None:
    """Take the host's entries of pages that events moved back to the nodes of the guest's pages."""
    from ..kernels.data_moves import take_back
    from ..kernels.walker import CODES

    if not space.native:
        tree = space.snapshot.guest
        entries, code = read_only(tree.entries), CODES[tree.encoding]
        take_back(entries, code, rows.leaf, space.tables.level, space.host_of, host_row, moved, node, host)
