"""Nodes of pages: of tables and data by their first touch, of data as they move while the trace runs.

Where the memory is that was mapped before the region of interest: with the threads that touched it first.

Linux allocates a page table in the fault that needs it, on the node of the faulting CPU unless a memory
policy says otherwise (__pte_alloc in mm/memory.c, pte_alloc_one in arch/x86/mm/pgtable.c); data alike. The
trace's FIRST_TOUCH events tell whose fault that was, by 2 MiB. Without an event (older captures, memory that
the kernel filled itself) it is taken to be the thread that mapped the memory, as for Hydra's owners.

What this cannot tell: threads that share 2 MiB and touched different pages of it first; a table that went
because the only mapping in its 2 MiB, smaller than that, was unmapped, and was made again by another thread.

Moves of data pages between nodes while the trace runs: by its events, or by a stated schedule.

The schedule is modelled on Linux's automatic NUMA balancing (kernel/sched/fair.c): every scan period the next
`scan_size_mb` of the mapped pages that the trace touches are marked (task_numa_work, in address order, over
and over), and a marked page moves to the node of the next walk to it (should_numa_migrate_memory, without its
second look at shared pages), within the rate limit. Periods are of native time (TracedProgram.pace) and do
not adapt. Marking rewrites the entry, in every copy that a policy keeps, and so does the fault that finds the
page on its node (HINT steps). A scan's marks are shot down together, each page that moves alone. The fault
itself, the same under every policy, is not counted. The hypervisor's balancing (by = host) does the same to
the pages of its own tables, in the order of guest-physical addresses; a guest's table pages are ordinary
memory to it and move when they are walked through (vMitosis, section 3.2.2).

The stream of walks is not changed by the schedule's moves (those of events drop TLB entries), and a page that
a guest moves keeps its leaf table in the host: the hypervisor is taken to follow its data at once.
Marks and flushes of a hypervisor are not counted.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..core.columns import Finding, noted
from ..core.errors import UNKNOWN_NODE, UsageError
from ..core.snapshot import Topology, Tree, leaf_frames
from ..core.trace import (
    PAGE_SHIFT,
    REGION_SHIFT,
    SLOT_BITS,
    Event,
    Placement,
    Trace,
    chunk_runs,
    give_back,
    read_only,
)
from ..kernels import BALANCING
from ..kernels import data_migration as kernels
from ..kernels.data_migration import NOWHERE
from ..kernels.replay import CLEAR, FLUSH, MOVE, MmSteps, Rows, Shootdowns, move_target, slot_range
from ..kernels.walker import CODES
from .address_space import AddressSpace, Nested, pages_of
from .history import History
from .mm_events import MOVED, UNMAPPED, effects, region_of_interest
from .traced_program import TracedProgram

REGION = np.uint64(1 << REGION_SHIFT)
ROWS_AT_ONCE = 4096


class FirstTouches(NamedTuple):
    """Regions that were touched before the region of interest and not unmapped as a whole since.

    region  uint64[F]  address >> 21, sorted
    order   int64[F]   index of the event
    node    int16[F]   of the CPU of the thread that touched it first
    """

    region: np.ndarray
    order: np.ndarray
    node: np.ndarray

    def earliest(self, region: np.ndarray, count: np.ndarray) -> np.ndarray:
        """int64[n]: position of the first touch of `count` regions from `region` on (uint64[n]), else -1."""
        first, last = np.searchsorted(self.region, region), np.searchsorted(self.region, region + count)
        position = np.where(last > first, first, -1)
        for k in np.flatnonzero(last - first > 1):
            position[k] += np.argmin(self.order[first[k] : last[k]])
        return position

    def in_span(self, base: np.ndarray, level: np.ndarray) -> np.ndarray:
        """int64[n]: `earliest` in what tables of these bases and levels map."""
        return self.earliest(base >> np.uint64(REGION_SHIFT), np.uint64(512) ** (level - np.uint64(1)))

    def nodes_of(self, position: np.ndarray) -> np.ndarray:
        """int16[n]: node of the touch at each position, NOWHERE for -1."""
        return np.append(self.node, np.int16(NOWHERE))[position]


def single_node(space: AddressSpace) -> bool:
    """Whether all memory was captured on one node, which says nothing of a machine with several."""
    return space.native and len(space.snapshot.topology) < 2


def first_touches(trace: Trace, placement: Placement) -> FirstTouches:
    """FirstTouches of a Trace whose threads run as placed; none where the trace has no region of interest."""
    events = trace.events[: region_of_interest(trace.events).first]
    touches = np.flatnonzero(events["kind"] == Event.FIRST_TOUCH)[::-1]
    region, latest = np.unique(events["a"][touches] >> np.uint64(REGION_SHIFT), return_index=True)
    order = touches[latest]
    there = np.ones(len(region), bool)
    gone = effects(events)
    gone = gone[np.isin(gone["what"], (UNMAPPED, MOVED)) | (events["kind"][gone["event"]] == Event.MMAP)]
    when, of = np.unique(gone["event"], return_index=True)  # mremap cuts off what lies behind what it moves
    start, end = np.minimum.reduceat(gone["start"], of), np.maximum.reduceat(gone["end"], of)
    first = np.searchsorted(region, (start + REGION - np.uint64(1)) // REGION)
    last = np.searchsorted(region, end // REGION)
    for k in np.flatnonzero(first < last):
        there[first[k] : last[k]] &= order[first[k] : last[k]] > when[k]
    region, order = region[there], order[there]
    return FirstTouches(region, order, placement.cpu_node[placement.event_cpu[order]].astype(np.int16))


def table_homes(program: TracedProgram, past: History) -> np.ndarray:
    """int16[T]: node of each guest table that exists at the start under first touch, NOWHERE for all others.

    A table is where its span was touched first. Without a first touch in it a table is where the VMA of its
    lowest mapped entry was mapped, else where its lowest child is, else where the lowest VMA in its span at
    the trace's end was mapped. The root is the main thread's, which the program began with.
    """
    tables = program.space.tables
    home = np.full(len(tables.level), NOWHERE, np.int16)
    if not program.traced:
        return home
    exists = past.exists.copy()
    exists[program.space.sides[1]] = False
    ids = np.flatnonzero(exists)
    touches = first_touches(program.trace, program.placement)
    home[ids] = touches.nodes_of(touches.in_span(tables.base[ids], tables.level[ids]))
    leaf = past.rows.leaf
    rows = np.flatnonzero(exists[leaf] & (home[leaf] == NOWHERE) & past.valid.any(axis=1))
    home[leaf[rows]] = past.owners(rows)[np.arange(len(rows)), past.mapped_pages(rows).argmax(axis=1)]
    _by_last_vma(program, past, exists, home)
    for level in range(1, int(tables.level.max(initial=1))):  # of the child of the lowest address, the last
        below = np.flatnonzero(exists & (tables.level == level) & (tables.parent >= 0))[::-1]
        below = below[home[tables.parent[below]] == NOWHERE]
        home[tables.parent[below]] = home[below]
    home[exists & (tables.parent < 0)] = past.vma_owner[0]
    return home


def _by_last_vma(program: TracedProgram, past: History, exists: np.ndarray, home: np.ndarray) -> None:
    """Tables that lead to nothing the trace touches."""
    tables, (starts, ends, owner) = program.space.tables, past.last
    childless = exists & (home == NOWHERE)
    childless[tables.parent[exists & (tables.parent >= 0)]] = False
    ids = np.flatnonzero(childless)
    low, level = tables.base[ids], tables.level[ids].astype(np.uint64)
    vma = np.searchsorted(ends, low, side="right")
    inside = np.append(starts, ~np.uint64(0))[vma] < low + (np.uint64(4096) << np.uint64(9) * level)
    home[ids] = np.where(inside, np.append(owner, NOWHERE)[vma], past.vma_owner[0])


def place_pages(program: TracedProgram, past: History, node: np.ndarray) -> None:
    """Fill node[row, slot] (int8[L, 512]) where it is NOWHERE and the page was mapped before.

    Such a page is where its 2 MiB were touched first, else where its VMA was mapped.
    """
    regions, touches = program.space.regions, first_touches(program.trace, program.placement)
    spans = np.uint64(512) ** np.maximum(regions.level, 2).astype(np.uint64) // np.uint64(512 * 512)
    toucher = touches.nodes_of(touches.earliest(regions.va // spans * spans, spans))
    small, row = regions.slot < 0, past.rows.of_region
    by_row = np.full(len(past.rows.leaf), NOWHERE, np.int16)
    by_row[row[small]] = toucher[small]
    of_huge = row[~small], regions.slot[~small], toucher[~small]
    for begin in range(0, len(by_row), ROWS_AT_ONCE):
        rows = np.arange(begin, min(begin + ROWS_AT_ONCE, len(by_row)))
        if not (past.valid[rows].any() and (node[rows] == NOWHERE).any()):
            continue
        mapped, there = past.mapped_pages(rows), past.owners(rows)
        touched = by_row[rows] != NOWHERE
        there[touched] = by_row[rows[touched]][:, None]
        here = (of_huge[0] >= begin) & (of_huge[0] < begin + len(rows)) & (of_huge[2] != NOWHERE)
        there[of_huge[0][here] - begin, of_huge[1][here]] = of_huge[2][here]
        node[rows] = np.where(mapped & (node[rows] == NOWHERE), there, node[rows])


# A hypervisor's tables behind what the guest had mapped before the region: where that was touched first. KVM
# makes a page of the nested table in the violation that needs it, on the node of the vCPU that faults
# (kvm_tdp_mmu_map in arch/x86/kvm/mmu/tdp_mmu.c). The guest's memory is taken to be new to the host then:
# what the guest's kernel and other programs had used before this one is not known.


def host_homes(program: TracedProgram, past: History, home: np.ndarray) -> np.ndarray:
    """int16[T]: node of each host table that what was mapped at the start needs, NOWHERE for all others.

    home  int16[T]: nodes of the guest's tables (table_homes)

    The earliest guest table decides, of those whose own page or mapped pages a host table maps. They come
    in the order of the first touches in their spans, those without any after all others.
    """
    space, tables = program.space, program.space.tables
    host_home = np.full(len(home), NOWHERE, np.int16)
    guests = np.flatnonzero(home[: space.guest_tables] != NOWHERE)
    if space.native or not len(guests):
        return host_home
    touches = first_touches(program.trace, program.placement)
    order = np.append(touches.order, np.iinfo(np.int64).max)  # last those without a touch
    order = order[touches.in_span(tables.base[guests], tables.level[guests])]
    guests = guests[np.argsort(order, kind="stable")]
    rank = np.full(len(home), len(guests))
    rank[guests] = np.arange(len(guests))
    first = np.full(len(home) + 1, len(guests))  # the last: where nothing maps
    np.minimum.at(first, tables.host_leaf[guests], rank[guests])
    rows = np.flatnonzero((past.rows.leaf < space.guest_tables) & past.valid.any(axis=1))
    for guest, host in _hosts_behind(space, past.rows.leaf[rows], lambda some: past.mapped_pages(rows[some])):
        np.minimum.at(first, host, rank[guest])
    for level in range(1, program.snapshot.nested.levels):
        ids = np.arange(len(home))[space.sides[1]]
        ids = ids[(tables.level[ids] == level) & (tables.parent[ids] >= 0)]
        np.minimum.at(first, tables.parent[ids], first[ids])
    needed = np.flatnonzero(first[:-1] < len(guests))
    host_home[needed] = home[guests[first[needed]]]
    return host_home


def _hosts_behind(
    space: AddressSpace, leaves: np.ndarray, kept: Callable[[slice], np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield ([n] guest tables, [n] host tables that map a page of a leaf entry of each, else -1), flat ids.

    leaves  int64[k]: guest tables; kept: called with a slice of them, bool[n, 512] of the entries that count
    """
    tree, host_of = space.snapshot.guest, np.append(space.host_of, NOWHERE)
    for some, frame in leaf_frames(tree, leaves):
        which, slot = np.nonzero((frame >= 0) & kept(some))
        table, first = leaves[some][which], frame[which, slot] >> 9
        for level, regions in (1, 1), (2, 1), (3, 512):  # of 2 MiB that an entry maps
            at = tree.level[table] == level
            region = first[at, None] + np.arange(regions)
            host = host_of[np.where(region < len(space.host_of), region, -1)]
            yield np.repeat(table[at], regions), host.ravel()


