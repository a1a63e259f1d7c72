"""The TLB filter: a trace in, the walks that miss every TLB level out. Independent of the policy.

It can be run twice over a trace: the first time with empty TLBs, then over its steady part once more with the
TLBs as the first time left them.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from os import PathLike
from threading import Event, local
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace as changed

from ..core import snapshot
from ..core.errors import CaptureError, RefusedError, UsageError
from ..core.machine import Array, Tlb, shape
from ..core.snapshot import Tree
from ..core.trace import (
    EVENT_DTYPE,
    PAGE_SHIFT,
    SLOT_BITS,
    Batches,
    Fold,
    Joined,
    Piece,
    Placement,
    Regions,
    Scratch,
    Touches,
    Trace,
    WalkStream,
    chunk_runs,
    read_only,
)
from . import stream_store
from .address_space import AddressSpace, Nested, Slots
from .mm_events import addresses, invalidations

if TYPE_CHECKING:
    from ..kernels import lru as kernels


# How the TLB filter shares out its work: a batch is decoded, filtered and gathered by one thread, in whose
# cache it stays, while other threads have the next ones. The TLB of a CPU takes batches in their order: each
# waits for the one before.

UNDER_WAY = 2  # batches per thread that are begun before the first is done
APPEND = -1  # in place of a CPU: the turn to append what missed
MORE = np.array([-1, 1])  # hits of the second level, walks: of a page that walks as it is new
Walks = tuple[np.ndarray, np.ndarray, np.ndarray]  # page, write, number by chunk


class Batch:
    """A piece of a trace on its way through the TLBs.

    by_cpu  (CPUs, positions of the chunks of each); touches  their number
    turns   by CPU, and APPEND: (set by the batch before, set by this one when it is done)
    seen    pages as TLBs see them, those of memory that does not grow folded
    """

    def __init__(
        self,
        trace: Trace,
        piece: Piece,
        cpus: np.ndarray,
        fold: Fold | None = None,
        joined: Joined | None = None,
    ) -> None:
        self.piece, self.by_cpu, self.fold, self.joined = piece, by_cpu(cpus), fold, joined
        count = trace.chunks["touches"][piece.chunks]
        number = np.arange(piece.chunks.start, piece.chunks.stop)
        self.chunks = np.column_stack([number, np.cumsum(count) - count, count])
        self.touches = int(count.sum())
        self.turns: dict[int, tuple[Event | None, Event]] = {}

    def decode(self, scratch: Scratch) -> None:
        touches = self.piece.decode(scratch)
        self.page, self.write = read_only(touches.page), read_only(touches.write)
        self.seen = self.page if self.fold is None else read_only(self.fold.of(self.page))
        if self.joined is not None:
            self.seen = read_only(self.joined.of(self.seen))

    def those(self, which: np.ndarray, scratch: Scratch) -> Walks:
        """(page, write, number by chunk) of touches of all CPUs, in the order of the trace."""
        from ..kernels.lru import gather

        room = len(self.page)
        page, write = (
            scratch.empty("gathered page", room, np.uint32),
            scratch.empty("gathered write", room, bool),
        )
        count = np.zeros(len(self.chunks), np.int64)
        n = gather(self.page, self.write, which, self.chunks, page, write, count)
        return page[:n], write[:n], count

    @contextmanager
    def turn(self, of: int) -> Iterator[None]:
        """Once the batch before is done with it; then the next may have it."""
        before, done = self.turns.pop(of)
        try:
            if before:
                before.wait()
            yield
        finally:
            done.set()

    def give_up(self) -> None:
        """Let the next batches have what this one, which failed, did not take."""
        for of in list(self.turns):
            with self.turn(of):
                pass


class Filtering:
    """Batches through the TLBs of all CPUs of a TlbFilter, in order, on its threads."""

    def __init__(self, tlbs: "TlbFilter", tables: "tuple[kernels.Pages, kernels.Shootdowns]") -> None:
        from ..kernels.lru import filter_any, filter_common

        self.tlbs, self.tables = tlbs, tables
        self.kernel = filter_common if is_common(tlbs.tlb) else filter_any
        self.latest: dict[int, Event] = {}
        self.own = local()

    def run(
        self, trace: Trace, chunk_cpu: np.ndarray, pieces: Iterator[Piece], append: Callable[..., None]
    ) -> Iterator[int]:
        """Filter the pieces of a trace and iterate over their touches, whose walks were appended by then.

        append  called with page, write and misses by chunk, in the order of the trace, on any thread; it
                keeps none of them
        """
        batches = (
            self._begun(Batch(trace, piece, chunk_cpu[piece.chunks], self.tlbs.fold, self.tlbs.joined))
            for piece in pieces
        )
        if self.tlbs.threads < 2:
            for batch in batches:
                yield self._through(batch, append)
            return
        window: deque[Future[int]] = deque()
        with ThreadPoolExecutor(self.tlbs.threads) as pool:
            for batch in batches:
                window.append(pool.submit(self._through, batch, append))
                if len(window) > UNDER_WAY * self.tlbs.threads:
                    yield window.popleft().result()
            while window:
                yield window.popleft().result()

    def catch_up(self, chunk: int) -> None:
        """Let each CPU see the events before a chunk that it may not have run."""
        none, at = read_only(np.zeros(0, np.uint32)), np.array([[chunk, 0, 0]], np.int64)
        for state in self.tlbs.states:
            self.kernel(none, at, *self.tables, state, np.zeros(0, bool))

    def _begun(self, batch: Batch) -> Batch:
        """The batch, which has its turns after those begun before it."""
        for turn in (*batch.by_cpu[0], APPEND):
            done = Event()
            batch.turns[turn] = self.latest.get(turn), done
            self.latest[turn] = done
        return batch

    def _through(self, batch: Batch, append: Callable[..., None]) -> int:
        """Touches of a batch that was begun, and is appended now; on any thread."""
        try:
            scratch = self._scratch()
            batch.decode(scratch)
            missed = self._missed(batch, scratch)
            walks = batch.those(missed, scratch)
            with batch.turn(APPEND):
                append(*walks)
            return batch.touches
        finally:
            batch.give_up()

    def _scratch(self) -> Scratch:
        """This thread's."""
        if not hasattr(self.own, "scratch"):
            self.own.scratch = Scratch()
        scratch: Scratch = self.own.scratch
        return scratch

    def _missed(self, batch: Batch, scratch: Scratch) -> np.ndarray:
        """bool[n]: touches that miss the TLB of their CPU."""
        missed = scratch.zeros("missed", len(batch.page), bool)
        for cpu, mine in zip(*batch.by_cpu, strict=True):
            chunks, state = batch.chunks[mine], self.tlbs.states[cpu]
            with batch.turn(cpu):
                self.kernel(batch.seen, chunks, *self.tables, state, missed)
                if self.tlbs.fold is not None:
                    known = self.tlbs.known[cpu]
                    state.hits[1:] += self._new(batch, chunks, self.tlbs.fold, known, missed) * MORE
        return missed

    def _new(
        self, batch: Batch, chunks: np.ndarray, fold: Fold, known: np.ndarray, missed: np.ndarray
    ) -> int:
        """Let the folded pages that are new to a CPU miss: the number of those that did not."""
        more = 0
        if known.all():
            return 0
        for _, first, count in chunks.tolist():
            at, place = fold.folded(batch.page[first : first + count])
            new = np.flatnonzero(~known[place])
            _, earliest = np.unique(place[new], return_index=True)
            of = first + at[new[earliest]]
            more += int(np.count_nonzero(~missed[of]))
            missed[of] = known[place] = True
        return more


