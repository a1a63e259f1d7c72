"""Run time under any placement of page tables and data, from a Calibration alone: no trace."""

from dataclasses import dataclass, replace
from functools import partial
from math import sqrt

import ptanalyze as pt

from .calibrate import SLOWER
from .closed_forms import run_cycles, waited_cycles, waiting_of

ORDER = ("LL", "LR", "LRI", "RL", "RLI", "RR", "RRI", "RRIE", "RRIG", "RRIM")
ORDER_NATIVE = ("LP", "RP", "RPI", "RPIM")

NEARLY_ALL = 0.85  # of the time: clocks differ that much from the base clock of a machine file


@dataclass(frozen=True)
class Prediction:
    """Run time at `placement` over that of the local run: low <= middle <= high, meant to hold 90 % of runs.

    cycles    (low, middle, high), summed over CPUs; None where the local run's are not known
    seconds   wall-clock time alike
    measured  whether the calibration has a run at this placement, which the prediction then repeats
    noise     (low, high) that the noise of the runs alone would give
    doubt     a line that says why it should not be believed, None: nothing known
    """

    placement: str
    low: float
    middle: float
    high: float
    cycles: tuple[float, float, float] | None
    seconds: tuple[float, float, float] | None
    measured: bool
    noise: tuple[float, float]
    doubt: str | None = None

    @property
    def slowdown(self) -> pt.Interval:
        return pt.Interval(self.low, self.middle, self.high)


def predict_placement(calibration: pt.law.Calibration, name: str) -> Prediction:
    """Prediction for a placement by name or shares (cost.law); UsageError for a native placement of a
    virtual machine's run, or the reverse.

    Where both runs have wall-clock times, these are what is predicted, and cycles apart from them. Else
    seconds grow by what cycles grow: user time grows, the rest of the wall clock does not.
    """
    where = pt.law.placement(name)
    if (where.ept is None) != calibration.native:
        kind = "native: one table" if calibration.native else "of a virtual machine: two tables"
        raise pt.UsageError(
            f"placement {name}: the calibration is {kind}; expected one of {', '.join(order(calibration))}"
        )
    return predicted(calibration, name, *_ratios(calibration, where), repaired=where.repaired)


def predicted(
    calibration: pt.law.Calibration,
    name: str,
    time: pt.Interval,
    cycles: pt.Interval,
    repaired: bool = False,
    noise: float | None = None,
) -> Prediction:
    """Prediction from the ratio of times and that of cycles, without noise; it is widened by noise here,
    `noise` of a pair of runs instead of the calibration's."""
    local = calibration.local
    counted = {calibration.placement, *([calibration.at] if calibration.at else ("LL", "LP", "L", "LP-LD"))}
    measured = name in counted
    noise = calibration.noise if noise is None else noise

    def widened(ratio: pt.Interval) -> pt.Interval:
        if measured:
            return ratio
        more = calibration.repair * ratio.middle if repaired else 0.0
        return _widened(_widened(ratio, noise_of(calibration, ratio.middle, noise)), more)

    alone = 0.0 if measured else noise_of(calibration, time.middle, noise)
    wide, wide_cycles = widened(time), widened(cycles)
    return Prediction(
        placement=name,
        low=wide.low,
        middle=wide.middle,
        high=wide.high,
        cycles=None if local.cycles is None else _times(wide_cycles, local.cycles),
        seconds=None if local.seconds is None else _times(wide, local.seconds),
        measured=measured,
        noise=(time.middle - alone, time.middle + alone),
    )


def order(calibration: pt.law.Calibration) -> tuple[str, ...]:
    """Names of all placements that predict_placement() lists, the best first in its kind."""
    return ORDER_NATIVE if calibration.native else ORDER


def noise_of(calibration: pt.law.Calibration, ratio: float, noise: float) -> float:
    """Half of the interval of a ratio that comes from noise: of the local run, of the one that is predicted,
    and of the second one, whose noise grows with what is concluded from it."""
    one = noise / sqrt(2)
    if calibration.remote is None:
        return one * sqrt(1 + ratio**2)
    known = slowdown(calibration)
    scale = (ratio - 1) / (known - 1) if known != 1 else 1.0
    return one * sqrt(ratio**2 + (scale * known) ** 2 + (1 - scale) ** 2)


def slowdown(calibration: pt.law.Calibration) -> float:
    """Run time of the second run over that of the first: wall clock where both are known, else cycles.

    Cycles too where the two contradict each other on which run was the slower one.
    """
    local, remote = calibration.local, pt.law.counted(calibration.remote, "calibration: remote run")
    time = remote.seconds / local.seconds if local.seconds and remote.seconds else None
    if not local.cycles or not remote.cycles:
        return pt.law.counted(time, "remote run: seconds")
    cycles = remote.cycles / local.cycles
    return cycles if time is None or (time - 1) * (cycles - 1) <= 0 else time


def _widened(ratio: pt.Interval, noise: float) -> pt.Interval:
    return pt.Interval(
        max(ratio.middle - sqrt((ratio.middle - ratio.low) ** 2 + noise**2), 0.0),
        ratio.middle,
        ratio.middle + sqrt((ratio.high - ratio.middle) ** 2 + noise**2),
    )


def _times(ratios: pt.Interval, local: float) -> tuple[float, float, float]:
    low, middle, high = ratios.through(lambda ratio: ratio * local)
    return low, middle, high


