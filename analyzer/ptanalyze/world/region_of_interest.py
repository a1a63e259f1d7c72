"""The region of interest of a trace: which of its touches and events are replayed and priced."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ..core.errors import CaptureError
from ..core.trace import Batches, Event, Piece, Scratch, Touches, Trace

UNTIL_THE_END = "it is taken to last until the trace ends"


class RegionOfInterest(NamedTuple):
    """Indices of events: those from `begin` on and before `end` are the region's.

    begin  None: no event begins a region, the whole run was traced
    notes  for people, a line each: a region that never ends, or has no beginning
    """

    begin: int | None
    end: int
    notes: tuple[str, ...] = ()

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
        note = "the region of interest ends and never begins: it is taken to begin with the trace"
        return RegionOfInterest(None, int(ends[-1]), (note,))
    begin = int(starts[0])
    closing = ends[ends > starts[-1]]
    if len(closing):
        return RegionOfInterest(begin, int(closing[-1]))
    how = "ends before it begins" if len(ends) and ends[-1] < begin else "never ends"
    return RegionOfInterest(begin, len(events), (f"the region of interest {how}: {UNTIL_THE_END}",))


def within_region(trace: Trace) -> Trace:
    """The chunks of a Trace that its region of interest has, with all its events.

    Those before the region come before its first chunk, those after it after its last: they tell what was
    mapped, and by whom. CaptureError where all touches lie outside.
    """
    region, count = region_of_interest(trace.events), len(trace.chunks)
    at = np.append(trace.events["chunk"], count)
    first, last = 0 if region.begin is None else int(at[region.begin]), int(at[region.end])
    if (first, last) == (0, count):
        return trace
    chunks, events = trace.chunks[first:last].copy(), trace.events.copy()
    if trace.touches and not chunks["touches"].any():
        why = f"all {trace.touches:,} touches lie outside it; record or import the trace without its marks"
        raise CaptureError("trace", "region of interest", "empty", why)
    chunks["first"] = np.cumsum(chunks["touches"]) - chunks["touches"]
    events["chunk"] = np.clip(events["chunk"] - first, 0, last - first)

    def batches(least: int) -> Batches:
        return Batches(_renumbered(piece, first) for piece in trace.pieces(least, first, last))

    return replace(trace, chunks=chunks, events=events, batches=batches)


def _renumbered(piece: Piece, first: int) -> Piece:
    chunks = slice(piece.chunks.start - first, piece.chunks.stop - first)
    return Piece(chunks, partial(_decoded, piece.decode, chunks))


def _decoded(decode: Callable[[Scratch], Touches], chunks: slice, scratch: Scratch) -> Touches:
    return replace(decode(scratch), chunks=chunks)
