"""The size of the run that an answer is about: where it turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from ..core.columns import Message, joined, message
from ..core.errors import RefusedError, UsageError
from ..core.interval import NOTICED, Interval, as_read
from ..core.options import Keywords
from ..core.snapshot import MOST_SCALED
from ..cost.law import PageTrial
from ..cost.result import Result
from ..formats.capture import CaptureLike
from ..world.mm_events import within_region
from ..world.scaling import StandsFor, TooSmallError
from . import setup as setups
from .frames import Replayed, sweep_frame
from .ranking import best_first, label_of, reshapes
from .whatif import chosen, replay_scenario

if TYPE_CHECKING:
    from pandas import DataFrame


# The size curve: the same capture as runs that are larger and larger.

TIMES = (4, 16, 64, 256)
MOST_TOUCHES = 1 << 23  # of the steady part, up to which larger runs are replayed unasked


@dataclass(frozen=True)
class SizeCurve:
    """Results of a capture as runs of several sizes.

    times    of each size the factor, the captured run's 1 first
    results  of each size those of the baseline and the policies
    bytes    of memory that the captured run maps
    cached   whether caches hold its leaf entries
    """

    times: Sequence[float]
    results: Sequence[Sequence[Result]]
    bytes: int
    cached: bool = False

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

    def gains(self, policy: str) -> list[tuple[float, Interval]]:
        """(size as a factor, speed-up) of a policy, by its label, where that is known."""
        return [
            (times, result.speedup)
            for times, results in zip(self.times, self.results, strict=True)
            for result in results
            if label_of(result, results) == policy and result.speedup
        ]

    def of(self, policy: str) -> list[dict[str, Any]]:
        """A record per size of a policy, by its label."""
        names = ("speedup_low", "speedup", "speedup_high")
        return [
            {"stands_for": times, "bytes": round(times * self.bytes), **dict(zip(names, gain, strict=True))}
            for times, gain in self.gains(policy)
        ]

    @property
    def best(self) -> str:
        """Label of the policy that gains most at the largest size; "" where there is none."""
        ranked = best_first(self.results[-1])
        return label_of(ranked[0], self.results[-1]) if ranked else ""

    @property
    def turn(self) -> int | None:
        """Index of the first run, 0 for the captured one, that the best policy speeds up by NOTICED, as it is
        written; None: it does none. The verdict on a run that gains less is that there is nothing to gain."""
        gained = [as_read(gain.middle, gain.low, gain.high) >= NOTICED for _, gain in self.gains(self.best)]
        return gained.index(True) if any(gained) else None

    @property
    def message(self) -> Message | None:
        """What larger runs gain; None where accessed bits do not tell each."""
        sizes, turn = self.gains(self.best), self.turn
        if len(sizes) < len(self.times):
            return None
        gains = [
            message("size", "gain", gain=gain, size=round(times * self.bytes))
            for times, gain in sizes[-1 if turn is None else max(turn, 1) :]  # the captured one is answered
        ]
        of_several = "never" if turn is None else "turns" if turn else "gains"
        code = "long" if len(sizes) == 1 else of_several
        held = message("size", "cached") if self.cached else ""
        return message("size", code, policy=self.best, gains=joined(gains), held=held)

    @property
    def sentence(self) -> str:
        """For people; "" where accessed bits do not tell each size."""
        return str(self.message or "")


def size_curve(
    capture: CaptureLike = None,
    policies: setups.Policies = (),
    setup: setups.Setup | None = None,
    times: Sequence[float] = TIMES,
    **options: Unpack[Keywords],
) -> SizeCurve:
    """The capture as itself and as runs `times` as large, under policies that leave page sizes and
    frames as they are: replayed, or in closed form from accessed bits. Arguments as in `whatif.replay`.

    UsageError without either, for a Setup that stands for a larger run already, and for factors out of range.
    """
    known = setups.open_replay_capture(capture)
    curve, why = _curve(known, policies, setups.setup_of(setup, options, known.capture), times)
    if why is not None:
        raise why
    return curve


def _curve(
    known: setups.ReplayCapture, policies: setups.Policies, how: setups.Setup, times: Sequence[float]
) -> tuple[SizeCurve, RefusedError | None]:
    """The SizeCurve up to the first size that the capture does not allow, and why it does not."""
    if how.stands_for.larger:
        raise UsageError("--sizes: the sizes of runs take the place of --stands-for; leave it out")
    if any(not 1 < one <= MOST_SCALED for one in times) or not times:
        given = ",".join(f"{one:g}" for one in times)
        way = f"write factors above 1, up to {MOST_SCALED}, as 4,16, or 1 for none"
        raise UsageError(f"--sizes {given}: {way}")
    captured = known.scenario(replace(how, stands_for=StandsFor(times[0])) if known.trace is None else how)
    trace = within_region(captured.trace) if captured.traced else None
    others = setups.together(known.capture, how.weigh)
    asked = setups.policies_of(policies) or setups.asked_or_usual((), known.snapshot)
    counted = None if isinstance(how.calibration, PageTrial) else how.calibration  # a trial is of one size
    snapshot = replace(known.snapshot, trial=None)
    of_each: list[list[Result]] = []
    every, why = (1.0, *sorted(times)), None
    for one in every:
        larger = StandsFor(float(one), fixed=how.stands_for.fixed)
        asking = replace(how, stands_for=larger, windows=0, calibration=counted)
        scenario = asking.scenario(snapshot, trace)
        plans = [plan for plan in chosen(asked, scenario, asking) if not plan.reshaping]
        beside = [asking.scenario(each, None) for each in others]
        try:
            of_each.append(replay_scenario(scenario, plans, asking, known.provenance, {}, beside))
        except RefusedError as error:
            if not of_each:
                raise
            why = error
            break
    memory = captured.extent[0] * known.snapshot.scale
    return SizeCurve(every[: len(of_each)], of_each, memory, captured.fits_caches), why


def needed_curve(
    capture: CaptureLike, policies: setups.Policies, setup: setups.Setup, replayed: Replayed
) -> SizeCurve | None:
    """The SizeCurve of a capture whose leaf entries the caches hold, which says nothing else of larger runs;
    None for others, and for one that is too small to tell. Sizes that a stripped trace cannot tell are left
    out, and of a steady part with more than MOST_TOUCHES touches all but its own: each replays all of it, as
    a part may be another program (its start-up).
    """
    if setup.stands_for.larger or setup.as_traced or not replayed.fits_caches:
        return None
    known = setups.open_replay_capture(capture)
    captured = known.scenario(setup)
    if captured.traced and captured.trace.chunks["touches"][captured.steady_from :].sum() > MOST_TOUCHES:
        placed = [result for result in replayed.results if not reshapes(result.policy)]
        return SizeCurve((1.0,), [placed], captured.extent[0] * known.snapshot.scale, True)
    try:
        curve, _ = _curve(known, policies, setup, TIMES)
    except TooSmallError:  # the question itself has its answer
        return None
    return curve if len(curve.times) > 1 else None


def sizes(
    capture: CaptureLike = None,
    policies: setups.Policies = (),
    setup: setups.Setup | None = None,
    times: Sequence[float] = TIMES,
    **options: Unpack[Keywords],
) -> DataFrame:
    """Effects of policies on runs `times` as large, the captured one first: a row per size and policy.

    Columns: stands_for, bytes (of memory), and those of `whatif`; plots.curve draws it.
    """
    return size_curve(capture, policies, setup, times, **options).frame
