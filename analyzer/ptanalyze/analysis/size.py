"""The size of the run that an answer is about: where it turns, and what two captures say of a third."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ..core.errors import UsageError, size_in_words
from ..core.interval import faster, shown
from ..core.snapshot import MOST_SCALED
from ..formats.capture import CaptureLike
from ..world.mm_events import part_of, within_region
from ..world.scaling import StandsFor, mapped_bytes
from .advise import best_first, label_of
from .frames import sweep_frame
from .setup import Options, Policies, Setup, asked_or_usual, opened, policies_of, setup_of
from .whatif import chosen, replay_world

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..core.trace import Trace
    from ..cost.result import Result
    from ..world.world import World

# The size curve: the same capture as runs that are larger and larger.

TIMES = (4, 16, 64, 256)
MOST_TOUCHES = 1 << 23  # of the steady part, that each size is replayed over


@dataclass(frozen=True)
class SizeCurve:
    """Results of a capture as runs of several sizes.

    times    of each size the factor, the captured run's 1 first
    results  of each size those of the baseline and the policies
    bytes    of memory that the captured run maps
    fits     bytes of memory up to which one node's LLC holds the lines of all leaf entries
    part     of what the sizes are if not of the whole region, "" elsewhere
    """

    times: Sequence[float]
    results: Sequence[Sequence[Result]]
    bytes: int
    fits: int
    part: str = ""

    @cached_property
    def frame(self) -> DataFrame:
        """A row per size and policy: stands_for, then Result.row; attrs["swept"] as plots.curve has it."""
        points = [
            ({"stands_for": times}, result)
            for times, results in zip(self.times, self.results, strict=True)
            for result in results
        ]
        table = sweep_frame(points, ["stands_for"])
        table.insert(1, "bytes", (table["stands_for"] * self.bytes).round().astype("int64"))
        return table

    def of(self, policy: str) -> list[dict[str, Any]]:
        """A record per size of a policy, by its label."""
        return [
            {
                "stands_for": times,
                "bytes": round(times * self.bytes),
                **dict(zip(("speedup_low", "speedup", "speedup_high"), speedup, strict=True)),
            }
            for times, results in zip(self.times, self.results, strict=True)
            for result in results
            if label_of(result, results) == policy and (speedup := result.price.speedup)
        ]

    @property
    def best(self) -> str:
        """Label of the policy that gains most at the largest size; "" where there is none."""
        ranked = best_first(self.results[-1])
        return label_of(ranked[0], self.results[-1]) if ranked else ""

    @property
    def turns(self) -> bool:
        """Whether a policy gains in some larger run."""
        return any(faster(size["speedup"]) for size in self.of(self.best)[1:])

    @property
    def sentence(self) -> str:
        """For people: up to where the caches hold the leaf entries, and the speed-up of each size."""
        if not self.best:
            return ""
        name, (_, *larger) = self.best, self.of(self.best)
        until = f"Its leaf entries fit the caches up to {size_in_words(self.fits)}"
        if not self.turns:
            most = size_in_words(larger[-1]["bytes"])
            return f"{until}; no policy gains in a run of up to {larger[-1]['stands_for']:g}x ({most})."
        sizes = "; ".join(_at(size) for size in larger)
        of = f" ({self.part})" if self.part else ""
        return f"{until}. {name} for a larger run: {sizes}{of}."


def _at(size: dict[str, Any]) -> str:
    """ "16x (21.0 GiB) 1.12x (1.03-1.25)"."""
    middle, low, high = shown(size["speedup"], size["speedup_low"], size["speedup_high"])
    speedup = f"{middle}x" if middle == low == high else f"{middle}x ({low}-{high})"
    return f"{size['stands_for']:g}x ({size_in_words(size['bytes'])}) {speedup}"


def size_curve(
    capture: CaptureLike = None,
    policies: Policies = (),
    setup: Setup | None = None,
    times: Sequence[float] = TIMES,
    **options: Unpack[Options],
) -> SizeCurve:
    """The capture replayed as itself and as runs so many `times` as large, under policies that leave page
    sizes and frames as they are. Arguments as in `whatif.replay`.

    Of a steady part with more than MOST_TOUCHES touches, that many of it are replayed. UsageError without a
    trace, for a Setup that stands for a larger run already, and for factors out of range.
    """
    how, known = setup_of(setup, options), opened(capture)
    if how.stands_for.larger:
        raise UsageError("--sizes: the sizes of runs take the place of --stands-for; leave it out")
    if any(not 1 < one <= MOST_SCALED for one in times) or not times:
        raise UsageError(f"--sizes {','.join(f'{one:g}' for one in times)}: factors of 2 to {MOST_SCALED}")
    if known.trace is None:
        StandsFor(times[0]).must_have_a_trace()
    captured = known.world(how)
    trace, part = _shortened(captured, within_region(captured.trace))
    asked = policies_of(policies) or asked_or_usual((), known.snapshot)
    of_each: list[list[Result]] = []
    every = (1.0, *sorted(times))
    for one in every:
        larger = StandsFor(float(one), fixed=how.stands_for.fixed)
        asking = replace(how, stands_for=larger, windows=0)
        world = asking.world(known.snapshot, trace, known.capture.cache)
        plans = [plan for plan in chosen(asked, world, asking) if not plan.reshaping]
        of_each.append(replay_world(world, plans, asking, known.provenance, {}))
    memory = int(mapped_bytes(known.snapshot).sum()) * known.snapshot.scale
    return SizeCurve(every, of_each, memory, fits(captured, memory), part)


def _shortened(world: World, trace: Trace) -> tuple[Trace, str]:
    """(the trace up to MOST_TOUCHES of its steady part, what that is in words)"""
    touches = np.cumsum(trace.chunks["touches"])
    before = int(touches[world.steady.chunk - 1]) if world.steady.chunk else 0
    last = int(np.searchsorted(touches, before + MOST_TOUCHES)) + 1
    if last >= len(touches):
        return trace, ""
    accesses = trace.chunks["accesses"][world.steady.chunk :]
    share = 100 * int(trace.chunks["accesses"][world.steady.chunk : last].sum()) / int(accesses.sum())
    return part_of(trace, 0, last), f"of the first {share:.0f} % of its steady state"


def fits(world: World, memory: int) -> int:
    """Bytes of memory whose lines of leaf entries one node's LLC holds, in the proportion of this World's."""
    return round(memory * world.machine.llc.lines / max(world.leaf_lines, 1))
