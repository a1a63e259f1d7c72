"""Errors of the law on workloads outside its calibration: leave-one-workload-out on the published runs.

Shared coefficients are fitted on the other workloads only; a workload's name is left out of all papers.
Errors are of run time relative to the workload's own all-local run, (predicted - measured) / measured.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from .calibrate import calibrate_runs
from .closed_forms import Run, placement
from .fit import WALKERS, shared
from .predict import Prediction, predict_placement
from .reference import LOCAL_RUN, runs

FAMILIES = ("thin-2D-4K", "thin-1D-4K", "native-thin")
ONE_RUN, TWO_RUNS = "all-local run only", "one remote run added"
CONFIGURATION, CONSTANT = "baseline: configuration mean", "baseline: constant speed-up"


def leave_one_out(families: Sequence[str] = FAMILIES) -> pd.DataFrame:
    """DataFrame, one row per prediction: family, method, workload, second, config, repaired, predicted,
    measured, error, inside.

    method    all-local run only; one remote run added (`second` is its placement); two baselines: the mean
              slow-down of the other workloads at this placement, and over all their misplaced runs
    repaired  all tables local again (+M): near 1 under every method
    error     signed; inside: whether the measured ratio is in the predicted interval, None for baselines
    """
    rows: list[dict[str, Any]] = []
    for family in families:
        members = runs(family)
        for workload, configs in members.items():
            rows += _of_workload(family, workload, configs)
            others = {w: c for w, c in members.items() if w != workload}
            rows += _baselines(family, workload, configs, others)
    table = pd.DataFrame(rows)
    table["error"] = table.predicted / table.measured - 1
    return table


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Errors by family and method, over placements with a remote table: number, mean, median and max of
    |error|, share inside the interval. One row per second run too."""
    table = table[~table.repaired].assign(size=lambda t: t.error.abs())
    rows = []
    for (family, method), part in table.groupby(["family", "method"], sort=False):
        rows.append(_line(family, method, "", part))
        if method == TWO_RUNS:
            rows += [_line(family, method, s, p) for s, p in part.groupby("second", sort=False)]
    return pd.DataFrame(rows)


def _line(family: str, method: str, second: str, part: pd.DataFrame) -> dict[str, Any]:
    inside = part.inside.dropna()
    return {
        "family": family,
        "method": method,
        "second": second or "any",
        "points": len(part),
        "mean": part["size"].mean(),
        "median": part["size"].median(),
        "max": part["size"].max(),
        "inside": float(np.mean(inside.astype(float))) if len(inside) else None,
    }


def _of_workload(family: str, workload: str, configs: Mapping[str, Run]) -> Iterator[dict[str, Any]]:
    local = configs[LOCAL_RUN[family]]
    calibrated = partial(
        calibrate_runs,
        local,
        common=shared(family, workload),
        walkers=WALKERS[family],
        native=family != "thin-2D-4K",
    )
    only = calibrated()
    for name in _targets(family, configs):
        yield _row(family, ONE_RUN, workload, "", name, configs, predict_placement(only, name))
    for second, run in configs.items():
        where = placement(second)
        if where.all_local or where.name[-1] in "EG":
            continue
        both = calibrated(run, second)
        for name in _targets(family, configs):
            if name != second:
                yield _row(family, TWO_RUNS, workload, second, name, configs, predict_placement(both, name))


def _baselines(
    family: str, workload: str, configs: Mapping[str, Run], others: Mapping[str, Mapping[str, Run]]
) -> Iterator[dict[str, Any]]:
    over_all = [
        _measured(family, runs_of, name)
        for runs_of in others.values()
        for name in _targets(family, runs_of)
        if not placement(name).all_local
    ]
    for name in _targets(family, configs):
        same = [_measured(family, runs_of, name) for runs_of in others.values() if name in runs_of]
        local = placement(name).all_local
        for method, guess in (
            (CONFIGURATION, np.mean(same)),
            (CONSTANT, 1.0 if local else np.mean(over_all)),
        ):
            yield _row(family, method, workload, "", name, configs, None, float(guess))


def _targets(family: str, configs: Mapping[str, Run]) -> list[str]:
    return [name for name in configs if name != LOCAL_RUN[family]]


def _measured(family: str, configs: Mapping[str, Run], name: str) -> float:
    run, local = configs[name], configs[LOCAL_RUN[family]]
    if run.seconds is None or local.seconds is None:
        return run.cycles / local.cycles
    return run.seconds / local.seconds


def _row(
    family: str,
    method: str,
    workload: str,
    second: str,
    name: str,
    configs: Mapping[str, Run],
    prediction: Prediction | None,
    guess: float | None = None,
) -> dict[str, Any]:
    measured = _measured(family, configs, name)
    return {
        "family": family,
        "method": method,
        "workload": workload,
        "second": second,
        "config": name,
        "repaired": placement(name).all_local,
        "predicted": guess if prediction is None else prediction.middle,
        "measured": measured,
        "inside": None if prediction is None else prediction.low <= measured <= prediction.high,
    }
