"""Phases of a trace, and the one of them whose steady state is answered.

A program fills its tables before it works on them, often with one thread, and may tear them down afterwards.
Chunks are described by the threads that are walking, by the pages touched for the first time and by the rate
of memory calls; the trace is cut where the averages of these differ most. The cuts minimise

    sum over phases of the squared distance of their walks from the phase's mean + PENALTY per cut,

by dynamic programming over cuts at equal numbers of walks (optimal partitioning: Jackson et al., IEEE Signal
Processing Letters 12, 2005), each then shifted to the best chunk between its neighbours.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..core.columns import PHASES, Finding
from ..core.errors import UsageError, is_whole
from ..core.trace import EVENT_DTYPE, SLOT_BITS, Event, Regions, Trace, WalkStream, blocks
from .mm_events import KINDS, PHASE_END, region_of_interest, within_region

LAST, ALL = "last", "all"
CUTS = 256  # equal numbers of walks, where phases may begin before they are shifted to a chunk
PENALTY = 0.005  # of all walks: what a cut must explain
SMALLEST = 0.02  # of the walks: less is no phase
FEWEST = 4096  # walks: less is no phase
STRAY = 0.01  # of a thread's walks, at either end: before and after it works
TURNS = 4  # chunks of each of its threads, at least, in a phase
CALLS = 16  # weight of a memory call in first touches: there is at most one call per CALLS walks
BUSY = 0.5  # of the threads of the busiest phase: a later one with no more is the end of the program

TAIL = 0.2  # of the walks of the largest such phase: a later one with less is the end, too

FIRST_TOUCHES = 0.999  # of the pages: the share that is touched before the steady part of a phase begins
SHARE = 0.1  # of the phase's walks: less than that is no steady part
BLOCK = 1 << 20  # walks that are looked at together


class Phase(NamedTuple):
    """Chunks first..end-1 of a trace.

    walks, accesses  in it; pages  touched for the first time; calls  on memory
    threads  as many equal ones have the same sum of squared shares of its walks (Simpson, Nature
             163, 1949), rounded; thread  the one that has most
    """

    first: int
    end: int
    walks: int
    accesses: int
    pages: int
    calls: int
    threads: int
    thread: int


class Chunks(NamedTuple):
    """Per chunk, int64: its walks, pages touched for the first time, and memory calls before it."""

    walks: np.ndarray
    pages: np.ndarray
    calls: np.ndarray


def described(trace: Trace, pages: np.ndarray, by_chunk: np.ndarray) -> Chunks:
    """Chunks of a trace; pages, by_chunk: int64[chunks], first walks and walks of each."""
    events = trace.events
    region = region_of_interest(events)
    counted = np.isin(events["kind"], KINDS)
    counted[: region.first] = counted[region.end :] = False
    last = max(len(by_chunk) - 1, 0)
    calls = np.bincount(np.minimum(events["chunk"][counted], last), minlength=len(by_chunk))
    return Chunks(by_chunk, pages, calls[: len(by_chunk)])


def at_work(thread: np.ndarray, walks: np.ndarray) -> np.ndarray:
    """int64[chunks]: threads that have begun to walk and not ended, a hundredth of their walks at either end
    aside: a pool that starts early and waits is not at work.

    thread, walks  of each chunk
    """
    order = np.argsort(thread, kind="stable")
    so_far = np.cumsum(walks[order])
    _, first = np.unique(thread[order], return_index=True)
    before = np.append(0, so_far)[first]
    total = np.append(before[1:], so_far[-1:]) - before
    before, total = before[total > 0], total[total > 0]
    begin = np.searchsorted(so_far, before + STRAY * total, side="right")
    end = np.maximum(np.searchsorted(so_far, before + total - STRAY * total, side="left"), begin)
    change = np.zeros(len(walks) + 1, np.int64)
    np.add.at(change, order[begin], 1)
    np.add.at(change, order[end] + 1, -1)
    working: np.ndarray = np.cumsum(change[:-1])
    return working


def turns(thread: np.ndarray, walks: np.ndarray) -> np.ndarray:
    """int64[chunks]: chunks to the nearest one of the same thread, before or after; 1 for an only one.

    thread, walks  of each chunk; chunks without walks are no turn, 1
    """
    found = np.full(len(thread), len(thread))
    order = np.argsort(thread, kind="stable")
    order = order[walks[order] > 0]
    same = np.flatnonzero(thread[order[1:]] == thread[order[:-1]])
    gap = np.diff(order)[same]
    np.minimum.at(found, order[same], gap)
    np.minimum.at(found, order[same + 1], gap)
    found[found == len(thread)] = 1
    return found


def features(chunks: Chunks, working: np.ndarray) -> np.ndarray:
    """float64[chunks, 3], 0 to 1 and times the chunk's walks: threads at work as a share of the most, first
    touches, and memory calls; working: int64[chunks] of `at_work`."""
    walks = chunks.walks.astype(np.float64)
    most = max(int(working.max(initial=1)), 1)
    calls = np.minimum(CALLS * chunks.calls, chunks.walks)
    return np.stack([walks * working / most, np.minimum(chunks.pages, chunks.walks), calls], axis=1)


class Places(NamedTuple):
    """Sums over the chunks before each place at which a phase may begin or end.

    chunk   int64[n], their number; whole  float64[n], their walks
    sums    float64[n, F], features times walks; turn  float64[n], turns of their threads times walks
    """

    chunk: np.ndarray
    whole: np.ndarray
    sums: np.ndarray
    turn: np.ndarray

    def at(self, places: "np.ndarray | slice | int") -> "Places":
        return Places(*(column[places] for column in self))


def cuts_of(weight: np.ndarray, feature: np.ndarray, turn: np.ndarray) -> list[int]:
    """Chunks at which phases begin, the first 0, then the number of chunks.

    weight   float64[chunks], walks of each; feature  float64[chunks, F], times the weight
    turn     int64[chunks] of `turns`
    """
    places = Places(
        np.arange(len(weight) + 1),
        np.append(0.0, np.cumsum(weight)),
        np.vstack([np.zeros(feature.shape[1]), np.cumsum(feature, axis=0)]),
        np.append(0.0, np.cumsum(weight * turn)),
    )
    whole = places.whole
    total = whole[-1]
    least = max(SMALLEST * total, FEWEST)
    if total < 2 * least:
        return [0, len(weight)]
    at = np.unique(np.searchsorted(whole, np.linspace(0, total, CUTS + 1)))
    at[0], at[-1] = 0, len(weight)
    chosen = partition(places.at(at), least, PENALTY * total)
    found = at[chosen].tolist()
    for k in range(1, len(found) - 1):
        between = np.arange(at[chosen[k] - 1], at[min(chosen[k] + 1, len(at) - 1)] + 1)
        inside = between[(between > found[k - 1]) & (between < found[k + 1])]
        found[k] = int(inside[shifted(places, found[k - 1], found[k + 1], inside, least)])
    return [int(place) for place in found]


def partition(places: Places, least: float, penalty: float) -> list[int]:
    """Indices of the best cuts among Places, the first 0 and the last of all.

    least  weight of a phase; penalty  of each cut
    """
    n = len(places.whole)
    best, before = np.full(n, -np.inf), np.zeros(n, np.int64)
    best[0] = 0.0
    for end in range(1, n):
        gained = best[:end] + explained(places.at(slice(0, end)), places.at(end), least)
        gained = gained - penalty * (np.arange(end) > 0)
        before[end] = int(np.argmax(gained))
        best[end] = gained[before[end]]
    if not np.isfinite(best[-1]):
        return [0, n - 1]
    cuts = [n - 1]
    while cuts[-1]:
        cuts.append(int(before[cuts[-1]]))
    return cuts[::-1]


def explained(first: Places, end: Places, least: float) -> np.ndarray:
    """float64[n]: weight times squared mean of the phases between places, which is what a cut adds to; -inf
    for what is too short for a phase."""
    weight = end.whole - first.whole
    short = (weight < least) | ((end.chunk - first.chunk) * weight < TURNS * (end.turn - first.turn))
    known = np.maximum(weight, 1e-300)
    return np.where(short, -np.inf, ((end.sums - first.sums) ** 2).sum(axis=1) / known)


def shifted(places: Places, first: int, last: int, inside: np.ndarray, least: float) -> int:
    """Index of the best of the places `inside` for the one cut between two others."""
    some = places.at(inside)
    gained = explained(places.at(first), some, least) + explained(some, places.at(last), least)
    return int(np.argmax(gained))


def without_loops(kinds: Sequence[Hashable]) -> list[tuple[int, int]]:
    """[(first, past the last)] of phases to take for one: a pair of kinds, side by side, that comes again.

    kinds  of the phases, in order: a solver that starts threads in each iteration has one phase, not many.
    """
    runs, at = list[tuple[int, int]](), 0
    while at < len(kinds):
        pair = tuple(kinds[at : at + 2])
        again = [k for k in range(at + 2, len(kinds) - 1) if tuple(kinds[k : k + 2]) == pair]
        end = again[-1] + 2 if len(pair) == 2 and again else at + 1
        runs.append((at, end))
        at = end
    return runs


def phases_of(trace: Trace, pages: np.ndarray, by_chunk: np.ndarray) -> list[Phase]:
    """Phases of a trace, in order: one at least, none without walks.

    pages, by_chunk  int64[chunks]: first walks to a page, and walks
    """
    if not by_chunk.sum():
        return []
    chunks = described(trace, pages, by_chunk)
    working = at_work(trace.chunks["thread"], by_chunk)
    feature = features(chunks, working)
    turn = turns(trace.chunks["thread"], by_chunk)
    cuts = cuts_of(by_chunk.astype(np.float64), feature, turn)
    means = [feature[a:b].sum(axis=0) / max(by_chunk[a:b].sum(), 1) for a, b in pairwise(cuts)]
    kinds = [tuple(np.rint(4 * mean).tolist()) for mean in means]
    return [phase_of(trace, chunks, cuts[a], cuts[b]) for a, b in without_loops(kinds)]


def phase_of(trace: Trace, chunks: Chunks, first: int, end: int) -> Phase:
    """The Phase of chunks first..end-1."""
    inside = slice(first, end)
    by_thread = np.bincount(trace.chunks["thread"][inside], weights=chunks.walks[inside])
    return Phase(
        first,
        end,
        int(chunks.walks[inside].sum()),
        int(trace.chunks["accesses"][inside].sum()),
        int(chunks.pages[inside].sum()),
        int(chunks.calls[inside].sum()),
        max(round(float(by_thread.sum() ** 2 / max((by_thread**2).sum(), 1.0))), 1),
        int(np.argmax(by_thread)),
    )


# The phase whose steady state is answered.


class SteadyPart(NamedTuple):
    """chunk: its first; walks: of the first run from there on; found: which part of a whole run it is, none
    for a region; end: past its last chunk, where the trace is cut before it is replayed."""

    chunk: int
    walks: int
    found: tuple[Finding, ...] = ()
    end: int = 0


def steady_part(
    trace: Trace, stream: WalkStream, regions: Regions, by_chunk: np.ndarray, asked: str = LAST
) -> SteadyPart:
    """SteadyPart of a trace: its region of interest; of a whole run, what follows in its last phase once the
    pages are touched. A phase of few threads after a busier one is a program's end and not the last.

    by_chunk  walks of each chunk
    asked     LAST, ALL, or the number of a phase, from 1 on, within a region of interest too
    UsageError for a phase that is not there. A run that touches new pages until its end has no such part: the
    whole run stands for it.
    """
    walks, end = int(by_chunk.sum()), len(trace.chunks)
    marked = region_of_interest(trace.events).begin is not None
    if not walks or (marked and asked in (LAST, ALL)):
        return SteadyPart(0, walks, (), end)
    if asked == ALL:
        text = "the steady state is that of the whole run repeated"
        return SteadyPart(0, walks, (Finding("whole-run", text),), end)
    pages = first_walks(stream, regions)
    phases = phases_of(trace, pages, by_chunk)
    chosen = last_busy(phases) if asked == LAST else numbered(phases, asked)
    phase = phases[chosen]
    if len(phases) > 1:
        found = Finding(
            PHASES, in_words(phases, chosen), numbers={"phases": len(phases), "answered": chosen + 1}
        )
        chunk = min(touched(pages[: phase.end]), phase.end)
        left = int(by_chunk[max(chunk, phase.first) : phase.end].sum())
        first = max(chunk, phase.first) if left >= max(SHARE * phase.walks, 1) else phase.first
        return SteadyPart(first, int(by_chunk[first : phase.end].sum()), (found,), phase.end)
    if marked:
        return SteadyPart(0, walks, (), end)
    chunk = touched(pages)
    left = int(by_chunk[chunk:].sum())
    if left < SHARE * walks or not left:
        text = (
            "the trace is of the whole run, which touches new pages until it ends: its steady state is that "
            "of the run repeated, first touches left out but for memory that the run itself maps or unmaps"
        )
        return SteadyPart(0, walks, (Finding("whole-run", text),), end)
    accesses = trace.chunks["accesses"]
    text = (
        "the trace is of the whole run: its steady state is that of its last "
        f"{int(accesses[chunk:].sum()):,} of {int(accesses.sum()):,} accesses, when "
        f"{100 * FIRST_TOUCHES:g} % of its pages had been touched"
    )
    return SteadyPart(chunk, left, (Finding("whole-run", text),), end)


def touched(pages: np.ndarray) -> int:
    """First chunk after FIRST_TOUCHES of the pages have been touched; pages: int64[chunks], first walks."""
    so_far = np.cumsum(pages)
    every = int(so_far[-1]) if len(so_far) else 0
    if not every:
        return 0
    return int(np.searchsorted(so_far, every - int(every * (1 - FIRST_TOUCHES)))) + 1


def first_walks(stream: WalkStream, regions: Regions) -> np.ndarray:
    """int64[chunks]: walks of each chunk that are the first to their page, of whatever size."""
    seen = np.zeros(len(regions.va) << SLOT_BITS, bool)
    counts = np.zeros(len(stream.offset) - 1, np.int64)
    begin = 0
    for block in blocks(stream.page, BLOCK):
        page = block.astype(np.int64)
        region = page >> SLOT_BITS
        page = np.where(regions.level[region] > 1, region << SLOT_BITS, page)
        new = np.flatnonzero(~seen[page])
        _, first = np.unique(page[new], return_index=True)
        seen[page[new]] = True
        at = np.searchsorted(stream.offset, begin + new[first], side="right") - 1
        np.add.at(counts, at, 1)
        begin += len(block)
    return counts


def last_busy(phases: Sequence[Phase]) -> int:
    """Index of the last phase that is no end of the program: with more than half the threads of the busiest,
    and a fifth of the walks of the largest such phase that does not fill memory."""
    most, pages = max(phase.threads for phase in phases), sum(phase.pages for phase in phases)
    busy = [k for k, phase in enumerate(phases) if phase.threads > BUSY * most]
    largest = max((phases[k].walks for k in busy if 2 * phases[k].pages <= pages), default=0)
    return max(k for k in busy if phases[k].walks >= TAIL * largest)


def numbered(phases: Sequence[Phase], asked: str) -> int:
    """Index of a phase by its number; UsageError, with those that there are."""
    if is_whole(asked) and 1 <= int(asked) <= len(phases):
        return int(asked) - 1
    there = f"phases: {'; '.join(shares(phases))}" if len(phases) > 1 else "one phase alone"
    raise UsageError(f"phase {asked}: the trace has {there}; give its number, {LAST} or {ALL}")


def in_words(phases: Sequence[Phase], chosen: int) -> str:
    """Phases of a trace, which of them is answered, and how to ask or record another."""
    phase, others = phases[chosen], [str(k + 1) for k in range(len(phases)) if k != chosen]
    before = sum(one.accesses for one in phases[:chosen])
    marks = f"--roi-start-access {before}" if before else f"--roi-accesses {phase.accesses}"
    return (
        f"{len(phases)} phases: {'; '.join(shares(phases))}. Answered: phase {chosen + 1}, {phase.walks:,} "
        f"walks; --phase {' or '.join([*others, ALL])} asks another. To record it alone name its function "
        f"with --roi-start-symbol, or take {marks}"
    )


def shares(phases: Sequence[Phase]) -> list[str]:
    """Of each phase its share of the walks, its threads, and whether it fills memory."""
    walks, pages = (sum(getattr(phase, name) for phase in phases) for name in ("walks", "pages"))
    lines = []
    for k, phase in enumerate(phases):
        who = f"{phase.threads} threads" if phase.threads > 1 else f"thread {phase.thread} alone"
        fill = f", {100 * phase.pages / pages:.0f} % of the first touches" if 2 * phase.pages > pages else ""
        lines.append(f"{k + 1} has {100 * phase.walks / walks:.0f} % of the walks ({who}{fill})")
    return lines


def may_end_sooner(trace: Trace, asked: str) -> bool:
    """Whether the phase that is asked for may end before the trace does: the walks are known only then."""
    if asked == ALL or trace.touches < 2 * FEWEST:
        return False
    return asked != LAST or region_of_interest(trace.events).begin is None


def until(trace: Trace, end: int) -> Trace:
    """A Trace whose region of interest ends before chunk `end`: what follows is no longer walked, and its
    calls tell what was mapped."""
    events = trace.events
    at = int(np.searchsorted(events["chunk"], end, side="left"))
    marks = np.isin(events["kind"], (Event.ROI_START, Event.ROI_END))
    mark = np.zeros(1, EVENT_DTYPE)
    mark["kind"], mark["chunk"], mark["a"] = Event.ROI_END, end, PHASE_END
    if at:
        mark["time"], mark["thread"], mark["cpu"] = (
            events[name][at - 1] for name in ("time", "thread", "cpu")
        )
    later = events[at:][~marks[at:]]
    return within_region(replace(trace, events=np.concatenate([events[:at], mark, later])))
