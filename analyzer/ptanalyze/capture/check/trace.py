"""Checks that a trace is consistent and fits the page tables beside it."""

from collections.abc import Iterator

import numpy as np

from ...core.snapshot import Snapshot
from ...core.trace import MOST_THREADS, PAGE_SHIFT, SLOT_BITS, Event, Trace
from .covered import Covered
from .finding import FAILED, NOTE, PARTIAL, Finding, finding

BATCH = 1 << 20
GUARD = np.uint64(1 << 21)  # stacks grow: a touch this close below a VMA is the VMA's own


def check_trace(
    trace: Trace, snapshot: Snapshot | None = None, interrupted: bool = False, *, quick: bool = False
) -> Iterator[Finding]:
    """Findings about the trace alone and, with a snapshot, about how well both fit.

    interrupted  whether the person who recorded it ended it, as one ends a server
    quick        without decoding its touches
    """
    yield finding("trace: touches", 1, trace.touches == 0, "the trace holds no touches at all")
    time = trace.chunks["time"]
    yield finding("trace: in order", len(time), np.count_nonzero(np.diff(time) < 0), "chunks go back in time")
    yield finding(
        "trace: threads known",
        len(trace.chunks),
        np.count_nonzero(trace.chunks["thread"] >= len(trace.threads)),
        "chunks belong to threads that never started",
    )
    if not quick:
        yield from check_touches(trace, snapshot)
    yield how_it_ended(trace, interrupted)
    if lost := trace.facts.get("lost_threads", 0):
        yield Finding(
            "trace: all threads", lost + len(trace.threads), lost, PARTIAL, f"were not traced: {MOST_THREADS}"
        )


def check_touches(trace: Trace, snapshot: Snapshot | None) -> Iterator[Finding]:
    """Whether touches add up to what the chunks say, and lie in what was mapped."""
    covered = mapped_ranges(trace, snapshot) if snapshot is not None and len(snapshot.vmas) else None
    dumped = Covered(trace, snapshot) if snapshot is not None else None
    touches = accesses = uncovered = 0
    first = None
    for batch in trace.batches(BATCH):
        touches += len(batch.page)
        accesses += int(batch.count.sum(dtype=np.int64))
        if dumped is None:
            continue
        pages, counts = np.unique(batch.page, return_counts=True)
        dumped.add(pages, counts)
        if covered is None:
            continue
        address = addresses(trace, pages)
        stray = ~inside(address, covered)
        uncovered += int(counts[stray].sum())
        if first is None and stray.any():
            first = int(address[stray][0])
    yield finding(
        "trace: touch count", touches, abs(touches - trace.touches), "touches do not add up to the chunks'"
    )
    yield finding(
        "trace: access count",
        accesses,
        abs(accesses - trace.accesses),
        "accesses do not add up to the chunks'",
    )
    if covered is not None:
        where = f", the first at {first:#x}" if first is not None else ""
        verdict = FAILED if uncovered * 100 > touches else NOTE
        yield finding(
            "trace: covered by VMAs",
            touches,
            uncovered,
            f"touches lie in nothing that was ever mapped{where}",
            verdict,
        )
    if dumped is not None:
        yield dumped.finding()


def how_it_ended(trace: Trace, interrupted: bool = False) -> Finding:
    """A trace that was cut short is usable, and reported as such; Ctrl-C makes it as long as wanted."""
    ended = trace.facts.get("ended", "unknown")
    whole = ended in ("exit", "roi", "imported") or (ended == "signal" and interrupted)
    return Finding(
        "trace: finished",
        1,
        int(not whole),
        "ok" if whole else PARTIAL,
        "" if whole else f"ended by: {ended}",
    )


END = 1 << 63  # no user address is beyond it


def mapped_ranges(trace: Trace, snapshot: Snapshot) -> np.ndarray:
    """uint64[n, 2]: ranges mapped at the snapshot or by an event of the trace, disjoint and sorted."""
    ranges = [(int(vma["start"]), int(vma["end"])) for vma in snapshot.vmas]
    for event in trace.events:
        start, length = int(event["result"]), 0
        if event["kind"] == Event.MMAP:
            length = int(event["b"])
        elif event["kind"] == Event.MREMAP:
            length = int(event["c"])
        if start > 0 and length > 0:
            ranges.append((start, min(start + length, END)))
    breaks = trace.events["result"][trace.events["kind"] == Event.BRK]
    breaks = breaks[breaks > 0]
    if len(breaks):
        ranges.append((int(breaks.min()), int(breaks.max())))
    merged: list[list[int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return np.array(merged, np.uint64).reshape(-1, 2)


def addresses(trace: Trace, pages: np.ndarray) -> np.ndarray:
    """uint64[n]: first byte of each page id."""
    region = trace.regions[pages >> SLOT_BITS]
    slot = (pages & ((1 << SLOT_BITS) - 1)).astype(np.uint64)
    first: np.ndarray = ((region << np.uint64(SLOT_BITS)) | slot) << np.uint64(PAGE_SHIFT)
    return first


def inside(address: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """bool[n]: the address lies in a range (sorted, disjoint), or within GUARD below it."""
    if not len(ranges):
        return np.zeros(len(address), bool)
    at = np.searchsorted(ranges[:, 1], address, side="right")
    held = at < len(ranges)
    held[held] = address[held] + GUARD >= ranges[at[held], 0]
    return held
