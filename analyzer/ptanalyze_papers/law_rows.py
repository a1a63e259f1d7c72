"""The run-time law on published counters: a workload's own runs are left out of the fit."""

from functools import cache

from msgspec.structs import replace

import ptanalyze as pt
from ptanalyze_law.predict import predict_placement
from ptanalyze_law.prior import calibrated, many_threads, reference, run_from

TWO_TABLES = "thin-2D-4K"


@cache
def run_of(family: str, workload: str, config: str) -> pt.law.MeasuredRun:
    """MeasuredRun of a published configuration with counters, the last of several."""
    return run_from(values_of(family, workload, config), many_threads(family, workload))


def took(family: str, workload: str, config: str) -> float:
    """Run time of a published configuration: seconds, or cycles where there are no seconds."""
    values = values_of(family, workload, config)
    return values["run_time"] if "run_time" in values else values["cycles"]


def slowdown(family: str, workload: str, config: str, local: str) -> float:
    """Published run time at a configuration over that at `local`."""
    return took(family, workload, config) / took(family, workload, local)


def values_of(family: str, workload: str, config: str) -> dict[str, float]:
    rows = reference()
    rows = rows[(rows.family == family) & (rows.workload == workload) & (rows.config == config)]
    return dict(zip(rows.quantity, rows.value, strict=True))


def calibration(family: str, workload: str, local: str, second: str = "") -> pt.law.Calibration:
    """Calibration from the run `local` alone, or with `second` too."""
    known = run_of(family, workload, local)
    if not second:
        return calibrated(family, workload)(known)
    return calibrated(family, workload)(known, run_of(family, workload, second), placed(second))


def placed(config: str) -> str:
    """A configuration's name without parts unknown to the law: T, TF (huge pages)."""
    return config.removeprefix("TF").removeprefix("T")


def predicted(family: str, workload: str, local: str, config: str, second: str = "") -> pt.Interval:
    """Interval of the run time at a configuration over that of the run `local`."""
    return predict_placement(calibration(family, workload, local, second), placed(config)).slowdown


def waited_for(family: str, workload: str, local: str, config: str) -> float | None:
    """What the law's rival `basu` says in place of `predicted`; None where tables are local."""
    if pt.law.placement(placed(config)).all_local:
        return None
    return basu(calibration(family, workload, local), placed(config))


def basu(known: pt.law.Calibration, name: str) -> float:
    """Run time at a placement if every walk cycle is waited for, and no thread waits for another's (Basu et
    al., ISCA 2013); where the local run walks for more cycles than it has, those outside are negative."""
    every = replace(known, exposed=pt.Interval.exactly(1.0), shared=pt.Interval.exactly(0.0))
    missing = max(pt.law.counted(known.local.walk, "local run: walk cycles") / known.local.length - 1, 0.0)
    return predict_placement(every, name).middle - missing


def line(local: pt.law.MeasuredRun, second: pt.law.MeasuredRun, walk: float) -> float:
    """Cycles over the local run's at `walk` walk cycles, on the straight line through two runs."""
    here, there, cycles, after = (
        pt.law.counted(getattr(run, of), f"run: {of}") for of in ("walk", "cycles") for run in (local, second)
    )
    return float(1 + (after / cycles - 1) * (walk - here) / (there - here))


def replicated(
    run: pt.law.MeasuredRun, remote: tuple[float, float], prior: str, workload: str
) -> tuple[pt.Interval, float]:
    """(Interval of the speed-up by replication, the same if every walk cycle is waited for).

    run     its tables are on several nodes
    remote  shares of its walks whose leaf entry in the gPT, in the ePT, is remote
    prior   the family that was fitted
    """
    known, local = at_shares(run, remote, prior, workload), shares((0.0, 0.0), prior != TWO_TABLES)
    return predict_placement(known, local).slowdown.through(lambda r: 1 / r), 1 / basu(known, local)


def misplaced(run: pt.law.MeasuredRun, remote: tuple[float, float], prior: str, workload: str) -> pt.Interval:
    """Interval of the slow-down where all of the gPT becomes remote and the ePT stays."""
    known = at_shares(run, remote, prior, workload)
    return predict_placement(known, shares((1.0, remote[1]), prior != TWO_TABLES)).slowdown


def at_shares(
    run: pt.law.MeasuredRun, remote: tuple[float, float], prior: str, workload: str
) -> pt.law.Calibration:
    """Calibration from a run of many threads with remote shares of gPT and ePT."""
    return calibrated(prior, workload, many=True)(run, at=shares(remote, prior != TWO_TABLES))


def shares(remote: tuple[float, float], native: bool) -> str:
    """Name of a placement with those remote shares of both tables, independent of each other."""
    gpt, ept = remote
    if native:
        return f"L:{1 - gpt:.4f},R:{gpt:.4f}"
    classes = {"LL": (1 - gpt) * (1 - ept), "LR": (1 - gpt) * ept, "RL": gpt * (1 - ept), "RR": gpt * ept}
    return ",".join(f"{name}:{share:.6f}" for name, share in classes.items())
