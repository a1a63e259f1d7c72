"""The memory manager's side of a trace, ready for replay: what was mapped at first, and every later step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..core import snapshot as bits
from ..core.snapshot import VMA_DTYPE
from ..core.trace import (
    NO_WALKS,
    PAGE_SHIFT,
    REGION_SHIFT,
    SLOT_BITS,
    Event,
    Placement,
    Regions,
    Tables,
    Trace,
    WalkStream,
    blocks,
    give_back,
    read_only,
)
from ..kernels import memory_manager as kernels
from ..kernels.jit import lacking
from ..kernels.memory_manager import Writer
from ..kernels.replay import (
    CLEAR,
    FLUSH,
    MOVE,
    RUN,
    SET,
    UPDATE,
    MmSteps,
    PteState,
    Rows,
    Shootdowns,
    blank_steps,
)
from .address_space import AddressSpace, Slots
from .mm_events import (
    FREES_EMPTIED,
    UNNAMED,
    Linux,
    addresses,
    carried_out,
    emptying,
    made,
    merging,
    numbers,
    region_of_interest,
    splits,
)
from .thread_placement import HomeMove, LiveCpus

# A trace's memory-management calls as steps: arrays that kernels.memory_manager works on, and what it made.

WALKS_AT_ONCE = 1 << 20
WORTH_COMPILING = 5_000  # calls
STEPS_PER_CALL, ROOM = 4, 1024  # room at first: steps per call (moves three times), plus ROOM
SPARES_NONE = 5, 19  # mprotect flushes no entry of PROT_NONE from then on (pte_needs_flush, c9fe66560bf2)
UNTOUCHED = np.iinfo(np.int64).max


class Pieces(NamedTuple):
    """VMAs by address: uint64[V] start, end; int64[V] lineage (the call that made it), prot, owner node."""

    start: np.ndarray
    end: np.ndarray
    lineage: np.ndarray
    prot: np.ndarray
    owner: np.ndarray


def writer(
    vmas: np.ndarray,
    events: np.ndarray,
    last: int,
    space: AddressSpace,
    rows: Rows,
    placement: Placement,
    stream: WalkStream,
    main_node: int,
    moves: list[HomeMove],
    linux: Linux,
) -> Writer:
    """Writer before the first of `events`, without room for steps; those from `last` on will not happen.

    vmas       VMA_DTYPE, older than all events; main_node owns them
    """
    tables, regions = space.tables, space.regions
    calls = _calls(vmas, events, last, regions, placement, stream, moves, linux)
    moved = np.flatnonzero(calls[:, kernels.KIND] == kernels.MREMAP)
    named: list[tuple[int, Any]] = [(column, slice(None)) for column in (kernels.FROM, kernels.TO)]
    named += [(column, moved) for column in (kernels.CUT, kernels.THERE, kernels.THERE_TO)]
    byte = np.unique(np.concatenate([calls[which, column] for column, which in named]).view(np.uint64))
    for column, which in named:
        calls[which, column] = np.searchsorted(byte, calls[which, column].view(np.uint64))
    now = np.zeros(kernels.STATE, np.int64)
    now[kernels.LINEAGES] = len(vmas)
    now[[kernels.BREAK, kernels.LAST_AT, kernels.LAST_KIND]] = -1
    lineages = np.full((1 + len(vmas) + len(calls), 2), -1, np.int64)
    lineages[: 1 + len(vmas), kernels.OWNER] = main_node
    by_address, huge = _regions(regions, rows, byte)
    near = _near(tables.parent, regions)
    return Writer(
        calls,
        kernels.vma_map(byte.view(np.int64)),
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
    few = len(w.calls) < WORTH_COMPILING and lacking([(kernels.write_steps, lambda: arguments)])
    write, walks = (kernels.write_steps.py_func, 0) if few else (kernels.write_steps, WALKS_AT_ONCE)
    while w.now[kernels.CALL] < last:
        begin = int(w.now[kernels.WALKED])
        with np.errstate(over="ignore"):  # of addresses that are none
            write(w, np.int64(last), np.int64(begin + walks))
        give_back(w.page[begin : w.now[kernels.WALKED]])
        if w.now[kernels.CALL] < last:
            begin, end = int(w.now[kernels.WALKED]), int(w.calls[w.now[kernels.CALL], kernels.AT])
            for pages in blocks(w.page[begin:end], WALKS_AT_ONCE):
                table = w.regions[pages >> np.uint32(SLOT_BITS), kernels.BY_ID]
                while len(table):  # those that walks went through are there
                    table = table[w.tables[table, kernels.ALIVE] == 0]
                    w.tables[table, kernels.ALIVE] = 1
                    table = w.tables[table, kernels.PARENT]
                    table = table[table >= 0]
            w.now[kernels.WALKED] = end


def all_steps(begun: Writer) -> Writer:
    """The Writer after all calls from `begun` on, which stays as it is; all there was before is forgotten."""
    moved = int(np.count_nonzero(begun.calls[:, kernels.KIND] == kernels.MREMAP))
    room = STEPS_PER_CALL * (len(begun.calls) + 2 * moved) + ROOM
    while True:
        begun.tables[:, kernels.ALIVE] = 1
        w = begun._replace(
            vmas=kernels.VmaMap(begun.vmas.begins.copy(), begun.vmas.edges.copy()),
            lineages=begun.lineages.copy(),
            huge=begun.huge.copy(),
            now=begun.now.copy(),
            steps=blank_steps(room),
            extra=np.zeros(room, np.int64),
        )
        w.now[[kernels.STEPS, kernels.SHOOTDOWNS]] = 0
        w.now[[kernels.LAST_AT, kernels.LAST_KIND]] = -1
        carry_out(w, len(w.calls))
        done = int(w.now[kernels.STEPS])
        if done <= room:
            return w._replace(steps=MmSteps(*(column[:done] for column in w.steps)), extra=w.extra[:done])
        room = done


def pieces_of(w: Writer) -> Pieces:
    """The VMAs that there are now."""
    edges = w.vmas.edges
    first = np.flatnonzero(np.unpackbits(w.vmas.begins[0].view(np.uint8), bitorder="little"))
    byte, piece = edges[:, kernels.BYTE].view(np.uint64), edges[first]
    owner = w.lineages[piece[:, kernels.LINEAGE] + 1, kernels.OWNER]
    return Pieces(
        byte[first], byte[piece[:, kernels.END]], piece[:, kernels.LINEAGE], piece[:, kernels.PROT], owner
    )


def _calls(
    vmas: np.ndarray,
    events: np.ndarray,
    last: int,
    regions: Regions,
    placement: Placement,
    stream: WalkStream,
    moves: list[HomeMove],
    linux: Linux,
) -> np.ndarray:
    """Writer.calls with addresses for edges, uint64 as int64; RUNS and SPLITS come before what needs them."""
    starts, ends = made(events)
    done, (split, region) = carried_out(events[:last]), splits(events[:last], regions.twice)
    some, base, torn = events[done], region << np.uint64(REGION_SHIFT), events[split]
    frees = emptying(some) & linux.frees_emptied_tables
    flags = np.where(some["kind"] == Event.MADVISE, frees, merging(some))
    flags[some["kind"] == Event.MPROTECT] = linux >= SPARES_NONE
    node = placement.cpu_node
    event, chunk, before, after = np.array(moves, np.int64).reshape(-1, 4).T
    older, younger = np.full(len(vmas), -1), np.full(len(starts), -1)
    calls = np.concatenate([
        _rows(older, vmas["start"], vmas["end"], KIND=kernels.OLDER, NUMBER=vmas["prot"],
              FLAGS=np.arange(len(vmas))),
        _rows(younger, starts, ends, KIND=kernels.YOUNGER),
        _rows(event, KIND=kernels.RUNS, AT=stream.offset[chunk], CHUNK=chunk, NODE=after, NUMBER=before),
        _rows(split, base, base + np.uint64(1 << REGION_SHIFT), KIND=kernels.SPLITS, NUMBER=torn["kind"],
              CHUNK=torn["chunk"], AT=stream.offset[torn["chunk"]], NODE=node[placement.event_cpu[split]]),
        _rows(done, *addresses(some).T, KIND=some["kind"], NUMBER=numbers(some), FLAGS=flags,
              CHUNK=some["chunk"], AT=stream.offset[some["chunk"]], NODE=node[placement.event_cpu[done]]),
    ])  # fmt: skip
    return calls[np.argsort(calls[:, kernels.EVENT], kind="stable")]


def _rows(event: np.ndarray, *addresses: np.ndarray, **named: Any) -> np.ndarray:
    """Writer.calls before these events: addresses (uint64) in the columns from FROM on, and what is named."""
    rows = np.zeros((len(event), kernels.COLUMNS), np.int64)
    rows[:, kernels.EVENT] = event
    for column, values in enumerate(addresses, kernels.FROM):
        rows[:, column] = values.view(np.int64)
    for name, values in named.items():
        rows[:, getattr(kernels, name)] = values
    return rows


def _near(parent: np.ndarray, regions: Regions) -> np.ndarray:
    """Writer.near."""
    touched = np.full(len(parent), UNTOUCHED)
    at, first = regions.leaf, regions.va.astype(np.int64) << REGION_SHIFT
    while len(at):
        np.minimum.at(touched, at, first)
        at = np.unique(at[parent[at] >= 0])
        at, first = parent[at], touched[at]
    table = np.argsort(touched, kind="stable")[: np.count_nonzero(touched < UNTOUCHED)]
    return np.column_stack([table, touched[table], table])


def _tables(
    tables: Tables, rows: Rows, near: np.ndarray, huge_row: np.ndarray, byte: np.ndarray
) -> np.ndarray:
    """Writer.tables; edges of those in `near` alone. huge_row: rows of the huge entries, sorted."""
    table = np.full((len(tables.level), kernels.TABLE_COLUMNS), -1, np.int64)
    table[:, kernels.PARENT], table[:, kernels.LEVEL] = tables.parent, tables.level
    table[:, kernels.BASE], table[:, kernels.ALIVE] = tables.base.view(np.int64), 1
    row = np.arange(len(rows.leaf))
    table[rows.leaf, kernels.OF_TABLE] = row
    table[rows.leaf, kernels.HUGE_FROM] = np.searchsorted(huge_row, row)
    table[rows.leaf, kernels.HUGE_TO] = np.searchsorted(huge_row, row, side="right")
    base, shift = tables.base[near], np.uint64(SLOT_BITS) * tables.level[near].astype(np.uint64)
    size = np.uint64(1) << shift + np.uint64(PAGE_SHIFT)
    table[near, kernels.BELOW], table[near, kernels.ABOVE] = _around(byte, base, base + size)
    return table


def _regions(regions: Regions, rows: Rows, byte: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Writer.regions, int64[H, 2] row and slot of each huge entry)."""
    order = Slots(regions).order
    region = np.full((len(order), kernels.REGION_COLUMNS), -1, np.int64)
    slot, row = regions.slot[order].astype(np.int64), rows.of_region[order].astype(np.int64)
    region[:, kernels.VA], region[:, kernels.ROW] = regions.va[order].astype(np.int64), row
    region[:, kernels.SLOT], region[:, kernels.LEAF] = slot, regions.leaf[order]
    region[:, kernels.BY_ID] = regions.leaf
    huge = np.flatnonzero(slot >= 0)
    entry, region[huge, kernels.HUGE] = np.unique(row[huge] << SLOT_BITS | slot[huge], return_inverse=True)
    base = regions.va[order] << np.uint64(REGION_SHIFT)
    around = _around(byte, base, base + np.uint64(1 << REGION_SHIFT))
    region[:, kernels.FIRST], region[:, kernels.PAST] = around
    return region, np.column_stack([entry >> SLOT_BITS, entry & (1 << SLOT_BITS) - 1])


