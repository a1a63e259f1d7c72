"""Other models of run time beside the law: the same runs, the same things known, each workload left out.

They predict the cycles of a run from its walk cycles, which a simulation is to give; here they are counted.
After Agbarya et al., Predicting Execution Times With Partial Simulations in Virtual Memory Research (MICRO
2020), who name them by their users: Basu (ISCA 2013), Pham (MICRO 2015), Gandhi (MICRO 2014), Alam (ISCA
2017), Yaniv (SIGMETRICS 2016). Placements change neither the number of walks nor of TLB hits, which these
models have besides: a term in walks grows with the walk cycles, one in hits stays.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from .calibrate import calibrate_runs
from .closed_forms import Run, counted
from .held_out import PORTS, QUARTERS
from .placement import LOCAL, placement
from .predict import predict_walks
from .reference import FAMILIES, LOCAL_RUN, PER_CORE, PORTS_WALKERS, mean_run, ports, runs
from .shared import shared

Point: TypeAlias = tuple[float, float]  # walk cycles, cycles, both over the cycles of the local run
Model: TypeAlias = Callable[[Point, float], float]  # local run, walk cycles of the target -> its cycles

HUGE_RUN = {
    "thin-2D-4K": ("thin-2D-THP", "TLL"),
    "thin-1D-4K": ("thin-1D-THP", "TL"),
    "native-thin": ("native-thin", "TLP-LD"),
}
LOCAL_KNOWN, HUGE_KNOWN = "local run", "local run, run with 2 MiB pages"
REMOTE_KNOWN, OWN_KNOWN = "local run, one remote run", "all other runs of the workload"
LAW, DEGREES, HELD = "this law", (1, 2, 3), 0.9
NOTES = (
    "|predicted / measured - 1| of cycles, given the walk cycles that were counted in the target run",
    "inside, width: within the error that 90 % of the runs of the other workloads have under that model",
    "Gandhi, Alam, Yaniv: where a run with 2 MiB pages is published; degree: polynomial as in Mosmodel",
)


def rivals() -> pd.DataFrame:
    """DataFrame, one row per prediction: family, known, model, workload, config, predicted, measured, error,
    inside, width."""
    table = pd.DataFrame(list(_rows()))
    table["error"] = table.predicted / table.measured - 1
    for (_, _, _), part in table.groupby(["family", "known", "model"]):
        for workload in part.workload.unique():
            own = part.workload.str.casefold() == workload.casefold()
            others = part.error[~own].abs()
            within = float(np.quantile(others, HELD)) if len(others) else float("nan")
            at = part.index[own]
            table.loc[at, "inside"] = (
                (part.error[own].abs() <= within).astype(float) if within == within else np.nan
            )
            table.loc[at, "width"] = 2 * within
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


def _rows() -> Iterator[dict[str, Any]]:
    for family in FAMILIES:
        members = runs(family)
        huge = runs(HUGE_RUN[family][0], ("no",))
        for workload, configs in members.items():
            local = configs[LOCAL_RUN[family]]
            there = {name: run for name, run in configs.items() if _counts(name)}
            thp = huge.get(workload, {}).get(HUGE_RUN[family][1])
            others = [
                (_point(cs[LOCAL_RUN[family]], cs[LOCAL_RUN[family]]), _point(run, cs[LOCAL_RUN[family]]))
                for name, cs in members.items()
                if name != workload
                for config, run in cs.items()
                if _counts(config)
            ]
            ours = partial(
                calibrate_runs,
                local,
                common=shared(family, workload),
                per_core=PER_CORE[family],
                native=family != "thin-2D-4K",
            )
            for config, target in there.items():
                known = {
                    LOCAL_KNOWN: _from_local(others),
                    HUGE_KNOWN: _from_huge(_point(thp, local)) if thp else {},
                }
                if len(there) > 3:
                    known[OWN_KNOWN] = _from_own(
                        [_point(run, local) for n, run in configs.items() if n != config]
                    )
                models = {(what, name): model for what, of in known.items() for name, model in of.items()}
                models[LOCAL_KNOWN, LAW] = _law(ours())
                yield from _predictions(family, workload, config, local, target, models)
                for second, run in there.items():
                    if second != config:
                        line = {(REMOTE_KNOWN, "line through both"): _line(_point(run, local))}
                        line[REMOTE_KNOWN, LAW] = _law(ours(run, second))
                        yield from _predictions(family, workload, config, local, target, line)
    yield from _of_ports()


def _of_ports() -> Iterator[dict[str, Any]]:
    means = {w: {policy: mean_run(repeats) for policy, repeats in of.items()} for w, of in ports().items()}
    for workload, run in means.items():
        linux, mitosis = run["linux"], run["mitosis"]
        others = [
            (_point(of["linux"], of["linux"]), _point(of[policy], of["linux"]))
            for name, of in means.items()
            if name != workload
            for policy in ("mitosis", "hydra", "wasp")
        ]
        ours = partial(
            calibrate_runs,
            linux,
            at=QUARTERS[True],
            walkers=PORTS_WALKERS,
            per_core=1,
            native=True,
            common=shared("native-thin", workload),
        )
        for policy in ("mitosis", "hydra", "wasp"):
            models = {(LOCAL_KNOWN, name): model for name, model in _from_local(others).items()}
            models[LOCAL_KNOWN, LAW] = _law(ours())
            if policy != "mitosis":
                models[REMOTE_KNOWN, "line through both"] = _line(_point(mitosis, linux))
                models[REMOTE_KNOWN, LAW] = _law(ours(mitosis, "LP"))
            yield from _predictions(PORTS, workload, policy, linux, run[policy], models)


def _predictions(
    family: str,
    workload: str,
    config: str,
    local: Run,
    target: Run,
    models: Mapping[tuple[str, str], Model],
) -> Iterator[dict[str, Any]]:
    walk, measured = _point(target, local)
    for (known, model), predict in models.items():
        row = {"family": family, "known": known, "model": model, "workload": workload, "config": config}
        yield row | {"predicted": predict(_point(local, local), walk), "measured": measured}


def _counts(name: str) -> bool:
    where = placement(name) if not name.startswith("T") else None
    return where is not None and not where.tables_local and where.data == LOCAL


def _point(run: Run, local: Run) -> Point:
    cycles = counted(local.cycles, "run: cycles")
    return counted(run.walk, "run: walk cycles") / cycles, counted(run.cycles, "run: cycles") / cycles


def _from_local(others: list[tuple[Point, Point]]) -> dict[str, Model]:
    """Basu, Pham: every walk cycle is waited for. Polynomials of the added walk cycles of other workloads."""
    models: dict[str, Model] = {"Basu, Pham": lambda local, walk: local[1] + walk - local[0]}
    if not others:
        return models
    added = np.array([there[0] - here[0] for here, there in others])
    slower = np.array([there[1] - 1 for _, there in others])
    for degree in DEGREES:
        if len(others) > degree:
            powers = np.stack([added**power for power in range(1, degree + 1)], axis=1)
            weights = np.linalg.lstsq(powers / (1 + slower)[:, None], slower / (1 + slower), rcond=None)[0]
            models[f"other workloads, degree {degree}"] = partial(_polynomial, weights)
    return models


def _polynomial(weights: np.ndarray, local: Point, walk: float) -> float:
    return 1 + float(sum(w * (walk - local[0]) ** (k + 1) for k, w in enumerate(weights)))


def _from_huge(huge: Point) -> dict[str, Model]:
    """Ideal run time from a run with 2 MiB pages, by a slope of 1 (Alam), or by a line through it and the
    local run (Yaniv), or through that ideal without any walks and the local run (Gandhi)."""
    ideal = huge[1] - huge[0]
    return {
        "Gandhi": lambda local, walk: ideal + (local[1] - ideal) / local[0] * walk,
        "Alam": lambda local, walk: ideal + walk,
        "Yaniv": _line(huge),
    }


def _line(second: Point) -> Model:
    """The line through the local run and another one."""

    def predict(local: Point, walk: float) -> float:
        return local[1] + (second[1] - local[1]) / (second[0] - local[0]) * (walk - local[0])

    return predict


def _from_own(points: list[Point]) -> dict[str, Model]:
    """Polynomials of the walk cycles through all other runs of the workload (Mosmodel)."""
    walks, cycles = (np.array(values) for values in zip(*points, strict=True))
    return {
        f"Mosmodel, degree {degree}": partial(_value, np.polyfit(walks, cycles, degree, w=1 / cycles))
        for degree in DEGREES
    }


def _value(polynomial: np.ndarray, local: Point, walk: float) -> float:
    return float(np.polyval(polynomial, walk))


def _law(calibration: Any) -> Model:
    cycles = calibration.local.cycles

    def predict(local: Point, walk: float) -> float:
        found = predict_walks(calibration, walk * cycles).cycles
        assert found is not None
        return found[1] / float(cycles)

    return predict
