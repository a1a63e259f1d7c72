"""Run time from counters alone, without a trace: calibrate on one or two runs, predict any placement."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ..core.errors import UsageError
from ..formats.capture import PathLike
from .setup import calibration_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..cost.calibration import Calibration
    from ..cost.predict import Prediction


def calibrate(
    local: PathLike,
    remote: PathLike | None = None,
    placement: str | None = None,
    *,
    machine: str | None = None,
    latency: PathLike | None = None,
    local_ns: float | None = None,
    native: bool = False,
    walkers: float | None = None,
    allow_multiplexed: bool = False,
) -> Calibration:
    """Calibrate the run-time law with `perf stat` output of an all-local run and, better, a remote run.

    local      file of perf stat's text, -x or -j output, all tables local; remote: of a run at `placement`
    placement  as in the papers' figures: gPT then ePT, L or R, I under load ("RRI"); native "RP", "RPI"
    machine    name or file, for latencies and CPUs; latency: output of `ptanalyze topology latency` or mlc,
               or a SLIT directory, with local_ns, the latency of local memory
    native     whether there is a single table; also known from the placement
    walkers    page walkers per hardware thread, None: from the counters
    allow_multiplexed  take counters that perf scaled up from below 90 % of the run
    Raises CaptureError and UsageError that name the file.
    """
    from ..cost.calibrate import calibrate_runs
    from ..cost.closed_forms import placement as known
    from ..formats.node_latency import read_latency
    from ..formats.perf_stat import read_perf_stat
    from ..formats.walk_counters import one_walker, walk_run

    if (remote is None) != (placement is None):
        raise UsageError("--remote and --placement go together: which tables were remote in that run?")
    native = native or (placement is not None and known(placement).ept is None)
    stat = read_perf_stat(local)
    files = {"local": local, "remote": remote, "latency": latency}
    try:
        return calibrate_runs(
            walk_run(stat, native, allow_multiplexed),
            None if remote is None else walk_run(read_perf_stat(remote), native, allow_multiplexed),
            placement,
            machine=machine,
            latency=None if latency is None else read_latency(latency, local_ns),
            walkers=walkers or (1 if one_walker(stat) else None),
            native=native or None,
            name=Path(local).stem,
            sources={name: str(file) for name, file in files.items() if file is not None},
        )
    except UsageError as error:
        raise UsageError(f"{remote if str(error).startswith('remote run') else local}: {error}") from None


def predict(calibration: Calibration | PathLike, placements: Iterable[str] | None = None) -> DataFrame:
    """Run time of placements over all tables local: placement, low, middle, high, cycles, seconds, measured.

    calibration  from `calibrate`, or a file that `ptanalyze calibrate -o` wrote
    placements   names, None: all of the calibration's kind
    cycles and seconds are of the middle, seconds NaN where the local run's are not known. The law and its
    limits: cost/closed_forms.py; attrs["notes"] are its assumptions.
    """
    from pandas import DataFrame

    from ..core.units import described

    known = cast("Calibration", calibration_of(calibration))
    rows = [
        {
            "placement": prediction.placement,
            "low": prediction.low,
            "middle": prediction.middle,
            "high": prediction.high,
            "cycles": prediction.cycles[1],
            "seconds": float("nan") if prediction.seconds is None else prediction.seconds[1],
            "measured": prediction.measured,
        }
        for prediction in predictions(known, placements)
    ]
    notes = [*known.assumed, *known.flags]
    return described(DataFrame(rows), notes, {"calibration": known.name, "machine": known.machine})


def predictions(calibration: Calibration, placements: Iterable[str] | None) -> list[Prediction]:
    """[cost.predict.Prediction] behind `predict`."""
    from ..cost.predict import order, predict_placement

    names = order(calibration) if placements is None else placements
    return [predict_placement(calibration, name) for name in names]
