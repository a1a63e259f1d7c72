"""Run time from counters alone, without a trace: calibrate on one or two runs, predict any placement."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

import ptanalyze as pt

if TYPE_CHECKING:
    from pandas import DataFrame

    from .perf_stat import PerfStat
    from .predict import Prediction

NEAR = 0.05  # of a table: what remote shares of two runs must differ by, to divide by it
WHOLE = 100.0  # seconds or cycles: shown without a fraction


def calibrate(
    local: pt.formats.PathLike | None = None,
    remote: pt.formats.PathLike | None = None,
    placement: str | None = None,
    *,
    at: str | None = None,
    seconds: float | None = None,
    remote_seconds: float | None = None,
    machine: str | None = None,
    native: bool = False,
    threads_per_core: float | None = None,
    allow_multiplexed: bool = False,
) -> pt.law.Calibration:
    """Calibrate the run-time law with `perf stat` output of a local run and, better, a remote run.

    local      file of perf stat's -x or -j output, all tables local; remote: of a run at `placement`
    placement  as in the papers' figures: gPT then ePT, L or R, I under load ("RRI"); native "RP", "RPI"; or
               shares of the walks ("LL:0.1,LR:0.2,RL:0.2,RR:0.5", "L:0.25,R:0.75")
    at         placement of the `local` run, where its tables are not all local
    seconds, remote_seconds  elapsed times, where the files have none, or instead of files
    machine    name or file, for latencies and CPUs
    native     whether there is a single table; also known from the placement
    threads_per_core  busy hardware threads of each core, 1 or 2; None: as far as busy CPUs tell
    allow_multiplexed  take counters that perf scaled up from below 90 % of the run
    Raises CaptureError and UsageError that name the file.
    """
    from .calibrate import calibrate_runs
    from .perf_stat import one_walker, partial, read_perf_stat, walk_events, what_is_missing

    if (remote is None and remote_seconds is None) != (placement is None):
        raise pt.UsageError(
            "--remote and --placement go together (or --remote-seconds): which tables were remote in it?"
        )
    placement, at = (None if name is None else str(name) for name in (placement, at))
    native = native or any(pt.law.placement(name).ept is None for name in (placement, at) if name is not None)
    stat = None if local is None else read_perf_stat(local)
    run = _run(stat, seconds, native, allow_multiplexed, "--local FILE or --seconds")
    if placement is None and stat is not None and (missing := what_is_missing(stat)):
        raise pt.UsageError(f"{local}: {missing}")
    doubts = (f"local run: {why}",) if stat is not None and (why := partial(stat)) else ()
    second = None
    if placement is not None:
        other = None if remote is None else read_perf_stat(remote)
        second = _run(other, remote_seconds, native, allow_multiplexed, "--remote FILE or --remote-seconds")
        if stat is not None and other is not None:
            here, there = walk_events(stat), walk_events(other)
            if here and there and here != there:
                counted = f"{', '.join(there)}, the local run's from {', '.join(here)}"
                raise pt.UsageError(
                    f"{remote}: walk cycles from {counted}: count the same events in both runs"
                )
    files = {"local": local, "remote": remote}
    try:
        found = calibrate_runs(
            run,
            second,
            placement,
            at=at,
            machine=machine,
            walkers=1 if stat is not None and one_walker(stat) else None,
            threads=threads_per_core,
            native=native or None,
            name=Path(local).stem if local is not None else "",
            sources={name: str(file) for name, file in files.items() if file is not None},
        )
    except pt.UsageError as error:
        file = remote if str(error).startswith("remote run") else local
        raise pt.UsageError(str(error) if file is None else f"{file}: {error}") from None
    return replace(found, flags=(*found.flags, *doubts))


def _run(
    stat: PerfStat | None, seconds: float | None, native: bool, allow_multiplexed: bool, wanted: str
) -> pt.law.MeasuredRun:
    """MeasuredRun of perf stat's output, with another elapsed time, or of a time alone."""
    from .perf_stat import walk_run

    if stat is None:
        if seconds is None:
            raise pt.UsageError(f"a run is missing: give {wanted}")
        return pt.law.MeasuredRun(seconds=seconds)
    run = walk_run(stat, native, allow_multiplexed)
    return run if seconds is None else replace(run, seconds=seconds)


def predict(
    calibration: pt.law.Calibration | pt.formats.PathLike,
    placements: Iterable[str] | None = None,
    walk_cycles: Iterable[pt.formats.PathLike | float] = (),
) -> DataFrame:
    """Run time of placements over that of the local run: placement, low, middle, high, cycles, seconds,
    measured, noise_low, noise_high.

    calibration  from `calibrate`, or a file that `ptanalyze calibrate -o` wrote
    placements   as in `calibrate`, None: all of the calibration's kind, unless walk_cycles are given
    walk_cycles  of further runs, at any placement: numbers, or files of perf stat
    cycles and seconds are of the middle, NaN where the local run's are not known. low to high is to hold a
    run with 90 %, noise_low to noise_high is what the noise of runs alone would give. The law and its limits:
    cost/law.py; attrs["findings"] are its assumptions.
    """
    known = calibration if isinstance(calibration, pt.law.Calibration) else read_calibration(calibration)
    return predictions_frame(known, predictions(known, placements, walk_cycles))


