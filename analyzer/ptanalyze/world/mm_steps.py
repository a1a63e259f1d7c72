"""A trace's memory-management calls as steps: the arrays that kernels.mm_steps works on, and what it made."""

from typing import Any, NamedTuple

import numpy as np

from ..core.snapshot import Snapshot
from ..core.trace import PAGE_SHIFT, REGION_SHIFT, SLOT_BITS, blocks, give_back, read_only
from ..core.walks import Placement, Regions, Tables, WalkStream
from ..kernels import mm_steps as kernels
from ..kernels.hooks import lacking, uncompiled
from ..kernels.mm_steps import BYTE, END, LINEAGE, PROT, VmaMap, Writer, vma_map, write_steps
from ..kernels.steps import Rows, Steps, blank_steps
from .leaf_slots import Slots
from .live_cpus import HomeMove
from .mm_calls import addresses, carried_out, made, merging, numbers

WALKS_AT_ONCE = 1 << 20
WORTH_COMPILING = 5_000  # calls
STEPS_PER_CALL, ROOM = 4, 1024  # room at first: so many steps each (moves three times), and so many more
UNTOUCHED = np.iinfo(np.int64).max


class Pieces(NamedTuple):
    """VMAs by address: uint64[V] start, end; int64[V] lineage (the call that made it), prot, owner node."""

    start: np.ndarray
    end: np.ndarray
    lineage: np.ndarray
    prot: np.ndarray
    owner: np.ndarray


def writer(
    snapshot: Snapshot,
    events: np.ndarray,
    last: int,
    tables: Tables,
    regions: Regions,
    rows: Rows,
    placement: Placement,
    stream: WalkStream,
    main_node: int,
    moves: list[HomeMove],
) -> Writer:
    """Writer before the first of `events`, without room for steps; those from `last` on will not happen.

    main_node owns the VMAs that are older than all events.
    """
    calls, where = _calls(snapshot.vmas, events, last, placement, stream, moves)
    moved = calls[:, kernels.KIND] == kernels.MREMAP
    ranges, more = where[:, :2].ravel(), where[moved, 2:].ravel()
    byte, edge = np.unique(np.concatenate([ranges, more]), return_inverse=True)
    calls[:, [kernels.FROM, kernels.TO]] = edge[: len(ranges)].reshape(-1, 2)
    calls[moved, kernels.CUT :] = edge[len(ranges) :].reshape(-1, 3)
    now = np.zeros(kernels.STATE, np.int64)
    now[kernels.LINEAGES] = len(snapshot.vmas)
    now[[kernels.BREAK, kernels.LAST_AT, kernels.LAST_KIND]] = -1
    lineages = np.full((1 + len(snapshot.vmas) + len(calls), 2), -1, np.int64)
    lineages[: 1 + len(snapshot.vmas), kernels.OWNER] = main_node
    by_address, huge = _regions(regions, rows, byte)
    near = _near(tables.parent, regions)
    return Writer(
        calls,
        vma_map(byte.view(np.int64)),
        lineages,
        by_address,
        _tables(tables, rows, near[:, kernels.TABLE], huge[:, 0], byte),
        near,
        np.column_stack([huge[:, 1], np.full(len(huge), kernels.NO_VMA)]),
        read_only(stream.page),
        now,
        blank_steps(0),
        np.zeros(0, np.int64),
    )


def carry_out(w: Writer, last: int) -> None:
    """Carry out the calls before number `last`; where one may free tables, walks are looked at first.

    A few calls take less time in Python than the kernel takes to compile.
    """
    arguments = w, np.int64(last), np.int64(0)
    few = len(w.calls) < WORTH_COMPILING and lacking([(write_steps, lambda: arguments)])
    write, walks = (uncompiled(write_steps), 0) if few else (write_steps, WALKS_AT_ONCE)
    while w.now[kernels.CALL] < last:
        told = int(w.now[kernels.WALKED])
        with np.errstate(over="ignore"):  # of addresses that are none
            write(w, np.int64(last), np.int64(told + walks))
        give_back(w.page[told : w.now[kernels.WALKED]])
        if w.now[kernels.CALL] < last:
            told, at = int(w.now[kernels.WALKED]), int(w.calls[w.now[kernels.CALL], kernels.AT])
            for pages in blocks(w.page[told:at], WALKS_AT_ONCE):
                _walked(w, pages)
            w.now[kernels.WALKED] = at