# Nodes of the data: by page where the trace touches them, by table elsewhere.


@dataclass(frozen=True)
class DataNodes:
    """Nodes of data pages when the trace begins, as in kernels.data_migration: int8 by row and slot.

    guest     int8[L, 512]  by row (kernels.replay.Rows) and slot: as captured; pages of a native capture
                            with a single node, and pages that an event of the trace moved before the
                            capture was taken, are where they are first touched: mapped before the region
                            of interest, as place_pages has them, else by their first walk
    host      int8[H, 512]  of the host's leaf entries, by host_row; NOWHERE where nothing is mapped
    host_row  int32[T]      row of each host table that maps something of these, else -1
    left      State         where an earlier run over the same memory left the schedules, None: there was none
    """

    guest: np.ndarray
    host: np.ndarray
    host_row: np.ndarray
    left: kernels.State | None = None


def data_nodes(program: TracedProgram, past: History) -> DataNodes:
    """DataNodes of a TracedProgram; past: its History before data moves."""
    space, rows = program.space, past.rows
    host, host_row = _host_nodes(program, rows)
    node = np.full((len(rows.leaf), 512), NOWHERE, np.int8)
    known = np.flatnonzero(rows.leaf < space.guest_tables)
    node[known] = nodes_behind(program, space.snapshot.guest, rows.leaf[known], nested=not space.native)
    moved = np.zeros(node.shape, bool)
    for k in np.flatnonzero(past.steps.kind == kernels.RANGE):
        row, lo, hi = slot_range(past.steps, k)
        moved[row, lo:hi] = True
    node[moved] = NOWHERE
    place_pages(program, past, node)
    _first_touch(program, rows, node)
    for begin in range(0, 0 if space.native else len(moved), ROWS_AT_ONCE):
        some = slice(begin, begin + ROWS_AT_ONCE)
        _take_back(space, rows.leaf[some], DataNodes(node[some], host, host_row), moved[some])
    if not space.native:  # walks read the guest's entries, and of the host's tables where they are
        give_back(read_only(space.snapshot.nested.entries))
    mapped = past.mapped_pages(slice(None))
    guest = np.where(mapped | (node == NOWHERE), node, kernels.NOT_MAPPED - node).astype(np.int8)
    return DataNodes(guest, host, host_row)


