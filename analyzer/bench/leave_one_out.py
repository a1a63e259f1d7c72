"""Errors of the law on workloads outside its calibration: leave-one-workload-out on the published runs.

Usage: python -m analyzer.bench.leave_one_out   (prints the tables of the manual's page on accuracy)

Shared coefficients are fitted on the other workloads only; a workload's name is left out of all papers.
Errors are of run time relative to the workload's own local run,
(predicted - measured) / measured. Beside the law its rivals: every walk cycle is waited for (Basu, Gandhi,
Chang, Hill and Swift, ISCA 2013), and the straight line through two runs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ptanalyze.cost.law import LOCAL, Calibration, MeasuredRun, counted, placement
from ptanalyze_law.calibrate import suspicious
from ptanalyze_law.predict import Prediction, predict_placement, predict_walks
from ptanalyze_law.prior import (
    FAMILIES,
    FIRST_TOUCH,
    LOCAL_RUN,
    PORTS,
    WIDE_FAMILIES,
    calibrated,
    mean_run,
    ports,
    ratio,
    runs,
)
from ptanalyze_papers.law_rows import basu, line

ONE_RUN, TWO_RUNS = "all-local run only", "one remote run added"
TIMES = "run times, one remote run added"
LINUX, POLICIES = "linux, walk cycles of a policy", "linux and mitosis, walk cycles of a policy"
WALKED, BASU = "all-local run, walk cycles of the other", "rival: Basu, from the same"
WALKED_TWICE, LINE = "one remote run added, walk cycles of a third", "rival: line through two runs, the same"
BASU_PLACED = "rival: Basu, all-local run only"
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
    warned, odd = set(), set()
    for family in families:
        every = [Workload(family, name, configs) for name, configs in runs(family).items()]
        members = [workload for workload in every if LOCAL_RUN[family] in workload.configs]
        for workload in members:
            if workload.local.walk is not None and workload.calibrated()(workload.local).flags:
                warned.add((family, workload.name))
            odd |= {(family, workload.name, config) for config in contradicted(workload)}
            rows += one_run(workload)
            rows += two_runs(workload, TWO_RUNS)
            rows += two_runs(workload, TIMES)
            rows += walked(workload)
            rows += baselines(workload, [other for other in members if other is not workload])
        if "native" in family:
            rows += remote_data(family)
    if families == FAMILIES:
        rows += [row for family in WIDE_FAMILIES for row in replicas(family)]
        rows += [row for family in (PORTS, FIRST_TOUCH) for row in policies(family)]
    table = pd.DataFrame(rows)
    runs_of = (zip(table.family, table.workload, name, strict=True) for name in (table.config, table.second))
    table["odd"] = [here in odd or there in odd for here, there in zip(*runs_of, strict=True)]
    table["odd"] &= ~table.repaired & (table.second != "")
    table["warned"] = [key in warned for key in zip(table.family, table.workload, strict=True)]
    table["warned"] &= (table.second == "") & ~table.method.isin([DATA, WALKED, BASU])
    table["error"] = table.predicted / table.measured - 1
    return table


@dataclass(frozen=True)
class Workload:
    """A workload of a family of published runs; configs  {configuration: its run}."""

    family: str
    name: str
    configs: Mapping[str, MeasuredRun]

    @property
    def local(self) -> MeasuredRun:
        return self.configs[LOCAL_RUN[self.family]]

    @property
    def targets(self) -> list[str]:
        """Configurations that are to be predicted."""
        return [config for config in self.configs if config != LOCAL_RUN[self.family]]

    def slower(self, config: str) -> float:
        return ratio(self.local, self.configs[config])

    def calibrated(self) -> partial[Calibration]:
        return calibrated(self.family, self.name)

    def row(self, method: str, second: str, config: str, found: Calibration | float) -> Row:
        """Row of a prediction by a Calibration, or of a guess, beside the run that was measured there."""
        said = found if isinstance(found, float) else predict_placement(found, config)
        return row(self.family, method, self.name, second, config, said, self.slower(config))


def contradicted(workload: Workload) -> Iterator[str]:
    """Configurations that their counters say were of another placement."""
    for config in workload.targets if workload.local.walk is not None else ():
        if suspicious(workload.local, workload.configs[config], placement(config)):
            yield config


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
    worst = part.loc[part["size"].idxmax()]
    by_workload = part.groupby("workload")["size"].mean()
    return {
        "family": family,
        "method": method,
        "second": second,
        "points": len(part),
        **part["size"].agg(["mean", "median", "max"]),
        "worst": f"{worst.workload} {worst.second + ' to ' if worst.second else ''}{worst.config}",
        "best": f"{by_workload.idxmin()} {by_workload.min():.1%}",
        **part[["inside", "width", "noise"]].astype(float).mean(),
    }


def baselines(workload: Workload, others: Sequence[Workload]) -> Iterator[Row]:
    over_all = [
        other.slower(config)
        for other in others
        for config in other.targets
        if not placement(config).all_local
    ]
    for config in workload.targets:
        same = [other.slower(config) for other in others if config in other.configs]
        guesses = {
            CONFIGURATION: np.mean(same),
            CONSTANT: 1.0 if placement(config).all_local else np.mean(over_all),
            NO_CHANGE: 1.0,
        }
        yield from (workload.row(method, "", config, float(guess)) for method, guess in guesses.items())


def one_run(workload: Workload) -> Iterator[Row]:
    """From the all-local run: every other one with local data."""
    if workload.local.walk is None:
        return
    only = workload.calibrated()(workload.local)
    for config in workload.targets:
        yield workload.row(ONE_RUN, "", config, only)
        if not placement(config).all_local:
            yield workload.row(BASU_PLACED, "", config, basu(only, config))


def walked(workload: Workload) -> Iterator[Row]:
    """From counters of the all-local run, and of each remote one, with the walk cycles of those that are
    predicted: cycles, as a replay would be priced."""
    if workload.local.walk is None:
        return
    there = {
        config: run
        for config, run in workload.configs.items()
        if run.walk is not None and run.cycles and not placement(config).tables_local
    }
    for second in ("", *there):
        known = workload.calibrated()(workload.local, there.get(second), second or None)
        for config, target in there.items():
            if config != second and placement(config).data == LOCAL:
                yield from against(workload.family, (workload.name, second, config), known, target)


def against(
    family: str, names: tuple[str, str, str], known: Calibration, target: MeasuredRun
) -> Iterator[Row]:
    """The law's row of cycles from a run's walk cycles, and that of its rival; names: workload, second,
    config."""
    local, second, walk = known.local, known.remote, counted(target.walk, "run: walk cycles")
    found, cycles = predict_walks(known, walk), counted(local.cycles, "local run: cycles")
    interval = [value / cycles for value in counted(found.cycles, "prediction: cycles")]
    measured = counted(target.cycles, "run: cycles") / cycles
    law, rival = WALKED, BASU
    guess = 1 + (walk - counted(local.walk, "local run: walk cycles")) / cycles
    if second is not None:
        law, rival, guess = WALKED_TWICE, LINE, line(local, second, walk)
    yield row(family, law, *names, found, measured, interval)
    yield row(family, rival, *names, guess, measured)


def two_runs(workload: Workload, method: str) -> Iterator[Row]:
    """From the all-local run and each remote one: every other one; by counters, or by run times alone."""
    for second, run in workload.configs.items():
        where, local = placement(second), workload.local
        if where.tables_local or second[-1] in "EG" or where.data != LOCAL:
            continue
        if method == TIMES:
            local, run = timed(local), timed(run)
        elif run.walk is None or local.walk is None:
            continue
        both = workload.calibrated()(local, run, second)
        for config in workload.targets:
            if [*placement(config).tables()] != [*where.tables()]:  # else a repeat, no prediction
                yield workload.row(method, second, config, both)


def timed(run: MeasuredRun) -> MeasuredRun:
    """A MeasuredRun of which only the time is known, and whether one thread ran."""
    if run.seconds:
        return MeasuredRun(seconds=run.seconds, cpus=run.cpus)
    return MeasuredRun(run.cycles, cpus=run.cpus)


def remote_data(family: str) -> Iterator[Row]:
    """From the all-local run: those with remote data, tables local or not."""
    for name, configs in runs(family, ("fit", "data")).items():
        workload = Workload(family, name, configs)
        if LOCAL_RUN[family] not in configs or workload.local.walk is None:
            continue
        only = workload.calibrated()(workload.local)
        for config in configs:
            if placement(config).data != LOCAL:
                yield workload.row(DATA, "", config, only)


def replicas(family: str) -> Iterator[Row]:
    """From the run with tables on several nodes: the one with replicas. 3 of 4 reads are remote."""
    native = family.startswith("native")
    prior = "native-thin" if native else TWO_TABLES
    for workload, configs in runs(family, ("fit",)).items():
        for before, after in WIDE_FAMILIES[family]:
            if before not in configs or after not in configs:
                continue
            law = calibrated(prior, workload, many=True)
            only = law(configs[before], at=QUARTERS[native])
            found = predict_placement(only, "LP" if native else "LL")
            yield row(
                family, REPLICAS, workload, before, after, found, ratio(configs[before], configs[after])
            )


def policies(family: str) -> Iterator[Row]:
    """From the counters of linux alone, or of linux and mitosis, and the walk cycles of other policies."""
    for workload, by_policy in ports(family).items():
        run = {policy: mean_run(repeats) for policy, repeats in by_policy.items()}
        law = of_ports(workload, run["linux"])
        for known, second, more in (
            (law(), "", ("mitosis", "hydra", "wasp")),
            (law(run["mitosis"], "LP"), "mitosis", ("hydra", "wasp")),
        ):
            for policy in more:
                for found in against(family, (workload, second, policy), known, run[policy]):
                    yield found | {"method": POLICY_ROWS.get(str(found["method"]), found["method"])}


def of_ports(workload: str, linux: MeasuredRun) -> partial[Calibration]:
    """calibrate_runs for a workload of the ports, from its run on `linux`."""
    return partial(calibrated("native-thin", workload, many=True, at=QUARTERS[True]), linux)


def row(
    family: str,
    method: str,
    workload: str,
    second: str,
    config: str,
    found: Prediction | float,
    measured: float,
    interval: Iterable[float] | None = None,
) -> Row:
    repaired = family not in (PORTS, FIRST_TOUCH) and method != REPLICAS and placement(config).all_local
    known: Row = {"family": family, "method": method, "workload": workload, "second": second}
    known |= {"config": config, "repaired": repaired}
    if isinstance(found, float):
        return known | {
            "predicted": found,
            "measured": measured,
            "inside": None,
            "width": None,
            "noise": None,
        }
    low, middle, high = interval or found.slowdown
    return known | {
        "predicted": middle,
        "measured": measured,
        "inside": low <= measured <= high,
        "width": (high - low) / middle,
        "noise": (found.noise[1] - found.noise[0]) / found.middle,
    }


if __name__ == "__main__":
    print(summary(leave_one_out()).to_string(float_format="{:.4f}".format, index=False))
