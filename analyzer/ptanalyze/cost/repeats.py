"""What the noise of the published runs alone would give: the error of a law that is exact, but for repeats.

Hardly any run of the papers was repeated under its own name. These took the same time but for noise:

- runs with their tables and data in the same places: LL and RRIM, RLI and RRIE, LP-LD and RPI-LD+M
- runs with 2 MiB pages and data in the same places whose walk cycles differ by less than 0.5 % of the run,
  so that where their tables were cannot matter (LibLinear, PageRank)
- the five repeats of each run of the ports, which are predicted as means
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from math import sqrt

import numpy as np
import pandas as pd

from .closed_forms import Run
from .placement import placement
from .reference import FAMILIES, FIRST_TOUCH, PORTS, ports, runs

HUGE = "T"  # before a configuration: 2 MiB pages
UNMOVED = 0.005  # of the run: walk cycles that differ less cannot have changed it
DRAWS = 2_000  # of noise; a mean error of 1 % is then known to 0.01 %
SEED = 1


@cache
def spread(family: str, workload: str) -> float | None:
    """Standard deviation of a run's time, relative, from its repeats; None where nothing was repeated."""
    if family in (PORTS, FIRST_TOUCH):
        return _of_groups(_of_ports(family, workload))
    if family not in FAMILIES:
        return None
    return _of_groups(_alike(runs(family, ("fit", "check", "data", "no")).get(workload, {})))


def _of_ports(family: str, workload: str) -> Iterator[list[float]]:
    """Groups of repeats, so scaled that they scatter as their means do."""
    for repeats in ports(family)[workload].values():
        logs = np.log([run.cycles or 1.0 for run in repeats])
        yield list(np.exp(logs.mean() + (logs - logs.mean()) / sqrt(len(logs))))


def _alike(configs: Mapping[str, Run]) -> Iterator[list[float]]:
    """Run times of each group of runs that should take as long."""
    same: dict[object, list[float]] = {}
    huge: dict[str, list[Run]] = {}
    for name, run in configs.items():
        where = placement(name.removeprefix(HUGE))
        if name.startswith(HUGE):
            huge.setdefault(where.data, []).append(run)
        else:
            same.setdefault((*where.tables(), where.data), []).append(run.seconds or run.length)
    for group in huge.values():
        walks = [run.walk or 0.0 for run in group]
        if max(walks) - min(walks) < UNMOVED * min(run.cycles or 0.0 for run in group):
            same[len(same)] = [run.length for run in group]
    return (group for group in same.values() if len(group) > 1)


def _of_groups(groups: Iterable[list[float]]) -> float | None:
    logs = [np.log(group) for group in groups]
    freedom = sum(len(group) - 1 for group in logs)
    return sqrt(sum(float(((g - g.mean()) ** 2).sum()) for g in logs) / freedom) if freedom else None


def floor(rows: pd.DataFrame) -> tuple[float, float] | None:
    """(mean, worst) |error| that noise alone is expected to give `rows` of leave_one_out.

    Each run of a workload has one error of its own, normal with `spread`, in all of its rows: L of the local
    run, S of the second one, T of the one that is predicted. To first order a prediction that grows by `gain`
    times what the second run grows misses by gain (S - L) + L - T. None unless each row has a spread.
    """
    if rows.spread.isna().any():
        return None
    runs_of = [rows.family + rows.workload + of for of in ("", rows.second, rows.config)]
    names = {name: at for at, name in enumerate(pd.unique(pd.concat(runs_of)))}
    noise = np.random.default_rng(SEED).standard_normal((DRAWS, len(names)))
    local, second, target = (noise[:, [names[name] for name in column]] for column in runs_of)
    gain = rows.gain.to_numpy(float)
    errors = np.abs(gain * (second - local) + local - target) * rows.spread.to_numpy(float)
    return float(errors.mean()), float(errors.max(axis=1).mean())