def _take_back(space: AddressSpace, leaf: np.ndarray, data: DataNodes, moved: np.ndarray) -> None:
    """Host entries behind guest pages `moved` (bool[n, 512], of the tables `leaf`) are where these are;
    larger ones stay."""
    tree, level = space.snapshot.guest, space.tables.level.astype(np.int64)
    row, slot = np.nonzero(moved & (data.guest >= 0) & (leaf < space.guest_tables)[:, None])
    table, node, shift = leaf[row], data.guest[row, slot], SLOT_BITS * (level[leaf[row]] - 1)
    page = (tree.base[table] >> np.uint64(PAGE_SHIFT)).astype(np.int64) + (slot << shift)
    frame = pages_of(tree, table, page)[0]
    inside = (frame >= 0) & (frame >> SLOT_BITS < len(space.host_of))
    behind = np.append(space.host_of, NOWHERE)[np.where(inside, frame >> SLOT_BITS, -1)]
    same = np.flatnonzero((behind >= 0) & (level[behind] == level[table]))
    entry = data.host_row[behind[same]], frame[same] >> shift[same] & 511
    data.host[entry] = np.where(data.host[entry] >= 0, node[same], data.host[entry])
    for k in np.flatnonzero((behind >= 0) & (level[behind] < level[table])):
        several = data.host[data.host_row[behind[k]]]
        several[several >= 0] = node[k]


