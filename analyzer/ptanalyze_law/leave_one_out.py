"""Errors of the law on workloads outside its calibration: leave-one-workload-out on the published runs.

Shared coefficients are fitted on the other workloads only; a workload's name is left out of all papers.
ELSEWHERE: and on other machines only. Errors are of run time relative to the workload's own local run,
(predicted - measured) / measured. Beside the law its rivals: every walk cycle is waited for (Basu, Gandhi,
Chang, Hill and Swift, ISCA 2013), and the straight line through two runs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from msgspec.structs import replace

import ptanalyze as pt

from .calibrate import calibrate_runs, suspicious
from .predict import Prediction, predict_placement, predict_walks
from .prior import (
    FAMILIES,
    FIRST_TOUCH,
    LOCAL_RUN,
    PER_CORE,
    PORTS,
    WIDE_FAMILIES,
    fitted,
    mean_run,
    ports,
    ratio,
    runs,
    threads_of,
)

ONE_RUN, TWO_RUNS = "all-local run only", "one remote run added"
TIMES = "run times, one remote run added"
LINUX, POLICIES = "linux, walk cycles of a policy", "linux and mitosis, walk cycles of a policy"
WALKED, BASU = "all-local run, walk cycles of the other", "rival: Basu, from the same"
WALKED_TWICE, LINE = "one remote run added, walk cycles of a third", "rival: line through two runs, the same"
BASU_PLACED = "rival: Basu, all-local run only"
ELSEWHERE = ", machine left out"
POLICY_ROWS = {WALKED: LINUX, WALKED_TWICE: POLICIES}
REPLICAS, DATA = "tables on several nodes: replicas", "all-local run only: remote data"
QUARTERS = {True: "L:0.25,R:0.75", False: "LL:0.0625,LR:0.1875,RL:0.1875,RR:0.5625"}
TWO_TABLES = "thin-2D-4K"
CONFIGURATION, CONSTANT = "baseline: configuration mean", "baseline: constant speed-up"
NO_CHANGE = "baseline: no change"
MENDED = ", repaired"
ODD, WARNED = ", contradicted", ", many threads"

Row = dict[str, Any]


def leave_one_out(families: Sequence[str] = FAMILIES) -> pd.DataFrame:
    """DataFrame, one row per prediction: family, method, workload, second, config, repaired, predicted,
    measured, error, inside, width, noise, odd, warned.

    method    what is known; three baselines: the mean slow-down of the other workloads at this
              placement, that over all their misplaced runs, and none
    second    placement of the second run
    repaired  all tables local again (+M): near 1 under every method
    error     signed; inside: whether the measured ratio is in the predicted interval, None for baselines
    width     of the interval over its middle; noise: the width that the noise of runs alone would give
    odd       there is a second run, and its counters or those of the run that is predicted contradict the
              placement that they are said to be of (calibrate.suspicious): known for the second run before
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
            for elsewhere in (False, True):
                rows += one_run(family, workload, configs, elsewhere)
                rows += two_runs(family, workload, configs, TWO_RUNS, elsewhere)
                rows += two_runs(family, workload, configs, TIMES, elsewhere)
            rows += walked(family, workload, configs)
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
    table["warned"] &= (table.second == "") & ~table.method.isin([DATA, WALKED, BASU])
    table["error"] = table.predicted / table.measured - 1
    return table


