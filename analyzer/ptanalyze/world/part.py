"""The part of a trace whose steady state is asked for (--from, --to), and where a whole run fills memory."""

import re
from dataclasses import replace

import numpy as np

from ..core.columns import FILLS, Finding, noted
from ..core.errors import UsageError
from ..core.trace import EVENT_DTYPE, SLOT_BITS, Event, Regions, Trace, WalkStream, blocks
from .mm_events import PART_END, within_region

PLACE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(%|ms|s|)")
NS = {"ms": 1e6, "s": 1e9}
FIRST_TOUCHES = 0.999  # of the pages: the share that is touched before what follows counts as work
WORTH_SAYING = 0.05  # of the accesses, before and after
BLOCK = 1 << 20  # walks that are looked at together


def chunk_at(trace: Trace, option: str, text: str) -> int:
    """The first chunk of a Trace at or after a place: "40%" of its accesses, "2.5s" or "300ms" after its
    first chunk, or a number of accesses. UsageError for other texts, and for places beyond its end."""
    known = PLACE.fullmatch(text)
    if known is None:
        raise UsageError(
            f"{option} {text}: write a share of the accesses (40%), a time (2.5s) or their number"
        )
    amount, unit = float(known[1]), known[2]
    accesses, time = trace.chunks["accesses"].astype(np.int64), trace.chunks["time"]
    if unit in NS:
        if not len(time) or time[0] == time[-1]:
            raise UsageError(f"{option} {text}: the trace has no times; give a share of the accesses, as 40%")
        before, place = (time - time[0]).astype(np.float64), amount * NS[unit]
    else:
        before = (np.cumsum(accesses) - accesses).astype(np.float64)
        place = amount if not unit else amount / 100 * float(accesses.sum())
    chunk = int(np.searchsorted(before, place))
    if chunk >= len(accesses) and (unit != "%" or amount != 100 or option != "--to"):
        raise UsageError(f"{option} {text}: the trace ends before that; give less")
    return chunk


def asked_part(trace: Trace, begin: str, end: str) -> tuple[Trace, int]:
    """(the Trace up to `end`, the chunk at `begin`): places as of chunk_at, "" none."""
    last = chunk_at(trace, "--to", end) if end else len(trace.chunks)
    first = chunk_at(trace, "--from", begin) if begin else 0
    if (begin or end) and first >= last:
        raise UsageError(f"--from {begin} --to {end}: no accesses lie between them; give a later --to")
    return (trace if last == len(trace.chunks) else until(trace, last)), first


def fills(trace: Trace, stream: WalkStream, regions: Regions) -> list[Finding]:
    """Finding: a whole run touches its memory for the first time in its first part alone."""
    if not len(trace.chunks):
        return []
    accesses = trace.chunks["accesses"].astype(np.float64)
    share = float(accesses[: touched(first_walks(stream, regions))].sum() / max(accesses.sum(), 1))
    if not WORTH_SAYING <= share <= 1 - WORTH_SAYING:
        return []
    return [noted(FILLS, share=share, percent=min(int(np.ceil(100 * share)), 99))]


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
