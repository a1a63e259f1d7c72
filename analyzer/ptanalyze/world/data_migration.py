"""Moves of data pages between nodes while the trace runs: by its events, or by a stated schedule.

The schedule is modelled on Linux's automatic NUMA balancing (kernel/sched/fair.c): every scan period the next
`scan_size_mb` of the mapped pages that the trace touches are marked (task_numa_work, in address order, over
and over), and a marked page moves to the node of the next walk to it
(should_numa_migrate_memory, without its second look at shared pages), within the rate limit. Periods are of
the trace's time and do not adapt. Marking rewrites the entry, in every copy that a policy keeps, and so does
the fault that finds the page on its node (HINT steps). A scan's marks are shot down together, each page that
moves alone. The fault itself, the same under every policy, is not
counted. The hypervisor's balancing (by = host) does the same to the pages of its own tables, in the order of
guest-physical addresses; a guest's table pages are ordinary memory to it and move when they are walked
through (vMitosis, section 3.2.2).

The stream of walks is not changed by the schedule's moves (those of events drop TLB entries), and a page that
a guest moves keeps its leaf table in the host: the hypervisor is taken to follow its data at once.
Marks and flushes of a hypervisor are not counted.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..core import snapshot as bits
from ..core.errors import UNKNOWN_NODE, UsageError
from ..core.finding import Finding
from ..core.snapshot import Tree
from ..core.trace import Event, chunk_runs, give_back, read_only
from ..kernels.steps import (
    BALANCING,
    CLEAR,
    FLUSH,
    MOVE,
    Rows,
    Shootdowns,
    Steps,
    move_target,
    node_now,
    slot_range,
)
from .address_space import AddressSpace
from .first_touches import place_pages, single_node
from .history import History
from .site import Site

if TYPE_CHECKING:
    from ..kernels.data_migration import Frames, Schedule, State, Where


# Nodes of the data: by page where the trace touches them, by table elsewhere.


@dataclass(frozen=True)
class DataNodes:
    """Nodes of data pages when the trace begins, as in kernels.data_migration: int8 by row and slot.

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
    from ..kernels.data_migration import NOT_MAPPED, NOWHERE, RANGE

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
    from ..kernels.data_migration import read_nodes
    from ..kernels.walker import CODES

    out = np.empty((len(tables), 512), np.int8)
    entries, level, code = read_only(tree.entries), read_only(tree.level), CODES[tree.encoding]
    read_nodes(entries, tables.astype(np.int64), level, code, frames(site, nested), out)
    return out


def count_children(site: Site, tree: Tree, skip: np.ndarray, nested: bool) -> np.ndarray:
    """int16[T, nodes]: leaf entries of each table of a Tree with data on each node; zeros where skip[t]."""
    from ..kernels.data_migration import count_nodes
    from ..kernels.walker import CODES

    counts = np.zeros((len(tree), site.nodes), np.int16)
    entries, level, code = read_only(tree.entries), read_only(tree.level), CODES[tree.encoding]
    count_nodes(entries, level, code, frames(site, nested), skip, counts)
    return counts


def frames(site: Site, nested: bool) -> "Frames":
    """kernels.data_nodes.Frames; nodes the machine lacks, and a native capture's only one, are unknown."""
    from ..kernels.data_migration import Frames
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
    from ..kernels.data_migration import first_touch

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
    from ..kernels.data_migration import take_back
    from ..kernels.walker import CODES

    if not space.native:
        tree = space.snapshot.guest
        entries, code = read_only(tree.entries), CODES[tree.encoding]
        take_back(entries, code, rows.leaf, space.tables.level, space.host_of, host_row, moved, node, host)


WALKS_AT_ONCE = 1 << 20
BUFFER = 1 << 16
BURST_NS = 100_000_000  # migrate_interval_millisecs of Linux before 5.0 (mm/migrate.c)
PAGES_A_MB = 256


def by_host(site: Site) -> bool:
    """Whether the hypervisor moves data; UsageError for a native capture, which has no hypervisor.

    Under shadow paging there is a single table, rewritten whoever moves data.
    """
    asked, snapshot = site.moves.by, site.captured.snapshot
    if site.snapshot.native and not snapshot.native:
        return False
    if asked == "auto":
        return snapshot.numa_oblivious
    if asked == "host" and snapshot.native:
        raise UsageError("moves by = host: a native capture has no hypervisor; by = guest is its own kernel")
    return asked == "host"


