"""Other models of run time beside the law: the same runs, the same things known, each workload left out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from .calibration import Calibration
from .closed_forms import Run, counted
from .held_out import calibrated, of_ports
from .placement import LOCAL, placement
from .predict import predict_walks
from .reference import FAMILIES, LOCAL_RUN, PORTS, mean_run, ports, runs
from .rival_models import DEGREES, Model, Point, alam, basu, gandhi, line, mosmodel, pooled

Models: TypeAlias = dict[tuple[str, str], Model]  # (what is known, name)

HUGE_RUN = {  # family and name of the local run with 2 MiB pages
    "thin-2D-4K": ("thin-2D-THP", "TLL"),
    "thin-1D-4K": ("thin-1D-THP", "TL"),
    "native-thin": ("native-thin", "TLP-LD"),
}
ONE, HUGE = "local run", "local run, run with 2 MiB pages"
TWO, ALL = "local run, one remote run", "all other runs of the workload"
LAW, HELD = "this law", 0.9
ENOUGH = 4  # runs for a polynomial of degree 3
NOTES = (
    "|predicted / measured - 1| of cycles, given the walk cycles that were counted in the target run",
    "inside, width: within the error that 90 % of the runs of the other workloads have under that model",
    "Gandhi, Alam, Yaniv: where a run with 2 MiB pages is published; degree: polynomials as in Mosmodel, of "
    "the workload's own other runs or of other workloads",
)


@dataclass(frozen=True)
class Known:
    """A workload: its runs by name, that of 2 MiB pages, (added walk cycles, added cycles) of the others'
    runs over their local ones, and the law from the local run alone (or with a second one)."""

    family: str
    workload: str
    local: Run
    there: Mapping[str, Run]
    huge: Run | None
    others: list[Point]
    law: partial[Calibration]


def rivals() -> pd.DataFrame:
    """DataFrame, one row per prediction: family, known, model, workload, config, predicted, measured, error,
    inside, width. What is predicted is cycles over those of the local run, from counted walk cycles."""
    table = pd.DataFrame([*_thin(), *_ports()])
    table["error"] = table.predicted / table.measured - 1
    table["inside"] = table["width"] = np.nan
    for _, part in table.groupby(["family", "known", "model"]):
        for workload in part.workload.unique():
            own = part.workload == workload
            others = part.error[~own].abs()
            if len(others):
                within = float(np.quantile(others, HELD))
                table.loc[part.index[own], "inside"] = (part.error[own].abs() <= within).astype(float)
                table.loc[part.index[own], "width"] = 2 * within
    return table


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Errors by family, what is known, and model: points, mean, median, max, inside, width."""
    rows = []
    for (family, known, model), part in table.groupby(["family", "known", "model"], sort=False):
        size = part.error.abs()
        rows.append(
            {"family": family, "known": known, "model": model, "points": len(part)}
            | {"mean": size.mean(), "median": size.median(), "max": size.max()}
            | {"inside": part.inside.mean(), "width": part.width.mean()}
        )
    return pd.DataFrame(rows)


def _thin() -> Iterator[dict[str, Any]]:
    for family in FAMILIES:
        members = {name: _counted(configs) for name, configs in runs(family).items()}
        members = {name: configs for name, configs in members.items() if LOCAL_RUN[family] in configs}
        huge = runs(HUGE_RUN[family][0], ("no",))
        for workload, configs in members.items():
            others = [
                _added(run, cs[LOCAL_RUN[family]])
                for name, cs in members.items()
                if name != workload
                for config, run in cs.items()
                if _counts(config)
            ]
            yield from _of(
                Known(
                    family,
                    workload,
                    configs[LOCAL_RUN[family]],
                    {name: run for name, run in configs.items() if _counts(name)},
                    huge.get(workload, {}).get(HUGE_RUN[family][1]),
                    others,
                    partial(calibrated(family, workload), configs[LOCAL_RUN[family]]),
                )
            )


def _of(known: Known) -> Iterator[dict[str, Any]]:
    for config, target in known.there.items():
        models = _from_one(known) | _from_huge(known)
        if len(known.there) > ENOUGH:
            points = [_point(run) for name, run in known.there.items() if name != config]
            points.append(_point(known.local))
            models |= {(ALL, f"Mosmodel, degree {n}"): mosmodel(points, n) for n in DEGREES}
        yield from _rows(known, config, target, models)
        for second, run in known.there.items():
            if second != config:
                yield from _rows(known, config, target, _from_two(known, run, second))


def _ports() -> Iterator[dict[str, Any]]:
    means = {w: {policy: mean_run(repeats) for policy, repeats in of.items()} for w, of in ports().items()}
    for workload, run in means.items():
        linux, there = run["linux"], {name: of for name, of in run.items() if name != "linux"}
        others = [
            _added(of[name], of["linux"])
            for other, of in means.items()
            if other != workload
            for name in there
        ]
        known = Known(PORTS, workload, linux, there, None, others, of_ports(workload, linux))
        for policy, target in there.items():
            models = _from_one(known)
            if policy != "mitosis":
                models |= _from_two(known, run["mitosis"], "LP")
            yield from _rows(known, policy, target, models)


def _from_one(known: Known) -> Models:
    local = _point(known.local)
    models: Models = {(ONE, LAW): _law(known.law()), (ONE, "Basu, Pham"): basu(local)}
    for degree in DEGREES:
        if len(known.others) > degree:
            models[ONE, f"other workloads, degree {degree}"] = pooled(local, known.others, degree)
    return models


def _from_huge(known: Known) -> Models:
    if known.huge is None:
        return {}
    local, huge = _point(known.local), _point(known.huge)
    return {
        (HUGE, "Gandhi"): gandhi(local, huge),
        (HUGE, "Alam"): alam(huge),
        (HUGE, "Yaniv"): line(local, huge),
    }


def _from_two(known: Known, second: Run, where: str) -> Models:
    through = line(_point(known.local), _point(second))
    return {(TWO, LAW): _law(known.law(second, where)), (TWO, "line through both"): through}


def _rows(known: Known, config: str, target: Run, models: Models) -> Iterator[dict[str, Any]]:
    walk, measured = _point(target)
    over = _point(known.local)[1]
    about = {"family": known.family, "workload": known.workload, "config": config}
    for (given, name), model in models.items():
        found = {"predicted": model(walk) / over, "measured": measured / over}
        yield about | {"known": given, "model": name} | found


def _counted(configs: Mapping[str, Run]) -> dict[str, Run]:
    return {name: run for name, run in configs.items() if run.walk is not None}


def _counts(name: str) -> bool:
    where = placement(name)
    return not where.tables_local and where.data == LOCAL


def _point(run: Run) -> Point:
    return counted(run.walk, "run: walk cycles"), counted(run.cycles, "run: cycles")


def _added(run: Run, local: Run) -> Point:
    here, there = _point(local), _point(run)
    return (there[0] - here[0]) / here[1], there[1] / here[1] - 1


def _law(calibration: Calibration) -> Model:
    def predict(walk: float) -> float:
        return counted(predict_walks(calibration, walk).cycles, "prediction: cycles")[1]

    return predict
