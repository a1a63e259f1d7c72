"""What the memory-management events of a trace do: map, take translations away, ask for huge pages."""

import re
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from operator import itemgetter
from typing import NamedTuple, TypeAlias
from weakref import ref

import numpy as np

from ..core.columns import Finding, noted
from ..core.errors import CaptureError, UsageError
from ..core.snapshot import Snapshot
from ..core.trace import (
    EVENT_DTYPE,
    PAGE_SHIFT,
    REGION_SHIFT,
    SLOT_BITS,
    Batches,
    Event,
    Piece,
    Scratch,
    Touches,
    Trace,
    read_only,
)

# What calls do differs between versions of Linux.

RELEASE = re.compile(r"(\d{1,3})\.(\d{1,4})(?![\d])")
KNOWN_FROM = (5, 0)  # before it mremap moved entries alone (HAVE_MOVE_PMD of x86, commit 2c91bd4a4e2e)


class Linux(NamedTuple):
    """A version of Linux. A capture that does not name its own is taken to be of 6.1."""

    major: int = 6
    minor: int = 1

    @property
    def frees_emptied_tables(self) -> bool:
        """MADV_DONTNEED frees the leaf tables of the 2 MiB that it empties (CONFIG_PT_RECLAIM of x86-64,
        commit 6375e95f38: madvise_dontneed_single_vma, mm/madvise.c; mm/pt_reclaim.c)."""
        return self >= FREES_EMPTIED

    @property
    def broadcasts(self) -> bool:
        """A process that was active on more than three CPUs at a shootdown has a global ASID from then on:
        INVLPGB flushes it everywhere without an IPI (consider_global_asid, arch/x86/mm/tlb.c). The kernel
        looks at one tick in 32; here the first time counts."""
        return self >= (6, 15)


UNNAMED, FREES_EMPTIED = Linux(), Linux(6, 14)


def linux(asked: str, captured: object) -> Linux:
    """The version that is asked for (Options.kernel), else that of the capture (snapshot.Facts.kernel).

    UsageError for what is no version, and for one before KNOWN_FROM.
    """
    if not asked:
        release = RELEASE.match(str(captured or ""))
        return Linux(*map(int, release.groups())) if release else UNNAMED
    release = RELEASE.match(asked)
    if release is None:
        raise UsageError(f"--kernel {asked}: no version of Linux; give one as 6.18")
    version = Linux(*map(int, release.groups()))
    if version < KNOWN_FROM:
        raise UsageError(
            f"--kernel {asked}: what calls do to page tables is known from 5.0 on; name a later one"
        )
    return version


# Memory-management events that did something, as rows for kernels.memory_manager, and what they mapped.

TOP = np.uint64(1 << 63)  # what lies above is no address but a wrapped length
LAST = np.uint64((1 << 63) - 1)
PAGE = np.uint64(1 << PAGE_SHIFT)
LAST_NODE = (1 << 15) - 1
MREMAP_DONTUNMAP = np.uint64(4)
# asm-generic/mman-common.h: DONTNEED, REMOVE, PAGEOUT, DONTNEED_LOCKED, HWPOISON, ...; FREE, COLD, COLLAPSE
ADVICE_THAT_CLEARS = np.array([4, 9, 21, 24, 100, 101, 102], np.uint64)
ADVICE_THAT_EMPTIES = np.array([4, 24], np.uint64)
ADVICE_THAT_UPDATES = np.array([8, 20, 25], np.uint64)
ANONYMOUS_PRIVATE, MAP_GROWSDOWN = np.uint64(0x22), np.uint64(0x100)
VMA_FLAGS = np.uint64(0x46000)  # MAP_LOCKED, MAP_NORESERVE, MAP_HUGETLB tell VMAs apart
KINDS = (
    Event.MMAP, Event.MUNMAP, Event.MPROTECT, Event.MREMAP, Event.MADVISE, Event.BRK, Event.MOVE_PAGES,
)  # fmt: skip


# What leads from a region's end to what a further run of it finds.
#
# A further run of a program maps at other free addresses than the first, whose memory stays where it is. Here
# it maps at the same ones and finds nothing there. Memory that mremap moved is back where it came from. What
# the region unmapped and mapped again at the same address is found as it was left. Where it opened what was
# reserved before it, a further run opens more of that: no page is there, nor a leaf table of its own.

MAP, UNMAP, EMPTY = ~np.uint64(0), ~np.uint64(1), ~np.uint64(2)
MEANT, GONE, ADDED = range(3)  # of bytes: as when the region began, or in their place; unmapped; mapped since
MAPS_FREE, TAKES_AWAY, MOVES_AWAY = (ADDED, MEANT, ADDED), (GONE, GONE, ADDED), (ADDED,) * 3  # by state


