"""Other models of run time beside the law: the same runs, the same things known, each workload left out.

Usage: python -m analyzer.bench.rivals   (prints the table of ADR 10)

The models predict the cycles of a run from its walk cycles, which a simulation is to give. After Agbarya et
al., Predicting Execution Times With Partial Simulations in Virtual Memory Research (MICRO 2020), who name
them by their users: Basu (ISCA 2013), Pham (MICRO 2015), Gandhi (MICRO 2014), Alam (ISCA 2017), Yaniv
(SIGMETRICS 2016). Placements change neither the number of walks nor of TLB hits, which these models have
besides: a term in walks grows with the walk cycles, one in hits stays.

A Point is (walk cycles, cycles) of a run, a Model gives the cycles of a run from its walk cycles.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from ptanalyze.cost.law import LOCAL, Calibration, MeasuredRun, counted, placement
from ptanalyze_law.predict import predict_walks
from ptanalyze_law.prior import FAMILIES, LOCAL_RUN, PORTS, calibrated, mean_run, ports, runs

from .leave_one_out import of_ports

Point: TypeAlias = tuple[float, float]
Model: TypeAlias = Callable[[float], float]
Models: TypeAlias = dict[tuple[str, str], Model]  # (what is known, name)
DEGREES = (1, 2, 3)  # of Mosmodel's polynomials
HUGE_RUN = {  # family and name of the local run with 2 MiB pages
    "thin-2D-4K": ("thin-2D-THP", "TLL"),
    "thin-1D-4K": ("thin-1D-THP", "TL"),
    "native-thin": ("native-thin", "TLP-LD"),
}
ONE, HUGE = "local run", "local run, run with 2 MiB pages"
TWO, ALL = "local run, one remote run", "all other runs of the workload"
LAW = "this law"
ENOUGH = 4  # runs for a polynomial of degree 3
NAMES = {"thin-2D-4K": "two tables", "thin-1D-4K": "one table", "native-thin": "native", PORTS: "ports"}


@dataclass(frozen=True)
class Known:
    """A workload: its runs by name, that of 2 MiB pages, (added walk cycles, added cycles) of the others'
    runs over their local ones, and the law from the local run alone (or with a second one)."""

    family: str
    workload: str
    local: MeasuredRun
    there: Mapping[str, MeasuredRun]
    huge: MeasuredRun | None
    others: list[Point]
    law: partial[Calibration]


def rivals() -> pd.DataFrame:
    """DataFrame, one row per prediction: family, known, model, workload, config, predicted, measured, error.
    What is predicted is cycles over those of the local run, from counted walk cycles."""
    table = pd.DataFrame([*_thin(), *_ports()])
    table["error"] = table.predicted / table.measured - 1
    return table


def lines(table: pd.DataFrame) -> Iterator[str]:
    """Lines of a Markdown table: mean and worst |error|, a row per model, a column per family."""
    yield f"| known | model | {' | '.join(NAMES.values())} |"
    yield "|---" * (2 + len(NAMES)) + "|"
    for (known, model), part in table.groupby(["known", "model"], sort=False):
        size = part.error.abs().groupby(part.family)
        errors = {f: f"{of.mean():.1%}, {of.max():.0%}".replace("%", " %") for f, of in size}
        yield f"| {known} | {model} | {' | '.join(errors.get(family, '-') for family in NAMES)} |"


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


def _from_two(known: Known, second: MeasuredRun, where: str) -> Models:
    through = line(_point(known.local), _point(second))
    return {(TWO, LAW): _law(known.law(second, where)), (TWO, "line through both"): through}


def _rows(known: Known, config: str, target: MeasuredRun, models: Models) -> Iterator[dict[str, Any]]:
    walk, measured = _point(target)
    over = _point(known.local)[1]
    about = {"family": known.family, "workload": known.workload, "config": config}
    for (given, name), model in models.items():
        found = {"predicted": model(walk) / over, "measured": measured / over}
        yield about | {"known": given, "model": name} | found


def _counted(configs: Mapping[str, MeasuredRun]) -> dict[str, MeasuredRun]:
    return {name: run for name, run in configs.items() if run.walk is not None}


def _counts(name: str) -> bool:
    where = placement(name)
    return not where.tables_local and where.data == LOCAL


def _point(run: MeasuredRun) -> Point:
    return counted(run.walk, "run: walk cycles"), counted(run.cycles, "run: cycles")


def _added(run: MeasuredRun, local: MeasuredRun) -> Point:
    here, there = _point(local), _point(run)
    return (there[0] - here[0]) / here[1], there[1] / here[1] - 1


def _law(calibration: Calibration) -> Model:
    def predict(walk: float) -> float:
        return counted(predict_walks(calibration, walk).cycles, "prediction: cycles")[1]

    return predict


def basu(local: Point) -> Model:
    """Basu, Pham: every walk cycle is waited for, all else stays."""
    return lambda walk: local[1] - local[0] + walk


def alam(huge: Point) -> Model:
    """Every walk cycle is waited for, all else is as in a run with 2 MiB pages."""
    return basu(huge)


def gandhi(local: Point, huge: Point) -> Model:
    """The line through the run without any walks that 2 MiB pages let expect, and the local run."""
    return line(local, (0.0, huge[1] - huge[0]))


def line(one: Point, other: Point) -> Model:
    """The line through two runs: Yaniv, with a run of 2 MiB pages."""
    slope = (other[1] - one[1]) / (other[0] - one[0])
    return lambda walk: one[1] + slope * (walk - one[0])


def mosmodel(points: Sequence[Point], degree: int) -> Model:
    """Polynomial of the walk cycles through runs of a program, by least squares of relative errors."""
    walks, cycles = (np.array(values) for values in zip(*points, strict=True))
    weights = np.polyfit(walks, cycles, degree, w=1 / cycles)
    return lambda walk: float(np.polyval(weights, walk))


def pooled(local: Point, added: Sequence[Point], degree: int) -> Model:
    """Polynomial of the added walk cycles, both over the local run's cycles, through `added` of others."""
    walks, slower = (np.array(values) for values in zip(*added, strict=True))
    powers = np.stack([walks**power for power in range(1, degree + 1)], axis=1) / (1 + slower)[:, None]
    weights = np.linalg.lstsq(powers, slower / (1 + slower), rcond=None)[0]
    return partial(_grown, local, weights)


def _grown(local: Point, weights: np.ndarray, walk: float) -> float:
    added = (walk - local[0]) / local[1]
    return local[1] * (1 + float(sum(w * added ** (k + 1) for k, w in enumerate(weights))))


if __name__ == "__main__":
    print(*lines(rivals()), sep="\n")
