"""The run-time law on published counters: a workload's own runs are left out of what is fitted."""

from functools import cache
from statistics import mean

from ..law.calibrate import calibrate
from ..law.closed_forms import Run, over_corners
from ..law.fit import WALKERS, exposed_prior, shared
from ..law.leave_one_out import CONFIGURATION, CONSTANT, leave_one_out
from ..law.predict import predict
from ..law.reference import reference
from .row import FITTED, REPLAYED, row

GPT = ("dtlb_load_misses.walk_pending", "dtlb_store_misses.walk_pending")
ONE_RUN = (
    "law, from the counters of the run named last; what workloads have in common was fitted on the others, "
    "the form of the law was chosen knowing all"
)
TWO_RUNS = "law, from the counters of both runs named last; contention was fitted on the others"


@cache
def run_of(family, workload, config):
    """Run of a published configuration, the last of several; None where it has no counters."""
    rows = reference()
    rows = rows[(rows.family == family) & (rows.workload == workload) & (rows.config == config)]
    values = dict(zip(rows.quantity, rows.value, strict=True))
    if "cycles" not in values:
        return None
    if "walk_cycles" in values:
        return Run(values["cycles"], values["walk_cycles"], 0.0)
    gpt = sum(values[name] for name in GPT)
    return Run(values["cycles"], gpt, values["ept.walk_pending"], values["run_time"])


def took(family, workload, config):
    """Run time of a published configuration: seconds, or cycles where there are only those."""
    rows = reference()
    rows = rows[(rows.family == family) & (rows.workload == workload) & (rows.config == config)]
    values = dict(zip(rows.quantity, rows.value, strict=True))
    return values.get("run_time", values.get("cycles"))


@cache
def common(prior, workload):
    """What the other workloads of the family `prior` have in common."""
    return shared(prior, workload)


def calibration(family, prior, workload, local, second=""):
    """Calibration from the run `local` alone or with `second` too; `prior`: the family that was fitted."""
    other = (run_of(family, workload, second), placed(second)) if second else ()
    how = {"common": common(prior, workload), "walkers": WALKERS[prior], "native": prior != "thin-2D-4K"}
    return calibrate(run_of(family, workload, local), *other, **how)


def placed(config):
    """A configuration's name without what the law does not know of: T, TF (huge pages)."""
    return config.removeprefix("TF").removeprefix("T")


@cache
def baselines(family):
    """{(workload, config): {mean, constant}}: what the two baselines say, from the other workloads."""
    table, found = leave_one_out((family,)), {}
    for key, method in (("mean", CONFIGURATION), ("constant", CONSTANT)):
        for line in table[table.method == method].itertuples():
            found.setdefault((line.workload, line.config), {})[key] = line.predicted
    return found


def beside(measured, workload, config):
    """{mean, constant} from {(workload, config): ratio}: the other workloads' there, and everywhere."""
    others = {key: ratio for key, ratio in measured.items() if key[0] != workload}
    return {
        "mean": mean(ratio for (_, where), ratio in others.items() if where == config),
        "constant": mean(others.values()),
    }


def slowdown(figure, family, prior, workload, local, config, second="", note="", kind=REPLAYED):
    """Row of the run time at `config` over that at `local`; fitted where config is the second run itself."""
    found = predicted(family, prior, workload, local, placed(config), second)
    beside = baselines(family).get((workload, config), {}) if family == prior else {}
    said = "; ".join(filter(None, (note, TWO_RUNS if second else ONE_RUN)))
    return row(figure, found, FITTED if config == second else kind, said, **beside)


def predicted(family, prior, workload, local, name, second=""):
    """Prediction of the run time at the placement `name` over that of the run `local`."""
    return predict(calibration(family, prior, workload, local, second), name)


def replicated(run, remote_gpt, remote_ept, prior, workload, walkers):
    """Interval of the speed-up by replication, from a Run whose tables are on several nodes.

    remote_gpt, remote_ept  shares of its walks whose leaf entry is remote
    """
    known = common(prior, workload)

    def speedup(exposed, share):
        stretch = share * (known.stretch - 1)
        gained = gone(run.gpt, stretch, remote_gpt) + gone(run.ept, stretch, remote_ept)
        return run.cycles / (run.cycles - exposed * gained)

    return over_corners(speedup, exposed_prior(run.walk / run.cycles, walkers, known), known.dram_share)


def gone(walk, stretch, remote):
    """Walk cycles that local tables would save: walk = local * (1 + stretch * remote)."""
    return walk * (1 - 1 / (1 + stretch * remote))


def misplaced(run, remote_gpt, prior, workload, walkers):
    """Interval of the slow-down where all of the gPT becomes remote, and the ePT stays where it is."""
    known = common(prior, workload)

    def slower(exposed, share):
        stretch = share * (known.stretch - 1)
        local = run.gpt / (1 + stretch * remote_gpt)
        return 1 + exposed * local * stretch * (1 - remote_gpt) / run.cycles

    return over_corners(slower, exposed_prior(run.walk / run.cycles, walkers, known), known.dram_share)