def nodes_behind(program: TracedProgram, tree: Tree, tables: np.ndarray, nested: bool) -> np.ndarray:
    """int8[n, 512]: node of the data behind each leaf entry of tables of a Tree, -1 unknown."""
    out = np.empty((len(tables), 512), np.int8)
    for some, node in _nodes(program, tree, tables, nested):
        out[some] = node
    return out


def count_children(program: TracedProgram, tree: Tree, skip: np.ndarray, nested: bool) -> np.ndarray:
    """int16[T, nodes]: leaf entries of each table of a Tree with data on each node; zeros where skip[t]."""
    counts, tables = np.zeros((len(tree), program.nodes), np.int16), np.flatnonzero(~skip)
    for some, node in _nodes(program, tree, tables, nested):
        counts[tables[some]] = np.stack([(node == one).sum(axis=1) for one in range(program.nodes)], axis=1)
    return counts


def _nodes(
    program: TracedProgram, tree: Tree, tables: np.ndarray, nested: bool
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield (which of the tables, int16[n, 512]: node behind each entry, of the guest's memory if nested).

    Nodes that the machine lacks, and a native capture's one, are unknown.
    """
    space, nodes = program.space, program.nodes
    topology = Topology(()) if single_node(space) else space.snapshot.topology
    host = Nested(space.snapshot.nested) if nested else None
    for some, frame in leaf_frames(tree, tables):
        known = frame if host is None else host.host_frames(frame.ravel()).reshape(-1, 512)
        node = topology.node_of_frame(known)
        yield some, np.where(node < nodes, node, UNKNOWN_NODE)


def _host_nodes(program: TracedProgram, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """(int8[H, 512], int32[T]): the host's tables that map data or tables of the rows."""
    space, tables = program.space, program.space.tables
    touched = np.zeros(len(tables.level), bool)
    if not space.native:
        leaves = rows.leaf[rows.leaf < space.guest_tables]
        for _, host in _hosts_behind(space, leaves, lambda some: np.ones((1, 512), bool)):
            touched[host[host >= 0]] = True
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
    return nodes_behind(program, space.snapshot.nested, ids - space.guest_tables, nested=False), host_row


def _first_touch(program: TracedProgram, rows: Rows, node: np.ndarray) -> None:
    """Pages that are nowhere are where the first walk to them comes from."""
    stream, placement, slots = program.stream, program.placement, program.space.regions.slot
    chunk_node, flat = placement.cpu_node[placement.chunk_cpu], node.reshape(-1)
    for first, last in chunk_runs(stream.offset):
        page = stream.page[stream.offset[first] : stream.offset[last]]
        region = page >> np.uint32(SLOT_BITS)
        slot = np.where(slots[region] < 0, (page & np.uint32(511)).astype(np.int16), slots[region])
        entry = rows.of_region[region].astype(np.int64) << SLOT_BITS | slot
        new = np.flatnonzero(flat[entry] < 0)[::-1]  # of several walks the first, the last that is assigned
        walked = np.repeat(chunk_node[first:last], np.diff(stream.offset[first : last + 1]))
        flat[entry[new]] = walked[new]
        give_back(page)


BUFFER = 1 << 16
BURST_NS = 100_000_000  # migrate_interval_millisecs of Linux before 5.0 (mm/migrate.c)
PAGES_A_MB = 256


def by_host(program: TracedProgram) -> bool:
    """Whether the hypervisor moves data; UsageError for a native capture, which has no hypervisor.

    Under shadow paging there is a single table, rewritten whoever moves data.
    """
    asked, snapshot = program.moves.by, program.captured.snapshot
    if program.snapshot.native and not snapshot.native:
        return False
    if asked == "auto":
        return snapshot.numa_oblivious
    if asked == "host" and snapshot.native:
        raise UsageError("moves by = host: a native capture has no hypervisor; by = guest is its own kernel")
    return asked == "host"


def moves_told(program: TracedProgram, after: DataNodes | None = None) -> list[Finding]:
    """How data move, none where none does. after: where they are in the end."""
    moves, moved = program.moves, int(np.count_nonzero(program.trace.events["kind"] == Event.MOVE_PAGES))
    findings = list[Finding]()
    if moved:
        nested = "" if program.captured.snapshot.native else "moved-before-nested"
        findings.append(noted("moved-before", line=nested, events=moved))
    if not moves.autonuma:
        return findings
    lasts = int(np.ptp(_times(program))) / 1e6 if len(program.trace.chunks) else 0.0
    if lasts <= moves.delay_ms:
        late = "autonuma-too-late"
        findings.append(noted(late, policy="autonuma", lasts=lasts, pace=program.pace, delay=moves.delay_ms))
    marked: Any = {"size": moves.scan_size_mb, "period": moves.scan_period_ms, "delay": moves.delay_ms}
    faults = int(after.left.clock[kernels.FAULTS]) if after is not None and after.left is not None else 0
    line = "autonuma-by-host" if by_host(program) else "autonuma"
    return [*findings, noted("autonuma", line=line, hinting_faults=faults, **marked)]


def data_move(program: TracedProgram, past: History) -> bool:
    """Whether any data page moves; UsageError where the machine has no such node, or the trace no times."""
    by_events, time = past.steps.kind == kernels.RANGE, program.trace.chunks["time"]
    if not program.moves.autonuma and not by_events.any():
        return False
    if (target := past.steps.to[by_events].max(initial=0)) >= program.nodes:
        raise UsageError(
            f"trace: data moved to node {target}: machine {program.machine.name} has nodes "
            f"0..{program.nodes - 1}; use a machine with more nodes"
        )
    if program.moves.autonuma and len(time) > 1 and time[0] == time[-1]:
        raise UsageError("autonuma: the trace has no times: record one with `ptanalyze record -- COMMAND`")
    return True


def with_data_moves(program: TracedProgram, past: History, data: DataNodes) -> tuple[History, DataNodes]:
    """(the History `past` with the steps of all data that move, where they are then); data: at first."""
    steps, flushes, after = _steps(program, past, data)
    page = steps.lo[flushes] != kernels.ANY
    chunk = steps.chunk[flushes]
    others, by_nobody = past.live.others_then(chunk, program.placement.chunk_cpu[chunk])
    live = np.vstack([past.shootdowns.live, others])
    broadcast = np.append(past.shootdowns.broadcast, by_nobody)
    level = program.space.tables.level[past.rows.leaf[steps.row[flushes]]]
    single, kernel = past.shootdowns.single, past.shootdowns.kernel
    alone = page & (level <= 2), page & (level == 1) & (steps.lo[flushes] < 511)
    one = np.append(single, alone[0]), np.append(kernel, alone[1])
    return replace(past, steps=steps, shootdowns=Shootdowns(live.astype(np.int32), *one, broadcast)), after


def data_undone(data: DataNodes, undone: History | None) -> DataNodes:
    """DataNodes after History.undone."""
    if undone is None:
        return data
    guest, steps = data.guest.copy(), undone.steps
    for step in np.flatnonzero(np.isin(steps.kind, (CLEAR, MOVE))):
        row, lo, hi = slot_range(steps, step)
        there = guest[row, lo:hi] >= 0
        if steps.kind[step] == MOVE:
            target, to, each = move_target(steps, step)
            there_too = np.repeat(there, each)
            guest[target, to : to + len(there_too)][there_too] = np.repeat(guest[row, lo:hi][there], each)
        guest[row, lo:hi][there] = NOWHERE
    return replace(data, guest=guest)


def _steps(program: TracedProgram, past: History, data: DataNodes) -> tuple[MmSteps, np.ndarray, DataNodes]:
    """(MmSteps with every single move, bool[S]: FLUSHes of the schedule, DataNodes in the end)."""
    stream, placement = program.stream, program.placement
    times, schedule = _times(program), _schedule(program)
    where = _where(program, past, data, schedule.scan if schedule.on and not schedule.by_host else 0)
    clock, credit, began = np.zeros(11, np.int64), np.zeros(1), int(times[program.begin]) if len(times) else 0
    due, place = [kernels.NEXT_SCAN, kernels.REFILLED], [kernels.ROW, kernels.SLOT]
    if data.left is None:
        clock[due], credit[0] = (began + schedule.first, began), schedule.burst
    else:
        clock[place], clock[due] = data.left.clock[place], data.left.clock[due] + began - times[-1]
        credit[:] = data.left.credit
    state = kernels.State(data.guest.copy(), data.host.copy(), clock, credit)
    offset = np.ascontiguousarray(stream.offset, np.int64)
    chunk_node = placement.cpu_node[placement.chunk_cpu].astype(np.int16)
    out = MmSteps(*(np.empty(BUFFER + where.most, column.dtype) for column in past.steps))
    stops = [last for _, last in chunk_runs(offset)] or [0]
    parts, done, given = [], False, 0
    while not done:
        if stops and state.clock[kernels.CHUNK] == (stop := state.clock[kernels.STOP]):
            give_back(stream.page[given : offset[stop]])
            given, state.clock[kernels.STOP] = int(offset[stop]), stops.pop(0)
        state.clock[kernels.OUT] = 0
        done = kernels.follow(
            read_only(stream.page), offset, times, chunk_node, program.space.regions,
            program.space.tables, past.rows, where, schedule, past.steps, state, out,
        )  # fmt: skip
        parts.append([column[: state.clock[kernels.OUT]].copy() for column in out])
    steps = MmSteps(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    after = replace(data, guest=state.guest, host=state.host, left=state)
    return steps, (steps.kind == FLUSH) & (steps.call == BALANCING), after


def _times(program: TracedProgram) -> np.ndarray:
    """int64[chunks + 1]: native ns at each chunk's start; the last chunk takes no time."""
    time = np.maximum.accumulate(program.trace.chunks["time"].astype(np.int64))
    if program.pace < 1:
        time = np.rint((time - time[:1]) * program.pace).astype(np.int64)
    return np.append(time, time[-1:])


MOVES_MARKED = 5, 13  # from then on a 4 KiB page that moves is in no TLB: commit b99a342d4f11, mm/memory.c


def _schedule(program: TracedProgram) -> kernels.Schedule:
    moves = program.moves
    rate = moves.rate_limit_mb_s * PAGES_A_MB / 1e9
    return kernels.Schedule(
        moves.autonuma,
        by_host(program),
        max(round(moves.scan_period_ms * 1e6), 1),
        round(moves.delay_ms * 1e6),
        max(round(moves.scan_size_mb * PAGES_A_MB), 1),
        rate,
        max(rate * BURST_NS, 1.0),
        len(program.trace.threads) == 1,
        program.linux < MOVES_MARKED,
    )


def _where(program: TracedProgram, past: History, data: DataNodes, scan: int) -> kernels.Where:
    """kernels.data_migration.Where. scan: pages of a scan by the guest's (or native) kernel"""
    space, tables = program.space, program.space.tables
    guest = space.snapshot.guest
    if by_host(program):
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
    return kernels.Where(
        read_only(guest.entries),
        CODES[guest.encoding],
        space.host_of,
        order,
        pages,
        data.host_row,
        unit[by_unit],
        mine[by_unit].astype(np.int32),
        len(past.shootdowns.single),
        2 * (1024 + len(mine)) + min(scan, 512 * len(order)),
    )
