"""The region of interest of a trace: which of its events are replayed and priced."""

from typing import NamedTuple

import numpy as np

from ..core.trace import Event

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
