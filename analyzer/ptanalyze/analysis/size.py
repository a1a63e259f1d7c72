"""The size of the run that an answer is about: where it turns, and what two captures say of a third."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from ..core.columns import Finding
from ..core.errors import RefusedError, UsageError, size_in_words
from ..core.interval import NOTICED, Interval, as_read, less_sure
from ..core.messages import Message, joined, message
from ..core.options import Keywords
from ..core.snapshot import MOST_SCALED
from ..formats.capture import CaptureLike
from ..world.mm_events import part_of, within_region
from ..world.scaling import ALL_GROWS, StandsFor, TooSmallError, mapped_bytes
from .frames import Replayed, sweep_frame
from .ranking import best_first, label_of
from .setup import (
    Policies,
    ReplayCapture,
    Setup,
    asked_or_usual,
    open_replay_capture,
    policies_of,
    setup_of,
    together,
)
from .whatif import chosen, replay_scenario

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..core.snapshot import Snapshot
    from ..core.trace import Trace
    from ..cost.result import Result
    from ..formats.capture import Capture
    from ..world.scenario import Scenario

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
    at_least  the same where data leave page tables the least room
    part     of what the sizes are if not of the whole region, "" elsewhere
    """

    times: Sequence[float]
    results: Sequence[Sequence[Result]]
    bytes: int
    fits: int
    part: str = ""
    at_least: int = 0

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
            if label_of(result, results) == policy and (speedup := result.speedup)
        ]

    @property
    def best(self) -> str:
        """Label of the policy that gains most at the largest size; "" where there is none."""
        ranked = best_first(self.results[-1])
        return label_of(ranked[0], self.results[-1]) if ranked else ""

    @property
    def turn(self) -> int | None:
        """Index of the first larger run that the best policy speeds up by NOTICED, as it is written; None: it
        does none. The verdict on a run that gains less is that there is nothing to gain."""
        gained = [as_read(*_speedup(size)) >= NOTICED for size in self.of(self.best)[1:]]
        return gained.index(True) + 1 if any(gained) else None

    @property
    def message(self) -> Message | None:
        """Up to where the caches hold the leaf entries, and what larger runs gain; None where accessed bits
        do not tell each."""
        sizes, turn = self.of(self.best), self.turn
        if len(sizes) < len(self.times):
            return None
        alike = size_in_words(self.at_least) == size_in_words(self.fits)
        fits = message("size", "fits" if alike else "fits-between", least=self.at_least, most=self.fits)
        gains = [
            message("size", "gain", gain=Interval(low, middle, high), size=size["bytes"])
            for size in sizes[-1 if turn is None else turn :]
            for middle, low, high in [_speedup(size)]
        ]
        numbers = {"fits": fits, "policy": self.best, "gains": joined(gains), "part": self.part}
        code = f"{'never' if turn is None else 'turns'}{'-of-part' if self.part else ''}"
        return message("size", code, **numbers)

    @property
    def sentence(self) -> str:
        """For people; "" where accessed bits do not tell each size."""
        return str(self.message or "")


def _speedup(size: dict[str, Any]) -> tuple[float, float, float]:
    return size["speedup"], size["speedup_low"], size["speedup_high"]


def size_curve(
    capture: CaptureLike = None,
    policies: Policies = (),
    setup: Setup | None = None,
    times: Sequence[float] = TIMES,
    **options: Unpack[Keywords],
) -> SizeCurve:
    """The capture as itself and as runs `times` as large, under policies that leave page sizes and
    frames as they are: replayed, or in closed form from accessed bits. Arguments as in `whatif.replay`.

    Of a steady part with more than MOST_TOUCHES touches, that many of it are replayed. UsageError without
    either, for a Setup that stands for a larger run already, and for factors out of range.
    """
    curve, why = _curve(open_replay_capture(capture), policies, setup_of(setup, options), times)
    if why is not None:
        raise why
    return curve


