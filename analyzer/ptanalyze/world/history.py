"""The memory manager's side of a trace, ready for replay: what was mapped at first, and every later step."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from ..core import pte as bits
from ..core.mapped import blocks
from ..core.snapshot import Snapshot
from ..core.trace import REGION_SHIFT, Event, Trace
from ..core.walks import Placement, Regions, WalkStream
from ..kernels.faults import Mapped
from ..kernels.steps import SET, Rows, Shootdowns, Steps, slot_range
from .address_space import AddressSpace
from .leaf_slots import Entry, Slots
from .live_cpus import LiveCpus
from .mm_steps import StepWriter, page_up
from .owners import UNKNOWN_VMA, VmaMap
from .region_of_interest import region_of_interest

ROWS_AT_ONCE = 4096
WALKS_AT_ONCE = 1 << 20
Span: TypeAlias = tuple[int, int, int]  # start, end, VMA id


@dataclass(frozen=True)
class History:
    """Policy-independent; everything is by row (kernels.steps.Rows) or flat table id.

    steps, shootdowns, rows
    vma_owner   int16[V]        owner node of each VMA id; id 0 is the unknown VMA, the main thread's node
    vma         int32[L]        VMA id of all slots of a row at the start, where the row is not in `mixed`
    mixed_row   int32[L]        index into `mixed`, -1 where a row only ever belongs to one VMA at a time
    mixed       int32[M, 512]   VMA id of each slot at the start
    valid       uint64[L, 8]    entries that were mapped before the trace began
    exists      bool[T]         table pages that existed then
    last        (starts, ends, owners)  the VMAs when the trace ended, for tables it never touched
    home        node on which most live threads ran at first
    live        LiveCpus, after the trace
    """

    steps: Steps
    shootdowns: Shootdowns
    rows: Rows
    vma_owner: np.ndarray
    vma: np.ndarray
    mixed_row: np.ndarray
    mixed: np.ndarray
    valid: np.ndarray
    exists: np.ndarray
    last: tuple[np.ndarray, np.ndarray, np.ndarray]
    home: int
    live: LiveCpus

    @property
    def premapped(self) -> int:
        """Entries of touched tables that were mapped before the trace began."""
        return int(np.bitwise_count(self.valid).sum())

    def mapped(self) -> Mapped:
        """A fresh kernels.faults.Mapped: the state that mark_faults changes."""
        steps = len(self.steps.at)
        return Mapped(
            self.valid.copy(),
            self.exists.copy(),
            np.zeros(steps, np.int32),
            np.zeros(steps, np.uint8),
            np.zeros(2, np.int64),
        )


def history(
    snapshot: Snapshot, trace: Trace, space: AddressSpace, placement: Placement, stream: WalkStream
) -> History:
    """History of a trace over an AddressSpace.

    stream  the trace's WalkStream: an event before chunk c comes before walk stream.offset[c]

    A trace with a region of interest (a ROI_START event) found pages mapped: an entry that is present in the
    snapshot, lies in a VMA there was when the region began, and in nothing that was mapped later counts as
    mapped before. Any other trace began with its process: whatever it touches first is a demand fault.
    Events before the region only tell who mapped what; events after it are left out.
    """
    tables, regions = space.tables, space.regions
    leaf, of_region = np.unique(regions.leaf, return_inverse=True)
    rows = Rows(of_region.astype(np.int32), leaf.astype(np.int32))
    slots = Slots(regions, rows)
    vmas = _older_vmas(snapshot, trace, _main_node(trace, placement))
    live, walks = LiveCpus(trace, placement), _Walks(stream)
    writer = StepWriter(vmas, slots, tables, live, lambda: walks.catch_up(writer))
    region = region_of_interest(trace.events)
    happen = partial(_replay_events, writer, live, trace, placement, walks)
    happen(0, region.first)
    initial, home = _whole(vmas), live.home
    huge = _huge_entries(initial, slots)
    writer.begin(dict(huge))
    happen(region.first, region.end)
    _follow_threads(live, trace, placement, region.end)
    _take_runs(writer, live, stream)
    steps, shootdowns = _arrays(writer, int(placement.cpu_node.max(initial=0)) + 1)
    vma, mixed_row, mixed = _vma_rows(slots, initial, huge, steps, regions, rows)
    valid = np.zeros((len(leaf), 8), np.uint64)
    if region.begin is not None:
        valid = _premapped(snapshot, space, rows, vma, mixed_row, mixed)
        _forget_what_was_mapped_later(valid, trace.events[region.begin :], slots)
    last = _last(vmas)
    exists = _existing(space, rows, valid)
    owner = np.array(vmas.owner, np.int16)
    return History(steps, shootdowns, rows, owner, vma, mixed_row, mixed, valid, exists, last, home, live)


def once_more(past: History, stream: WalkStream, again: WalkStream, chunk: int) -> History:
    """History of a trace's chunks from `chunk` on when they run once more, from the state they ended in.

    past    of the whole trace, whose walks are `stream`; again: walks of the second run
    The same calls are made before the same chunks. What they find mapped is another matter: memory that was
    mapped in the first run and not unmapped is still there, and faults no more.
    """
    steps = past.steps
    kept = steps.at >= stream.offset[chunk]
    at = again.offset[np.searchsorted(stream.offset, steps.at[kept])]
    columns = dict(zip(Steps._fields, (column[kept] for column in steps), strict=True))
    return replace(past, steps=Steps(**{**columns, "at": at.astype(np.int64)}))


def _main_node(trace: Trace, placement: Placement) -> int:
    mine = np.flatnonzero(trace.chunks["thread"] == 0)
    return int(placement.cpu_node[placement.chunk_cpu[mine[0]]]) if len(mine) else 0


def _older_vmas(snapshot: Snapshot, trace: Trace, main_node: int) -> VmaMap:
    """The snapshot's VMAs without what the trace's events made: those existed before."""
    vmas = VmaMap(main_node)
    for vma in snapshot.vmas:
        vmas.put(int(vma["start"]), int(vma["end"]), vmas.lineage(main_node), int(vma["prot"]))
    for start, end in _made(trace.events):
        vmas.carve(start, end)
    return vmas


def _whole(vmas: VmaMap) -> list[Span]:
    """Pieces side by side of one VMA, as madvise leaves them, are one again."""
    whole: list[Span] = []
    for piece in vmas.pieces:
        start, vma = piece.start, vmas.id(piece.lineage, piece.prot)
        if whole and whole[-1][1:] == (start, vma):
            start = whole.pop()[0]
        whole.append((start, piece.end, vma))
    return whole


def _huge_entries(whole: list[Span], slots: Slots) -> dict[Entry, int]:
    """{(row, slot): VMA id} at the start; an entry that VMAs side by side cover belongs to the first.

    The kernel merges anonymous VMAs of separate calls, and maps huge pages across where they met.
    """
    huge = {key: vma for start, end, vma in whole for key in slots.whole_huge(start, end)}
    near: list[Span] = []  # VMAs side by side that a huge page which ends in the latest may begin in
    for start, end, vma in whole:
        near = [one for one in near if near[-1][1] == start and one[1] > start - (1 << REGION_SHIFT)]
        near.append((start, end, vma))
        for first, key in slots.huge_within(max(near[0][0], start - (1 << REGION_SHIFT)), end):
            huge.setdefault(key, next(owner for _, last, owner in near if first < last))
    return huge


def _made(events: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield (start, end) in bytes of everything that mmap, mremap and brk events mapped."""
    brk = None
    columns = [events[name].tolist() for name in ("kind", "a", "b", "c", "result")]
    for kind, a, b, c, result in zip(*columns, strict=True):
        if kind == Event.MMAP and result > 0:
            yield result, result + page_up(b)
        elif kind == Event.MREMAP and result > 0:
            yield result + (page_up(b) if result == a else 0), result + page_up(c)
        elif kind == Event.BRK and result > 0:
            if brk is not None:
                yield brk, page_up(result)
            brk = page_up(result)


