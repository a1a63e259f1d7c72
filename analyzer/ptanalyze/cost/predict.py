"""Run time under any placement of page tables, from a Calibration alone: no trace."""

from dataclasses import dataclass

from ..core.errors import UsageError
from ..core.interval import Interval, over_corners
from .calibration import Calibration
from .closed_forms import (
    LOCAL,
    ORDER,
    ORDER_NATIVE,
    REMOTE,
    Placement,
    added_cycles,
    counted,
    placement,
    waiting_cycles,
)

LOCAL_NAMES = ("LL", "LP", "L")
NOISE = 0.02  # between two runs at the same placement: the repaired vMitosis runs (RRIM) are this close to LL


@dataclass(frozen=True)
class Prediction:
    """Run time at `placement` over run time with all tables local: low <= middle <= high.

    cycles    (low, middle, high), summed over CPUs
    seconds   wall-clock time alike, None where the local run's is not known
    measured  whether the calibration has a run at this placement, which the prediction then repeats
    """

    placement: str
    low: float
    middle: float
    high: float
    cycles: tuple[float, float, float]
    seconds: tuple[float, float, float] | None
    measured: bool

    @property
    def slowdown(self) -> Interval:
        return Interval(self.low, self.middle, self.high)


def predict_placement(calibration: Calibration, name: str) -> Prediction:
    """Prediction for a placement by name (closed_forms.placement); UsageError for a native placement of a
    virtual machine's run, or the reverse.

    Seconds assume that time outside the counters, such as in the kernel, grows alike.
    """
    where = placement(name)
    if (where.ept is None) != calibration.native:
        kind = "native: one table" if calibration.native else "of a virtual machine: two tables"
        raise UsageError(
            f"placement {name}: the calibration is {kind}; expected one of {', '.join(order(calibration))}"
        )
    ratios = _slowdown(calibration, where)
    measured = name in (calibration.placement, *LOCAL_NAMES)
    noise = 0.0 if measured else NOISE
    scaled = Interval(ratios.low * (1 - noise), ratios.middle, ratios.high * (1 + noise))
    local = calibration.local
    return Prediction(
        placement=name,
        low=scaled.low,
        middle=scaled.middle,
        high=scaled.high,
        cycles=_times(scaled, local.cycles),
        seconds=None if local.seconds is None else _times(scaled, local.seconds),
        measured=measured,
    )


def order(calibration: Calibration) -> tuple[str, ...]:
    """Names of all placements that predict_placement() knows, the best first in its kind."""
    return ORDER_NATIVE if calibration.native else ORDER


def _times(ratios: Interval, local: float) -> tuple[float, float, float]:
    low, middle, high = ratios.through(lambda ratio: ratio * local)
    return low, middle, high


def _slowdown(calibration: Calibration, where: Placement) -> Interval:
    """Run time over the local run's; it is monotone in each unknown."""
    local = calibration.local
    stretches = (calibration.gpt_part, calibration.remote_stretch, calibration.contended_stretch)
    if calibration.remote is None or calibration.placement is None:
        walk = counted(local.walk, "local run: walk cycles")
        exposed = counted(calibration.exposed, "calibration: exposed")
        share = counted(calibration.dram_share, "calibration: dram_share")

        def from_one(e: float, f: float, part: float, far: float, loaded: float) -> float:
            waiting = e * f * walk
            return 1 + added_cycles(waiting, part, *_at(where, far, loaded)) / local.cycles

        return over_corners(from_one, exposed, share, *stretches)
    known, added = placement(calibration.placement), calibration.remote.cycles - local.cycles

    def from_two(part: float, far: float, loaded: float) -> float:
        waiting = waiting_cycles(added, part, *_at(known, far, loaded))
        return 1 + added_cycles(waiting, part, *_at(where, far, loaded)) / local.cycles

    return over_corners(from_two, *stretches)


def _at(where: Placement, far: float, loaded: float) -> tuple[float, float]:
    """(stretch of the gPT, of the ePT) at a placement."""
    gpt, ept = (
        1.0 if state in (LOCAL, None) else far if state == REMOTE else loaded
        for state in (where.gpt, where.ept)
    )
    return gpt, ept
