"""Errors of the law on workloads outside its calibration: leave-one-workload-out on the published runs.

Shared coefficients are fitted on the other workloads only; a workload's name is left out of all papers.
Errors are of run time relative to the workload's own local run, (predicted - measured) / measured.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .closed_forms import Run
from .held_out import (
    DATA,
    TIMES,
    TWO_RUNS,
    Row,
    calibrated,
    of,
    one_run,
    policies,
    remote_data,
    replicas,
    targets,
    two_runs,
)
from .observed import ratio
from .placement import placement
from .reference import FAMILIES, FIRST_TOUCH, LOCAL_RUN, PORTS, WIDE_FAMILIES, runs
from .repeats import floor
from .run_checks import suspicious

CONFIGURATION, CONSTANT = "baseline: configuration mean", "baseline: constant speed-up"
NO_CHANGE = "baseline: no change"
MENDED = ", repaired"
ODD, WARNED = ", contradicted", ", many threads"


def leave_one_out(families: Sequence[str] = FAMILIES) -> pd.DataFrame:
    """DataFrame, one row per prediction: family, method, workload, second, config, repaired, predicted,
    measured, error, inside, width, noise, spread, gain, odd, warned.

    method    a case of held_out.py; three baselines: the mean slow-down of the other workloads at this
              placement, that over all their misplaced runs, and none
    second    placement of the second run
    repaired  all tables local again (+M): near 1 under every method
    error     signed; inside: whether the measured ratio is in the predicted interval, None for baselines
    width     of the interval over its middle; noise: the width that the noise of runs alone would give
    spread    relative standard deviation of the workload's repeats, None where nothing was repeated
    gain      relative growth of the prediction over that of the second run; 0: there is none
    odd       there is a second run, and its counters or those of the run that is predicted contradict the
              placement that they are said to be of (run_checks.suspicious): known for the second run before
              anything is predicted, else not
    warned    there is none, and calibrate asks for one: many threads. Known before anything is predicted
    """
    rows: list[Row] = []
    warned = set()
    for family in families:
        members = {w: configs for w, configs in runs(family).items() if LOCAL_RUN[family] in configs}
        for workload, configs in members.items():
            local = configs[LOCAL_RUN[family]]
            if local.walk is not None and calibrated(family, workload)(local).flags:
                warned.add((family, workload))
            rows += one_run(family, workload, configs)
            rows += two_runs(family, workload, configs)
            rows += two_runs(family, workload, configs, TIMES)
            rows += _baselines(family, workload, configs, {w: c for w, c in members.items() if w != workload})
        if "native" in family:
            rows += remote_data(family)
    if families == FAMILIES:
        rows += [row for family in WIDE_FAMILIES for row in replicas(family)]
        rows += [row for family in (PORTS, FIRST_TOUCH) for row in policies(family)]
    table = pd.DataFrame(rows)
    odd = {key for family in families for key in _odd(family)}
    runs_of = (zip(table.family, table.workload, name, strict=True) for name in (table.config, table.second))
    table["odd"] = [here in odd or there in odd for here, there in zip(*runs_of, strict=True)]
    table["odd"] &= ~table.repaired & (table.second != "")
    table["warned"] = [key in warned for key in zip(table.family, table.workload, strict=True)]
    table["warned"] &= (table.second == "") & (table.method != DATA)
    table["error"] = table.predicted / table.measured - 1
    return table


def _odd(family: str) -> Iterator[tuple[str, str, str]]:
    """(family, workload, configuration) of runs that their counters say were of another placement."""
    for workload, configs in runs(family).items():
        local = configs.get(LOCAL_RUN[family], Run())
        for name, run in configs.items():
            if (
                name != LOCAL_RUN[family]
                and local.walk is not None
                and suspicious(local, run, placement(name))
            ):
                yield family, workload, name


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Errors by family and method: number, mean, median and max of |error|, the worst run, the best workload;
    share inside the interval, width, and noise; floor, floor max: mean and largest |error| that noise alone
    is expected to give (repeats.floor). Repaired, odd and warned runs apart; a row per second run too."""
    table = table.assign(size=lambda t: t.error.abs())
    rows = []
    for (family, method, repaired, odd, warned), part in table.groupby(
        ["family", "method", "repaired", "odd", "warned"], sort=False
    ):
        if repaired and (method == TIMES or str(method).startswith("baseline")):
            continue
        rows.append(_line(family, method + MENDED * repaired + ODD * odd + WARNED * warned, "any", part))
        if method == TWO_RUNS and not repaired and not odd:
            rows += [_line(family, method, s, p) for s, p in part.groupby("second", sort=False)]
    return pd.DataFrame(rows)


def _line(family: str, method: str, second: str, part: pd.DataFrame) -> dict[str, Any]:
    inside = part.inside.dropna()
    within = floor(part) or (None, None)
    worst = part.loc[part["size"].idxmax()]
    by_workload = part.groupby("workload")["size"].mean()
    return {
        "family": family,
        "method": method,
        "second": second,
        "points": len(part),
        "mean": part["size"].mean(),
        "median": part["size"].median(),
        "max": part["size"].max(),
        "worst": f"{worst.workload} {worst.second + ' to ' if worst.second else ''}{worst.config}",
        "best": f"{by_workload.idxmin()} {by_workload.min():.1%}",
        "inside": float(np.mean(inside.astype(float))) if len(inside) else None,
        "width": _mean(part.width),
        "noise": _mean(part.noise),
        "floor": within[0],
        "floor max": within[1],
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and value == value]
    return float(np.mean(known)) if known else None


def _baselines(
    family: str, workload: str, configs: Mapping[str, Run], others: Mapping[str, Mapping[str, Run]]
) -> Iterator[Row]:
    over_all = [
        _slower(family, runs_of, name)
        for runs_of in others.values()
        for name in targets(family, runs_of)
        if not placement(name).all_local
    ]
    for name in targets(family, configs):
        same = [_slower(family, runs_of, name) for runs_of in others.values() if name in runs_of]
        local = placement(name).all_local
        for method, guess in (
            (CONFIGURATION, np.mean(same)),
            (CONSTANT, 1.0 if local else np.mean(over_all)),
            (NO_CHANGE, 1.0),
        ):
            yield of(family, method, workload, "", name, configs, float(guess))


def _slower(family: str, configs: Mapping[str, Run], name: str) -> float:
    return ratio(configs[LOCAL_RUN[family]], configs[name])
