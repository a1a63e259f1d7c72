"""Run time under any placement of page tables, from a Calibration alone: no trace."""

from dataclasses import dataclass

from ..errors import UsageError
from .closed_forms import (
    LOCAL,
    ORDER,
    ORDER_NATIVE,
    REMOTE,
    added_cycles,
    over_corners,
    placement,
    waiting_cycles,
)

LOCAL_NAMES = ("LL", "LP", "L")
NOISE = 0.02  # between two runs of the same: the repaired vMitosis runs (RRIM) are within it of LL


@dataclass(frozen=True)
class Prediction:
    """Run time at `placement` over run time with all tables local: low <= middle <= high.

    cycles    (low, middle, high), summed over CPUs
    seconds   the same of wall clock, None where the local run's is not known
    measured  whether the calibration has a run of just this placement, which it then repeats
    """

    placement: str
    low: float
    middle: float
    high: float
    cycles: tuple[float, float, float]
    seconds: tuple[float, float, float] | None
    measured: bool


def predict(calibration, name):
    """Prediction for a placement by name (closed_forms.placement); UsageError where it is of the other kind.

    Seconds assume that what the counters leave out, such as time in the kernel, grows alike.
    """
    where = placement(name)
    if (where.ept is None) != calibration.native:
        kind = "native: one table" if calibration.native else "of a virtual machine: two tables"
        raise UsageError(
            f"placement {name}: the calibration is {kind}; expected one of {', '.join(order(calibration))}"
        )
    ratios = over_corners(*_slowdown(calibration, where))
    noise = 0.0 if name in (calibration.placement, *LOCAL_NAMES) else NOISE
    scaled = (ratios.low * (1 - noise), ratios.middle, ratios.high * (1 + noise))
    local = calibration.local
    return Prediction(
        placement=name,
        low=scaled[0],
        middle=scaled[1],
        high=scaled[2],
        cycles=tuple(r * local.cycles for r in scaled),
        seconds=None if local.seconds is None else tuple(r * local.seconds for r in scaled),
        measured=where.all_local or _same(calibration, where),
    )


def order(calibration):
    """Names of all placements that predict() knows, the best first in its kind."""
    return ORDER_NATIVE if calibration.native else ORDER


def predict_all(calibration):
    """[Prediction] of every placement of the calibration's kind."""
    return [predict(calibration, name) for name in order(calibration)]


def _same(calibration, where):
    if calibration.placement is None:
        return False
    known = placement(calibration.placement)
    return (known.gpt, known.ept) == (where.gpt, where.ept)


def _slowdown(calibration, where):
    """(function of the unknowns, their Intervals): run time over the local one, monotone in each unknown."""
    local = calibration.local
    stretches = (calibration.gpt_part, calibration.remote_stretch, calibration.contended_stretch)
    if calibration.remote is None:

        def from_one(exposed, share, part, far, loaded):
            waiting = exposed * share * local.walk
            return 1 + added_cycles(waiting, part, *_at(where, far, loaded)) / local.cycles

        return from_one, calibration.exposed, calibration.dram_share, *stretches
    known, added = placement(calibration.placement), calibration.remote.cycles - local.cycles

    def from_two(part, far, loaded):
        waiting = waiting_cycles(added, part, *_at(known, far, loaded))
        return 1 + added_cycles(waiting, part, *_at(where, far, loaded)) / local.cycles

    return from_two, *stretches


def _at(where, far, loaded):
    """(stretch of the gPT, of the ePT) at a placement."""
    return tuple(
        1.0 if state in (LOCAL, None) else far if state == REMOTE else loaded
        for state in (where.gpt, where.ept)
    )
