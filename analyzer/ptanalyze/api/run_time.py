"""Run time from counters alone, without a trace: calibrate on one run or two, predict any placement."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from .arguments import PathLike, calibration_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..law.calibration import Calibration


def calibrate(
    local: PathLike,
    remote: PathLike | None = None,
    placement: str | None = None,
    *,
    machine: str | None = None,
    latency: PathLike | None = None,
    native: bool | None = None,
    walkers: float | None = None,
) -> Calibration:
    """The run-time law calibrated with `perf stat` output: of a run with local tables and, better, another.

    local      file of perf stat's text, -x or -j output, all tables local; remote: of a run at `placement`
    placement  as in the papers' figures: gPT then ePT, L or R, I under load ("RRI"); native "RP", "RPI"
    machine    name or file, for latencies and CPUs; latency: what `ptanalyze topology latency` wrote
    native     whether there is one table only, None: as the placement and counters say
    walkers    page walkers that a hardware thread has to itself, None: as the counters say
    """
    from ..formats.node_latency import read_latency
    from ..formats.perf_stat import read_perf_stat
    from ..formats.walk_counters import one_walker, read_run, walk_run
    from ..law.calibrate import calibrate as run
    from ..law.closed_forms import placement as known

    one_table = bool(native or (placement is not None and known(placement).ept is None))
    stat = read_perf_stat(local)
    found: Calibration = run(
        walk_run(stat, one_table),
        None if remote is None else read_run(remote, one_table),
        placement,
        machine=machine,
        latency=None if latency is None else read_latency(latency),
        walkers=walkers or (1 if one_walker(stat) else None),
        native=one_table or native,
        name=os.path.splitext(os.path.basename(local))[0],
        sources={"local": str(local)} | ({} if remote is None else {"remote": str(remote)}),
    )
    return found


def predict(calibration: Calibration | PathLike, placements: Iterable[str] | None = None) -> DataFrame:
    """Run time of placements over all tables local: placement, low, middle, high, cycles, seconds, measured.

    calibration  from `calibrate`, or a file that `ptanalyze calibrate -o` wrote
    placements   names, None: all of the calibration's kind
    cycles and seconds are of the middle, seconds NaN where the local run's are not known. The law and its
    limits: law/; attrs["notes"] are what it assumes.
    """
    from pandas import DataFrame

    from ..law.predict import order
    from ..law.predict import predict as run
    from ..units import described

    known = cast("Calibration", calibration_of(calibration))
    found = [run(known, name) for name in (order(known) if placements is None else placements)]
    rows = [
        {
            "placement": one.placement,
            "low": one.low,
            "middle": one.middle,
            "high": one.high,
            "cycles": one.cycles[1],
            "seconds": float("nan") if one.seconds is None else one.seconds[1],
            "measured": one.measured,
        }
        for one in found
    ]
    notes = [*known.assumed, *known.flags]
    return described(DataFrame(rows), notes, {"calibration": known.name, "machine": known.machine})