def moves_told(site: Site) -> list[Finding]:
    """How data move, none where none does."""
    moves, told = site.moves, int(np.count_nonzero(site.trace.events["kind"] == Event.MOVE_PAGES))
    found = []
    if told:
        text = (
            f"{told} events moved data before the capture was taken: such pages begin where they are first "
        )
        found.append(Finding("moved-before", f"{text}touched", numbers={"events": told}))
    if not moves.autonuma:
        return found
    who = "the hypervisor" if by_host(site) else "the kernel"
    limit = f", at most {moves.rate_limit_mb_s:g} MiB/s" if moves.rate_limit_mb_s else ""
    marks = "its marks cost nothing" if by_host(site) else "a mark rewrites an entry in every copy"
    time = site.trace.chunks["time"]
    lasts = (int(time.max()) - int(time.min())) / 1e6 if len(time) else 0.0
    if lasts <= moves.delay_ms:
        text = (
            f"the trace lasts {lasts:g} ms and marking begins after {moves.delay_ms:g} ms: no data moves; "
            "give a smaller delay_ms and scan_period_ms"
        )
        found.append(Finding("autonuma-too-late", text, policy="autonuma"))
    text = (
        f"{who} moves data to the node of their next walk: {moves.scan_size_mb:g} MiB marked every "
        f"{moves.scan_period_ms:g} ms from {moves.delay_ms:g} ms on{limit}; {marks}, TLB misses stay as they "
        "were"
    )
    return [*found, Finding("autonuma", text)]


def data_move(site: Site, past: History) -> bool:
    """Whether any data page moves; UsageError where the machine has no such node, or the trace no times."""
    from ..kernels.data_migration import RANGE

    said = past.steps.kind == RANGE
    if not site.moves.autonuma and not said.any():
        return False
    _check(site, node_now(past.steps, said))
    return True


def with_data_moves(site: Site, past: History, data: DataNodes) -> tuple[History, DataNodes]:
    """(the History `past` with the steps of all data that move, where they are then); data: at first."""
    from ..kernels.data_migration import ANY

    steps, flushes, after = _steps(site, past, data)
    page = steps.lo[flushes] != ANY
    chunk = steps.chunk[flushes]
    live = np.vstack([past.shootdowns.live, _live(site, past, chunk)])
    broadcast = np.append(past.shootdowns.broadcast, past.live.broadcast_then(chunk))
    level = site.space.tables.level[past.rows.leaf[steps.row[flushes]]]
    single, kernel = past.shootdowns.single, past.shootdowns.kernel
    alone = page & (level <= 2), page & (level == 1) & (steps.lo[flushes] < 511)
    one = np.append(single, alone[0]), np.append(kernel, alone[1])
    moved = replace(past, steps=steps, shootdowns=Shootdowns(live.astype(np.int32), *one, broadcast))
    return moved, after


def data_undone(data: DataNodes, undone: History | None) -> DataNodes:
    """DataNodes after History.undone."""
    from ..kernels.data_migration import NOWHERE

    if undone is None:
        return data
    guest, steps = data.guest.copy(), undone.steps
    for step in np.flatnonzero(np.isin(steps.kind, (CLEAR, MOVE))):
        row, lo, hi = slot_range(steps, step)
        there = guest[row, lo:hi] >= 0
        if steps.kind[step] == MOVE:
            target, to = move_target(steps, step)
            guest[target, to : to + hi - lo][there] = guest[row, lo:hi][there]
        guest[row, lo:hi][there] = NOWHERE
    return replace(data, guest=guest)


def _check(site: Site, targets: np.ndarray) -> None:
    if len(targets) and targets.max() >= site.sockets:
        raise UsageError(
            f"trace: data moved to node {targets.max()}: machine {site.machine.name} has nodes "
            f"0..{site.sockets - 1}; use a machine with more nodes"
        )
    time = site.trace.chunks["time"]
    if site.moves.autonuma and len(time) > 1 and time[0] == time[-1]:
        raise UsageError(
            "autonuma: the trace has no times: record one with `ptanalyze record -o DIR -- COMMAND`"
        )


def _live(site: Site, past: History, chunk: np.ndarray) -> np.ndarray:
    """int32[n, nodes]: CPUs to interrupt when the CPU that runs each chunk shoots down."""
    chunk_cpu = site.placement.chunk_cpu
    alike, which = np.unique(chunk, return_inverse=True)
    counts = [past.live.others_then(one, int(chunk_cpu[one])) for one in alike.tolist()]
    return np.array(counts, np.int32).reshape(-1, past.shootdowns.live.shape[1])[which]