def _walked(w: Writer, pages: np.ndarray) -> None:
    """The tables that walks for pages (as Writer.page) went through are there."""
    table = w.regions[pages >> np.uint32(SLOT_BITS), kernels.BY_ID]
    while len(table):
        table = table[w.tables[table, kernels.ALIVE] == 0]
        w.tables[table, kernels.ALIVE] = 1
        table = w.tables[table, kernels.PARENT]
        table = table[table >= 0]


def all_steps(begun: Writer) -> Writer:
    """The Writer after all calls from `begun` on, which stays as it is; all there was before is forgotten."""
    moved = int(np.count_nonzero(begun.calls[:, kernels.KIND] == kernels.MREMAP))
    room = STEPS_PER_CALL * (len(begun.calls) + 2 * moved) + ROOM
    while True:
        w = _with_room(begun, room)
        carry_out(w, len(w.calls))
        done = int(w.now[kernels.STEPS])
        if done <= room:
            return w._replace(steps=Steps(*(column[:done] for column in w.steps)), extra=w.extra[:done])
        room = done


def _with_room(w: Writer, room: int) -> Writer:
    now = w.now.copy()
    now[[kernels.STEPS, kernels.SHOOTDOWNS]] = 0
    now[[kernels.LAST_AT, kernels.LAST_KIND]] = -1
    w.tables[:, kernels.ALIVE] = 1
    return w._replace(
        vmas=VmaMap(w.vmas.begins.copy(), w.vmas.edges.copy()),
        lineages=w.lineages.copy(),
        huge=w.huge.copy(),
        now=now,
        steps=blank_steps(room),
        extra=np.zeros(room, np.int64),
    )


def pieces_of(w: Writer) -> Pieces:
    """The VMAs that there are now."""
    edges = w.vmas.edges
    first = np.flatnonzero(np.unpackbits(w.vmas.begins[0].view(np.uint8), bitorder="little"))
    byte, piece = edges[:, BYTE].view(np.uint64), edges[first]
    owner = w.lineages[piece[:, LINEAGE] + 1, kernels.OWNER]
    return Pieces(byte[first], byte[piece[:, END]], piece[:, LINEAGE], piece[:, PROT], owner)


def _calls(
    vmas: np.ndarray,
    events: np.ndarray,
    last: int,
    placement: Placement,
    stream: WalkStream,
    moves: list[HomeMove],
) -> tuple[np.ndarray, np.ndarray]:
    """(Writer.calls without edges, their addresses); a RUNS comes before what happens with it."""
    starts, ends = made(events)
    done = carried_out(events[:last])
    chosen, cpu = events[done], placement.event_cpu[done]
    parts = [
        _columns(
            np.full(len(vmas), -1),
            np.stack([vmas["start"], vmas["end"]], axis=1),
            KIND=kernels.OLDER,
            NUMBER=vmas["prot"],
            FLAGS=np.arange(len(vmas)),
        ),
        _columns(np.full(len(starts), -1), np.stack([starts, ends], axis=1), KIND=kernels.YOUNGER),
        _columns(
            np.array([move.event for move in moves], np.int64),
            np.zeros((len(moves), 1), np.uint64),
            KIND=kernels.RUNS,
            AT=stream.offset[[move.chunk for move in moves]],
            NODE=[move.after for move in moves],
            NUMBER=[move.before for move in moves],
        ),
        _columns(
            done,
            addresses(chosen),
            KIND=chosen["kind"],
            AT=stream.offset[chosen["chunk"]],
            NODE=placement.cpu_node[cpu],
            NUMBER=numbers(chosen),
            FLAGS=merging(chosen),
        ),
    ]
    calls, where = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(calls[:, kernels.EVENT], kind="stable")
    return calls[order], where[order]


