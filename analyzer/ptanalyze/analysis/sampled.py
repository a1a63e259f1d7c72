"""Counts of a sample as those of the whole trace, and intervals of what follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..core.interval import Interval
from ..core.jackknife import margin
from ..world.leaf_lines import ENTRIES_PER_LINE

if TYPE_CHECKING:
    from ..core.sample import Sample
    from ..cost.result import Sampled
    from ..kernels.replay import Counters
    from ..world.part import Weights

# of an effect (explanation/sampling.md): what caches of a part are off by, of regions for each halving and
# once more; how far recorded sets stay below it in skewed programs, whose hot lines they take for hotter ones
BIAS, SKEW = 0.01, 1.0
SHARE_BIAS = 0.01  # of how often caches of a part miss, for one node and not for the others


def estimated(counters: Counters, weights: Weights | None, without: int | None = None) -> Counters:
    """Counters of the whole trace: reads and walks scaled, what is never sampled as it is.

    without  a group of the sample that is left out, None: none
    """
    if weights is None:
        return counters
    reads, classes = (weights.whole(column, without) for column in (counters.reads, counters.classes))
    return counters._replace(reads=reads, classes=classes)


def lines_shared(counters: Counters, sample: Sample) -> Counters:
    """Counters with the fewest reads from DRAM that a sample of sets leaves possible.

    Eight neighbouring entries share a line, of which the sample has one or a few; it counts a line's way from
    DRAM for each of those that they stand for, where in the whole trace one of them may bring it for all.
    """
    dram = np.rint(counters.reads[..., 1] / min(sample.one_in, ENTRIES_PER_LINE)).astype(np.int64)
    cached = counters.reads.sum(axis=-1) - dram
    return counters._replace(reads=np.stack([cached, dram], axis=-1))


def groups_of(weights: Iterable[Weights | None]) -> list[int]:
    """Groups that any of several runs of a sample has walks in; [] without a sample."""
    walked = [one.walks.any(axis=1) for one in weights if one is not None]
    return np.flatnonzero(np.any(walked, axis=0)).tolist() if walked else []


def widened(middle: Interval, left_out: Sequence[Interval], one_in: int) -> Interval:
    """The Interval, each of its ends farther out by the margin of error that a sample adds there.

    left_out  the same without each of the groups
    """
    low, best, high = (
        margin([getattr(one, end) for one in left_out], one_in) for end in ("low", "middle", "high")
    )
    return Interval(
        min(middle.low - low, middle.middle - best),
        middle.middle,
        max(middle.high + high, middle.middle + best),
    )


def around(value: float, left_out: Sequence[float], one_in: int) -> Interval:
    """The 95 % interval of an estimate."""
    half = margin(left_out, one_in)
    return Interval(value - half, value, value + half)


def of_share(interval: Interval) -> Interval:
    """The Interval of a share of reads from DRAM with the error that groups of a sample do not show."""
    low, middle, high = interval
    more = SHARE_BIAS * middle * (1 - middle)
    return Interval(low - more, middle, high + more)


def of_effect(interval: Interval, sample: Sample, recorded: bool) -> Interval:
    """The Interval of a speed-up with the error that groups of a sample do not show.

    recorded  whether the trace has no other
    """
    effect = abs(interval.middle - 1)
    more = BIAS * (math.log2(sample.one_in) + 1 if sample.unit == "regions" else 2)
    above = SKEW if recorded and sample.unit == "sets" else more
    return Interval(interval.low - more * effect, interval.middle, interval.high + above * effect)


def remote_share(reads: np.ndarray) -> float:
    """Share of remote among the reads from DRAM; reads as in Counters."""
    dram = reads[..., 1]
    total = int(dram.sum())
    return (total - int(np.einsum("lnn->", dram))) / total if total else 0.0


def sample_notes(known: Sampled) -> list[str]:
    """Notes for a reader of an estimate."""
    unit, _, rate = known.of.partition(":")
    of = {
        "sets": "a sample: {} of the sets stands for all",
        "regions": "a sample: {} of the regions of 2 MiB stands for all",
        "windows": "a sample: windows of {} stand for the whole run, but for the first part of each",
    }[unit].format(rate.partition("@")[0])
    walks = f"{in_words(known.walks, 0)} walks"
    which = f"{walks} were counted; shares" if known.counted else f"{walks}; walks, shares"
    lines = [
        f"{of}; {which} and speed-ups have 95 % intervals from {known.groups} groups; faults, updates and "
        "shootdowns are those of the whole trace"
    ]
    if unit == "sets" and not known.counted:
        lines.append(
            "a sample of sets holds some of the 8 entries of each cache line: reads from DRAM are too many "
            "where neighbouring pages are walked soon after each other; intervals of speed-ups reach to as "
            "few as are possible, a sample of regions has narrower ones"
        )
    if unit == "windows":
        lines.append(
            "intervals of windows tell how they differ, not what all have in common (TLBs that fill, caches "
            "that hold what windows read): of exact numbers they held half; longer windows are nearer"
        )
    return lines


def in_words(interval: Interval, places: int) -> str:
    """ "1,200 (1,100 to 1,300)"."""
    low, middle, high = (f"{value:,.{places}f}" for value in interval)
    return middle if low == high else f"{middle} ({low} to {high})"


def degree_notes(sample: Sample) -> list[str]:
    """Notes for a reader of degrees."""
    return [
        f"a sample, {sample}, stands for the whole trace: walks and their cycles are estimates, with 95 % "
        "intervals in CSV and JSON; faults, copies and tables are those of the whole trace"
    ]