def _steps(site: Site, past: History, data: DataNodes) -> tuple[Steps, np.ndarray, DataNodes]:
    """(Steps with every single move, bool[S]: FLUSHes of the schedule, DataNodes in the end)."""
    from ..kernels.data_migration import CHUNK, OUT, STOP, follow

    stream, placement = site.stream, site.placement
    where, schedule, state = _where(site, past, data), _schedule(site), _state(site, data)
    offset = np.ascontiguousarray(stream.offset, np.int64)
    chunk_node = placement.cpu_node[placement.chunk_cpu].astype(np.int16)
    out = Steps(*(np.empty(BUFFER + where.most, column.dtype) for column in past.steps))
    events = past.steps._replace(to=(past.steps.to * _scale(past.steps, site)).astype(np.int16))
    stops = [last for _, last in chunk_runs(offset, WALKS_AT_ONCE)] or [0]
    parts, done, given = [], False, 0
    while not done:
        if stops and state.clock[CHUNK] == state.clock[STOP]:
            give_back(stream.page[given : offset[state.clock[STOP]]])
            given = int(offset[state.clock[STOP]])
            state.clock[STOP] = stops.pop(0)
        state.clock[OUT] = 0
        done = follow(
            read_only(stream.page), offset, _times(site), chunk_node, site.space.regions,
            site.space.tables, past.rows, where, schedule, events, state, out,
        )  # fmt: skip
        parts.append([column[: state.clock[OUT]].copy() for column in out])
    steps = Steps(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    after = replace(data, guest=state.guest, host=state.host, left=state)
    return steps, (steps.kind == FLUSH) & (steps.call == BALANCING), after


def _scale(steps: Steps, site: Site) -> np.ndarray:
    """Domains per node of a step: an event's RANGE names a socket, whose first domain gets the data."""
    from ..kernels.data_migration import RANGE

    return np.where(steps.kind == RANGE, site.domains, 1)


def _times(site: Site) -> np.ndarray:
    """int64[chunks + 1]: ns at each chunk's start; the last chunk takes no time."""
    time = np.maximum.accumulate(site.trace.chunks["time"].astype(np.int64))
    return np.append(time, time[-1:])


def _schedule(site: Site) -> "Schedule":
    from ..kernels.data_migration import Schedule

    moves = site.moves
    rate = moves.rate_limit_mb_s * PAGES_A_MB / 1e9
    return Schedule(
        moves.autonuma,
        by_host(site),
        max(round(moves.scan_period_ms * 1e6), 1),
        round(moves.delay_ms * 1e6),
        max(round(moves.scan_size_mb * PAGES_A_MB), 1),
        rate,
        max(rate * BURST_NS, 1.0),
    )


def _where(site: Site, past: History, data: DataNodes) -> "Where":
    from ..kernels.data_migration import Where
    from ..kernels.walker import CODES

    space, tables = site.space, site.space.tables
    guest = space.snapshot.guest
    if by_host(site):
        leaves = np.flatnonzero(data.host_row >= 0)
        leaves = leaves[np.argsort(data.host_row[leaves])]
        order = np.arange(len(leaves), dtype=np.int32)
    else:
        leaves = past.rows.leaf
        order = np.argsort(tables.base[leaves], kind="stable").astype(np.int32)
    pages = np.int64(1) << 9 * (np.minimum(tables.level[leaves], 3).astype(np.int64) - 1)
    mine = np.flatnonzero(tables.host_leaf >= 0)
    mine = mine[data.host_row[tables.host_leaf[mine]] >= 0]
    unit = data.host_row[tables.host_leaf[mine]].astype(np.int64) << 9 | tables.host_slot[mine]
    by_unit = np.argsort(unit, kind="stable")
    return Where(
        read_only(guest.entries),
        CODES[guest.encoding],
        space.host_of,
        order,
        pages,
        data.host_row,
        unit[by_unit],
        mine[by_unit].astype(np.int32),
        len(past.shootdowns.single),
        2 * (1024 + len(mine)) + _marks(site, len(order)),
    )


def _marks(site: Site, rows: int) -> int:
    """The most pages that a scan of the guest's (or native) kernel marks."""
    if not site.moves.autonuma or by_host(site):
        return 0
    return min(_schedule(site).scan, 512 * rows)


def _state(site: Site, data: DataNodes) -> "State":
    from ..kernels.data_migration import NEXT_SCAN, REFILLED, ROW, SLOT, State

    clock, credit, times = np.zeros(10, np.int64), np.zeros(1), _times(site)
    schedule, began = _schedule(site), int(times[site.begin]) if len(times) else 0
    if data.left is None:
        clock[NEXT_SCAN], clock[REFILLED], credit[0] = began + schedule.first, began, schedule.burst
    else:
        clock[[ROW, SLOT]] = data.left.clock[[ROW, SLOT]]
        clock[[NEXT_SCAN, REFILLED]] = data.left.clock[[NEXT_SCAN, REFILLED]] + began - times[-1]
        credit[:] = data.left.credit
    return State(data.guest.copy(), data.host.copy(), clock, credit)
