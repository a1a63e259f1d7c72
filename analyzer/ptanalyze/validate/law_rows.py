"""The run-time law on published counters: a workload's own runs are left out of the fit."""

from collections.abc import Mapping
from functools import cache
from statistics import mean

from ..core.interval import Interval, over_corners
from ..cost.calibrate import calibrate_runs
from ..cost.calibration import Calibration
from ..cost.closed_forms import Run, counted
from ..cost.fit import WALKERS, Shared, exposed_prior, shared
from ..cost.leave_one_out import CONFIGURATION, CONSTANT, leave_one_out
from ..cost.predict import predict_placement
from ..cost.reference import reference, run_from
from .published import Figure
from .row import FITTED, REPLAYED, Row, row

ONE_RUN = (
    "law, from the counters of the run named last; what workloads have in common was fitted on the others, "
    "the form of the law was chosen knowing all"
)
TWO_RUNS = "law, from the counters of both runs named last; contention was fitted on the others"


@cache
def run_of(family: str, workload: str, config: str) -> Run:
    """Run of a published configuration with counters, the last of several."""
    return run_from(values_of(family, workload, config))


def took(family: str, workload: str, config: str) -> float:
    """Run time of a published configuration: seconds, or cycles where there are no seconds."""
    values = values_of(family, workload, config)
    return values["run_time"] if "run_time" in values else values["cycles"]


def values_of(family: str, workload: str, config: str) -> dict[str, float]:
    rows = reference()
    rows = rows[(rows.family == family) & (rows.workload == workload) & (rows.config == config)]
    return dict(zip(rows.quantity, rows.value, strict=True))


@cache
def common(prior: str, workload: str) -> Shared:
    """Parameters fitted on the other workloads of the family `prior`."""
    return shared(prior, workload)


def calibration(family: str, prior: str, workload: str, local: str, second: str = "") -> Calibration:
    """Calibration from the run `local` alone or with `second` too; `prior`: the family that was fitted."""
    return calibrate_runs(
        run_of(family, workload, local),
        run_of(family, workload, second) if second else None,
        placed(second) if second else None,
        common=common(prior, workload),
        walkers=WALKERS[prior],
        native=prior != "thin-2D-4K",
    )


def placed(config: str) -> str:
    """A configuration's name without parts unknown to the law: T, TF (huge pages)."""
    return config.removeprefix("TF").removeprefix("T")


@cache
def baselines(family: str) -> dict[tuple[str, str], dict[str, float]]:
    """{(workload, config): {mean, constant}}: predictions of the two baselines, from the other workloads."""
    table = leave_one_out((family,))
    ratios: dict[tuple[str, str], dict[str, float]] = {}
    for key, method in (("mean", CONFIGURATION), ("constant", CONSTANT)):
        for line in table[table.method == method].itertuples():
            ratios.setdefault((line.workload, line.config), {})[key] = line.predicted
    return ratios


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
    kind: str = REPLAYED,
) -> Row:
    """Row of the run time at `config` over that at `local`; fitted where config is the second run itself."""
    ratio = predicted(family, prior, workload, local, placed(config), second)
    beside = baselines(family).get((workload, config), {}) if family == prior else {}
    said = "; ".join(filter(None, (note, TWO_RUNS if second else ONE_RUN)))
    return row(figure, ratio, FITTED if config == second else kind, said, **beside)


def predicted(family: str, prior: str, workload: str, local: str, name: str, second: str = "") -> Interval:
    """Interval of the run time at the placement `name` over that of the run `local`."""
    return predict_placement(calibration(family, prior, workload, local, second), name).slowdown


def replicated(
    run: Run, remote_gpt: float, remote_ept: float, prior: str, workload: str, walkers: float
) -> Interval:
    """Interval of the speed-up by replication, from a Run whose tables are on several nodes.

    remote_gpt, remote_ept  shares of its walks whose leaf entry is remote
    """
    known, (gpt, ept) = common(prior, workload), walks(run)

    def speedup(exposed: float, share: float) -> float:
        stretch = share * (known.stretch - 1)
        gained = gone(gpt, stretch, remote_gpt) + gone(ept, stretch, remote_ept)
        return run.cycles / (run.cycles - exposed * gained)

    prior_of_e = exposed_prior((gpt + ept) / run.cycles, walkers, known)
    return over_corners(speedup, prior_of_e, known.dram_share)


def walks(run: Run) -> tuple[float, float]:
    """Walk cycles in the gPT and in the ePT."""
    gpt, ept = (counted(walk, "published run: walk cycles") for walk in (run.gpt, run.ept))
    return gpt, ept


def gone(walk: float, stretch: float, remote: float) -> float:
    """Walk cycles that local tables would save: walk = local * (1 + stretch * remote)."""
    return walk * (1 - 1 / (1 + stretch * remote))


def misplaced(run: Run, remote_gpt: float, prior: str, workload: str, walkers: float) -> Interval:
    """Interval of the slow-down where all of the gPT becomes remote and the ePT stays."""
    known, (gpt, ept) = common(prior, workload), walks(run)

    def slower(exposed: float, share: float) -> float:
        stretch = share * (known.stretch - 1)
        local = gpt / (1 + stretch * remote_gpt)
        return 1 + exposed * local * stretch * (1 - remote_gpt) / run.cycles

    prior_of_e = exposed_prior((gpt + ept) / run.cycles, walkers, known)
    return over_corners(slower, prior_of_e, known.dram_share)