class _Bytes:
    """The state of all addresses, MEANT (0) at first."""

    def __init__(self) -> None:
        self.begin, self.state = [-1], [MEANT]

    def within(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """[(start, end, state)] of the bytes start..end."""
        if start >= end:
            return []
        first, past = bisect_right(self.begin, start) - 1, bisect_left(self.begin, end)
        edges = [start, *self.begin[first + 1 : past], end]
        return list(zip(edges[:-1], edges[1:], self.state[first:past], strict=True))

    def become(self, start: int, end: int, becomes: Sequence[int]) -> list[tuple[int, int, int]]:
        """Change the state of start..end, by that before; what `within` said then."""
        before = self.within(start, end)
        lows, was = [*map(itemgetter(0), before)], [*map(itemgetter(2), before)]
        becoming = [*map(becomes.__getitem__, was)]
        if becoming == was:
            return before
        first, past = bisect_right(self.begin, start) - 1, bisect_left(self.begin, end)
        pieces = list(zip(lows, becoming, strict=True))
        if self.begin[first] < start:
            pieces.insert(0, (self.begin[first], self.state[first]))
        if past < len(self.begin) and self.begin[past] == end:
            past += 1
        pieces.append((end, self.state[past - 1]))
        states = [self.state[first - 1] if first else None, *map(itemgetter(1), pieces)]
        kept = [piece for piece, last in zip(pieces, states, strict=False) if piece[1] != last]
        self.begin[first:past], self.state[first:past] = map(itemgetter(0), kept), map(itemgetter(1), kept)
        return before

    def move(self, start: int, end: int, there: int) -> None:
        for lo, hi, state in self.become(start, end, MOVES_AWAY):
            self.become(lo - start + there, hi - start + there, (state,) * 3)


def undoing(events: np.ndarray, chunk: int) -> np.ndarray:
    """EVENT_DTYPE: calls that lead from the end of a region to what its chunks from `chunk` on find when they
    run once more; munmaps, MADV_DONTNEEDs and mremaps with MREMAP_FIXED, none of which a program makes.

    events  Trace.events
    """
    _, effect = effects_by_region(events)
    which = np.isin(effect["what"], (NEW, UNMAPPED, MOVED, OPENED)) & (effect["chunk"] >= chunk)
    effect, what = effect[which], effect["what"][which]
    there = np.select([what == MOVED, what == NEW, what == OPENED], [effect["there"], MAP, EMPTY], UNMAP)
    rows = np.stack([effect["start"], effect["end"], there], axis=1)
    meet = _that_meet(rows)
    alone = rows[~meet & (rows[:, 2] != UNMAP)]
    state, met = _Bytes(), list[tuple[int, int, int]]()
    for start, end, there in rows[meet].tolist():
        if there == MAP:
            before = state.become(start, end, MAPS_FREE)
            met += [(lo, hi, there) for lo, hi, was in before if was != GONE]
        elif there == EMPTY:
            met += [(lo, hi, there) for lo, hi, was in state.within(start, end) if was == MEANT]
        elif there == UNMAP:
            state.become(start, end, TAKES_AWAY)
        else:
            state.move(start, end, there)
            met.append((start, end, there))
    return _undone(np.concatenate([alone, np.array(met, np.uint64).reshape(-1, 3)]))


def _that_meet(rows: np.ndarray) -> np.ndarray:
    """bool[n]: rows with bytes that another one has too, and those that move."""
    moves = np.flatnonzero(rows[:, 2] < EMPTY)
    there = rows[moves, 2]
    start = np.append(rows[:, 0], there)
    end = np.append(rows[:, 1], there + (rows[moves, 1] - rows[moves, 0]))
    of = np.append(np.arange(len(rows)), moves)
    order = np.argsort(start, kind="stable")
    reached = np.maximum.accumulate(end[order])
    group = np.cumsum(np.append(False, start[order][1:] >= reached[:-1])[: len(order)])
    several = np.bincount(group, minlength=1)[group] > 1
    meet = np.zeros(len(rows), bool)
    meet[of[order[several]]] = meet[moves] = True
    return meet


def _undone(rows: np.ndarray) -> np.ndarray:
    """EVENT_DTYPE of undoing, which takes back rows from the last to the first.

    rows  uint64[n, 3]: first byte, one past the last, and MAP, EMPTY or where it moves to
    """
    rows = rows[::-1]
    moves, parts = np.flatnonzero(rows[:, 2] < EMPTY), list[np.ndarray]()
    for first, past in pairwise([-1, *moves.tolist(), len(rows)]):
        between = rows[first + 1 : past]
        for what, kind in (MAP, Event.MUNMAP), (EMPTY, Event.MADVISE):
            starts, ends = merged(*between[between[:, 2] == what, :2].T)
            parts.append(np.zeros(len(starts), EVENT_DTYPE))
            parts[-1]["kind"], parts[-1]["a"], parts[-1]["b"] = kind, starts, ends - starts
            parts[-1]["c"] = ADVICE_THAT_EMPTIES[0]
        if past < len(rows):
            (to, to_end, back), move = rows[past], np.zeros(1, EVENT_DTYPE)
            move["kind"], move["d"], move["a"], move["result"] = Event.MREMAP, MREMAP_FIXED, back, to
            move["b"] = move["c"] = to_end - to
            parts.append(move)
    return np.concatenate(parts)


def carried_out(events: np.ndarray) -> np.ndarray:
    """int64[C]: indices of the events that changed mappings, entries or data; failed calls did not."""
    kind, advice = events["kind"], events["c"]
    advised = np.isin(advice, np.concatenate([ADVICE_THAT_CLEARS, ADVICE_THAT_UPDATES]))
    done = np.isin(kind, KINDS) & (events["result"] >= 0) & (events["a"] < TOP) & (events["b"] < TOP)
    done &= (kind != Event.MMAP) | (events["result"] > 0)
    done &= (kind != Event.MADVISE) | advised
    return np.flatnonzero(done)


def addresses(events: np.ndarray) -> np.ndarray:
    """uint64[C, 5]: FROM, TO, CUT, THERE, THERE_TO of kernels.memory_manager of such events."""
    kind, result = events["kind"], events["result"].astype(np.uint64)
    start = np.where(kind == Event.MMAP, result, events["a"])
    brk, moved = kind == Event.BRK, kind == Event.MREMAP
    start = np.where(brk, page_up(result), start)
    end = np.where(brk, start, beyond(start, events["b"]))
    cut = np.where(moved, beyond(start, events["c"]), start)
    there = np.where(moved, result, start)
    return np.stack([start, end, cut, there, np.where(moved, beyond(result, events["c"]), start)], axis=1)


def numbers(events: np.ndarray) -> np.ndarray:
    """int64[C]: NUMBER of kernels.memory_manager of such events."""
    from ..kernels.replay import CLEAR, UPDATE

    kind, c, d = events["kind"], events["c"], events["d"]
    advice = np.where(np.isin(c, ADVICE_THAT_CLEARS), CLEAR, UPDATE)
    stays = (d & MREMAP_DONTUNMAP > 0).astype(np.int64)
    node = np.minimum(c, np.uint64(LAST_NODE)).astype(np.int64)
    cases = [kind == Event.MADVISE, kind == Event.MREMAP, kind == Event.MOVE_PAGES]
    return np.select(cases, [advice, stays, node], c.view(np.int64))


def emptying(events: np.ndarray) -> np.ndarray:
    """bool[C]: MADV_DONTNEED and MADV_DONTNEED_LOCKED, which free what they empty (Linux)."""
    return (events["kind"] == Event.MADVISE) & np.isin(events["c"], ADVICE_THAT_EMPTIES)


def merging(events: np.ndarray) -> np.ndarray:
    """int64[C]: what of mmap's flags two mappings must share to be one VMA; -1: one that never merges."""
    flags = events["d"]
    private = (flags & ANONYMOUS_PRIVATE == ANONYMOUS_PRIVATE) & (flags & MAP_GROWSDOWN == 0)
    return np.where(private, (flags & VMA_FLAGS).astype(np.int64), -1)


EFFECT_DTYPE = np.dtype(
    [
        ("event", np.int64),  # index into Trace.events
        ("chunk", np.int64),  # happens before this chunk
        ("what", np.uint8),
        ("start", np.uint64),  # first byte
        ("end", np.uint64),  # one past the last byte
        ("there", np.uint64),  # where the first byte is then
    ]
)
# UNMAPPED; what makes ROOM for others (MAP_FIXED, MREMAP_FIXED); the FREE target of a move; MOVED; mapped
# where nothing was (NEW) or in another's place (OVER); CHANGED by mprotect, madvise or move_pages; OPENED, in
# place of the two: what mmap(PROT_NONE) reserved has no pages until mprotect (arenas of malloc) or MAP_FIXED
# (a JVM's heap) opens it
UNMAPPED, ROOM, FREE, MOVED, NEW, OVER, CHANGED, OPENED = range(8)
FLUSHING = UNMAPPED, ROOM, MOVED, CHANGED  # whatever translations there are
MAP_FIXED, MAP_FIXED_NOREPLACE, MREMAP_FIXED = (np.uint64(flag) for flag in (0x10, 0x100000, 2))


def effects(events: np.ndarray) -> np.ndarray:
    """EFFECT_DTYPE[n]: what events do to bytes, in the order in which it happens.

    Where the heap ended is known from the brk event before it; the first does nothing.
    """
    done = carried_out(events)
    kind, flags = events["kind"][done], events["d"][done]
    start, past, cut, there, there_to = addresses(events[done]).T
    mmap, munmap, mremap, brk = (kind == one for one in (Event.MMAP, Event.MUNMAP, Event.MREMAP, Event.BRK))
    fixed = mmap & (flags & MAP_FIXED > 0) & (flags & MAP_FIXED_NOREPLACE == 0)
    fixed |= mremap & (flags & MREMAP_FIXED > 0)
    moved, kept = mremap & (start != there), np.minimum(past, cut)
    before, breaks = start.copy(), np.flatnonzero(brk)
    before[breaks[1:]] = start[breaks[:-1]]
    parts = [
        (np.where(fixed, ROOM, FREE), mmap & fixed, start, past),
        (np.where(fixed, ROOM, FREE), moved, there, there_to),
        (UNMAPPED, munmap, start, past),
        (UNMAPPED, mremap, kept, past),
        (UNMAPPED, brk, start, before),
        (MOVED, moved, start, kept),
        (np.where(fixed, OVER, NEW), mmap, start, past),
        (np.where(fixed, OVER, NEW), mremap, there + (kept - start), there_to),
        (NEW, brk, before, start),
        (CHANGED, ~(mmap | munmap | mremap | brk), start, past),
    ]
    rows = []
    for what, which, first, end in parts:
        at = np.flatnonzero(which & (first < end))
        rows.append(np.zeros(len(at), EFFECT_DTYPE))
        rows[-1]["event"], rows[-1]["what"] = done[at], what[at] if isinstance(what, np.ndarray) else what
        rows[-1]["start"], rows[-1]["end"], rows[-1]["there"] = first[at], end[at], there[at]
        rows[-1]["chunk"] = events["chunk"][done[at]]
    every = np.concatenate(rows)
    every = every[np.argsort(every["event"], kind="stable")]
    if not (mmap & (events["c"][done] == 0)).any():
        return every
    if _OPENED and _OPENED[0][0]() is events:
        return _OPENED[0][1]
    of, reserved, pieces = events[every["event"]], _Bytes(), list[tuple[int, ...]]()
    for row, kind, c in zip(every.tolist(), of["kind"].tolist(), of["c"].tolist(), strict=True):
        at, chunk, what, start, end, there = row
        opens, new = kind in (Event.MMAP, Event.MPROTECT) and c > 0, kind == Event.MMAP and not c
        becomes = (new, not opens and (new or kind == Event.MPROTECT))
        known = what in (NEW, OVER) or kind == Event.MPROTECT
        for lo, hi, was in reserved.become(start, end, becomes) if known else ((start, end, False),):
            pieces.append((at, chunk, OPENED if was and opens and what != NEW else what, lo, hi, there))
    _OPENED[:] = [(ref(events), read_only(np.array(pieces, EFFECT_DTYPE)))]
    return _OPENED[0][1]


# The events that were asked for last, and their effects: each pass asks.
_OPENED = list[tuple["ref[np.ndarray]", np.ndarray]]()


def made(events: np.ndarray, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(starts, ends), uint64, apart from each other: all that events from `first` on mapped or opened."""
    rows = effects(events)
    rows = rows[np.searchsorted(rows["event"], first) :]
    new, moved = rows[np.isin(rows["what"], (NEW, OVER, OPENED))], rows[rows["what"] == MOVED]
    starts = np.append(new["start"], moved["there"])
    return merged(starts, np.append(new["end"], moved["there"] + (moved["end"] - moved["start"])))


def merged(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranges of the same bytes that are apart, in order."""
    some = ends > starts
    order = np.argsort(starts[some], kind="stable")
    starts, ends = starts[some][order], np.maximum.accumulate(ends[some][order])
    first = np.flatnonzero(np.append(True, starts[1:] > ends[:-1])[: len(starts)])
    return starts[first], ends[np.append(first[1:], len(ends)) - 1] if len(first) else ends


def beyond(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Where a mapping of `length` bytes ends, a whole number of pages, at most LAST."""
    return np.minimum(np.minimum(start, LAST) + page_up(length), LAST)


def page_up(length: np.ndarray) -> np.ndarray:
    """Bytes of whole pages, at most TOP."""
    return (np.minimum(length, TOP) + (PAGE - np.uint64(1))) & ~(PAGE - np.uint64(1))


# The region of interest of a trace: which of its touches and events are replayed and priced.

PART_END = 1  # a of an ROI_END where the part of a trace that is asked for ends


class RegionOfInterest(NamedTuple):
    """Indices of events: those from `begin` on and before `end` are the region's.

    begin  None: no event begins a region, the whole run was traced
    findings  a region that never ends, or has no beginning
    """

    begin: int | None
    end: int
    findings: tuple[Finding, ...] = ()

    @property
    def first(self) -> int:
        """Index of the region's first event."""
        return self.begin or 0


def region_of_interest(events: np.ndarray) -> RegionOfInterest:
    """RegionOfInterest of Trace.events: from the first ROI_START to the last ROI_END after the last start.

    Events between an end and the next start belong to it: they change what later walks find.
    """
    starts, ends = (np.flatnonzero(events["kind"] == kind) for kind in (Event.ROI_START, Event.ROI_END))
    if not len(starts):
        if not len(ends):
            return RegionOfInterest(None, len(events))
        of_part = int(events["a"][ends[-1]]) == PART_END
        return RegionOfInterest(None, int(ends[-1]), () if of_part else (noted("region-never-begins"),))
    begin = int(starts[0])
    closing = ends[ends > starts[-1]]
    if len(closing):
        return RegionOfInterest(begin, int(closing[-1]))
    line = "region-ends-before" if len(ends) and ends[-1] < begin else "region-never-ends"
    return RegionOfInterest(begin, len(events), (noted("region-never-ends", line=line),))


def within_region(trace: Trace) -> Trace:
    """The chunks of a Trace that its region of interest has, with all its events.

    Those before the region come before its first chunk, those after it after its last: they tell what was
    mapped, and by whom. CaptureError where all touches lie outside.
    """
    region, count = region_of_interest(trace.events), len(trace.chunks)
    at = np.append(trace.events["chunk"], count)
    first, last = 0 if region.begin is None else int(at[region.begin]), int(at[region.end])
    if trace.touches and not trace.chunks["touches"][first:last].any():
        why = f"all {trace.touches:,} touches lie outside it; record or import the trace without its marks"
        raise CaptureError("trace", "region of interest", "empty", why)
    return part_of(trace, first, last)


def part_of(trace: Trace, first: int, last: int) -> Trace:
    """Chunks first..last-1 of a Trace, with all its events, before and after them."""
    if (first, last) == (0, len(trace.chunks)):
        return trace
    chunks, events = trace.chunks[first:last].copy(), trace.events.copy()
    chunks["first"] = np.cumsum(chunks["touches"]) - chunks["touches"]
    events["chunk"] = np.clip(events["chunk"] - first, 0, last - first)

    def renumbered(piece: Piece) -> Piece:
        chunks = slice(piece.chunks.start - first, piece.chunks.stop - first)
        return Piece(chunks, lambda scratch: replace(piece.decode(scratch), chunks=chunks))

    def batches(least: int) -> Batches:
        return Batches(map(renumbered, trace.pieces(least, first, last)))

    return replace(trace, chunks=chunks, events=events, batches=batches)


PLACE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(%|ms|s|)")
NS = {"ms": 1e6, "s": 1e9}


def chunk_at(trace: Trace, option: str, text: str, of: str = "accesses") -> int:
    """The first chunk of a Trace at or after a place: "40%" of its accesses, "2.5s" or "300ms" after its
    first chunk, or a number of accesses. UsageError for other texts, and for places beyond its end.

    of  "accesses", or "touches" in their place
    """
    place = PLACE.fullmatch(text)
    if place is None:
        raise UsageError(f"{option} {text}: write a share of the {of} (40%), a time (2.5s) or their number")
    amount, unit, count = float(place[1]), place[2], trace.chunks[of].astype(np.int64)
    before, at, time = (np.cumsum(count) - count).astype(np.float64), amount, trace.chunks["time"]
    if unit == "%":
        at = amount / 100 * float(count.sum())
    elif unit:
        if not len(time) or time[0] == time[-1]:
            raise UsageError(f"{option} {text}: the trace has no times; give a share of the {of}, as 40%")
        before, at = (time - time[0]).astype(np.float64), amount * NS[unit]
    chunk = int(np.searchsorted(before, at))
    if chunk >= len(count) and (unit != "%" or amount > 100):
        raise UsageError(f"{option} {text}: the trace ends before that; give less")
    return chunk


def asked_part(trace: Trace, begin: str, end: str) -> tuple[Trace, int]:
    """(the Trace up to `end`, the chunk at `begin`): places as of chunk_at, "" none."""
    last = chunk_at(trace, "--to", end) if end else len(trace.chunks)
    first = chunk_at(trace, "--from", begin) if begin else 0
    if (begin or end) and first >= last:
        raise UsageError(f"--from {begin or '0%'} --to {end or '100%'}: no accesses lie between them")
    return (trace if last == len(trace.chunks) else until(trace, last)), first


def until(trace: Trace, end: int) -> Trace:
    """A Trace whose region of interest ends before chunk `end`: what follows is no longer walked, and its
    calls tell what was mapped."""
    events = trace.events
    at = int(np.searchsorted(events["chunk"], end, side="left"))
    marks = np.isin(events["kind"], (Event.ROI_START, Event.ROI_END))
    mark = np.zeros(1, EVENT_DTYPE)
    mark["kind"], mark["chunk"], mark["a"] = Event.ROI_END, end, PART_END
    if at:
        mark["time"], mark["thread"], mark["cpu"] = (
            events[name][at - 1] for name in ("time", "thread", "cpu")
        )
    later = events[at:][~marks[at:]]
    return within_region(replace(trace, events=np.concatenate([events[:at], mark, later])))


def effects_by_region(events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """EFFECT_DTYPE of events before the region of interest, and of its own.

    TLBs and walk caches are empty when it begins, a further run finds them as its end left them, and no walk
    comes later.
    """
    region, rows = region_of_interest(events), effects(events)
    begin, end = np.searchsorted(rows["event"], [region.first, region.end])
    return rows[:begin], rows[begin:end]


# Regions that pages only passed through: mremap moved them there, and away again before any touch.

SHIFT = np.uint64(REGION_SHIFT)


def regions_with_passed(trace: Trace) -> np.ndarray:
    """uint64[R]: address >> 21 of the touched regions, in their order, then of those mremap moved them to.

    A growing realloc moves its buffer again before it uses it: without the regions in between, its pages
    would be lost on the way, and be demand faults once more.
    """
    moves = effects(trace.events)
    moves = moves[(moves["what"] == MOVED) & (moves["there"] > 0)]
    call = trace.events[moves["event"]]
    moves = moves[page_up(np.minimum(call["b"], call["c"])) < TOP]
    known, passed = np.unique(trace.regions).tolist(), list[int]()
    idle: dict[tuple[int, int, int], int] = {}  # moves that led nowhere new, and how many had passed by then
    for move in zip(*(moves[name].tolist() for name in ("start", "end", "there")), strict=True):
        if idle.get(move) == len(passed):
            continue
        (start, end, there), before = move, len(passed)
        first, last = bisect_left(known, start >> REGION_SHIFT), bisect_right(known, end - 1 >> REGION_SHIFT)
        for region in known[first:last]:
            low = max(region << REGION_SHIFT, start) - start + there
            high = min((region + 1) << REGION_SHIFT, end) - start + there
            for target in range(low >> REGION_SHIFT, (high - 1 >> REGION_SHIFT) + 1):
                at = bisect_left(known, target)
                if at == len(known) or known[at] != target:
                    insort(known, target)
                    passed.append(target)
        if len(passed) == before:
            idle[move] = before
    return np.concatenate([trace.regions, np.array(passed, np.uint64)])


# Calls that change a part of 2 MiB, whose huge page they split. They need its leaf table: __split_huge_pmd
# of zap_pmd_range, change_pmd_range and move_page_tables; split_folio of madvise_free_huge_pmd and
# madvise_cold_or_pageout_pte_range, Linux 6.1.

MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLLAPSE = ADVICE = 14, 15, 25
DISABLED = "forbidden"
MAPS, REPLACES, ARRIVES, PROTECTS, AGES, EMPTIES, FREES, UNMAPS, MOVES_OFF = range(9)
WHOLE = (1 << 512) - 1  # bits of the pages of 2 MiB
REGION = 1 << REGION_SHIFT
Change: TypeAlias = tuple[int, int, int, int, int]
Tear: TypeAlias = tuple[int, int, int]  # event, index of the block, what


def _changes(events: np.ndarray, linux: Linux) -> Iterator[Change]:
    """Yield (index of the event, what it does, first byte, one past the last, protection or -1)."""
    rows = effects(events)
    of = events[rows["event"]]
    calls = zip(of["kind"].tolist(), of["c"].tolist(), emptying(of).tolist(), strict=True)
    for (at, _, what, start, end, there), (kind, c, empties) in zip(rows.tolist(), calls, strict=True):
        if what in (UNMAPPED, ROOM):
            yield at, UNMAPS, start, end, -1
        elif what in (NEW, OVER, OPENED):
            prot = c if kind in (Event.MMAP, Event.MPROTECT) else -1
            yield at, REPLACES if what == OVER else MAPS, start, end, prot
        elif what == MOVED:
            torn = (there - start) % REGION > 0
            yield at, MOVES_OFF if torn else UNMAPS, start, end, -1
            yield at, MAPS, there, there + end - start, -1
            if torn:
                yield at, ARRIVES, there, there + end - start, -1
        elif kind == Event.MPROTECT:
            yield at, PROTECTS, start, end, c
        elif kind == Event.MADVISE and c in ADVICE_THAT_CLEARS:
            yield at, FREES if empties and linux.frees_emptied_tables else EMPTIES, start, end, -1
        elif kind == Event.MADVISE and c != MADV_COLLAPSE:
            yield at, AGES, start, end, -1


def changes(events: np.ndarray, blocks: Sequence[int], linux: Linux = UNNAMED) -> Iterator[Change]:
    """Yield (event, index into `blocks` (address >> 21, sorted), what, bits of the pages, protection)."""
    for at, what, start, end, prot in _changes(events, linux) if len(blocks) else ():
        first, last = start >> REGION_SHIFT, (end - 1) >> REGION_SHIFT
        for k in range(bisect_left(blocks, first), bisect_right(blocks, last)) if start < end else ():
            base = blocks[k] << REGION_SHIFT
            lo, hi = max(start - base, 0) >> PAGE_SHIFT, min(end - base, REGION) + 4095 >> PAGE_SHIFT
            yield at, k, what, (1 << hi) - (1 << lo), prot


def tears(what: int, pages: int) -> bool:
    """Whether a change splits the huge page that there is."""
    return what > ARRIVES and (pages != WHOLE or what == MOVES_OFF)


def splits(events: np.ndarray, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64[n] event, uint64[n] address >> 21): calls that split the huge pages of `blocks` (uint64[B],
    sorted) that there are. What was split before the region of interest is split when it begins."""
    first = region_of_interest(events).first
    met = changes(events, blocks.tolist())
    torn = [(max(at, first), k) for at, k, what in _torn(met) if what != ARRIVES]
    at, block = np.array(torn, np.int64).reshape(-1, 2).T
    return at, blocks[block]


# What maps 2 MiB at each time: a huge entry, or a leaf table.
#
# A fault makes a huge page only where no table is (create_huge_pmd, Linux 6.1) and one VMA holds all 2 MiB
# (thp_vma_suitable_order): what a call has split stays small until its table is freed, by unmapping all of
# it or by MADV_DONTNEED (Linux.frees_emptied_tables). Left out are khugepaged, which scans 16 MiB of all
# programs in 10 s, MADV_COLLAPSE, and writes after fork. Where no call splits it, memory is huge whose VMA
# grew by parts (brk, mprotect after PROT_NONE), which these two bring about.

NOTHING, HUGE, SMALL = range(3)
READ_WRITE, TOUCHES_AT_ONCE = 3, 1 << 19


class _Block:
    """What maps 2 MiB at a time, first `state`; touched: chunks that touch it.

    vmas  {protection: bits of the pages}; sizes: [(chunk, HUGE or SMALL from there on)]
    left  bits of the pages that a huge page brought and that were not given back since
    grown whether its VMA grows by parts: then it is huge from its last growth on, and counts as huge before
    """

    def __init__(self, state: int, touched: np.ndarray) -> None:
        self.state, self.touched, self.since, self.vmas = state, touched, 0, {READ_WRITE: WHOLE}
        self.left, self.sizes, self.grown = WHOLE * (state == HUGE), [(0, state or HUGE)], False

    def become(self, state: int, chunk: int) -> None:
        if state not in (NOTHING, self.sizes[-1][1]):
            self.sizes.append((chunk, state))
        self.state, self.left = state, (0, WHOLE, self.left)[state]

    def until(self, chunk: int) -> None:
        """The faults of the chunks before `chunk`."""
        at = int(np.searchsorted(self.touched, self.since))
        if self.state == NOTHING and at < len(self.touched) and self.touched[at] < chunk:
            self.become(HUGE if self.grown or WHOLE in self.vmas.values() else SMALL, int(self.touched[at]))
        self.since = max(self.since, chunk)

    def take(self, what: int, pages: int, prot: int, chunk: int) -> None:
        self.until(chunk)
        held = self.vmas.values()
        self.left &= ~pages if what >= EMPTIES else WHOLE
        torn = tears(what, pages)
        if what == ARRIVES or (self.state == HUGE and torn and WHOLE in held):
            self.become(SMALL, chunk)
        elif what >= EMPTIES and not torn and (self.state == HUGE or (what == FREES and WHOLE in held)):
            self.become(NOTHING, chunk)
        self.remap(what, pages, prot)
        if not any(self.vmas.values()):
            self.become(NOTHING, chunk)
        elif what == MAPS and self.grown and self.state == SMALL:
            self.state, self.left, self.sizes = HUGE, WHOLE, [(0, HUGE)]

    def remap(self, what: int, pages: int, prot: int) -> None:
        held = sum(self.vmas.values())
        if what == MAPS and (pages & held or not held):  # nothing was there: it was taken for a VMA
            self.vmas, self.grown = {READ_WRITE: 0}, pages != WHOLE
        if what in (MAPS, REPLACES, PROTECTS, UNMAPS, MOVES_OFF):
            new = prot if prot >= 0 else max(self.vmas, key=lambda vma: self.vmas[vma].bit_count())
            self.vmas = {vma: bits & ~pages for vma, bits in self.vmas.items()}
            kept = pages & held if what == PROTECTS else pages if what in (MAPS, REPLACES) and prot else 0
            self.vmas[new] = self.vmas.get(new, 0) | kept


def _torn(met: Iterable[Change]) -> list[Tear]:
    """Changes that leave 2 MiB of one VMA small, after its growth."""
    now, torn = defaultdict[int, _Block](lambda: _Block(NOTHING, np.zeros(0, int))), dict[int, list[Tear]]()
    for at, k, what, pages, prot in met:
        if what == ARRIVES or (tears(what, pages) and WHOLE in now[k].vmas.values()):
            torn.setdefault(k, []).append((at, k, what))
        now[k].remap(what, pages, prot)
        if what == MAPS and now[k].grown:
            torn.pop(k, None)
    return [*chain(*torn.values())]


def parted(trace: Trace) -> np.ndarray:
    """uint64[B], sorted: regions of a Trace whose huge pages calls may split."""
    blocks, count = np.unique(trace.regions, return_counts=True)
    blocks = blocks[count == 1]
    met = changes(trace.events[: region_of_interest(trace.events).end], blocks.tolist())
    return blocks[sorted({k for _, k, _ in _torn(met)})]


def split(trace: Trace, huge: np.ndarray, linux: Linux) -> tuple[Trace, dict[int, int]]:
    """(Trace with a further region for each block, those 2 MiB of `huge` (address >> 21) that are `parted`:
    touches are of it while a leaf table maps them; {block: _Block.left} of those that one has in the end)."""
    blocks = np.intersect1d(huge, parted(trace))
    if not len(blocks):
        return trace, {}
    order = np.argsort(trace.regions, kind="stable")
    own = order[np.searchsorted(trace.regions, blocks, sorter=order)]
    region, chunk = region_of_interest(trace.events), trace.events["chunk"].tolist()
    met = list(changes(trace.events[: region.end], blocks.tolist(), linux))
    begun = [change for change in met if change[0] >= region.first]
    state = np.full(len(blocks), NOTHING if region.begin is None else HUGE)
    state[[k for at, k, what in _torn(met) if at < region.first and what != ARRIVES]] = SMALL
    state[[k for _, k, what, _, _ in begun if what in (MAPS, REPLACES)]] = NOTHING
    locate, stride = _locator(trace, own), len(trace.chunks) + 1
    touched = [np.unique(locate(touches)[1]) for touches in trace.batches(TOUCHES_AT_ONCE)]
    keys = np.unique(np.concatenate([np.zeros(0, np.int64), *touched]))  # chunks that touch each
    of_each = np.split(keys % stride, np.searchsorted(keys, np.arange(1, len(own)) * stride))
    now = [_Block(*begins) for begins in zip(state.tolist(), of_each, strict=True)]

    def happen(to: list[_Block], met: Iterable[Change], begin: int) -> Trace:
        for at, k, what, pages, prot in met:
            to[k].take(what, pages, prot, begin if at < 0 else chunk[at])
        for block in to:
            block.until(len(trace.chunks))
        return _with_twins(trace.again(begin) if begin and trace.again else trace, own, to)

    def again(begin: int) -> Trace:
        then = deepcopy(now)
        for block in then:
            block.since, block.sizes = begin, [(0, block.sizes[-1][1])]
        undone = changes(undoing(trace.events, begin), blocks.tolist(), FREES_EMPTIED)
        back = ((-1, *change[1:]) for change in undone)
        return happen(then, chain(back, (change for change in begun if chunk[change[0]] >= begin)), begin)

    twice = replace(happen(now, begun, 0), again=again)
    return twice, {
        va: block.left for va, block in zip(blocks.tolist(), now, strict=True) if block.state == SMALL
    }


def _locator(trace: Trace, own: np.ndarray) -> Callable[[Touches], tuple[np.ndarray, np.ndarray]]:
    """Function of Touches: (int64[n] which are of the regions `own`, int64[n] the number of each one's region
    there * (chunks + 1) + its chunk)."""
    number = np.full(len(trace.regions) + 1, -1)
    number[own] = np.arange(len(own))

    def locate(touches: Touches) -> tuple[np.ndarray, np.ndarray]:
        region = number[np.minimum(touches.page >> np.uint32(SLOT_BITS), len(number) - 1)]
        at, ends = np.flatnonzero(region >= 0), np.cumsum(trace.chunks["touches"][touches.chunks])
        chunk = touches.chunks.start + np.searchsorted(ends, at, side="right")
        return at, region[at] * (len(trace.chunks) + 1) + chunk

    return locate


def _with_twins(trace: Trace, own: np.ndarray, blocks: list[_Block]) -> Trace:
    locate, stride = _locator(trace, own), len(trace.chunks) + 1
    sizes = [
        (k * stride + chunk, size == SMALL) for k, block in enumerate(blocks) for chunk, size in block.sizes
    ]
    key, small = np.array(sizes, np.int64).T
    further = (len(trace.regions) + np.arange(len(own)) - own << SLOT_BITS).astype(np.uint32)

    def decode(piece: Piece, scratch: Scratch) -> Touches:
        touches = piece.decode(scratch)
        at, of = locate(touches)
        later = small[np.searchsorted(key, of, side="right") - 1] > 0
        page = np.array(touches.page)
        page[at[later]] += further[of[later] // stride]
        page.flags.writeable = False
        return replace(touches, page=page)

    def batches(least: int) -> Batches:
        every = trace.pieces(least, 0, stride - 1)
        return Batches(Piece(piece.chunks, partial(decode, piece)) for piece in every)

    return replace(trace, regions=np.append(trace.regions, trace.regions[own]), batches=batches)


# Memory that a program asks huge pages for (MADV_HUGEPAGE), or forbids them, as far as its trace shows.
#
# Linux gives a VMA with VM_NOHUGEPAGE none, whatever the administrator allows, and one with VM_HUGEPAGE some
# unless he allows none (thp_vma_allowable_orders, vma_thp_disabled, include/linux/huge_h, 6.12). madvise
# sets one of these flags and clears the other (hugepage_madvise, mm/khugepaged.c), a new VMA is without, and
# mremap gives the moved or grown VMA the flags of the old one. MADV_COLLAPSE makes huge pages at once,
# whatever is allowed (madvise_collapse), until the memory is given back. After prctl(PR_SET_THP_DISABLE) a
# process gets none at all. What is unmapped keeps its mark here until something else is mapped there: page
# tables may have been read before that.

FORBIDDEN, PRCTL = "MADV_NOHUGEPAGE", "PR_SET_THP_DISABLE"  # in notes
GIVES_BACK = (4, 8, 9)  # MADV_DONTNEED, MADV_FREE, MADV_REMOVE
DONE = (0, -12)  # with ENOMEM part of the range was not mapped, and the rest is advised
ADVISED = -1  # beside the codes of effects


class Advice(NamedTuple):
    """uint64[n, 2] each: starts and ends, ascending, of memory that a program forbids huge pages
    (MADV_NOHUGEPAGE), asks them for (MADV_HUGEPAGE), and has made huge (MADV_COLLAPSE)."""

    forbidden: np.ndarray
    asked: np.ndarray
    collapsed: np.ndarray


def advice(events: np.ndarray) -> Advice:
    """Advice of Trace.events, as it stands after the last of them."""
    kind, told = events["kind"], events["c"]
    advised = (kind == Event.MADVISE) & np.isin(events["result"], DONE)
    if not (advised & np.isin(told, ADVICE)).any():
        return Advice(*(np.zeros((0, 2), np.uint64) for _ in Advice._fields))
    calls, rows = np.flatnonzero(advised & np.isin(told, (*ADVICE, *GIVES_BACK))), effects(events)
    maps = np.isin(rows["what"], (NEW, OVER, MOVED)) | (kind[rows["event"]] == Event.MMAP)
    start, rows = events["a"][calls], rows[maps]
    columns = calls, told[calls], start, beyond(start, events["b"][calls])
    steps = [
        (at, ADVISED, first, past, c)
        for at, c, first, past in zip(*map(np.ndarray.tolist, columns), strict=True)
    ]
    steps += rows[["event", "what", "start", "end", "there"]].tolist()
    forbidden, asked, collapsed = marks = _Bytes(), _Bytes(), _Bytes()
    for at, what, first, past, number in sorted(steps, key=itemgetter(0)):
        if what == ADVISED and number in (MADV_HUGEPAGE, MADV_NOHUGEPAGE):
            asked.become(first, past, (number == MADV_HUGEPAGE,) * 2)
            forbidden.become(first, past, (number == MADV_NOHUGEPAGE,) * 2)
        elif what == ADVISED:
            collapsed.become(first, past, (number == MADV_COLLAPSE,) * 2)
        elif what == MOVED:
            for mark in marks:
                for lo, hi, marked in mark.within(first, past):
                    mark.become(lo - first + number, hi - first + number, (marked,) * 2)
        else:  # what mremap adds is as the page before it
            for mark in marks:
                marked = mark.within(first - 1, first)[0][2] if kind[at] == Event.MREMAP else 0
                mark.become(first, past, (marked,) * 2)
    return Advice(*(np.array(mark.begin[1:], np.uint64).reshape(-1, 2) for mark in marks))


def allowed(snapshot: Snapshot, trace: Trace) -> str | None:
    """Transparent huge pages that the process may have: "always", "madvise", "never" as the captured machine
    was set, DISABLED by prctl(PR_SET_THP_DISABLE), which QEMU does not pass on; None: not recorded."""
    asked = trace.events[trace.events["kind"] == Event.THP_DISABLE]
    if len(asked) and asked["a"][-1] and not asked["b"][-1]:
        return DISABLED
    known = snapshot.facts.get("huge_pages")
    return None if known is None else str(known)
