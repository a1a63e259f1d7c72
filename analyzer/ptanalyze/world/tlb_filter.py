"""The TLB filter: a trace in, the walks that miss every TLB level out. Independent of the policy.

It can be run twice over a trace: the first time with empty TLBs, then over its steady part once more with the
TLBs as the first time left them.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from io import FileIO
from itertools import cycle
from tempfile import TemporaryFile, gettempdir
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace as changed

from ..core.errors import CaptureError, RefusedError, UsageError
from ..core.machine import Array, Tlb, shape
from ..core.process import Progress, in_order
from ..core.trace import (
    EVENT_DTYPE,
    PAGE_SHIFT,
    SLOT_BITS,
    Batches,
    Event,
    Fold,
    Joined,
    Piece,
    Placement,
    Regions,
    Scratch,
    Touches,
    Trace,
    WalkStream,
    blocks,
    chunk_runs,
    read_only,
)
from ..kernels import lru as kernels
from .address_space import NO_TABLE, AddressSpace, Nested, Slots, pages_of
from .mm_events import (
    ADVICE_THAT_CLEARS,
    CHANGED,
    FLUSHING,
    MOVED,
    addresses,
    effects,
    effects_by_region,
    made,
    region_of_interest,
)

Walks = tuple[np.ndarray, np.ndarray, np.ndarray]  # page, write, number by chunk


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
            many = "a multiple of {} sets, ".format
            words = (f"{many(sets) if sets > 1 else ''}{ways} or more ways" for sets, ways in served)
            raise RefusedError(
                f"tlb.{NAMES[size]} = {shape}: the trace leaves out what hits in larger TLBs "
                f"({'; '.join(words)}), and may miss this one; record with --strip off, or name another "
                "machine or a smaller run"
            )


FLUSH_CEILING = 33  # entries; more flush everything: tlb_single_page_flush_ceiling, arch/x86/mm/tlb.c
MAX_REGIONS = (1 << 23) - 1  # dense page numbers have 32 bits, a value is left for empty ways
MAX_COMMON_SETS = 1 << SLOT_BITS  # more would use bits that differ between dense and real page numbers
BLOCK = 1 << 16  # shootdowns that are turned into tags at a time
SPANS_AT_ONCE = 1 << 11  # of at most 512 pages each


# What calls flush: of the pages that they are made for those that are mapped, and change.
#
# mmu_gather flushes from the first entry that was cleared or changed to the last (__tlb_adjust_range), huge
# pages one by one (tlb_get_unmap_shift), and nothing where there was none (tlb_flush_mmu_tlbonly,
# include/asm-generic/tlb.h, Linux 6.1). mprotect of equal protection returns (mprotect_fixup), and pages of
# PROT_NONE are in no TLB (pte_needs_flush, arch/x86/include/asm/tlbflush.h).

LAST = np.uint64((1 << 63) - 1)
UNKNOWN = 255  # protection of what no call of the trace mapped


class Flushes(NamedTuple):
    """What each of K calls flushes before a chunk: entries (0: nothing) of 4 KiB from page number `page` on,
    or of 2 MiB where shift is SLOT_BITS. int64[K] each"""

    chunk: np.ndarray
    page: np.ndarray
    entries: np.ndarray
    shift: np.ndarray


NO_FLUSHES = Flushes(*np.zeros((4, 0), np.int64))


class Mapped:
    """Which pages of the regions that a trace touches are mapped, as touches and calls leave them."""

    def __init__(self, trace: Trace, space: AddressSpace) -> None:
        regions, region = space.regions, region_of_interest(trace.events)
        va, self.number, count = np.unique(regions.va, return_inverse=True, return_counts=True)
        self.va, self.huge = np.append(va, LAST).astype(np.int64), regions.tlb_level > 1
        self.big = np.bincount(self.number, self.huge, len(va)) == count  # at all times
        order = np.argsort(self.number, kind="stable")
        self.regions = order[[np.cumsum(count) - count, np.cumsum(count) - 1]]  # of each address, at most two
        self.seen = np.zeros(len(self.number) << SLOT_BITS, bool)  # by page: touched since it was mapped
        self.present = np.zeros(len(va) << SLOT_BITS, bool)
        self.prot = np.full(len(self.present), UNKNOWN, np.uint8)
        before, self.rows = effects_by_region(trace.events)
        self.last = NO_FLUSHES
        self.needed = bool(np.isin(self.rows["what"], FLUSHING).any())
        if not self.needed:
            return
        self.calls = self._calls(trace.events, self.rows)
        for call in self._calls(trace.events, before):
            self._happen(*call)
        if region.begin is not None:
            self._take_captured(space)
            for lo, hi in self._spans(*made(trace.events, region.begin)).tolist():
                self.present[lo:hi] = False

    def flushes(self, trace: Trace, begin: int, undone: np.ndarray) -> Flushes:
        """Flushes of the calls before the chunks of a Trace from `begin` on, and after its last.

        undone  mm_events.undoing, which comes before
        """
        if not self.needed:
            return self.last
        for call in self._calls(undone, effects(undone)):
            self._happen(*call)
        chunk, flushing = self.rows["chunk"], np.isin(self.rows["what"], FLUSHING)
        found, due = np.zeros((len(chunk), 3), np.int64), int(np.searchsorted(chunk, begin))
        scratch, looks = Scratch(), flushing.tolist()
        for piece in trace.pieces(1 << 20, begin, len(trace.chunks)):
            page, done = piece.decode(scratch).page, 0
            ends = np.append(0, np.cumsum(trace.chunks["touches"][piece.chunks]))
            for k in range(due, int(np.searchsorted(chunk, piece.chunks.stop))):
                if looks[k] and (now := int(ends[chunk[k] - piece.chunks.start])) > done:
                    self._touch(page[done:now])
                    done = now
                found[k], due = self._happen(*self.calls[k]), k + 1
            self._touch(page[done:])
        for k in range(due, len(chunk)):
            found[k] = self._happen(*self.calls[k])
        self.last = Flushes(chunk[flushing], *found[flushing].T)
        return self.last

    def _touch(self, page: np.ndarray) -> None:
        page = page[~self.seen[page]]
        self.seen[page] = True
        region = page >> np.uint32(SLOT_BITS)
        self.present[self.number[region] << SLOT_BITS | page & np.uint32(511)] = True
        if self.huge.any():
            self.present.reshape(-1, 512)[self.number[np.unique(region[self.huge[region]])]] = True

    def _calls(self, events: np.ndarray, rows: np.ndarray) -> list[tuple[int, ...]]:
        """[(what, kind and c of the event, lo, hi of _spans, pages up to `there`)] of EFFECT_DTYPE."""
        of, (lo, hi) = events[rows["event"]], self._spans(rows["start"], rows["end"]).T
        shift = np.uint64(PAGE_SHIFT)
        moved = (rows["there"] >> shift).astype(np.int64) - (rows["start"] >> shift).astype(np.int64)
        columns = rows["what"], of["kind"], of["c"], lo, hi, moved
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _spans(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """int64[n, 2]: where the pages of bytes start..end begin and end."""
        one, shift = np.uint64(1), np.uint64(PAGE_SHIFT)
        page = np.stack([start >> shift, (end - one >> shift) + one], axis=1).astype(np.int64)
        region = np.searchsorted(self.va, page >> SLOT_BITS)
        return (region << SLOT_BITS) + np.where(self.va[region] == page >> SLOT_BITS, page & 511, 0)

    def _happen(self, what: int, kind: int, c: int, lo: int, hi: int, moved: int) -> tuple[int, int, int]:
        """A call: the page, count and shift of what it flushes."""
        present, prot = self.present[lo:hi], self.prot[lo:hi]
        if what not in FLUSHING:
            prot[:] = c & 7 if kind in (Event.MMAP, Event.MPROTECT) else UNKNOWN
            return 0, 0, 0
        if kind == Event.MPROTECT:
            present = present & (prot != c) & (prot > 0)
        at = lo + np.flatnonzero(present)
        if kind == Event.MPROTECT:
            prot[:] = c & 7
        elif what != CHANGED or (kind == Event.MADVISE and c in ADVICE_THAT_CLEARS):
            present[:] = False
            self.seen[self.regions[:, at >> SLOT_BITS] << SLOT_BITS | at & 511] = False
        if not len(at):
            return 0, 0, 0
        number = self.va[at >> SLOT_BITS] << SLOT_BITS | at & 511
        if what == MOVED:
            to = number + moved
            region = np.searchsorted(self.va, to >> SLOT_BITS)
            known = self.va[region] == to >> SLOT_BITS
            arrived = (region << SLOT_BITS | to & 511)[known]
            self.present[arrived], self.prot[arrived] = True, self.prot[at[known]]
        shift = SLOT_BITS if what != MOVED and self.big[at >> SLOT_BITS].all() else 0
        return int(number[0]), int((number[-1] >> shift) - (number[0] >> shift)) + 1, shift

    def _take_captured(self, space: AddressSpace) -> None:
        tree, regions = space.snapshot.guest, space.regions
        for begin in range(0, len(regions.va), TABLES_AT_ONCE):
            some = slice(begin, begin + TABLES_AT_ONCE)
            page = (regions.va[some, None].astype(np.int64) << SLOT_BITS | np.arange(512)).ravel()
            table = np.where(regions.leaf[some] < len(tree), regions.leaf[some], NO_TABLE).astype(np.int64)
            mapped = pages_of(tree, np.repeat(table, 512), page)[0].reshape(-1, 512) >= 0
            np.logical_or.at(self.present.reshape(-1, 512), self.number[some], mapped)


NOTHING = np.zeros(0, EVENT_DTYPE)
AS_WALK = np.array([-1, 1])  # hits of the second level, walks: of a page that walks as it is new


class Batch(NamedTuple):
    """A decoded piece of a trace.

    chunks  int64[m, 3]: number, first touch and touches of each chunk
    page, write  as in Touches, of a thread's Scratch; seen: uint32[n], the pages as TLBs see them, folded
                 and joined
    """

    chunks: np.ndarray
    page: np.ndarray
    write: np.ndarray
    seen: np.ndarray


class TlbFilter:
    """A trace on the TLBs (machine.Tlb) of the CPUs that `placement` puts its threads on.

    Each call that changes translations drops them from the TLB of every CPU, as Linux's shootdowns do; more
    than 33 entries flush it. Batches are decoded ahead on `threads`, on which the CPUs then take their parts
    of a batch at the same time; results depend neither on `threads` nor on `batch`. Streams are in unlinked
    temporary files, 5 bytes per walk. `mapped` is that of a filter before this one, which has seen all
    touches. Memory: about 9 bytes per touch of a batch, one per thread, and 6 of the one that is filtered.
    `fold` is of memory that does not grow: a page of it that is new to a CPU walks. `first` and `again` raise
    UsageError (too many regions, no room for temporary files, samples of accesses), RefusedError (a stripped
    trace that does not fit the TLB) and CaptureError (pages outside the regions).
    """

    def __init__(
        self,
        trace: Trace,
        space: AddressSpace,
        placement: Placement,
        tlb: Tlb,
        threads: int = 1,
        progress: Progress = None,
        batch: int = 1 << 20,
        fold: Fold | None = None,
        mapped: Mapped | None = None,
    ) -> None:
        self.trace, self.space, self.placement, self.tlb = trace, space, placement, tlb
        self.threads, self.batch, self.progress = max(threads, 1), batch, progress
        self.states: list[kernels.State] = []  # by CPU
        self.behind, self.mapped = mapped is not None, mapped or Mapped(trace, space)
        self.flushed = NO_FLUSHES  # by the first run
        self.passed: dict[int, tuple[bytes, np.ndarray]] = {}  # by chunk: _now, of the first run
        self.fold = fold
        self.known: list[np.ndarray] = []  # by CPU, bool: which of the folded pages it has had
        self.joined = joined_pages(space, tlb.joins)
        self.common = is_common(tlb)

    def first(self) -> WalkStream:
        """WalkStream of the whole trace, all TLBs empty at first."""
        regions, cpus = self.space.regions, len(self.placement.cpu_node)
        if len(regions.va) + (0 if self.joined is None else len(self.joined.va)) > MAX_REGIONS:
            raise UsageError(
                f"trace: {len(regions.va)} regions of 2 MiB, at most {MAX_REGIONS} can be filtered"
            )
        must_be_no_sample(self.trace)
        must_fit(self.trace, self.tlb, regions.tlb_level)
        self.states = _states(self.tlb, cpus, self.common)
        self.known = [np.zeros(0 if self.fold is None else len(self.fold.to), bool) for _ in range(cpus)]
        self.whole = self._filtered(0)
        self.ends = deepcopy(self.states)
        return self.whole

    def again(self, begin: int, undone: np.ndarray = NOTHING) -> WalkStream:
        """WalkStream of the chunks from `begin` on, run once more; chunks before have no walks.

        undone  mm_events.undoing; else all TLBs begin as the whole trace left them
        """
        if not self.states:
            self.first()
        self.trace = self.trace.again(begin) if self.trace.again else self.trace
        return self._filtered(begin, undone)

    def _filtered(self, begin: int, undone: np.ndarray | None = None) -> WalkStream:
        """Filter chunks from `begin` on; of a further run, until TLBs hold what they held then in the first,
        and calls flush the same: the rest misses as it did. undone: of a further run; None: of the first"""
        cpu, chunks = self.placement.chunk_cpu, self.trace.chunks
        what = "filtering touches" + " again" * (undone is not None)
        done, every = int(chunks["touches"][:begin].sum()), self.trace.touches
        sampled = bool(self.trace.facts.get("walks"))
        at, known, misses = begin, np.int64(0), [np.zeros(begin + 1, np.int64)]
        gone = NOTHING if undone is None else undone
        flushes = self.mapped.last if self.behind else self.mapped.flushes(self.trace, begin, gone)
        if undone is None:
            self.flushed = flushes
        other = np.any(np.array(flushes) != np.array(self.flushed), axis=0)
        same_from = int(flushes.chunk[other].max(initial=-1)) + 1
        with TemporaryFile(buffering=0) as pages, TemporaryFile(buffering=0) as writes:
            walked = self._every_access(begin) if sampled else self._walks(begin, undone, flushes)
            for touches, walks in walked:
                _append(pages, walks[0])
                _append(writes, walks[1])
                misses.append(walks[2])
                at, done = at + len(walks[2]), done + touches
                if self.progress:
                    self.progress(done, every, what)
                now, then = self._now(), self.passed.get(at)
                if undone is None:
                    self.passed[at] = now
                elif then and then[0] == now[0] and at >= same_from and not (self.fold or self.trace.again):
                    known = self.passed[len(chunks)][1] - then[1]
                    for file, column in (pages, self.whole.page), (writes, self.whole.write):
                        for block in blocks(column[self.whole.offset[at] :], self.batch):
                            _append(file, block)
                    misses.append(np.diff(self.whole.offset[at:]))
                    break
            page, write = _mapped(pages, np.uint32), _mapped(writes, np.bool_)
        hits = self._now()[1] + known
        if at < len(chunks):
            self.states = deepcopy(self.ends)
        others = chunks["accesses"] - (0 if sampled else chunks["touches"])  # merged into touches: hits
        np.add.at(hits[:, 2 if sampled else 0], cpu[begin:], others[begin:])
        flushed = np.unique(flushes.chunk[flushes.entries > 0])
        return WalkStream(page, write, np.cumsum(np.concatenate(misses)), hits, flushed)

    def _now(self) -> tuple[bytes, np.ndarray]:
        """(cryptographic sum of what TLBs hold and which shootdowns they saw, hits as of WalkStream)."""
        held = b"".join(state.rows.tags.tobytes() + state.done.tobytes() for state in self.states)
        hits = np.array([state.hits for state in self.states], np.int64).reshape(-1, 3)
        return blake2b(held).digest(), hits

    def _every_access(self, begin: int) -> Iterator[tuple[int, Walks]]:
        """Yield (touches, Walks) of samples of TLB misses: each access is a walk, no TLB is asked."""
        scratch = Scratch()
        for piece in self.trace.pieces(self.batch, begin, len(self.trace.chunks)):
            touches = self._checked(piece, scratch)
            page, write = (np.repeat(column, touches.count) for column in (touches.page, touches.write))
            yield len(touches.page), (page, write, self.trace.chunks["accesses"][piece.chunks])

    def _walks(self, begin: int, undone: np.ndarray | None, flushes: Flushes) -> Iterator[tuple[int, Walks]]:
        """Yield (touches, Walks) of the chunks from `begin` on, batch by batch; each overwrites the last."""
        kernel = kernels.filter_common if self.common else kernels.filter_any
        pages, shootdowns = self._tables(flushes)
        if undone is not None:
            none, end = read_only(np.zeros(0, np.uint32)), np.array([[len(self.trace.chunks), 0, 0]])
            before = self._tables(self.flushed)[1]
            for state in self.states:  # events after the last chunk of a CPU
                kernel(none, end, pages, before, state, np.zeros(0, bool))
                state.done[0], state.hits[:] = np.searchsorted(shootdowns.chunk, begin), 0
            self._forget(undone)

        def take(batch: Batch, missed: np.ndarray, cpu: int, mine: np.ndarray) -> None:
            chunks = batch.chunks[mine]
            kernel(batch.seen, chunks, pages, shootdowns, self.states[cpu], missed)
            if self.fold is not None and not self.known[cpu].all():
                more = new_pages(batch.page, chunks, self.fold, self.known[cpu], missed)
                self.states[cpu].hits[1:] += more * AS_WALK

        pieces = self.trace.pieces(self.batch, begin, len(self.trace.chunks))
        page, write, every_miss = np.empty(0, np.uint32), *np.empty((2, 0), np.bool_)  # one batch at a time
        with ThreadPoolExecutor(self.threads) as pool:
            scratch = cycle([Scratch() for _ in range(self.threads)])
            for batch in in_order(pool, self._decoded, zip(pieces, scratch, strict=False), self.threads - 1):
                touches = len(batch.page)
                if touches > len(page):
                    room = touches + touches // 8
                    page, write, every_miss = np.empty(room, np.uint32), *np.empty((2, room), np.bool_)
                missed = every_miss[:touches]
                missed.fill(False)
                cpus = self.placement.chunk_cpu[batch.chunks[:, 0]]
                deque(pool.map(partial(take, batch, missed), *by_cpu(cpus)), 0)
                count = np.zeros(len(batch.chunks), np.int64)
                walks = kernels.gather(batch.page, batch.write, missed, batch.chunks, page, write, count)
                yield touches, (page[:walks], write[:walks], count)

    def _decoded(self, piece: Piece, scratch: Scratch) -> Batch:
        touches, count = self._checked(piece, scratch), self.trace.chunks["touches"][piece.chunks]
        number = np.arange(piece.chunks.start, piece.chunks.stop)
        chunks = np.column_stack([number, np.cumsum(count) - count, count])
        seen = self._seen(touches.page)
        seen.flags.writeable = False
        return Batch(chunks, touches.page, touches.write, seen)

    def _checked(self, piece: Piece, scratch: Scratch) -> Touches:
        touches, known = piece.decode(scratch), len(self.space.regions.va)
        if len(touches.page) and int(touches.page.max()) >> SLOT_BITS >= known:
            raise CaptureError("trace", "page", int(touches.page.max()), f"beyond its {known} regions")
        return touches

    def _seen(self, page: np.ndarray) -> np.ndarray:
        """uint32[n]: pages as TLBs see them."""
        page = page if self.fold is None else self.fold.of(page)
        return page if self.joined is None else self.joined.of(page)

    def _tables(self, flushes: Flushes) -> tuple[kernels.Pages, kernels.Shootdowns]:
        """(page sizes, with the regions in which joined pages are seen; shootdowns of what TLBs see)."""
        pages, joined = _pages(self.space.regions), self.joined
        shootdowns = _shootdowns(flushes, pages)
        if joined is not None:
            more = len(joined.va)
            pages = pages._replace(
                va=np.append(pages.va, joined.va),
                size=np.append(pages.size, np.ones(more, pages.size.dtype)),
                gig=np.append(pages.gig, np.zeros(more, pages.gig.dtype)),
            )
        return pages, shootdowns._replace(tag=self._seen(shootdowns.tag))

    def _forget(self, undone: np.ndarray) -> None:
        """Let no TLB find pages that a further run finds unmapped or elsewhere.

        Their entries stay until others replace them: nothing shoots them down.
        """
        where, regions = addresses(undone), self.space.regions
        spans = Slots(regions).spans(where[:, [0, 3]].ravel(), where[:, [1, 4]].ravel())
        whole = (regions.tlb_level[spans.region] == 1) | (spans.hi - spans.lo == 1 << SLOT_BITS)
        count, first = np.where(whole, spans.hi - spans.lo, 0), (spans.region << SLOT_BITS) + spans.lo
        tables = len(regions.va) + (0 if self.joined is None else len(self.joined.va))
        gone = np.zeros(tables << SLOT_BITS, bool)  # by page as TLBs see it
        for begin in range(0, len(count), SPANS_AT_ONCE):
            n, start = count[begin : begin + SPANS_AT_ONCE], first[begin : begin + SPANS_AT_ONCE]
            pages = (np.arange(n.sum()) + np.repeat(start - (np.cumsum(n) - n), n)).astype(np.uint32)
            if self.fold is not None:
                for known in self.known:
                    known[self.fold.folded(pages)[1]] = False
            gone[self._seen(pages)] = True
        for state in self.states:
            tags = state.rows.tags
            held = np.flatnonzero(tags < len(gone))  # by ways that are not empty
            tags[held[gone[tags[held]]]] = kernels.NEVER


def _append(file: FileIO, column: np.ndarray) -> None:
    left = column.view(np.uint8)
    try:
        while len(left):
            left = left[file.write(left.data) :]
    except OSError as error:
        raise UsageError(
            f"{gettempdir()}: walk stream cannot be stored: {error.strerror or error}; free space there, or "
            "name another TMPDIR"
        ) from error


def _mapped(file: FileIO, kind: type) -> np.ndarray:
    return np.memmap(file, kind, "r") if file.tell() else np.zeros(0, kind)


def by_cpu(chunk_cpu: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
    """(CPUs that have chunks, positions of the chunks of each, in order)."""
    order = np.argsort(chunk_cpu, kind="stable")
    cpus, first = np.unique(chunk_cpu[order], return_index=True)
    return cpus.tolist(), np.split(order, first[1:])[: len(cpus)]


def new_pages(page: np.ndarray, chunks: np.ndarray, fold: Fold, known: np.ndarray, missed: np.ndarray) -> int:
    """Let the folded pages that are new to a CPU miss: the number of those that did not."""
    more = 0
    for _, first, count in chunks.tolist():
        at, place = fold.folded(page[first : first + count])
        new = np.flatnonzero(~known[place])
        _, earliest = np.unique(place[new], return_index=True)
        of = first + at[new[earliest]]
        more += int(np.count_nonzero(~missed[of]))
        missed[of] = known[place] = True
    return more


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


def missed_trace(near: TlbFilter, missed: WalkStream, undone: np.ndarray = NOTHING) -> Trace:
    """What misses a TlbFilter of near_tlb as a Trace of its own, for one of far_tlb; all other accesses count
    as its hits.

    undone  as TlbFilter.again has it, for the further run of both
    """
    chunks, facts = near.trace.chunks.copy(), {**near.trace.facts, "stripped": ()}
    chunks["touches"] = np.diff(missed.offset)
    chunks["first"] = missed.offset[:-1]

    def decoded(chunks: slice, _: Scratch) -> Touches:
        part = slice(int(missed.offset[chunks.start]), int(missed.offset[chunks.stop]))
        page = read_only(missed.page[part])
        return Touches(chunks, page, read_only(missed.write[part]), np.broadcast_to(np.uint32(1), len(page)))

    def batches(least: int) -> Batches:
        runs = [slice(*run) for run in chunk_runs(missed.offset, least)]
        return Batches(Piece(run, partial(decoded, run)) for run in runs)

    def again(begin: int) -> Trace:
        return missed_trace(near, near.again(begin, undone), undone)

    return replace(near.trace, chunks=chunks, batches=batches, facts=facts, again=again)


def is_common(tlb: Tlb) -> bool:
    """Whether the faster of the two equal kernels takes this shape; see kernels.lru."""
    sets = (tlb.l1_4k.sets, tlb.l2.sets)
    fits = all(n <= MAX_COMMON_SETS and n & (n - 1) == 0 for n in sets)
    return fits and max(tlb.l1_4k.ways, tlb.l2.ways) <= kernels.TAGS and "4k" in tlb.l2_holds


def _states(tlb: Tlb, cpus: int, common: bool) -> list[kernels.State]:
    """Empty TLBs."""
    arrays = [*map(shape, (tlb.l1_4k, tlb.l1_2m, tlb.l1_1g, tlb.l2, tlb.l2_1g)), None]
    level2 = [kernels.L2 if size in tlb.l2_holds else kernels.NO_ARRAY for size in ("4k", "2m", "1g")]
    if tlb.l2_1g:
        level2[2] = kernels.L2_1G
    bank = kernels.row_bank(cpus, arrays, (kernels.TAGS,) if common else kernels.ROWS)
    behind = np.array([kernels.NO_ARRAY, *level2])
    return [
        kernels.State(behind, bank._replace(tags=tags), np.zeros(1, np.int64), np.zeros(3, np.int64))
        for tags in bank.tags.reshape(cpus, -1)
    ]


def _pages(regions: Regions) -> kernels.Pages:
    gig = np.arange(len(regions.va), dtype=np.uint32)
    at = np.flatnonzero(regions.tlb_level == 3)
    _, first, which = np.unique(regions.va[at] >> np.uint64(9), return_index=True, return_inverse=True)
    gig[at] = at[first][which]
    return kernels.Pages(regions.va, regions.tlb_level, gig, bool((regions.tlb_level > 1).any()))


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
        page = (regions.va[some, None].astype(np.int64) << SLOT_BITS | np.arange(512)).ravel()
        frame, raw = pages_of(tree, np.repeat(regions.leaf[some].astype(np.int64), 512), page)
        fit = _in_a_row(frame, raw, joins, tree.encoding)
        if nested is not None:
            fit &= _in_a_row(*nested.leaves(frame), joins, nested.tree.encoding)
        groups[some] = fit
    if not groups.any():
        return None
    va, which = np.unique(regions.va >> np.uint64(shift), return_inverse=True)
    first = (regions.va & np.uint64(joins - 1)) << np.uint64(9 - shift)
    return Joined(shift, groups, (len(regions.va) + which).astype(np.uint32), first.astype(np.uint32), va)


def _in_a_row(frame: np.ndarray, raw: np.ndarray, joins: int, encoding: str) -> np.ndarray:
    """bool[n, 512 / joins]: which groups of pages have frames in a row, aligned, with equal attributes.

    frame, raw  [n * 512] as of pages_of
    """
    kept = (raw & np.uint64(ATTRIBUTES[encoding])).reshape(-1, 512 // joins, joins)
    frame = frame.reshape(kept.shape)
    row = (frame == frame[..., :1] + np.arange(joins)).all(axis=2) & (frame[..., 0] % joins == 0)
    return (frame[..., 0] >= 0) & row & (kept == kept[..., :1]).all(axis=2)


def _shootdowns(flushes: Flushes, pages: kernels.Pages) -> kernels.Shootdowns:
    """kernels.lru.Shootdowns: the tags of the touched pages in each range, or everything."""
    long = flushes.entries > FLUSH_CEILING
    count = np.where(long, 0, flushes.entries)
    tags, kept = [np.zeros(0, np.uint32)], [np.zeros(0, np.int64)]
    order = np.argsort(pages.va, kind="stable")  # the last of the same 2 MiB has the leaf table
    last = np.append(order[np.searchsorted(pages.va, pages.va, side="right", sorter=order) - 1], 0)
    for block in range(0, len(count), BLOCK):
        some = slice(block, block + BLOCK)
        n = count[some]
        offset = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        number = np.repeat(flushes.page[some], n) + (offset << np.repeat(flushes.shift[some], n))
        tag, known = _tags(number, pages)
        twin = last[tag >> SLOT_BITS]
        both = np.stack([known, known & (twin != tag >> SLOT_BITS)], axis=1)
        tags.append(np.stack([tag, twin << SLOT_BITS | number & 511], axis=1)[both].astype(np.uint32))
        kept.append(np.bincount(np.repeat(np.arange(len(n)), n), both.sum(axis=1), minlength=len(n)))
    first = np.concatenate([[0], np.cumsum(np.concatenate(kept))]).astype(np.int64)
    return kernels.Shootdowns(flushes.chunk, long, first, np.concatenate(tags))


def _tags(number: np.ndarray, pages: kernels.Pages) -> tuple[np.ndarray, np.ndarray]:
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