def predictions_frame(calibration: pt.law.Calibration, runs: Iterable[Prediction]) -> DataFrame:
    """Table of `predict`, of Predictions."""
    from pandas import DataFrame

    rows = [
        {
            "placement": prediction.placement,
            "low": prediction.low,
            "middle": prediction.middle,
            "high": prediction.high,
            "cycles": float("nan") if prediction.cycles is None else prediction.cycles[1],
            "seconds": float("nan") if prediction.seconds is None else prediction.seconds[1],
            "measured": prediction.measured,
            "noise_low": prediction.noise[0],
            "noise_high": prediction.noise[1],
        }
        for prediction in runs
    ]
    noted = [pt.columns.Finding("calibration-assumed", line) for line in calibration.assumed]
    doubts = [("calibration-doubt", line) for line in calibration.flags]
    doubts += [("run-doubt", prediction.doubt) for prediction in runs if prediction.doubt]
    return pt.columns.described(
        DataFrame(rows),
        [*noted, *(pt.columns.Finding(code, line, pt.columns.CAREFUL) for code, line in doubts)],
        {"calibration": calibration.name, "machine": calibration.machine},
    )


def predictions(
    calibration: pt.law.Calibration,
    placements: Iterable[str] | None,
    walk_cycles: Iterable[pt.formats.PathLike | float] = (),
) -> list[Prediction]:
    """[predict.Prediction] behind `predict`."""
    from .predict import order, predict_placement, predict_walks

    walks = [_walks(of, calibration.native) for of in walk_cycles]
    names = ([] if walks else order(calibration)) if placements is None else placements
    return [
        *(predict_placement(calibration, str(name)) for name in names),
        *(predict_walks(calibration, walk, name) for name, walk in walks),
    ]


def _walks(of: pt.formats.PathLike | float, native: bool) -> tuple[str, float]:
    """(name, walk cycles) of a number, or of a file of perf stat."""
    from .perf_stat import partial, read_perf_stat, walk_run, what_is_missing

    try:
        number = float(of)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        pass
    else:
        if not 0 <= number < float("inf"):
            raise pt.UsageError(f"--walk-cycles {of}: expected a number, 0 or more, or a file of perf stat")
        return f"{number:.4g} walk cycles", number
    stat = read_perf_stat(cast("pt.formats.PathLike", of))
    walk = walk_run(stat, native).walk
    if why := partial(stat):
        raise pt.UsageError(f"{of}: {why}: a part of the walk cycles does not measure another run's")
    if walk is None:
        raise pt.UsageError(f"{of}: {what_is_missing(stat) or 'walk cycles of both tables are not counted'}")
    return Path(cast("str", of)).stem, walk


# Calibration files that predictions are made from: two runs of one must be of different placements.


def read_calibration(path: pt.formats.PathLike) -> pt.law.Calibration:
    """Calibration of a file; InputError where its runs do not tell placements, or for a page-size trial."""
    record = pt.measured.read_measured(path)
    if isinstance(record, pt.law.PageTrial):
        why = f"placements need a trace beside it: `ptanalyze whatif CAPTURE --calibration {path}`"
        raise pt.errors.InputError(path, "kind", pt.measured.PAGE_SIZE, why)
    local, remote = record.local, record.remote
    if remote is None:
        if None in (record.exposed, record.dram_share, local.walk, local.cycles):
            why = "one run is not enough without its cycles, walk cycles, exposed and dram_share"
            raise pt.errors.InputError(path, "remote", None, why)
        return record
    where = pt.law.placement(cast("str", record.placement))
    try:
        check_pair(local, remote, where, pt.law.placement(record.at) if record.at else None)
    except pt.UsageError as error:
        raise pt.errors.InputError(path, "remote", record.placement, str(error)) from None
    return record


def check_pair(
    local: pt.law.MeasuredRun,
    remote: pt.law.MeasuredRun,
    where: pt.law.Placement,
    base: pt.law.Placement | None = None,
) -> None:
    """UsageError where the runs have no time in common, are at one placement, or the one with more remote
    tables was not slower."""
    clocks = [c for c in ("seconds", "cycles") if getattr(local, c) and getattr(remote, c)]
    if not clocks:
        raise pt.UsageError("remote run: cycles of one run and seconds of the other: give the same of both")
    here, there = (0.0 if at is None else _far(at) for at in (base, where))
    if abs(here - there) < NEAR:
        also = "all tables are local" if not there else "its tables are as remote as the local run's"
        raise pt.UsageError(f"placement {where.name}: {also}; a second run needs other remote shares")
    if not any((getattr(remote, c) > getattr(local, c)) == (there > here) for c in clocks):
        clock, side = clocks[-1], "above" if there > here else "below"
        raise pt.UsageError(
            f"remote run: {clock} = {_shown(getattr(remote, clock))}: not {side} the local run's "
            f"{_shown(getattr(local, clock))}: is it {where.name}, or are the files swapped?"
        )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= WHOLE else f"{value:.4g}"


def _far(where: pt.law.Placement) -> float:
    """A number that grows with the remote share of either table and with load."""
    return sum(
        share * (0 if state == pt.law.LOCAL else 1 + (state != "remote")) for state, share in where.tables()
    )