def _ratios(calibration: pt.law.Calibration, where: pt.law.Placement) -> tuple[pt.Interval, pt.Interval]:
    """Intervals of (run time, cycles) over those of the local run, without noise."""
    unknown = (
        calibration.exposed or pt.Interval.exactly(0.0),
        calibration.shared,
        calibration.dram_share or pt.Interval.exactly(1.0),
        calibration.gpt_part,
        calibration.remote_stretch,
        calibration.contended_stretch,
        calibration.data_loaded if where.data == pt.law.CONTENDED else calibration.data_share,
    )
    remote = calibration.remote

    def by(slower: float | None) -> pt.Interval:
        return pt.interval.combined(partial(_ratio, calibration, where, slower), *unknown)

    if remote is None:
        cycles = by(None)
        return _of_wall_clock(calibration, cycles), cycles
    time = by(slowdown(calibration))
    if calibration.local.cycles is None or remote.cycles is None:
        return time, time
    return time, by(remote.cycles / calibration.local.cycles)


def _of_wall_clock(calibration: pt.law.Calibration, cycles: pt.Interval) -> pt.Interval:
    """Ratio of elapsed times: a single thread that was not running all the time waits in the rest of it."""
    if not calibration.local.seconds or calibration.busy is None or calibration.busy > NEARLY_ALL:
        return cycles
    busy = calibration.busy
    return pt.Interval(
        1 + (cycles.low - 1) * (busy if cycles.low > 1 else 1),
        1 + (cycles.middle - 1) * busy,
        1 + (cycles.high - 1) * (1 if cycles.high > 1 else busy),
    )


def _ratio(
    calibration: pt.law.Calibration,
    where: pt.law.Placement,
    slower: float | None,
    exposed: float,
    s: float,
    share: float,
    part: float,
    far: float,
    loaded: float,
    data: float,
) -> float:
    """Cycles at a placement over those of the local run; slower: those of the second run over these."""
    base = pt.law.placement(calibration.at or ("LP" if calibration.native else "LL"))
    waited = exposed * (calibration.local.walk or 0.0) / calibration.local.length
    outside = max(pt.law.outside_cycles(1.0, waited, s), 0.0)
    here, there = (waiting_of(part, *at.stretches(far, loaded)) for at in (base, where))
    if slower is None:
        waiting = share * waited / (1 + share * here)
    else:
        second = pt.law.placement(calibration.placement or "")
        known = waiting_of(part, *second.stretches(far, loaded)) - here
        if not known:
            raise pt.UsageError(f"calibration: gpt_part = {part:g}: no table of {second.name} is waited for")
        waiting = (waited_cycles(slower, outside, s) - waited) / known
    grown = _grown(where, far, data) / _grown(base, far, data)
    return run_cycles(outside * grown, max(waited + waiting * (there - here), 0.0), s)


def _grown(where: pt.law.Placement, far: float, data: float) -> float:
    """Cycles outside walks with the data there, over those with local data."""
    return 1.0 if where.data == pt.law.LOCAL else 1 + where.data_share * data * (far - 1)


def predict_walks(calibration: pt.law.Calibration, walk: float, name: str = "") -> Prediction:
    """Prediction of a run from its walk cycles, counted or simulated, whatever its placement.

    With a second run, e and s are what both say within what page walkers allow, and the cycles outside walks
    the mean of both runs', each weighted by what noise leaves of it: the straight line through both where
    walkers allow that one.
    """
    local, remote = calibration.local, calibration.remote
    own = pt.law.counted(local.walk, "local run: walk cycles")
    cycles = pt.law.counted(local.cycles, "local run: cycles")
    unknown = pt.law.counted(calibration.exposed, "calibration: exposed"), calibration.shared

    def law(seen: list[tuple[float, float]], exposed: float, s: float) -> float:
        """seen: (cycles, walk cycles) of each run, over the local run's cycles."""
        weights = [of**-2 for of, _ in seen]
        left = [
            w * pt.law.outside_cycles(of, exposed * at, s) for w, (of, at) in zip(weights, seen, strict=True)
        ]
        return run_cycles(max(sum(left) / sum(weights), 0.0), exposed * walk / cycles, s)

    here = (1.0, own / cycles)
    if remote is None or remote.walk is None or remote.walk == own:
        time = of_cycles = pt.interval.combined(partial(law, [here]), *unknown)
    else:
        time, of_cycles = (
            pt.interval.combined(partial(law, [here, (slower, remote.walk / cycles)]), *unknown)
            for slower in (slowdown(calibration), _cycles(remote, local))
        )
    said = name or f"{walk:.4g} walk cycles"
    found = predicted(calibration, said, time, of_cycles, noise=calibration.counted_noise)
    return replace(found, doubt=_doubt(calibration, walk, own))


def _doubt(calibration: pt.law.Calibration, walk: float, own: float) -> str | None:
    """Why walk cycles that no placement of the same tables gives are doubtful: beyond what was tried."""
    most = SLOWER * calibration.contended_stretch.high
    if own / most <= walk <= own * most:
        return None
    return (
        f"{walk:.4g} walk cycles are {walk / own:.3g} times the local run's {own:.4g}, and other places of "
        f"the tables make them at most {most:.2g} times as many or as few: is it the same work, counted "
        "alike? The interval does not hold that"
    )


def _cycles(remote: pt.law.MeasuredRun, local: pt.law.MeasuredRun) -> float:
    return pt.law.counted(remote.cycles, "remote run: cycles") / pt.law.counted(
        local.cycles, "local run: cycles"
    )