def _odd(family: str) -> Iterator[tuple[str, str, str]]:
    """(family, workload, configuration) of runs that their counters say were of another placement."""
    for workload, configs in runs(family).items():
        local = configs.get(LOCAL_RUN[family], pt.law.MeasuredRun())
        for name, run in configs.items():
            if (
                name != LOCAL_RUN[family]
                and local.walk is not None
                and suspicious(local, run, pt.law.placement(name))
            ):
                yield family, workload, name


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Errors by family and method: number, mean, median and max of |error|, the worst run, the best workload;
    share inside the interval, width, and noise. Repaired, odd and warned runs apart; a row per second run."""
    table = table.assign(size=lambda t: t.error.abs())
    rows = []
    for (family, method, repaired, odd, warned), part in table.groupby(
        ["family", "method", "repaired", "odd", "warned"], sort=False
    ):
        if repaired and (method not in (ONE_RUN, TWO_RUNS, DATA)):
            continue
        rows.append(_line(family, method + MENDED * repaired + ODD * odd + WARNED * warned, "any", part))
        if method == TWO_RUNS and not repaired and not odd:
            rows += [_line(family, method, s, p) for s, p in part.groupby("second", sort=False)]
    return pd.DataFrame(rows)


def _line(family: str, method: str, second: str, part: pd.DataFrame) -> dict[str, Any]:
    inside = part.inside.dropna()
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
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and value == value]
    return float(np.mean(known)) if known else None


def _baselines(
    family: str,
    workload: str,
    configs: Mapping[str, pt.law.MeasuredRun],
    others: Mapping[str, Mapping[str, pt.law.MeasuredRun]],
) -> Iterator[Row]:
    over_all = [
        _slower(family, runs_of, name)
        for runs_of in others.values()
        for name in targets(family, runs_of)
        if not pt.law.placement(name).all_local
    ]
    for name in targets(family, configs):
        same = [_slower(family, runs_of, name) for runs_of in others.values() if name in runs_of]
        local = pt.law.placement(name).all_local
        for method, guess in (
            (CONFIGURATION, np.mean(same)),
            (CONSTANT, 1.0 if local else np.mean(over_all)),
            (NO_CHANGE, 1.0),
        ):
            yield of(family, method, workload, "", name, configs, float(guess))


def _slower(family: str, configs: Mapping[str, pt.law.MeasuredRun], name: str) -> float:
    return ratio(configs[LOCAL_RUN[family]], configs[name])


def one_run(
    family: str, workload: str, configs: Mapping[str, pt.law.MeasuredRun], elsewhere: bool = False
) -> Iterator[Row]:
    """From the all-local run: every other one with local data."""
    if configs[LOCAL_RUN[family]].walk is None:
        return
    only = calibrated(family, workload, elsewhere)(configs[LOCAL_RUN[family]])
    for name in targets(family, configs):
        yield of(family, ONE_RUN + ELSEWHERE * elsewhere, workload, "", name, configs, only)
        if not elsewhere and not pt.law.placement(name).all_local:
            yield of(family, BASU_PLACED, workload, "", name, configs, basu(only, name))


def basu(known: pt.law.Calibration, name: str) -> float:
    """Run time at a placement if every walk cycle is waited for, and no thread waits for another's; where the
    local run walks for more cycles than it has, those outside walks are negative."""
    every = replace(known, exposed=pt.Interval.exactly(1.0), shared=pt.Interval.exactly(0.0))
    missing = max(pt.law.counted(known.local.walk, "local run: walk cycles") / known.local.length - 1, 0.0)
    return predict_placement(every, name).middle - missing


def line(local: pt.law.MeasuredRun, second: pt.law.MeasuredRun, walk: float) -> float:
    """Cycles over the local run's at `walk` walk cycles, on the straight line through two runs."""
    (here, there), (cycles, after) = (
        (
            pt.law.counted(getattr(local, of), f"local run: {of}"),
            pt.law.counted(getattr(second, of), f"second run: {of}"),
        )
        for of in ("walk", "cycles")
    )
    return float(1 + (after / cycles - 1) * (walk - here) / (there - here))


def walked(family: str, workload: str, configs: Mapping[str, pt.law.MeasuredRun]) -> Iterator[Row]:
    """From counters of the all-local run, and of each remote one, with the walk cycles of those that are
    predicted: cycles, as a replay would be priced."""
    there = {
        name: run
        for name, run in configs.items()
        if run.walk is not None and run.cycles and not pt.law.placement(name).tables_local
    }
    local = configs[LOCAL_RUN[family]]
    if local.walk is None:
        return
    for second in ("", *there):
        run = there.get(second)
        known = calibrated(family, workload)(local, run, second or None)
        for name, target in there.items():
            if name == second or pt.law.placement(name).data != pt.law.LOCAL:
                continue
            walk = pt.law.counted(target.walk, "run: walk cycles")
            yield from against(family, (workload, second, name), known, walk, target)


def against(
    family: str,
    names: tuple[str, str, str],
    known: pt.law.Calibration,
    walk: float,
    target: pt.law.MeasuredRun,
) -> Iterator[Row]:
    """The law's row of cycles from walk cycles, and that of its rival; names: workload, second, config."""
    local, second = known.local, known.remote
    found, cycles = predict_walks(known, walk), pt.law.counted(local.cycles, "local run: cycles")
    low, middle, high = (value / cycles for value in pt.law.counted(found.cycles, "prediction: cycles"))
    measured = pt.law.counted(target.cycles, "run: cycles") / cycles
    law, rival = WALKED, BASU
    guess = 1 + (walk - pt.law.counted(local.walk, "local run: walk cycles")) / cycles
    if second is not None:
        law, rival, guess = WALKED_TWICE, LINE, line(local, second, walk)
    yield row(family, law, *names, found, measured, (low, middle, high))
    yield row(family, rival, *names, guess, measured)


def two_runs(
    family: str,
    workload: str,
    configs: Mapping[str, pt.law.MeasuredRun],
    method: str = TWO_RUNS,
    elsewhere: bool = False,
) -> Iterator[Row]:
    """From the all-local run and each remote one: every other one; by counters, or by run times alone."""
    known = _timed if method == TIMES else _whole
    for second, run in configs.items():
        where = pt.law.placement(second)
        if where.tables_local or second[-1] in "EG" or where.data != pt.law.LOCAL:
            continue
        if method == TWO_RUNS and (run.walk is None or configs[LOCAL_RUN[family]].walk is None):
            continue
        local = known(configs[LOCAL_RUN[family]])
        both = calibrated(family, workload, elsewhere)(local, known(run), second)
        for name in targets(family, configs):
            if [*pt.law.placement(name).tables()] != [*where.tables()]:  # else a repeat, no prediction
                title = method + ELSEWHERE * elsewhere
                yield of(family, title, workload, second, name, configs, both)