def by_cpu(chunk_cpu: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
    """(CPUs that have chunks, positions of the chunks of each, in order)."""
    order = np.argsort(chunk_cpu, kind="stable")
    cpus, first = np.unique(chunk_cpu[order], return_index=True)
    return cpus.tolist(), np.split(order, first[1:])


# Whether a trace that lacks accesses, stripped or sampled, still tells which accesses miss a TLB.

NAMES = {1: "l1_4k", 2: "l1_2m", 3: "l1_1g"}


def must_be_no_sample(trace: Trace) -> None:
    """UsageError for samples of accesses: a TLB that is shown one access in thousands misses always."""
    if trace.facts.get("sampled") and not trace.facts.get("walks"):
        raise UsageError(
            "trace: samples of accesses, from which no TLB miss follows; sample TLB misses instead (perf "
            "record -d -e mem_inst_retired.stlb_miss_loads:P), or trace the program with `ptanalyze record`"
        )


def must_fit(trace: Trace, tlb: Tlb, tlb_level: np.ndarray) -> None:
    """RefusedError unless the trace is exact for each first-level array that its pages use.

    A stripped trace (facts["stripped"], pintool/strip.h) lacks touches that hit in certain first-level arrays
    and change nothing there, so that the second level never sees them. tlb_level  uint8[R], page size of
    each region
    """
    reach = trace.facts.get("stripped", ())
    for size in np.unique(tlb_level).tolist() if reach else ():
        array: Array = getattr(tlb, NAMES[size])
        served = [(sets, ways) for of, sets, ways in reach if of == size]
        if not any(array.sets % sets == 0 and array.ways >= ways for sets, ways in served):
            shape = f"{array.entries} entries, {array.ways} ways"
            raise RefusedError(
                f"tlb.{NAMES[size]} = {shape}: the trace was stripped of touches that hit in TLBs with "
                f"{_in_words(served)}, not in this one; record with --strip off, or name another machine or "
                "a smaller run"
            )


def _in_words(served: list[tuple[int, int]]) -> str:
    words = [
        f"{ways} ways or more" if sets == 1 else f"a multiple of {sets} sets of {ways} ways or more"
        for sets, ways in served
    ]
    return " or ".join(words)


FLUSH_CEILING = 33  # pages; longer ranges flush everything: tlb_single_page_flush_ceiling, arch/x86/mm/tlb.c
MAX_REGIONS = (1 << 23) - 1  # dense page numbers have 32 bits, a value is left for empty ways
MAX_COMMON_SETS = 1 << SLOT_BITS  # more would use bits that differ between dense and real page numbers
BLOCK = 1 << 16  # shootdowns that are turned into tags at a time


NOTHING = np.zeros(0, EVENT_DTYPE)


class TlbFilter:
    """A trace on the TLBs (machine.Tlb) of the CPUs that `placement` puts its threads on.

    Each event that changes translations drops them from the TLB of every CPU, as Linux's shootdowns do;
    ranges over 33 pages of 4 KiB flush it. Results do not depend on `threads` or `batch`. With `cache_dir`
    streams are stored there, by trace, placement, TLB shape and page sizes; without, they live in unlinked
    temporary files. Memory: about 15 bytes per touch of a batch, one per thread. `progress` is called with
    the touches of each batch. `first` and `again` raise UsageError (too many regions, cache not writable, a
    stripped trace that does not fit the TLB, samples of accesses) and CaptureError (pages outside the
    regions).
    """

    def __init__(
        self,
        trace: Trace,
        space: AddressSpace,
        placement: Placement,
        tlb: Tlb,
        threads: int = 1,
        cache_dir: str | PathLike[str] | None = None,
        batch: int = 1 << 19,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.trace, self.space, self.placement, self.tlb = trace, space, placement, tlb
        self.threads, self.cache_dir, self.batch, self.progress = threads, cache_dir, batch, progress
        self.states: list[kernels.State] = []  # by CPU
        self.fold: Fold | None = None  # of memory that does not grow: a page new to a CPU walks
        self.known: list[np.ndarray] = []  # by CPU, bool: which of the folded pages it has had
        self.joined = joined_pages(space, tlb.joins)

    def first(self) -> WalkStream:
        """WalkStream of the whole trace, all TLBs empty at first."""
        key = self._key()
        return self._load(key) or self._first(key)

    def again(self, begin: int, undone: np.ndarray = NOTHING) -> WalkStream:
        """WalkStream of the chunks from `begin` on, run once more; chunks before have no walks.

        undone  mm_events.undoing; else all TLBs begin as the whole trace left them
        """
        name = f"{self._key()}{stream_store.AGAIN}{begin}"
        stored = self._load(name)
        if stored:
            return stored
        if not self.states:
            self._first(None)
        if self.progress:
            self.progress(int(self.trace.chunks["touches"][:begin].sum()))
        self.trace = self.trace.again(begin) if self.trace.again else self.trace
        with stream_store.Writer(self.cache_dir, name) as writer:
            writer.append(np.zeros(0, np.uint32), np.zeros(0, bool), np.zeros(begin, np.int64))
            return writer.seal(self._filter(writer, begin, undone))

    def _key(self) -> str:
        regions, joined = self.space.regions, self.joined
        if len(regions.va) + (0 if joined is None else len(joined.va)) > MAX_REGIONS:
            raise UsageError(
                f"trace: {len(regions.va)} regions of 2 MiB, at most {MAX_REGIONS} can be filtered"
            )
        must_be_no_sample(self.trace)
        must_fit(self.trace, self.tlb, regions.tlb_level)
        groups = np.zeros(0, bool) if joined is None else joined.groups
        return stream_store.key(self.trace, self.placement, self.tlb, regions.tlb_level, groups)

    def _load(self, key: str) -> WalkStream | None:
        if not self.cache_dir:
            return None
        return stream_store.load(self.cache_dir, key, len(self.trace.chunks), len(self.space.regions.va))

    def _first(self, key: str | None) -> WalkStream:
        """Filter the whole trace; key: name to store the stream under, None: it is not stored."""
        cpus = len(self.placement.cpu_node)
        self.states = [_state(self.tlb) for _ in range(cpus)]
        if self.fold is not None:
            self.known = [np.zeros(len(self.fold.to), bool) for _ in range(cpus)]
        with stream_store.Writer(self.cache_dir if key else None, key or "") as writer:
            return writer.seal(self._filter(writer, 0))

    def _filter(
        self, writer: stream_store.Writer, begin: int, undone: np.ndarray | None = None
    ) -> np.ndarray:
        """Filter chunks from `begin` on, batch by batch, into `writer`; int64[cpus, 3] as WalkStream.hits."""
        if self.trace.facts.get("walks"):
            return self._all(writer, begin)
        trace, placement = self.trace, self.placement
        pages = _pages(self.space.regions)
        shootdowns = _shootdowns(trace.events, pages)
        if self.fold is not None:
            shootdowns = shootdowns._replace(tag=self.fold.of(shootdowns.tag))
        if self.joined is not None:
            shootdowns = shootdowns._replace(tag=self.joined.of(shootdowns.tag))
            pages = _with_groups(pages, self.joined)
        filtering = Filtering(self, (pages, shootdowns))
        if undone is not None:
            filtering.catch_up(len(trace.chunks))
            self._forget(undone)
        for state in self.states:
            state.done[0], state.hits[:] = np.searchsorted(shootdowns.chunk, begin), 0
        for touches in filtering.run(trace, placement.chunk_cpu, self._pieces(begin), writer.append):
            if self.progress:
                self.progress(touches)
        hits = np.array([state.hits for state in self.states], np.int64).reshape(-1, 3)
        merged = trace.chunks["accesses"] - trace.chunks["touches"]  # into touches, which they follow
        np.add.at(hits[:, 0], placement.chunk_cpu[begin:], merged[begin:])
        return hits

    def _forget(self, undone: np.ndarray) -> None:
        """Let no TLB find pages that a further run finds unmapped or elsewhere.

        Their entries stay until others replace them: nothing shoots them down.
        """
        from ..kernels.lru import NEVER

        where = addresses(undone)
        regions, slots = self.space.regions, Slots(self.space.regions)
        seen = len(regions.va) + (0 if self.joined is None else len(self.joined.va))
        other = np.zeros(seen << SLOT_BITS, bool)
        for start, end in ((where[:, 0], where[:, 1]), (where[:, 3], where[:, 4])):
            spans = slots.spans(start, end)
            for region, lo, hi in zip(
                spans.region.tolist(), spans.lo.tolist(), spans.hi.tolist(), strict=True
            ):
                first = region << SLOT_BITS
                other[first + lo : first + hi] |= regions.tlb_level[region] == 1 or hi - lo == 1 << SLOT_BITS
        pages = np.flatnonzero(other).astype(np.uint32)
        if self.fold is not None and len(pages):
            _, place = self.fold.folded(pages)
            for known in self.known:
                known[place] = False
            other[self.fold.of(pages)] = True
        if self.joined is not None:
            other[self.joined.of(np.flatnonzero(other).astype(np.uint32))] = True
        for state in self.states if len(pages) else ():
            tags = state.rows.tags
            there = np.flatnonzero(tags < len(other))
            tags[there[other[tags[there]]]] = NEVER

    def _all(self, writer: stream_store.Writer, begin: int) -> np.ndarray:
        """Filter of samples of TLB misses: each access is a walk, no TLB is asked."""
        accesses, cpu = self.trace.chunks["accesses"], self.placement.chunk_cpu
        scratch = Scratch()
        for piece in self._pieces(begin):
            touches = piece.decode(scratch)
            page, write = (np.repeat(column, touches.count) for column in (touches.page, touches.write))
            writer.append(page, write, accesses[piece.chunks])
        hits = np.zeros((len(self.placement.cpu_node), 3), np.int64)
        np.add.at(hits[:, 2], cpu[begin:], accesses[begin:])
        return hits

    def _pieces(self, begin: int) -> Iterator[Piece]:
        """Iterate Pieces of the chunks from `begin` on; decoding raises CaptureError beyond the regions."""
        for piece in self.trace.pieces(self.batch, begin, len(self.trace.chunks)):
            yield Piece(piece.chunks, partial(self._decoded, piece))

    def _decoded(self, piece: Piece, scratch: Scratch) -> Touches:
        touches, known = piece.decode(scratch), len(self.space.regions.va)
        if len(touches.page) and int(touches.page.max()) >> SLOT_BITS >= known:
            raise CaptureError("trace", "page", int(touches.page.max()), f"beyond its {known} regions")
        return touches


# The two levels of a TLB one after the other: what misses the first is stored once, for second levels of
# several sizes.
#
# A page that missed the first level is not asked for by the same CPU right after it, as it is the latest of
# its set there, unless a shootdown dropped it from both. So an array of one entry in place of a level never
# hits: the filter with such a second level finds what misses the first, the filter with such a first level
# what of it misses the second.

NO_LEVEL = Array(entries=1, ways=1)


def near_tlb(tlb: Tlb, sizes: Sequence[int]) -> Tlb:
    """The first level alone; arrays for pages of none of the `sizes` (1, 2, 3) are as small as can be."""
    first = {name: getattr(tlb, name) if size in sizes else NO_LEVEL for size, name in NAMES.items()}
    return changed(tlb, **first, l2=NO_LEVEL, l2_1g=None)


def far_tlb(tlb: Tlb) -> Tlb:
    """The second level alone."""
    return changed(tlb, **dict.fromkeys(NAMES.values(), NO_LEVEL))


class FarFilter(TlbFilter):
    """The second level of a TLB behind a TlbFilter of near_tlb: walks as of a TlbFilter of both.

    fold_of  called with what misses the first level: the Fold of memory that does not grow, or None
    """

    def __init__(self, near: TlbFilter, tlb: Tlb, fold_of: "Callable[[WalkStream], Fold | None]") -> None:
        how = near.threads, None, near.batch
        super().__init__(near.trace, near.space, near.placement, far_tlb(tlb), *how)
        self.near, self.fold_of = near, fold_of

    def first(self) -> WalkStream:
        missed = self.near.first()
        self.fold = self.fold_of(missed)
        self.trace = _trace_of(self.near.trace, missed)
        return self._first(None)

    def again(self, begin: int, undone: np.ndarray = NOTHING) -> WalkStream:
        if not self.states:
            self.first()
        self.near.progress = self.progress
        self.trace = _trace_of(self.near.trace, self.near.again(begin, undone))
        self.progress = None
        return super().again(begin, undone)

    def _key(self) -> str:
        return ""


def _trace_of(trace: Trace, missed: WalkStream) -> Trace:
    """What missed the first level of a TLB as a Trace of its own; all other accesses count as its hits."""
    chunks = trace.chunks.copy()
    chunks["touches"] = np.diff(missed.offset)
    chunks["first"] = missed.offset[:-1]

    def batches(least: int) -> Batches:
        runs = chunk_runs(missed.offset, least)
        return Batches(Piece(slice(*run), partial(_missed, missed, slice(*run))) for run in runs)

    return replace(trace, chunks=chunks, batches=batches, again=None)


def _missed(missed: WalkStream, chunks: slice, _: Scratch) -> Touches:
    part = slice(int(missed.offset[chunks.start]), int(missed.offset[chunks.stop]))
    page = read_only(missed.page[part])
    return Touches(chunks, page, read_only(missed.write[part]), np.broadcast_to(np.uint32(1), len(page)))


def is_common(tlb: Tlb) -> bool:
    """Whether the faster of the two equal kernels takes this shape; see kernels.lru."""
    from ..kernels.lru import TAGS

    sets = (tlb.l1_4k.sets, tlb.l2.sets)
    fits = all(n <= MAX_COMMON_SETS and n & (n - 1) == 0 for n in sets)
    return fits and max(tlb.l1_4k.ways, tlb.l2.ways) <= TAGS and "4k" in tlb.l2_holds


def _state(tlb: Tlb) -> "kernels.State":
    """An empty TLB."""
    from ..kernels import lru as kernels

    arrays = [*map(shape, (tlb.l1_4k, tlb.l1_2m, tlb.l1_1g, tlb.l2, tlb.l2_1g)), None]
    level2 = [kernels.L2 if size in tlb.l2_holds else kernels.NO_ARRAY for size in ("4k", "2m", "1g")]
    if tlb.l2_1g:
        level2[2] = kernels.L2_1G
    rows = kernels.row_bank(1, arrays, (kernels.TAGS,) if is_common(tlb) else kernels.ROWS)
    behind = np.array([kernels.NO_ARRAY, *level2])
    return kernels.State(behind, rows, np.zeros(1, np.int64), np.zeros(3, np.int64))


def _pages(regions: Regions) -> "kernels.Pages":
    from ..kernels.lru import Pages

    gig = np.arange(len(regions.va), dtype=np.uint32)
    at = np.flatnonzero(regions.tlb_level == 3)
    _, first, which = np.unique(regions.va[at] >> np.uint64(9), return_index=True, return_inverse=True)
    gig[at] = at[first][which]
    return Pages(regions.va, regions.tlb_level, gig, bool((regions.tlb_level > 1).any()))


def _with_groups(pages: "kernels.Pages", joined: Joined) -> "kernels.Pages":
    """Pages with the regions in which joined ones are seen, as of 4 KiB."""
    more = len(joined.va)
    return pages._replace(
        va=np.append(pages.va, joined.va),
        size=np.append(pages.size, np.ones(more, pages.size.dtype)),
        gig=np.append(pages.gig, np.zeros(more, pages.gig.dtype)),
    )


# What pages that join must have alike. Of an x86 entry, KVM's included, all but accessed, dirty and
# what software uses; of an ePT entry the same and the memory type (Intel SDM 3C, 29.3.2).
ATTRIBUTES = {"x86": 0xF800_0000_0000_019E, "kvm": 0xF800_0000_0000_019E, "ept": 0x1600_0000_0000_047F}
TABLES_AT_ONCE = 1 << 10


def joined_pages(space: AddressSpace, joins: int) -> Joined | None:
    """Joined of `joins` pages each; None where no pages are.

    As captured: pages join where all are mapped, by frames in a row that begin at a multiple of `joins`, with
    equal attributes; in a VM, whose TLB maps guest pages to the host's frames, in both dimensions. Those that
    were gone when the tables were read, or are mapped later, do not.
    """
    tree, regions = space.snapshot.guest, space.regions
    if joins == 1 or tree.encoding != "x86":
        return None
    shift, per_region = joins.bit_length() - 1, 512 // joins
    groups = np.zeros((len(regions.va), per_region), bool)
    nested = None if space.native else Nested(space.snapshot.nested)
    known = np.flatnonzero((regions.tlb_level == 1) & (regions.leaf < len(tree)))
    for begin in range(0, len(known), TABLES_AT_ONCE):
        some = known[begin : begin + TABLES_AT_ONCE]
        frame, raw, there = _mapped(tree, regions, some)
        fit = _in_a_row(frame, raw, there, joins, tree.encoding)
        if nested is not None:
            frame, raw = (one.reshape(frame.shape) for one in nested.leaves(frame.ravel()))
            fit &= _in_a_row(frame, raw, frame >= 0, joins, nested.tree.encoding)
        groups[some] = fit
    if not groups.any():
        return None
    va, which = np.unique(regions.va >> np.uint64(shift), return_inverse=True)
    first = (regions.va & np.uint64(joins - 1)) << np.uint64(9 - shift)
    place = (len(regions.va) + which).astype(np.uint32)
    return Joined(shift, groups, place, first.astype(np.uint32), va)


def _mapped(tree: Tree, regions: Regions, some: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """([n, 512]: frame of each page of some regions, its leaf entry, whether it is mapped)."""
    raw = tree.entries[regions.leaf[some]]
    frame, there = snapshot.frame(raw, 1, tree.encoding), snapshot.leaf(raw, 1, tree.encoding)
    for k in np.flatnonzero(regions.slot[some] >= 0):
        region = some[k]
        level, entry = int(regions.level[region]), raw[k, regions.slot[region]]
        within = int(regions.va[region] & np.uint64(511)) << 9 if level == 3 else 0
        first = int(snapshot.frame(entry, level, tree.encoding)) + within
        frame[k], raw[k], there[k] = first + np.arange(512), entry, True
    return frame, raw, there


def _in_a_row(frame: np.ndarray, raw: np.ndarray, there: np.ndarray, joins: int, encoding: str) -> np.ndarray:
    """bool[n, 512 / joins]: which groups of pages have frames in a row, aligned, with equal attributes."""
    kept = raw & np.uint64(ATTRIBUTES[encoding])
    frame, kept, there = (one.reshape(len(one), -1, joins) for one in (frame, kept, there))
    row = (frame == frame[..., :1] + np.arange(joins)).all(axis=2) & (frame[..., 0] % joins == 0)
    found: np.ndarray = there.all(axis=2) & row & (kept == kept[..., :1]).all(axis=2)
    return found


def _shootdowns(events: np.ndarray, pages: "kernels.Pages") -> "kernels.Shootdowns":
    """kernels.lru.Shootdowns of the events: the tags of the touched pages in each range, or everything."""
    from ..kernels.lru import Shootdowns

    rows = invalidations(events)
    begin = rows["start"] >> np.uint64(PAGE_SHIFT)
    count = (rows["end"] - rows["start"]) >> np.uint64(PAGE_SHIFT)
    long = count > FLUSH_CEILING
    count = np.where(long, 0, count).astype(np.int64)
    tags, kept = [np.zeros(0, np.uint32)], [np.zeros(0, np.int64)]
    order = np.argsort(pages.va, kind="stable")  # the last of the same 2 MiB has the leaf table
    last = np.append(order[np.searchsorted(pages.va, pages.va, side="right", sorter=order) - 1], 0)
    for block in range(0, len(rows), BLOCK):
        n = count[block : block + BLOCK]
        offset = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        number = np.repeat(begin[block : block + BLOCK].astype(np.int64), n) + offset
        tag, known = _tags(number, pages)
        twin = last[tag >> SLOT_BITS]
        both = np.stack([known, known & (twin != tag >> SLOT_BITS)], axis=1)
        tags.append(np.stack([tag, twin << SLOT_BITS | number & 511], axis=1)[both].astype(np.uint32))
        kept.append(np.bincount(np.repeat(np.arange(len(n)), n), both.sum(axis=1), minlength=len(n)))
    first = np.concatenate([[0], np.cumsum(np.concatenate(kept))]).astype(np.int64)
    return Shootdowns(rows["chunk"].astype(np.int64), long, first, np.concatenate(tags))


def _tags(number: np.ndarray, pages: "kernels.Pages") -> tuple[np.ndarray, np.ndarray]:
    """(uint32 tags of the TLB entries that map page numbers, bool: whether any entry can)."""
    region, known = _find(number >> SLOT_BITS, pages.va.astype(np.int64))
    size = np.where(known, pages.size[region] if len(pages.size) else 0, 0)
    tag = region << SLOT_BITS | np.where(size == 1, number & 511, 0)
    big = np.flatnonzero(pages.size == 3)
    gig, in_gig = _find(number >> 18, pages.va[big].astype(np.int64) >> 9)
    if len(big):
        tag = np.where(in_gig, pages.gig[big[gig]].astype(np.int64) << SLOT_BITS, tag)
    return tag.astype(np.uint32), known | in_gig


def _find(wanted: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64 position of each wanted value in keys, 0 if absent; bool present)."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    order = np.argsort(keys, kind="stable")
    at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    return at, keys[at] == wanted