def _curve(
    known: ReplayCapture, policies: Policies, how: Setup, times: Sequence[float]
) -> tuple[SizeCurve, RefusedError | None]:
    """The SizeCurve up to the first size that the capture does not allow, and why it does not."""
    if how.stands_for.larger:
        raise UsageError("--sizes: the sizes of runs take the place of --stands-for; leave it out")
    if any(not 1 < one <= MOST_SCALED for one in times) or not times:
        raise UsageError(f"--sizes {','.join(f'{one:g}' for one in times)}: factors of 2 to {MOST_SCALED}")
    captured = known.scenario(replace(how, stands_for=StandsFor(times[0])) if known.trace is None else how)
    trace, part, others = None, "", together(known.capture, how.weigh)
    if captured.traced:
        trace, part = _shortened(captured, within_region(captured.trace))
    asked = policies_of(policies) or asked_or_usual((), known.snapshot)
    of_each: list[list[Result]] = []
    every, why = (1.0, *sorted(times)), None
    for one in every:
        larger = StandsFor(float(one), fixed=how.stands_for.fixed)
        asking = replace(how, stands_for=larger, windows=0)
        scenario = asking.scenario(known.snapshot, trace, known.capture.cache)
        plans = [plan for plan in chosen(asked, scenario, asking) if not plan.reshaping]
        beside = [asking.scenario(each, None) for each in others]
        try:
            of_each.append(replay_scenario(scenario, plans, asking, known.provenance, {}, beside))
        except RefusedError as error:
            if not of_each:
                raise
            why = error
            break
    memory, lines = captured.extent
    memory *= known.snapshot.scale
    llc = how.machine.llc if trace is None else captured.machine.llc
    most, least = (
        round(memory * held / max(lines, 1)) for held in (llc.lines, llc.lines_at(llc.every_share[0]))
    )
    return SizeCurve(every[: len(of_each)], of_each, memory, most, part, least), why


def needed_curve(
    capture: CaptureLike, policies: Policies, setup: Setup, replayed: Replayed
) -> SizeCurve | None:
    """The SizeCurve of a capture whose leaf entries the caches hold, which says nothing else of larger runs;
    None for others, and for one that is too small to tell. Sizes that a stripped trace cannot tell are left
    out."""
    if setup.stands_for.larger or setup.as_traced or not replayed.fits_caches:
        return None
    try:
        curve, _ = _curve(open_replay_capture(capture), policies, setup, TIMES)
    except TooSmallError:  # the question itself has its answer
        return None
    return curve if len(curve.times) > 1 else None


def _shortened(scenario: Scenario, trace: Trace) -> tuple[Trace, str]:
    """(the trace up to MOST_TOUCHES of its steady part, what that is in words)"""
    touches = np.cumsum(trace.chunks["touches"])
    before = int(touches[scenario.steady_from - 1]) if scenario.steady_from else 0
    last = int(np.searchsorted(touches, before + MOST_TOUCHES)) + 1
    if last >= len(touches):
        return trace, ""
    accesses = trace.chunks["accesses"][scenario.steady_from :]
    share = 100 * int(trace.chunks["accesses"][scenario.steady_from : last].sum()) / int(accesses.sum())
    return part_of(trace, 0, last), f"of the first {share:.0f} % of its steady state"


# Two sizes of one program: which memory grows, and a third size from both.

LEAST_APART = 1.5  # times the memory that grows: captures that are less apart tell no trend
HULL = 0.02  # of the effect, beyond all that the two say


class Match(NamedTuple):
    """Memory of a smaller and a larger capture: bytes that grow in each, and VMAs that do not, as --fixed
    takes them."""

    grows: tuple[float, float]
    stays: tuple[float, float]
    fixed: tuple[str, str]


def matched(small: Snapshot, large: Snapshot) -> Match:
    """Match of the VMAs of two Snapshots: of a name in their order, where as many of each, else by size.

    A VMA grows if it does by more than the square root of what the memory does. UsageError for captures that
    are too near in size, or of which nothing can be matched.
    """
    sizes = [mapped_bytes(one)[:-1] for one in (small, large)]
    pairs = [*_pairs(small, large, sizes)]
    total = [float(size.sum()) for size in sizes]
    most = max((sizes[1][b] / sizes[0][a] for a, b in pairs if sizes[1][b] >= SHARE * total[1]), default=1.0)
    if most < LEAST_APART:
        raise UsageError(
            f"the captures map {size_in_words(int(total[0]))} and {size_in_words(int(total[1]))}, and no "
            f"large VMA grows {LEAST_APART:g} times; give captures of one program at two sizes"
        )
    stay = [(a, b) for a, b in pairs if sizes[1][b] <= sizes[0][a] * most**0.5]
    fixed = [
        ",".join(f"{int(one.vmas['start'][pair[k]]):#x}" for pair in stay) or ALL_GROWS
        for k, one in enumerate((small, large))
    ]
    stays = [float(sum(sizes[k][pair[k]] for pair in stay)) for k in range(2)]
    grows = total[0] - stays[0], total[1] - stays[1]
    return Match(grows, (stays[0], stays[1]), (fixed[0], fixed[1]))


SHARE = 0.1  # of the larger capture's memory: what a VMA must have to tell how much a program grows


def _pairs(small: Snapshot, large: Snapshot, sizes: Sequence[np.ndarray]) -> Iterator[tuple[int, int]]:
    """(VMA of the smaller, VMA of the larger capture) that are taken for the same."""
    named = [_by_name(one, size) for one, size in zip((small, large), sizes, strict=True)]
    for name in named[0].keys() & named[1].keys():
        ours, theirs = named[0][name], named[1][name]
        if len(ours) != len(theirs):
            ours, theirs = (
                sorted(vmas, key=lambda vma: -size[vma])
                for vmas, size in ((ours, sizes[0]), (theirs, sizes[1]))
            )
        yield from zip(ours, theirs, strict=False)


