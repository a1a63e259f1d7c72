"""The run-time law on published counters: a workload's own runs are left out of the fit."""

from collections.abc import Mapping
from functools import cache
from statistics import mean

import ptanalyze as pt
from ptanalyze_law.calibrate import calibrate_runs
from ptanalyze_law.leave_one_out import BASU_PLACED, CONFIGURATION, CONSTANT, basu, leave_one_out
from ptanalyze_law.predict import predict_placement
from ptanalyze_law.prior import PER_CORE, SHARED_WALKER, fitted, many_threads, reference, run_from, threads_of

from .row import FITTED, LAW, Figure, Row, row

TWO_TABLES = "thin-2D-4K"
ONE_RUN = (
    "law, from the counters of the run named last; what workloads have in common was fitted on the others, "
    "the form of the law was chosen knowing all"
)
TWO_RUNS = "law, from the counters of both runs named last; contention was fitted on the others"


@cache
def run_of(family: str, workload: str, config: str) -> pt.law.MeasuredRun:
    """MeasuredRun of a published configuration with counters, the last of several."""
    return run_from(values_of(family, workload, config), many_threads(family, workload))


def took(family: str, workload: str, config: str) -> float:
    """Run time of a published configuration: seconds, or cycles where there are no seconds."""
    values = values_of(family, workload, config)
    return values["run_time"] if "run_time" in values else values["cycles"]


def values_of(family: str, workload: str, config: str) -> dict[str, float]:
    rows = reference()
    rows = rows[(rows.family == family) & (rows.workload == workload) & (rows.config == config)]
    return dict(zip(rows.quantity, rows.value, strict=True))


def calibration(family: str, prior: str, workload: str, local: str, second: str = "") -> pt.law.Calibration:
    """Calibration from the run `local` alone or with `second` too; `prior`: the family that was fitted."""
    return calibrate_runs(
        run_of(family, workload, local),
        run_of(family, workload, second) if second else None,
        placed(second) if second else None,
        common=fitted(prior, workload),
        walkers=PER_CORE[prior],
        threads=threads_of(family, workload),
        native=prior != TWO_TABLES,
    )


def placed(config: str) -> str:
    """A configuration's name without parts unknown to the law: T, TF (huge pages)."""
    return config.removeprefix("TF").removeprefix("T")


@cache
def baselines(family: str) -> dict[tuple[str, str], dict[str, float]]:
    """{(workload, config): {mean, constant, basu}}: what the two baselines predict, from other workloads, and
    the law's rival, from the local run alone."""
    table = leave_one_out((family,))
    ratios: dict[tuple[str, str], dict[str, float]] = {}
    for key, method in (("mean", CONFIGURATION), ("constant", CONSTANT), ("basu", BASU_PLACED)):
        for line in table[table.method == method].itertuples():
            ratios.setdefault((line.workload, line.config), {})[key] = line.predicted
    return ratios


def others_said(family: str, workload: str, config: str, second: str = "") -> dict[str, float]:
    """baselines of a configuration; with a second run the rival would need walk cycles of a third."""
    said = baselines(family).get((workload, config), {})
    return {name: value for name, value in said.items() if name != "basu" or not second}


def beside(measured: Mapping[tuple[str, str], float], workload: str, config: str) -> dict[str, float]:
    """{mean, constant} from {(workload, config): ratio}: the other workloads' there, and everywhere."""
    others = {key: ratio for key, ratio in measured.items() if key[0] != workload}
    return {
        "mean": mean(ratio for (_, where), ratio in others.items() if where == config),
        "constant": mean(others.values()),
    }


def slowdown(
    figure: Figure,
    family: str,
    prior: str,
    workload: str,
    local: str,
    config: str,
    second: str = "",
    note: str = "",
    kind: str = LAW,
) -> Row:
    """Row of the run time at `config` over that at `local`; fitted where config is the second run itself."""
    ratio = predicted(family, prior, workload, local, placed(config), second)
    beside = others_said(family, workload, config, second) if family == prior else {}
    said = "; ".join(filter(None, (note, TWO_RUNS if second else ONE_RUN)))
    kind = FITTED if config == second else kind
    return row(figure, ratio, kind, said, prediction=" ".join([workload, config, second]), **beside)


def predicted(family: str, prior: str, workload: str, local: str, name: str, second: str = "") -> pt.Interval:
    """Interval of the run time at the placement `name` over that of the run `local`."""
    return predict_placement(calibration(family, prior, workload, local, second), name).slowdown


def replicated(
    run: pt.law.MeasuredRun, remote_gpt: float, remote_ept: float, prior: str, workload: str
) -> pt.Interval:
    """Interval of the speed-up by replication, from a MeasuredRun whose tables are on several nodes.

    remote_gpt, remote_ept  shares of its walks whose leaf entry is remote
    """
    return shifted(run, (remote_gpt, remote_ept), (0.0, 0.0), prior, workload).through(lambda r: 1 / r)


def misplaced(run: pt.law.MeasuredRun, remote: tuple[float, float], prior: str, workload: str) -> pt.Interval:
    """Interval of the slow-down where all of the gPT becomes remote and the ePT stays."""
    return shifted(run, remote, (1.0, remote[1]), prior, workload)


def shifted(
    run: pt.law.MeasuredRun,
    before: tuple[float, float],
    after: tuple[float, float],
    prior: str,
    workload: str,
) -> pt.Interval:
    """Interval of the run time with remote shares of gPT and ePT `after` over that with `before`."""
    known = at_shares(run, before, prior, workload)
    return predict_placement(known, shares(after, prior != TWO_TABLES)).slowdown


def at_shares(
    run: pt.law.MeasuredRun, remote: tuple[float, float], prior: str, workload: str
) -> pt.law.Calibration:
    """Calibration from a run with remote shares of gPT and ePT."""
    native = prior != TWO_TABLES
    return calibrate_runs(
        run,
        at=shares(remote, native),
        common=fitted(prior, workload),
        walkers=PER_CORE[prior],
        threads=SHARED_WALKER if native else None,
        native=native,
    )


def rival_of_replicas(
    run: pt.law.MeasuredRun, remote_gpt: float, remote_ept: float, prior: str, workload: str
) -> dict[str, float]:
    """{basu}: the speed-up of `replicated` if every walk cycle is waited for."""
    known = at_shares(run, (remote_gpt, remote_ept), prior, workload)
    return {"basu": 1 / basu(known, shares((0.0, 0.0), prior != TWO_TABLES))}


def shares(remote: tuple[float, float], native: bool) -> str:
    """Name of a placement with those remote shares of both tables, independent of each other."""
    gpt, ept = remote
    if native:
        return f"L:{1 - gpt:.4f},R:{gpt:.4f}"
    classes = {"LL": (1 - gpt) * (1 - ept), "LR": (1 - gpt) * ept, "RL": gpt * (1 - ept), "RR": gpt * ept}
    return ",".join(f"{name}:{share:.6f}" for name, share in classes.items())