def _around(byte: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(last edges up to `start`, first edges from `end` on)"""
    return np.searchsorted(byte, start, side="right") - 1, np.searchsorted(byte, end)


ROWS_AT_ONCE = 1024
UNKNOWN_VMA = 0  # id of what lies in no VMA that is known
BELOW = np.append((np.uint64(1) << np.arange(64, dtype=np.uint64)) - np.uint64(1), ~np.uint64(0))  # bits


@dataclass(frozen=True)
class History:
    """Policy-independent; everything is by row (kernels.replay.Rows) or flat table id.

    steps, shootdowns, rows
    vma_owner   int16[V]        owner node of each VMA id; id 0 is the unknown VMA, the main thread's node
    vmas        int32[L, 512]   VMA ids at the start, by row and slot
    valid       uint64[L, 8]    entries that were mapped before the trace began
    exists      bool[T]         table pages that existed then
    last        (starts, ends, owners)  the VMAs when the trace ended, for tables it never touched
    home        node on which most live threads ran at first
    live        LiveCpus, after the trace
    undone      its steps and shootdowns come, uncounted, before a further run: mm_events.undoing
    """

    steps: MmSteps
    shootdowns: Shootdowns
    rows: Rows
    vma_owner: np.ndarray
    vmas: np.ndarray
    valid: np.ndarray
    exists: np.ndarray
    last: tuple[np.ndarray, np.ndarray, np.ndarray]
    home: int
    live: LiveCpus
    undone: "History | None" = None

    @property
    def mapped_at_start(self) -> int:
        """Entries of touched tables that were mapped before the trace began."""
        return int(np.bitwise_count(self.valid).sum())

    def mapped_pages(self, rows: Any) -> np.ndarray:
        """bool[n, 512]: pages of some rows (an index of them) that were mapped before the trace began."""
        return np.unpackbits(self.valid[rows].view(np.uint8), axis=1, bitorder="little").astype(bool)

    def owners(self, rows: np.ndarray) -> np.ndarray:
        """int16[n, 512]: node of the thread that mapped the VMA of each slot of `rows` at the start."""
        return self.vma_owner[self.vmas[rows]]

    def mapped(self) -> PteState:
        """A fresh kernels.replay.PteState: the state that mark_faults changes."""
        steps = len(self.steps.at)
        return PteState(
            self.valid.copy(),
            self.exists.copy(),
            np.zeros(steps, np.int32),
            np.zeros(steps, np.uint8),
            np.zeros(3, np.int64),
        )


def history(
    trace: Trace,
    space: AddressSpace,
    placement: Placement,
    stream: WalkStream,
    linux: Linux = UNNAMED,
    invlpgb: bool = False,
) -> History:
    """History of a trace over an AddressSpace.

    stream   the trace's WalkStream: an event before chunk c comes before walk stream.offset[c]
    linux    whose calls they are; invlpgb: whether the machine has that instruction

    A trace with a region of interest (a ROI_START event) found pages mapped: an entry that is present in the
    snapshot, lies in a VMA there was when the region began, and in nothing that was mapped later counts as
    mapped before. Any other trace began with its process: whatever it touches first is a demand fault.
    Events before the region only tell who mapped what; events after it are left out.
    """
    regions, snapshot = space.regions, space.snapshot
    leaf, of_region = np.unique(regions.leaf, return_inverse=True)
    rows, slots = Rows(of_region.astype(np.int32), leaf.astype(np.int32)), Slots(regions)
    region = region_of_interest(trace.events)
    live = LiveCpus(trace, placement, broadcast=invlpgb and linux.broadcasts and snapshot.native)
    mine = np.flatnonzero(trace.chunks["thread"] == 0)
    main = int(placement.cpu_node[placement.chunk_cpu[mine[0]]]) if len(mine) else 0
    where = space, rows, placement, stream
    begun = writer(snapshot.vmas, trace.events, region.end, *where, main, live.moves, linux)
    carry_out(begun, int(np.searchsorted(begun.calls[:, kernels.EVENT], region.first)))
    initial = pieces_of(begun)
    piece, row, slot = _huge_entries(initial, slots, regions, rows)
    begun.huge[:, kernels.HUGE_OF] = np.append(initial.lineage, kernels.NO_VMA)[piece]
    done = all_steps(begun)
    ids, number, owner = _vma_ids(initial, done)
    shootdowns = _shootdowns(done.steps, *live.others(done.extra[done.steps.kind == FLUSH]))
    steps = done.steps._replace(number=number)
    vmas = _vmas(slots, initial, ids, regions, rows)
    vmas[row, slot] = np.append(ids, UNKNOWN_VMA)[piece]
    valid = np.zeros((len(leaf), 8), np.uint64)
    if region.begin is not None:
        valid = _premapped(space, rows, vmas)
        _forget_what_was_mapped_later(valid, made(trace.events, region.begin), slots, regions, rows)
    after = pieces_of(done)
    last = after.start, after.end, after.owner.astype(np.int16)
    exists = _existing(space, rows, valid)
    home = next((move.after for move in reversed(live.moves) if move.event < region.first), live.home)
    return History(steps, shootdowns, rows, owner, vmas, valid, exists, last, home, live)


def steady_history(
    past: History, again: WalkStream, space: AddressSpace, undone: np.ndarray, chunk: int
) -> History:
    """History of a trace's chunks from `chunk` on when they run once more, from the state they ended in.

    past   of the whole trace; again: walks of the second run; undone: as mm_events.undoing has them
    The same calls are made before the same chunks. What they find mapped is another matter: memory that was
    mapped in the first run and not unmapped is still there, and faults no more, but for what `undone` takes
    away. Where the trace ended with most threads on another node than at `chunk`, a RUN back comes first.
    """
    steps = past.steps
    kept = np.flatnonzero(steps.chunk >= chunk)
    at = again.offset[steps.chunk[kept]].astype(np.int64)
    more = MmSteps(*(column[kept] for column in steps))._replace(at=at)
    runs = np.flatnonzero(steps.kind[kept] == RUN)
    if len(runs) and (begin := more.was[runs[0]]) != (end := more.to[runs[-1]]):
        back = MmSteps(*(column[runs[:1]] for column in more))
        back.at[:], back.chunk[:] = again.offset[chunk], chunk
        back.was[:], back.to[:], back.node[:] = end, begin, begin
        more = MmSteps(*map(np.concatenate, zip(back, more, strict=True)))
    before = _undone(past, space, undone) if len(undone) else None
    more = _own_again(past, [steps, *([before.steps] if before else [])], more)
    return replace(past, steps=more, undone=before)


def _own_again(past: History, done: Sequence[MmSteps], more: MmSteps) -> MmSteps:
    """Steps of a further run, which come after all that is done, with the owners of the VMAs they then find.

    What a call of the region put in another's place (MAP_FIXED, mremap) lies there in a further run, before
    that call, too. What is unmapped by then counts as in the first run. A step that finds VMAs of several
    owners becomes one for each.
    """
    ids: dict[int, list[int]] = {}
    owners: dict[int, bytearray] = {}  # 1 + node, 0: of UNKNOWN_VMA
    owner = 1 + past.vma_owner.astype(np.uint8)
    owner[UNKNOWN_VMA] = 0
    rows = np.unique(more.row[more.kind == SET])
    on, cuts = [UNKNOWN_VMA] * len(more.at), list[tuple[int, int, int]]()  # step, slot, VMA from there on
    for steps in (*done, more) if len(rows) else ():
        of = np.flatnonzero(np.isin(steps.kind, (SET, CLEAR, UPDATE, MOVE)) & np.isin(steps.row, rows))
        columns = (
            of,
            *(one[of] for one in (steps.kind, steps.row, steps.lo, steps.hi, steps.call, steps.number)),
        )
        for k, kind, row, lo, hi, call, number in zip(*(one.tolist() for one in columns), strict=True):
            if row not in ids:
                ids[row], owners[row] = past.vmas[row].tolist(), bytearray(owner[past.vmas[row]])
            if kind == SET and call != Event.MPROTECT:
                ids[row][lo:hi] = [number] * (hi - lo)
                owners[row][lo:hi] = bytes((owner[number],)) * (hi - lo)
            elif steps is more:
                on[k], by = ids[row][lo], owners[row]
                if kind != MOVE and by.count(by[lo], lo, hi) < hi - lo:
                    edges = np.flatnonzero(np.diff(np.frombuffer(by, np.uint8)[lo:hi])) + lo + 1
                    cuts += [(k, at, ids[row][at]) for at in edges.tolist()]
    vma = np.array(on, np.int64)
    if cuts:
        step, slot, later = np.array(cuts).T
        order = np.argsort(np.append(np.arange(len(vma)), step), kind="stable")
        first = np.argsort(order)[len(vma) :]
        more = MmSteps(*(np.append(column, column[step])[order] for column in more))
        vma = np.append(vma, later)[order]
        more.lo[first] = more.hi[first - 1] = slot
    known, sets = vma != UNKNOWN_VMA, more.kind == SET
    more.was[known & ~sets] = past.vma_owner[vma[known & ~sets]]
    others = known & sets & (past.vma_owner[vma] != past.vma_owner[np.where(sets, more.number, 0)])
    more.number[others] = vma[others]
    return more


def _undone(past: History, space: AddressSpace, events: np.ndarray) -> History:
    """History of such events, which come when all others have; they interrupt no CPU, and free the tables
    that they empty, whatever the kernel: a further run would be elsewhere."""
    vmas = np.zeros(len(past.last[0]), VMA_DTYPE)
    vmas["start"], vmas["end"], owner = past.last
    nobody, home = np.zeros(0, np.int32), past.vma_owner[:1]
    on = Placement(nobody, home, np.zeros(len(events), np.int32), "")
    begun = writer(vmas, events, len(events), space, past.rows, on, NO_WALKS, int(home[0]), [], FREES_EMPTIED)
    begun.lineages[1 : 1 + len(vmas), kernels.OWNER] = owner
    done = all_steps(begun)
    steps, flushes = done.steps, np.count_nonzero(done.steps.kind == FLUSH)
    live = np.zeros((flushes, past.shootdowns.live.shape[1]), np.int32)
    shootdowns = _shootdowns(steps, live, np.zeros(flushes, bool))
    sets = np.flatnonzero(steps.kind == SET)
    lineage = steps.number[sets]
    owners, first = np.unique(past.vma_owner[UNKNOWN_VMA + 1 :], return_index=True)
    ids = np.append(first + UNKNOWN_VMA + 1, UNKNOWN_VMA)
    owner = done.lineages[lineage + 1, kernels.OWNER]
    alike = np.searchsorted(owners, owner)
    known = (lineage != kernels.NO_VMA) & (np.append(owners, -1)[alike] == owner)
    steps.number[sets] = np.where(known, ids[alike], UNKNOWN_VMA)
    return replace(past, steps=steps, shootdowns=shootdowns)


def _huge_entries(
    initial: Pieces, slots: Slots, regions: Regions, rows: Rows
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(index of its VMA at the start or -1, row, slot) of each huge entry, int64[H], by row and slot.

    One that VMAs side by side cover belongs to the first: the kernel merges anonymous VMAs of separate calls,
    and maps huge pages across where they met.
    """
    ids = slots.order[regions.slot[slots.order] >= 0]
    key = rows.of_region[ids].astype(np.int64) << SLOT_BITS | regions.slot[ids]
    entries, entry = np.unique(key, return_inverse=True)
    piece_of = np.full(len(entries), -1)
    first = regions.va[ids] << np.uint64(REGION_SHIFT)
    past = first + np.uint64(1 << REGION_SHIFT)
    if len(initial.start):
        piece = np.searchsorted(initial.start, first, side="right") - 1
        run = np.append(initial.start[1:] != initial.end[:-1], True)
        run_end = initial.end[run][np.cumsum(run) - run]
        inside = (piece >= 0) & (initial.end[piece] > first) & (run_end[piece] >= past)
        whole = inside & (initial.end[piece] >= past)
        shared = np.flatnonzero(inside & ~whole)[::-1]
        piece_of[entry[shared]] = piece[shared]
        piece_of[entry[whole]] = piece[whole]
    return piece_of, entries >> SLOT_BITS, entries & ((1 << SLOT_BITS) - 1)


def _vma_ids(initial: Pieces, done: Writer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(int64[V] VMA ids at the start, int32[S] MmSteps.number, int16[...] owner of each id).

    An id is what one call made, with one protection.
    """
    start, number = len(initial.lineage), done.steps.number.copy()
    sets = np.flatnonzero(done.steps.kind == SET)
    lineage = np.concatenate([initial.lineage, number[sets], [kernels.NO_VMA]])
    prots, prot = np.unique(np.concatenate([initial.prot, done.extra[sets], [0]]), return_inverse=True)
    key = np.where(lineage == kernels.NO_VMA, -1, lineage * len(prots) + prot)
    keys, ids = np.unique(key, return_inverse=True)  # the first is UNKNOWN_VMA's
    owner = done.lineages[np.where(keys < 0, kernels.NO_VMA, keys // len(prots)) + 1, kernels.OWNER]
    number[sets] = ids[start:-1]
    return ids[:start], number, owner.astype(np.int16)


def _shootdowns(steps: MmSteps, live: np.ndarray, broadcast: np.ndarray) -> Shootdowns:
    """Shootdowns of all FLUSHes among steps; `single` and `kernel` are where other steps have their slots."""
    flush = steps.kind == FLUSH
    single, kernel = steps.lo[flush].astype(bool), steps.hi[flush].astype(bool)
    steps.lo[flush] = steps.hi[flush] = 0
    return Shootdowns(live, single, kernel, broadcast)


def _vmas(slots: Slots, initial: Pieces, ids: np.ndarray, regions: Regions, rows: Rows) -> np.ndarray:
    """History.vmas of small pages. ids: int64[V], of `initial`."""
    vmas = np.full((len(rows.leaf), 512), UNKNOWN_VMA, np.int32)
    spans = slots.spans(initial.start, initial.end)
    row, small = rows.of_region[spans.region], regions.slot[spans.region] < 0
    whole = small & (spans.hi - spans.lo == 512)
    vmas[row[whole]] = ids[spans.of[whole], None]
    for k in np.flatnonzero(small & ~whole).tolist():
        vmas[row[k], spans.lo[k] : spans.hi[k]] = ids[spans.of[k]]
    return vmas


def _premapped(space: AddressSpace, rows: Rows, vmas: np.ndarray) -> np.ndarray:
    """uint64[L, 8]: leaf entries of the snapshot that lie in a VMA known at the start."""
    tree = space.snapshot.guest
    valid = np.zeros((len(rows.leaf), 8), np.uint64)
    known = np.flatnonzero(rows.leaf < space.guest_tables)
    for begin in range(0, len(known), ROWS_AT_ONCE):
        at = known[begin : begin + ROWS_AT_ONCE]
        for level in np.unique(tree.level[rows.leaf[at]]).tolist():
            here = at[tree.level[rows.leaf[at]] == level]
            present = bits.leaf(tree.entries[rows.leaf[here]], level, tree.encoding)
            owned = vmas[here] != UNKNOWN_VMA
            valid[here] = np.packbits(present & owned, axis=1, bitorder="little").view(np.uint64)
    return valid


def _existing(space: AddressSpace, rows: Rows, valid: np.ndarray) -> np.ndarray:
    """bool[T]: table pages at the start: roots, hosts, untouched ones, and what leads to a mapped entry.

    The tracer's own are left out: they are no part of the program.
    """
    tables = space.tables
    walked = np.zeros(len(tables.level), bool)
    at = rows.leaf
    while len(at):
        walked[at] = True
        at = np.unique(tables.parent[at])
        at = at[at >= 0]
    exists = ~walked | (tables.parent < 0)
    exists[: space.guest_tables] &= space.program_tables
    exists[rows.leaf[valid.any(axis=1)]] = True
    for level in range(1, int(tables.level.max(initial=1))):
        up = tables.parent[exists & (tables.level == level)]
        exists[up[up >= 0]] = True
    return exists


def _forget_what_was_mapped_later(
    valid: np.ndarray, later: tuple[np.ndarray, np.ndarray], slots: Slots, regions: Regions, rows: Rows
) -> None:
    spans = slots.spans(*later)
    entry = regions.slot[spans.region].astype(np.int64)
    lo, hi = np.where(entry < 0, spans.lo, entry), np.where(entry < 0, spans.hi, entry + 1)
    for word in range(8):
        first, past = np.clip(lo - 64 * word, 0, 64), np.clip(hi - 64 * word, 0, 64)
        np.bitwise_and.at(valid, (rows.of_region[spans.region], word), ~(BELOW[past] & ~BELOW[first]))