def remote_data(family: str) -> Iterator[Row]:
    """From the all-local run: those with remote data, tables local or not."""
    for workload, configs in runs(family, ("fit", "data")).items():
        if configs.get(LOCAL_RUN[family], pt.law.MeasuredRun()).walk is None:
            continue
        only = calibrated(family, workload)(configs[LOCAL_RUN[family]])
        for name in configs:
            if pt.law.placement(name).data != pt.law.LOCAL:
                yield of(family, DATA, workload, "", name, configs, only)


def replicas(family: str) -> Iterator[Row]:
    """From the run with tables on several nodes: the one with replicas. 3 of 4 reads are remote."""
    native = family.startswith("native")
    prior = "native-thin" if native else TWO_TABLES
    for workload, configs in runs(family, ("fit",)).items():
        for before, after in WIDE_FAMILIES[family]:
            if before not in configs or after not in configs:
                continue
            only = calibrate_runs(
                configs[before],
                at=QUARTERS[native],
                walkers=PER_CORE[family],
                threads=threads_of(family, workload),
                native=native,
                common=fitted(prior, workload),
            )
            found = predict_placement(only, "LP" if native else "LL")
            yield row(
                family, REPLICAS, workload, before, after, found, ratio(configs[before], configs[after])
            )


def policies(family: str) -> Iterator[Row]:
    """From the counters of linux alone, or of linux and mitosis, and the walk cycles of other policies."""
    for workload, by_policy in ports(family).items():
        run = {policy: mean_run(repeats) for policy, repeats in by_policy.items()}
        law = of_ports(workload, run["linux"], family)
        for known, second, more in (
            (law(), "", ("mitosis", "hydra", "wasp")),
            (law(run["mitosis"], "LP"), "mitosis", ("hydra", "wasp")),
        ):
            for policy in more:
                walk = pt.law.counted(run[policy].walk, "run: walk cycles")
                for found in against(family, (workload, second, policy), known, walk, run[policy]):
                    yield found | {"method": POLICY_ROWS.get(str(found["method"]), found["method"])}


def of_ports(workload: str, linux: pt.law.MeasuredRun, family: str = PORTS) -> partial[pt.law.Calibration]:
    """calibrate_runs for a workload of the ports, from its run on `linux`."""
    return partial(
        calibrate_runs,
        linux,
        at=QUARTERS[True],
        walkers=PER_CORE[family],
        threads=threads_of(family, workload),
        native=True,
        common=fitted("native-thin", workload),
    )


def targets(family: str, configs: Mapping[str, pt.law.MeasuredRun]) -> list[str]:
    """Names of the runs of a workload that are to be predicted."""
    return [name for name in configs if name != LOCAL_RUN[family]]


def of(
    family: str,
    method: str,
    workload: str,
    second: str,
    name: str,
    configs: Mapping[str, pt.law.MeasuredRun],
    known: pt.law.Calibration | float,
) -> Row:
    """Row of a prediction by a Calibration, or of a guess, beside the run that was measured there."""
    measured = ratio(configs[LOCAL_RUN[family]], configs[name])
    if isinstance(known, float):
        return row(family, method, workload, second, name, known, measured)
    found = predict_placement(known, name)
    return row(family, method, workload, second, name, found, measured)


def row(
    family: str,
    method: str,
    workload: str,
    second: str,
    name: str,
    found: Prediction | float,
    measured: float,
    interval: tuple[float, float, float] | None = None,
) -> Row:
    known: Row = {"family": family, "method": method, "workload": workload, "second": second, "config": name}
    known |= {
        "repaired": family not in (PORTS, FIRST_TOUCH)
        and method != REPLICAS
        and pt.law.placement(name).all_local
    }
    if isinstance(found, float):
        return known | {
            "predicted": found,
            "measured": measured,
            "inside": None,
            "width": None,
            "noise": None,
        }
    low, middle, high = interval or (found.low, found.middle, found.high)
    return known | {
        "predicted": middle,
        "measured": measured,
        "inside": low <= measured <= high,
        "width": (high - low) / middle,
        "noise": (found.noise[1] - found.noise[0]) / found.middle,
    }


def calibrated(family: str, workload: str, elsewhere: bool = False) -> partial[pt.law.Calibration]:
    """calibrate_runs for a workload of a family, with what is fitted on the others, `elsewhere`: and on other
    machines."""
    return partial(
        calibrate_runs,
        common=fitted(family, workload, elsewhere),
        walkers=PER_CORE[family],
        threads=threads_of(family, workload),
        native=family != TWO_TABLES,
    )


def _whole(run: pt.law.MeasuredRun) -> pt.law.MeasuredRun:
    return run


def _timed(run: pt.law.MeasuredRun) -> pt.law.MeasuredRun:
    """A MeasuredRun of which only the time is known, and whether one thread ran."""
    return (
        pt.law.MeasuredRun(seconds=run.seconds, cpus=run.cpus)
        if run.seconds
        else pt.law.MeasuredRun(run.cycles, cpus=run.cpus)
    )
