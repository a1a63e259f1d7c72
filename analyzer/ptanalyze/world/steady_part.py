"""The part of a trace whose walks would go on: not a program's start, where everything is touched first."""

from typing import NamedTuple

import numpy as np

from ..core.trace import SLOT_BITS, Trace, blocks
from ..core.walks import Regions, WalkStream
from .region_of_interest import region_of_interest

FIRST_TOUCHES = 0.999  # of the pages: the share that is touched before the steady part of a whole run begins
SHARE = 0.1  # of the walks: less than that is no steady part
BLOCK = 1 << 20  # walks that are looked at together


class SteadyPart(NamedTuple):
    """chunk: its first; walks: of the first run from there on; note: for people, "" for a region."""

    chunk: int
    walks: int
    note: str


def steady_part(trace: Trace, stream: WalkStream, regions: Regions, by_chunk: np.ndarray) -> SteadyPart:
    """SteadyPart of a trace: its region of interest; of a whole run, what follows once its pages are touched.

    by_chunk  walks of each chunk

    A run that touches new pages until its end has no such part: the whole run stands for it.
    """
    walks = int(by_chunk.sum())
    if not walks or region_of_interest(trace.events).begin is not None:
        return SteadyPart(0, walks, "")
    touched = np.cumsum(first_walks(stream, regions))
    pages = int(touched[-1]) if len(touched) else 0
    chunk = int(np.searchsorted(touched, pages - int(pages * (1 - FIRST_TOUCHES)))) + 1 if pages else 0
    left = int(by_chunk[chunk:].sum())
    if left < SHARE * walks or not left:
        note = (
            "the trace is of the whole run, which touches new pages until it ends: its steady state is that "
            "of the run repeated, first touches left out but for memory that the run itself maps or unmaps"
        )
        return SteadyPart(0, walks, note)
    accesses = trace.chunks["accesses"]
    note = (
        "the trace is of the whole run: its steady state is that of its last "
        f"{int(accesses[chunk:].sum()):,} of {int(accesses.sum()):,} accesses, when "
        f"{100 * FIRST_TOUCHES:g} % of its pages had been touched"
    )
    return SteadyPart(chunk, left, note)


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
