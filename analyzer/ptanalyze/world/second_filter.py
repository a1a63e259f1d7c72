"""How wrong the walks of a trace are that was filtered twice (`record --strip l2`), measured in itself.

What the second filter leaves out changes what TLBs hold, and so which touches miss them. It spares runs of
chunks. A second pass through the TLBs, with these runs filtered like all others, shows what it costs there.
A TLB takes thousands of touches until it holds what it would have held: the second half of each run counts.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from ..core.interval import Interval
from ..core.jackknife import margin
from ..core.scratch import Scratch
from ..core.second import SecondFilter, numbers, spared
from ..core.trace import Batches, Piece, Touches, Trace, pieces

LEAST_RUNS, MOST_GROUPS = 8, 16
SETTLING = 0.25  # of a second level's entries: with fewer walks in the first half of a run it keeps too much
LEAST_WALKS = 3  # no interval is narrower than what so many stand for: none seen may be none met by chance


def measured(
    trace: Trace, walks: np.ndarray, throughout: np.ndarray, begin: int, entries: int
) -> SecondFilter:
    """SecondFilter of the chunks from `begin` on.

    walks, throughout  by chunk, counted or estimated: of the trace, and of filtered_throughout(trace)
    entries            of the second-level TLB
    """
    _, one_in, run = trace.facts["second"]
    thread, number = trace.chunks["thread"], numbers(trace.chunks["thread"])
    counts, more = np.arange(len(thread)) >= begin, walks - throughout
    settled = np.flatnonzero(counts & spared(thread, number, one_in, run) & (number % run >= run // 2))
    name = thread[settled].astype(np.int64) << 40 | number[settled] // run
    _, first, which = np.unique(name, return_index=True, return_inverse=True)
    runs, here, chunks = len(first), float(walks[counts].sum()), int(counts.sum())
    if runs < LEAST_RUNS:
        return SecondFilter(None, runs)
    in_turn = np.argsort(np.argsort(first))  # groups are of runs that follow each other
    group = (in_turn * min(runs, MOST_GROUPS) // runs)[which]
    missing = chunks * without_each(np.bincount(group, more[settled]), np.bincount(group))
    missing -= more[counts].sum()  # those of the runs that were spared are there
    half = max(margin(list(missing[1:])), LEAST_WALKS * chunks / len(settled))
    middle = float(missing[0])
    error = Interval(middle - half, middle, middle + half)
    settles = here / chunks * (run // 2) >= SETTLING * entries
    return SecondFilter(error.through(lambda lacks: -100 * lacks / max(here + lacks, 1)), runs, settles)


def without_each(more: np.ndarray, chunks: np.ndarray) -> np.ndarray:
    """float64[1 + groups]: mean of `more` per chunk over all groups, then without each."""
    rate: np.ndarray = (more.sum() - np.append(0, more)) / (chunks.sum() - np.append(0, chunks))
    return rate


def filtered_throughout(trace: Trace) -> Trace:
    """The trace as if no chunk had been spared."""
    _, one_in, run = trace.facts["second"]
    thread = trace.chunks["thread"]
    again = filtered(trace, spared(thread, numbers(thread), one_in, run))
    return replace(again, facts={**trace.facts, "second": (*trace.facts["second"], "throughout")})


def filtered(trace: Trace, chosen: np.ndarray) -> Trace:
    """The trace with the second filter on the chosen chunks (bool[chunks]).

    It has as many touches: in place of each that is left out the one before once more, which hits and changes
    nothing.
    """
    of_batch = partial(_filtered, chosen, trace.chunks["touches"], trace.facts["second"][0])

    def batches(least: int) -> Batches:
        return Batches(
            Piece(piece.chunks, partial(_then, piece, of_batch)) for piece in pieces(trace.batches(least))
        )

    return replace(trace, batches=batches)


def _then(piece: Piece, change: Callable[[Touches], Touches], scratch: Scratch) -> Touches:
    return change(piece.decode(scratch))


def _filtered(chosen: np.ndarray, touches_of: np.ndarray, sets: int, touches: Touches) -> Touches:
    from ..kernels.second import keep_again

    page, count = touches.page.copy(), touches_of[touches.chunks]
    end = np.cumsum(count)
    for k in np.flatnonzero(chosen[touches.chunks]).tolist():
        part = slice(end[k] - count[k], end[k])
        number, times = (column[part].astype(np.int64) for column in (page, touches.count))
        kept = keep_again(number, touches.write[part], times, sets)
        page[part] = page[part][np.maximum.accumulate(np.where(kept, np.arange(len(kept)), 0))]
    return replace(touches, page=page)