def _forget_what_was_mapped_later(valid: np.ndarray, events: np.ndarray, slots: Slots) -> None:
    for start, end in _made(events):
        for region, lo, hi in slots.regions(start, end):
            entry = slots.entry(region)
            for slot in range(lo, hi) if entry < 0 else (entry,):
                valid[slots.row(region), slot >> 6] &= ~(np.uint64(1) << np.uint64(slot & 63))


class _Walks:
    """The walks up to an event, of which the writer is told when it asks: most events need not know."""

    def __init__(self, stream: WalkStream) -> None:
        self.stream, self.told, self.at = stream, 0, 0

    def catch_up(self, writer: StepWriter) -> None:
        for pages in blocks(self.stream.page[self.told : self.at], WALKS_AT_ONCE):
            writer.walked(pages)
        self.told = max(self.told, self.at)


def _replay_events(
    writer: StepWriter,
    live: LiveCpus,
    trace: Trace,
    placement: Placement,
    walks: "_Walks",
    first: int,
    last: int,
) -> None:
    names = ("chunk", "kind", "thread", "a", "b", "c", "d", "result")
    columns = [trace.events[name][first:last].tolist() for name in names]
    cpus, node_of = placement.event_cpu[first:last].tolist(), placement.cpu_node.tolist()
    before = walks.stream.offset[trace.events["chunk"][first:last]].tolist()
    for cpu, at, chunk, kind, thread, *arguments in zip(cpus, before, *columns, strict=True):
        live.advance(chunk, kind, thread, cpu)
        if live.runs:
            _take_runs(writer, live, walks.stream)
        walks.at = at
        writer.event(at, node_of[cpu], cpu, (*arguments, kind))
    walks.catch_up(writer)