def _columns(event: np.ndarray, where: np.ndarray, **named: Any) -> tuple[np.ndarray, np.ndarray]:
    """(calls, addresses)"""
    calls = np.zeros((len(event), kernels.COLUMNS), np.int64)
    calls[:, kernels.EVENT] = event
    for name, values in named.items():
        calls[:, getattr(kernels, name)] = values
    addresses = np.zeros((len(event), kernels.COLUMNS - kernels.FROM), np.uint64)
    addresses[:, : where.shape[1]] = where
    return calls, addresses


def _near(parent: np.ndarray, regions: Regions) -> np.ndarray:
    """Writer.near."""
    touched = np.full(len(parent), UNTOUCHED)
    at, first = regions.leaf, regions.va.astype(np.int64) << REGION_SHIFT
    while len(at):
        np.minimum.at(touched, at, first)
        at = np.unique(at[parent[at] >= 0])
        at, first = parent[at], touched[at]
    found = np.argsort(touched, kind="stable")[: np.count_nonzero(touched < UNTOUCHED)]
    return np.column_stack([found, touched[found], found])


def _tables(
    tables: Tables, rows: Rows, near: np.ndarray, huge_row: np.ndarray, byte: np.ndarray
) -> np.ndarray:
    """Writer.tables; edges of those in `near` alone. huge_row: rows of the huge entries, sorted."""
    found = np.full((len(tables.level), kernels.TABLE_COLUMNS), -1, np.int64)
    found[:, kernels.PARENT], found[:, kernels.LEVEL] = tables.parent, tables.level
    found[:, kernels.BASE], found[:, kernels.ALIVE] = tables.base.view(np.int64), 1
    every = np.arange(len(rows.leaf))
    found[rows.leaf, kernels.OF_TABLE] = every
    found[rows.leaf, kernels.HUGE_FROM] = np.searchsorted(huge_row, every)
    found[rows.leaf, kernels.HUGE_TO] = np.searchsorted(huge_row, every, side="right")
    base, shift = tables.base[near], np.uint64(SLOT_BITS) * tables.level[near].astype(np.uint64)
    size = np.uint64(1) << shift + np.uint64(PAGE_SHIFT)
    found[near, kernels.BELOW], found[near, kernels.ABOVE] = _around(byte, base, base + size)
    return found


def _regions(regions: Regions, rows: Rows, byte: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Writer.regions, int64[H, 2] row and slot of each huge entry)."""
    order = Slots(regions).order
    found = np.full((len(order), kernels.REGION_COLUMNS), -1, np.int64)
    slot, row = regions.slot[order].astype(np.int64), rows.of_region[order].astype(np.int64)
    found[:, kernels.VA], found[:, kernels.ROW] = regions.va[order].astype(np.int64), row
    found[:, kernels.SLOT], found[:, kernels.LEAF] = slot, regions.leaf[order]
    found[:, kernels.BY_ID] = regions.leaf
    huge = np.flatnonzero(slot >= 0)
    entry, found[huge, kernels.HUGE] = np.unique(row[huge] << SLOT_BITS | slot[huge], return_inverse=True)
    base = regions.va[order] << np.uint64(REGION_SHIFT)
    around = _around(byte, base, base + np.uint64(1 << REGION_SHIFT))
    found[:, kernels.FIRST], found[:, kernels.PAST] = around
    return found, np.column_stack([entry >> SLOT_BITS, entry & (1 << SLOT_BITS) - 1])


def _around(byte: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(last edges up to `start`, first edges from `end` on)"""
    return np.searchsorted(byte, start, side="right") - 1, np.searchsorted(byte, end)
