"""Predictions of published runs, each workload left out of everything that is fitted: a case per use."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from .calibrate import calibrate_runs
from .calibration import Calibration
from .closed_forms import Run, counted
from .observed import ratio
from .placement import LOCAL, placement
from .predict import Prediction, predict_placement, predict_walks, slowdown
from .reference import (
    LOCAL_RUN,
    PER_CORE,
    PORTS,
    WIDE_FAMILIES,
    mean_run,
    ports,
    runs,
    threads_of,
)
from .repeats import spread
from .shared import shared

ONE_RUN, TWO_RUNS = "all-local run only", "one remote run added"
TIMES = "run times, one remote run added"
LINUX, POLICIES = "linux, walk cycles of a policy", "linux and mitosis, walk cycles of a policy"
REPLICAS, DATA = "tables on several nodes: replicas", "all-local run only: remote data"
QUARTERS = {True: "L:0.25,R:0.75", False: "LL:0.0625,LR:0.1875,RL:0.1875,RR:0.5625"}
TWO_TABLES = "thin-2D-4K"

Row = dict[str, Any]


def one_run(family: str, workload: str, configs: Mapping[str, Run]) -> Iterator[Row]:
    """From the all-local run: every other one with local data."""
    if configs[LOCAL_RUN[family]].walk is None:
        return
    only = calibrated(family, workload)(configs[LOCAL_RUN[family]])
    for name in targets(family, configs):
        yield of(family, ONE_RUN, workload, "", name, configs, only)


def two_runs(family: str, workload: str, configs: Mapping[str, Run], method: str = TWO_RUNS) -> Iterator[Row]:
    """From the all-local run and each remote one: every other one; by counters, or by run times alone."""
    known = _timed if method == TIMES else _whole
    for second, run in configs.items():
        where = placement(second)
        if where.tables_local or second[-1] in "EG" or where.data != LOCAL:
            continue
        if method == TWO_RUNS and (run.walk is None or configs[LOCAL_RUN[family]].walk is None):
            continue
        local = known(configs[LOCAL_RUN[family]])
        both = calibrated(family, workload)(local, known(run), second)
        for name in targets(family, configs):
            if [*placement(name).tables()] != [*where.tables()]:  # else a repeat, no prediction
                yield of(family, method, workload, second, name, configs, both)


def remote_data(family: str) -> Iterator[Row]:
    """From the all-local run: those with remote data, tables local or not."""
    for workload, configs in runs(family, ("fit", "data")).items():
        if configs.get(LOCAL_RUN[family], Run()).walk is None:
            continue
        only = calibrated(family, workload)(configs[LOCAL_RUN[family]])
        for name in configs:
            if placement(name).data != LOCAL:
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
                common=shared(prior, workload),
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
        for known, more in (
            (law(), ("mitosis", "hydra", "wasp")),
            (law(run["mitosis"], "LP"), ("hydra", "wasp")),
        ):
            for policy in more:
                yield _policy(family, workload, run["linux"], known, policy, run[policy])


def _policy(family: str, workload: str, linux: Run, known: Calibration, policy: str, run: Run) -> Row:
    cycles, walk = counted(linux.cycles, "linux: cycles"), counted(run.walk, "run: walk cycles")
    found = predict_walks(known, walk, policy)
    low, middle, high = (value / cycles for value in counted(found.cycles, "prediction: cycles"))
    measured = counted(run.cycles, "run: cycles") / cycles
    if known.remote is None:
        return row(family, LINUX, workload, "", policy, found, measured, (low, middle, high))
    own, other = (counted(r.walk, "run: walk cycles") for r in (linux, known.remote))
    more = {"gain": (walk - own) / (other - own) * slowdown(known) / middle}
    return row(family, POLICIES, workload, "mitosis", policy, found, measured, (low, middle, high)) | more


def of_ports(workload: str, linux: Run, family: str = PORTS) -> partial[Calibration]:
    """calibrate_runs for a workload of the ports, from its run on `linux`."""
    return partial(
        calibrate_runs,
        linux,
        at=QUARTERS[True],
        walkers=PER_CORE[family],
        threads=threads_of(family, workload),
        native=True,
        common=shared("native-thin", workload),
    )


def targets(family: str, configs: Mapping[str, Run]) -> list[str]:
    """Names of the runs of a workload that are to be predicted."""
    return [name for name in configs if name != LOCAL_RUN[family]]


def of(
    family: str,
    method: str,
    workload: str,
    second: str,
    name: str,
    configs: Mapping[str, Run],
    known: Calibration | float,
) -> Row:
    """Row of a prediction by a Calibration, or of a guess, beside the run that was measured there."""
    measured = ratio(configs[LOCAL_RUN[family]], configs[name])
    if isinstance(known, float):
        return row(family, method, workload, second, name, known, measured)
    found = predict_placement(known, name)
    more = {} if known.remote is None else {"gain": gain(found.middle, slowdown(known))}
    return row(family, method, workload, second, name, found, measured) | more


def gain(predicted: float, known: float) -> float:
    """Relative growth of a prediction over that of the second run; both are times over the local run's."""
    return (predicted - 1) / (known - 1) * known / predicted


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
    known |= {"repaired": method not in (REPLICAS, LINUX, POLICIES) and placement(name).all_local}
    known |= {"spread": spread(family, workload), "gain": 0.0}
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


def calibrated(family: str, workload: str) -> partial[Calibration]:
    """calibrate_runs for a workload of a family, with what is fitted on the others."""
    return partial(
        calibrate_runs,
        common=shared(family, workload),
        walkers=PER_CORE[family],
        threads=threads_of(family, workload),
        native=family != TWO_TABLES,
    )


def _whole(run: Run) -> Run:
    return run


def _timed(run: Run) -> Run:
    """A Run of which only the time is known, and whether one thread ran."""
    return Run(seconds=run.seconds, cpus=run.cpus) if run.seconds else Run(run.cycles, cpus=run.cpus)