def _by_name(snapshot: Snapshot, size: np.ndarray) -> dict[str, list[int]]:
    """{name: numbers of its VMAs that map anything, by address}"""
    found: dict[str, list[int]] = {}
    for vma in np.flatnonzero(size).tolist():
        found.setdefault(snapshot.vma_names[vma], []).append(vma)
    return found


def replay_two(
    first: CaptureLike,
    second: CaptureLike,
    policies: Policies = (),
    setup: Setup | None = None,
    **options: Unpack[Keywords],
) -> Replayed:
    """What a run larger than two captures of one program gains: from both, in a straight line over the
    logarithm of the size. Arguments as in `whatif.replay`; stands_for is needed, as a size or as times the
    larger capture.

    A law of accesses whose reuse distances grow with the data is predicted from any size; what grows less
    (hot heads, tree tops) errs by as much for each doubling. Of p(S) and p(L), predictions from the smaller
    and the larger for the same run, which is N times L, the line is p(L) + (p(L) - p(S)) log N / log (L / S):
    2 p(4S) - p(S) for 16S. Intervals reach over all three, and HULL farther.
    """
    how = setup_of(setup, options)
    both = open_replay_capture(first), open_replay_capture(second)
    captures = sorted(both, key=lambda one: mapped_bytes(one.snapshot).sum())
    small, large = captures
    if not how.stands_for.larger:
        raise UsageError("two captures: give --stands-for too, a size or times the larger capture")
    if how.stands_for.fixed:
        raise UsageError(f"--fixed {how.stands_for.fixed}: two captures tell; leave it out")
    found = matched(small.snapshot, large.snapshot)
    scale = large.snapshot.scale
    times = how.stands_for.factor(scale * (found.grows[1] + found.stays[1]), scale * found.stays[1])
    apart = found.grows[1] / found.grows[0]
    asked = asked_or_usual(policies, large.snapshot)
    results: list[list[Result]] = []
    refused: dict[str, str] = {}
    for known, by, fixed in zip(captures, (times * apart, times), found.fixed, strict=True):
        asking = replace(how, stands_for=StandsFor(by, fixed=fixed, alone=False))
        scenario = known.scenario(asking)
        plans = chosen(asked, scenario, asking)
        results.append(replay_scenario(scenario, plans, asking, known.provenance, refused))
    far = math.log(times) / math.log(apart)
    of_small = {label_of(one, results[0]): one for one in results[0]}
    extrapolated = [
        _extrapolated(of_small[name], one, far, [known.capture for known in captures])
        for one in results[1]
        if (name := label_of(one, results[1])) in of_small
    ]
    return Replayed(extrapolated, how.machine, refused)


def _extrapolated(small: Result, large: Result, far: float, captures: Sequence[Capture]) -> Result:
    """The larger capture's Result with the speed-up of both."""
    ours, theirs = large.speedup, small.speedup
    if ours is None or theirs is None:
        return large
    line = [here + far * (here - there) for here, there in zip(ours, theirs, strict=True)]
    every = [*ours, *theirs, *line]
    hull = less_sure(Interval(min(every), line[1], max(every)), HULL)
    names = " and ".join(str(one.directory) for one in captures)
    text = (
        f"from {names}: {large.policy} {theirs.middle:.3f} by the smaller, {ours.middle:.3f} by the larger, "
        f"{line[1]:.3f} in a line with both; intervals reach over all three"
    )
    numbers = {"smaller": theirs.middle, "larger": ours.middle, "line": line[1]}
    found = [Finding("of-two-sizes", text, numbers=numbers)] * (large.policy != large.baseline)
    provenance = {**large.provenance, "capture": names}
    return replace(large, speedup=hull, findings=(*large.findings, *found), provenance=provenance)


def two_sizes(
    first: CaptureLike,
    second: CaptureLike,
    policies: Policies = (),
    setup: Setup | None = None,
    **options: Unpack[Keywords],
) -> DataFrame:
    """Effects of policies on a run larger than two captures of one program: columns as of `whatif`, arguments
    as of replay_two: `two_sizes("small", "large", "mitosis", stands_for="200G")`."""
    return replay_two(first, second, policies, setup, **options).frame


def sizes(
    capture: CaptureLike = None,
    policies: Policies = (),
    setup: Setup | None = None,
    times: Sequence[float] = TIMES,
    **options: Unpack[Keywords],
) -> DataFrame:
    """Effects of policies on runs `times` as large, the captured one first: a row per size and policy.

    Columns: stands_for, bytes (of memory), and those of `whatif`; plots.curve draws it.
    """
    return size_curve(capture, policies, setup, times, **options).frame