def _follow_threads(live: LiveCpus, trace: Trace, placement: Placement, first: int) -> None:
    """Of events from `first` on, only threads that start, exit and move are followed."""
    rows = (trace.events[name][first:].tolist() for name in ("chunk", "kind", "thread"))
    for chunk, kind, thread, cpu in zip(*rows, placement.event_cpu[first:].tolist(), strict=True):
        live.advance(chunk, kind, thread, cpu)
    live.finish()


def _take_runs(writer: StepWriter, live: LiveCpus, stream: WalkStream) -> None:
    for chunk, before, node in live.runs:
        writer.run(int(stream.offset[chunk]), before, node)
    live.runs.clear()


def _arrays(writer: StepWriter, nodes: int) -> tuple[Steps, Shootdowns]:
    columns = np.frombuffer(writer.steps, np.int64).reshape(-1, len(Steps._fields)).T
    types = (np.int64, np.uint8, np.int32, *(np.int16,) * 3, np.int32, np.int16, np.int16, np.uint8)
    steps = Steps(*(np.ascontiguousarray(c, t) for c, t in zip(columns, types, strict=True)))
    live = np.array(writer.live, np.int32).reshape(-1, nodes)
    return steps, Shootdowns(live, np.array(writer.single, bool), np.array(writer.kernel, bool))


def _vma_rows(
    slots: Slots,
    initial: list[Span],
    huge: dict[Entry, int],
    steps: Steps,
    regions: Regions,
    rows: Rows,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The VMA map at the start, by row; rows that some VMA boundary ever crosses get an id a slot."""
    vma = np.full(len(rows.leaf), UNKNOWN_VMA, np.int32)
    partial = np.zeros(len(rows.leaf), bool)
    partial[rows.of_region[regions.level > 1]] = True
    row, lo, hi = slot_range(steps, steps.kind == SET)
    partial[row[(lo > 0) | (hi < 512)]] = True
    spans = [(*slots.span(start, end), vma_id) for start, end, vma_id in initial]
    for region, lo, hi, _ in spans:
        partial[rows.of_region[region[(lo > 0) | (hi < 512)]]] = True
    mixed_row = np.where(partial, np.cumsum(partial) - 1, -1).astype(np.int32)
    mixed = np.full((int(partial.sum()), 512), UNKNOWN_VMA, np.int32)
    for region, lo, hi, vma_id in spans:
        row = rows.of_region[region]
        vma[row[mixed_row[row] < 0]] = vma_id
        for k in np.flatnonzero(mixed_row[row] >= 0):
            if regions.slot[region[k]] < 0:
                mixed[mixed_row[row[k]], lo[k] : hi[k]] = vma_id
    for (row, slot), vma_id in huge.items():
        mixed[mixed_row[row], slot] = vma_id
    return vma, mixed_row, mixed


def _premapped(
    snapshot: Snapshot,
    space: AddressSpace,
    rows: Rows,
    vma: np.ndarray,
    mixed_row: np.ndarray,
    mixed: np.ndarray,
) -> np.ndarray:
    """uint64[L, 8]: leaf entries of the snapshot that lie in a VMA known at the start."""
    tree = snapshot.guest
    valid = np.zeros((len(rows.leaf), 8), np.uint64)
    known = np.flatnonzero(rows.leaf < space.guest_tables)
    for begin in range(0, len(known), ROWS_AT_ONCE):
        at = known[begin : begin + ROWS_AT_ONCE]
        leaf = rows.leaf[at]
        raw, level = tree.entries[leaf], tree.level[leaf]
        present = np.zeros(raw.shape, bool)
        for one in np.unique(level):
            here = level == one
            present[here] = bits.leaf(raw[here], int(one), tree.encoding)
        owned = np.where((mixed_row[at] >= 0)[:, None], False, (vma[at] != UNKNOWN_VMA)[:, None])
        owned = np.broadcast_to(owned, raw.shape).copy()
        has_rows = mixed_row[at] >= 0
        owned[has_rows] = mixed[mixed_row[at][has_rows]] != UNKNOWN_VMA
        valid[at] = np.packbits(present & owned, axis=1, bitorder="little").view(np.uint64)
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


def _last(vmas: VmaMap) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    pieces = vmas.pieces
    starts = np.array([p.start for p in pieces], np.uint64)
    ends = np.array([p.end for p in pieces], np.uint64)
    return starts, ends, np.array([vmas.owner_of(p) for p in pieces], np.int16)
