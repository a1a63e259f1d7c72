"""Published runs that come with the package, and what their workloads have in common, fitted on them.

Usage: python -m ptanalyze_law.prior > models/reference/prior.toml   (read by assumed.py)

- reference(), runs(), ports(): the measured runs of models/reference, with citations
- observations(): what each run says of the law's numbers, one by one
- fitted(): FittedPrior of a family, with 90 % prediction intervals from few values
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import exp, log, sqrt
from typing import Any

import msgspec
import numpy as np
import pandas as pd

import ptanalyze as pt

from .assumed import FittedPrior, overlap
from .calibrate import calibrate_runs
from .closed_forms import exposed_share, waited_cycles

FILES = ("vmitosis-runs.csv", "mitosis-runs.csv")
PORTS, FIRST_TOUCH = "ports-xeon", "ports-xeon, first touch"  # families of the runs of ports()
FAMILIES = ("thin-2D-4K", "thin-1D-4K", "native-thin")  # tables in one place
LOCAL_RUN = {"thin-2D-4K": "LL", "thin-1D-4K": "L", "native-thin": "LP-LD"}
# tables on several nodes: (run before, run with replicas)
WIDE_FAMILIES = {
    "wide-NV-4K": (("F", "FM"), ("FA", "FAM"), ("I", "IM")),
    "wide-NO-4K": (("OF", "OFMP"), ("OF", "OFMF")),
    "native-wide": (("F", "F+M"), ("F-A", "F-A+M"), ("I", "I+M")),
}
PER_CORE = {  # page walkers
    "thin-2D-4K": 2,
    "thin-1D-4K": 2,
    "wide-NV-4K": 2,
    "wide-NO-4K": 2,
    "native-thin": 1,
    "native-wide": 1,
    PORTS: 1,
    FIRST_TOUCH: 1,
}
# Remote over local latency where the runs were made: vMitosis, see its machine file; Mitosis (Achermann et
# al., ASPLOS 2020), 580 over 280 cycles. A scale only: the runs determine f (k - 1).
STRETCH = {family: 580 / 280 if family.startswith("native") else 1.9 for family in PER_CORE}
# Threads of programs whose tables are in one place: one, but for these (models/reference/README.md); two of
# theirs share each core. Programs with tables on several nodes have a thread for each CPU.
MANY_THREADS = frozenset({"graph500", "pagerank", "liblinear"})
DURATION = "dtlb_load_misses.walk_duration"
GPT = ("dtlb_load_misses.walk_pending", "dtlb_store_misses.walk_pending")


@cache
def reference() -> pd.DataFrame:
    """DataFrame of all rows: paper, figure, family, workload, config, quantity, value, unit, use, note.

    `use` of a row: fit (the law is calibrated on it), check (only compared with it) or no; `note` says why
    not.
    """
    files = [pt.errors.bundled("models") / "reference" / name for name in FILES]
    rows = (pd.read_csv(file, keep_default_na=False, dtype={"value": float}) for file in files)
    return pd.concat(rows, ignore_index=True)


def runs(family: str, use: Iterable[str] = ("fit", "check")) -> dict[str, dict[str, pt.law.MeasuredRun]]:
    """{workload: {config: MeasuredRun}}: the measured runs of a family, including the all-local run."""
    rows = reference()
    rows = rows[(rows.family == family) & rows.use.isin(use)]
    by_workload: dict[str, dict[str, pt.law.MeasuredRun]] = {}
    for (workload, config), part in rows.groupby(["workload", "config"], sort=False):
        values = dict(zip(part.quantity, part.value, strict=True))
        by_workload.setdefault(workload, {})[config] = run_from(values, many_threads(family, workload))
    return by_workload


def many_threads(family: str, workload: str) -> bool:
    """Whether a workload of a family has more than one thread."""
    return family in (*WIDE_FAMILIES, PORTS, FIRST_TOUCH) or workload.casefold() in MANY_THREADS


def calibrated(family: str, workload: str, many: bool = False, **more: Any) -> partial[pt.law.Calibration]:
    """calibrate_runs for a workload, with what is fitted on the others of a family; many: of its threads;
    more: its keywords."""
    threads = 2.0 if many or many_threads(family, workload) else 1.0
    return partial(
        calibrate_runs,
        common=fitted(family, workload),
        walkers=PER_CORE[family],
        threads=None if PER_CORE[family] > 1 else threads,  # cycles and run time tell them
        native=family != PAIRS,
        **more,
    )


def run_from(values: Mapping[str, float], many: bool) -> pt.law.MeasuredRun:
    """MeasuredRun of a configuration's {quantity: value}, of one thread or `many`; what it lacks is None."""
    cpus = None if many else 1.0
    if "walk_cycles" in values:
        return pt.law.MeasuredRun(values["cycles"], values["walk_cycles"], 0.0, cpus=cpus)
    gpt = sum(values[name] for name in GPT) if values.keys() >= {*GPT} else None
    return pt.law.MeasuredRun(
        values.get("cycles"), gpt, values.get("ept.walk_pending"), values.get("run_time"), cpus
    )


WHOLE = 0.75  # repeats that were counted whole differ by less: at most a tenth, others by a third and more
PORTS_POLICIES = ("linux", "mitosis", "hydra", "wasp")


@cache
def ports(family: str = PORTS) -> dict[str, dict[str, tuple[pt.law.MeasuredRun, ...]]]:
    """{workload: {policy: (a run for each repeat)}}: native, on all CPUs of 4-socket Xeons; data interleaved,
    or by first touch.

    With interleaved data `linux` has three of four table reads remote, the other policies have replicas.
    Walks of stores were not counted in all runs (0.1 % of the walk cycles where they were), so those of loads
    are taken. Repeats of which perf saw a part (cycles per second below WHOLE of the median) and workloads
    without a run under each of PORTS_POLICIES are left out.
    """
    table = pd.read_csv(pt.errors.bundled("models") / "reference" / "ports-xeon-runs.csv")
    table = table[table.interleaved_data == (family == PORTS)]
    speed = table.cycles / table.seconds
    table = table[speed > WHOLE * speed.groupby([table.benchmark, table.policy]).transform("median")]
    found: dict[str, dict[str, tuple[pt.law.MeasuredRun, ...]]] = {}
    for (workload, policy), part in table.groupby(["benchmark", "policy"], sort=False):
        found.setdefault(str(workload), {})[str(policy)] = tuple(
            pt.law.MeasuredRun(row["cycles"], row[DURATION], 0.0, row["seconds"])
            for row in part.to_dict("records")
        )
    return {workload: of for workload, of in found.items() if {*of} >= {*PORTS_POLICIES}}


def mean_run(repeats: Iterable[pt.law.MeasuredRun]) -> pt.law.MeasuredRun:
    """MeasuredRun of the mean cycles, walk cycles and seconds of native repeats."""
    rows = [(run.cycles, run.gpt, run.seconds) for run in repeats]
    cycles, gpt, seconds = (sum(row[k] or 0.0 for row in rows) / len(rows) for k in range(3))
    return pt.law.MeasuredRun(cycles, gpt, 0.0, seconds)


QUARTERS = 0.75  # of table reads are remote, where four nodes share a table
SHARED_WALKER = 2  # threads per core of programs with many threads


@dataclass(frozen=True)
class Observed:
    """A workload of a family of runs.

    walk_rate   walk cycles per cycle of the all-local run
    share       f, or the share of data accesses, that explains the time added by an idle remote node
    contention  time added by a loaded node over time added by an idle one; walked: walk cycles likewise
    added       time added by an idle remote node, over the run time
    """

    family: str
    workload: str
    many: bool
    walk_rate: float
    share: float
    contention: float
    added: float
    walked: float = 1.0


def law_of(family: str, many: bool) -> tuple[float, float]:
    """(page walkers per thread, s) of a reference run."""
    walkers = PER_CORE[family] / (SHARED_WALKER if many else 1)
    return walkers, max(1 / walkers - 1, 0.0)


def ratio(local: pt.law.MeasuredRun, other: pt.law.MeasuredRun) -> float:
    """Run time of `other` over that of `local`: wall clock where both are known, else cycles."""
    if local.seconds and other.seconds:
        return other.seconds / local.seconds
    return pt.law.counted(other.cycles, "run: cycles") / pt.law.counted(local.cycles, "run: cycles")


@cache
def observations(family: str) -> tuple[Observed, ...]:
    """What is observed of the workloads in a family of runs with tables in one place; those that are
    fitted."""
    return tuple(
        _seen(family, workload, configs)
        for workload, configs in runs(family, ("fit",)).items()
        if _complete(family, configs)
    )


def _complete(family: str, configs: Mapping[str, pt.law.MeasuredRun]) -> bool:
    """Whether there is a local run with counters, and one of an idle and of a contended remote node."""
    local = configs.get(LOCAL_RUN[family])
    states = {where.state for where, _, _ in misplaced(configs)}
    return local is not None and local.walk is not None and states == {pt.law.REMOTE, pt.law.CONTENDED}


def misplaced(
    configs: Mapping[str, pt.law.MeasuredRun],
) -> Iterator[tuple[pt.law.Placement, pt.law.MeasuredRun, float]]:
    """(Placement, run, remote part of the walk, each table being half of it) of runs with counters and local
    data."""
    for name, run in configs.items():
        where = pt.law.placement(name)
        if not where.tables_local and where.data == pt.law.LOCAL and run.walk is not None:
            states = [state for state, _ in where.tables()]
            yield where, run, sum(state != pt.law.LOCAL for state in states) / len(states)


def _seen(family: str, workload: str, configs: Mapping[str, pt.law.MeasuredRun]) -> Observed:
    local, many = configs[LOCAL_RUN[family]], many_threads(family, workload)
    walkers, shared = law_of(family, many)
    walk, cycles = pt.law.counted(local.walk, "run: walk cycles"), pt.law.counted(local.cycles, "run: cycles")
    exposed = min(max(_exposed(configs, local), 1 / walkers), 1.0) if walkers > 1 else 1.0
    waited = exposed * walk
    outside = pt.law.outside_cycles(cycles, waited, shared)
    grown: dict[str, list[float]] = {pt.law.REMOTE: [], pt.law.CONTENDED: []}
    added: dict[str, list[float]] = {pt.law.REMOTE: [], pt.law.CONTENDED: []}
    walked: dict[str, list[float]] = {pt.law.REMOTE: [], pt.law.CONTENDED: []}
    for where, run, part in misplaced(configs):
        slower = ratio(local, run)
        grown[where.state].append((waited_cycles(cycles * slower, outside, shared) / waited - 1) / part)
        added[where.state].append((slower - 1) / part)
        walked[where.state].append((pt.law.counted(run.walk, "run: walk cycles") / walk - 1) / part)
    return Observed(
        family=family,
        workload=workload,
        many=many,
        walk_rate=walk / cycles,
        share=float(np.mean(grown[pt.law.REMOTE])) / (STRETCH[family] - 1),
        contention=float(np.mean(grown[pt.law.CONTENDED])) / float(np.mean(grown[pt.law.REMOTE])),
        added=float(np.mean(added[pt.law.REMOTE])),
        walked=float(np.mean(walked[pt.law.CONTENDED])) / float(np.mean(walked[pt.law.REMOTE])),
    )


def _exposed(configs: Mapping[str, pt.law.MeasuredRun], local: pt.law.MeasuredRun) -> float:
    """e over all placements, by least squares: added cycles over added walk cycles."""
    found = [run for _, run, _ in misplaced(configs)]
    weights = [pt.law.counted(run.walk, "run") - pt.law.counted(local.walk, "run") for run in found]
    return float(np.average([exposed_share(local, run) for run in found], weights=np.square(weights)))


def gpt_parts(family: str) -> Iterator[tuple[str, float]]:
    """(workload, the gPT's part of what both tables add) of programs with one thread, from pairs of runs with
    only the gPT and only the ePT remote."""
    for workload, configs in runs(family, ("fit",)).items():
        local = configs.get(LOCAL_RUN[family])
        if local is None or local.cycles is None or many_threads(family, workload):
            continue
        for first, second in (("RL", "LR"), ("RLI", "LRI")):
            if first in configs and second in configs:
                gpt, ept = (ratio(local, configs[name]) - 1 for name in (first, second))
                yield workload, gpt / (gpt + ept)


@cache
def observed_wide() -> tuple[Observed, ...]:
    """Observations of runs whose tables on several nodes were replicated: `share` alone is theirs."""
    return tuple(
        _replicated(family, workload, configs[before], configs[after])
        for family, pairs in WIDE_FAMILIES.items()
        for workload, configs in runs(family, ("fit",)).items()
        for before, after in pairs
        if before in configs and after in configs
    )


def _replicated(
    family: str, workload: str, before: pt.law.MeasuredRun, after: pt.law.MeasuredRun
) -> Observed:
    _, shared = law_of(family, True)
    cycles, walk = (
        pt.law.counted(before.cycles, "run: cycles"),
        pt.law.counted(before.walk, "run: walk cycles"),
    )
    waited = waited_cycles(cycles / ratio(after, before), pt.law.outside_cycles(cycles, walk, shared), shared)
    share = max(walk / waited - 1, 0.0) / QUARTERS / (STRETCH[family] - 1)
    return Observed(family, workload, True, walk / cycles, share, 1.0, 0.0)


@cache
def observed_data(family: str) -> tuple[Observed, ...]:
    """Observations of runs with remote data and local tables: `share` and `contention` are those of data."""
    found = []
    for workload, configs in runs(family, ("fit", "data")).items():
        if not {LOCAL_RUN[family], "LP-RD", "LP-RDI"} <= configs.keys():
            continue
        local, many = configs[LOCAL_RUN[family]], many_threads(family, workload)
        outside = [
            pt.law.outside_cycles(
                pt.law.counted(run.cycles, "run: cycles"),
                pt.law.counted(run.walk, "run: walk"),
                law_of(family, many)[1],
            )
            for run in (local, configs["LP-RD"], configs["LP-RDI"])
        ]
        idle, loaded = (here / outside[0] - 1 for here in outside[1:])
        rate = pt.law.counted(local.walk, "run: walk") / pt.law.counted(local.cycles, "run: cycles")
        share = idle / (STRETCH[family] - 1)
        found.append(Observed(family, workload, many, rate, share, loaded / idle, idle))
    return tuple(found)


def repaired(family: str) -> Iterator[tuple[str, bool, float]]:
    """(workload, whether it has many threads, run time with repaired tables over that with local ones)."""
    for workload, configs in runs(family).items():
        if LOCAL_RUN[family] not in configs:
            continue
        local = configs[LOCAL_RUN[family]]
        for name, run in configs.items():
            if name != LOCAL_RUN[family] and pt.law.placement(name).all_local:
                yield workload, many_threads(family, workload), ratio(local, run)


# Student's t, 95th percentile, by degrees of freedom from 1 (any table of the distribution)
T_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761)
T_MANY = 1.70


def t_95(freedom: int) -> float:
    """Half of a 90 % interval in standard deviations, estimated with `freedom` degrees of freedom."""
    return T_95[max(freedom, 1) - 1] if freedom <= len(T_95) else T_MANY


def factor(groups: Sequence[Sequence[float]]) -> float:
    """Factor up or down from a group's geometric mean that holds a further member with 90 %.

    groups  positive values; they have means of their own and scatter alike
    """
    members = [np.log(np.asarray(group, np.float64)) for group in groups if len(group)]
    freedom = sum(len(group) - 1 for group in members)
    if freedom < 1:
        return 2.0
    deviation = sqrt(sum(float(((group - group.mean()) ** 2).sum()) for group in members) / freedom)
    return exp(t_95(freedom) * deviation * sqrt(1 + 1 / len(members[0])))


def around(values: Sequence[float], times: float) -> pt.Interval:
    """Interval of the geometric mean of positive values, `times` up and down."""
    middle = exp(sum(log(value) for value in values) / len(values))
    return pt.Interval(middle / times, middle, middle * times)


def deviation(values: Sequence[float]) -> float:
    """Root mean square of deviations from 0."""
    return float(np.sqrt(np.mean(np.square(values))))


MEASURABLE = 0.1  # of run time: what a remote table adds less is too near to the noise to divide by
HELD = 0.9  # of published runs are inside
WIDEST = 4.0  # factor: a share that differs more is no share of this kind
MACHINES = (("thin-2D-4K", "thin-1D-4K"), ("native-thin",))  # families of one machine
PAIRS = "thin-2D-4K"  # the family with runs of which one table is remote
# Local memory with all CPUs reading it, over idle: 357 over 130.7 ns (Granite Rapids, 2025; two EPYC took 4.4
# and 4.5 times as long at their peak, beyond what a program's walks met on any machine)
PEAK = 2.7
HEAD = "# Fitted on the published runs beside this file: python -m ptanalyze_law.prior > prior.toml\n"
DATA_FAMILY = "native-thin"  # where runs with remote data are published


@cache
def fitted(family: str, leaving_out: str | None = None) -> FittedPrior:
    """Prior of all reference workloads of `family`, without those named `leaving_out` (in any case, in any
    paper)."""
    left = (leaving_out or "").casefold()
    seen = {name: _kept(observations(name), left) for name in FAMILIES}
    here = next(families for families in MACHINES if family in families)
    shares = {name: [o.share for o in of] for name, of in seen.items()}
    one_thread = [share for share, o in zip(shares[family], seen[family], strict=True) if not o.many]
    times = factor([shares[family], *(of for name, of in shares.items() if name != family)])
    near = {name: [o for o in seen[name] if o.added > MEASURABLE] for name in here}
    slope = _slope(near.values())
    anywhere = _anywhere(seen, STRETCH[family])
    data = _kept(observed_data(DATA_FAMILY), left)
    found = [rows for name in FAMILIES for rows in repaired(name) if rows[0].casefold() != left]
    parts = [part - 0.5 for workload, part in gpt_parts(PAIRS) if workload.casefold() != left]
    within = t_95(len(parts)) * deviation(parts)
    alone, together = (
        [abs(slower - 1) for _, many, slower in found if many == kind] for kind in (False, True)
    )
    return FittedPrior(
        family=family,
        workloads=tuple(o.workload for o in seen[family] if not o.many),
        dram_share=around(one_thread, min(times, WIDEST)).through(lambda value: min(value, 1.0)),
        many_share=_many(family, left),
        gpt_part=pt.Interval(0.5 - within, 0.5, 0.5 + within),
        contention=_contention(family, near, slope),
        any_contention=_contention(family, near, 0.0, [o.contention for o in seen[family]]),
        anywhere=anywhere,
        slope=slope,
        walk_rate=float(np.mean([overlap(o.walk_rate) for o in near[family]])),
        stretch=STRETCH[family],
        data_share=_of_data([d.share for d in data]),
        data_loaded=_of_data([d.contention * d.share for d in data]),
        noise=float(np.quantile(alone, HELD)),
        many_noise=float(np.quantile(together, HELD)),
        any_noise=float(np.quantile(alone + together, HELD)),
        repair=deviation(alone + together) * t_95(len(found)),
    )


def _anywhere(seen: Mapping[str, list[Observed]], stretch: float) -> pt.Interval:
    """Contention of a machine that was not measured: a loaded node costs at least what an idle one does, and
    at most PEAK times its latency, or what it cost any program anywhere; between, the mean of machines."""
    by_machine = [
        [o.contention for name in families for o in seen[name] if o.added > MEASURABLE]
        for families in MACHINES
    ]
    levels = [float(np.mean(np.log(of))) for of in by_machine]
    worst = max(max(of) for of in by_machine)
    peak = (PEAK * stretch - 1) / (stretch - 1)
    return pt.Interval(1.0, exp(float(np.mean(levels))), max(worst, peak))


def _kept(found: Iterable[Observed], left: str) -> list[Observed]:
    return [o for o in found if o.workload.casefold() != left]


def _of_data(growths: list[float]) -> pt.Interval:
    return around(growths, min(factor([growths]), WIDEST))


def _many(family: str, left: str) -> pt.Interval:
    """f with many threads: the mean of programs, each over all of its runs; from 0 to 1."""
    by_program: dict[str, list[float]] = {}
    for o in _kept([*(o for name in FAMILIES for o in observations(name) if o.many), *observed_wide()], left):
        by_program.setdefault(o.workload.casefold(), []).append(min(o.share, 1.0))
    return pt.Interval(0.0, float(np.mean([np.mean(shares) for shares in by_program.values()])), 1.0)


def _contention(
    family: str, near: dict[str, list[Observed]], slope: float, every: list[float] | None = None
) -> pt.Interval:
    """Contention at the mean of the family, with a known slope, as far as programs scatter about it.

    Where walks cannot overlap, walk cycles give the same ratio with less noise: the greater scatter counts.

    every  of all programs of the family, measurable or not: those whose counters are not known may be any
    """
    level = {}
    for name, found in near.items():
        rates = [overlap(o.walk_rate) for o in found]
        mean = float(np.mean(rates))
        level[name] = [o.contention - slope * (rate - mean) for o, rate in zip(found, rates, strict=True)]
    own = level.pop(family)
    times = factor([every or own, *level.values()])
    if PER_CORE[family] == 1:
        times = max(times, factor([[o.walked for o in near[family]]]))
    return around(own, min(times, WIDEST))


def _slope(families: Iterable[list[Observed]]) -> float:
    rates: list[float] = []
    ratios: list[float] = []
    for found in families:
        if any(PER_CORE[o.family] == 1 for o in found):
            return 0.0
        own = np.array([(overlap(o.walk_rate), o.contention) for o in found])
        rates += list(own[:, 0] - own[:, 0].mean())
        ratios += list(own[:, 1] - own[:, 1].mean())
    return float(np.dot(rates, ratios) / np.dot(rates, rates)) if len(rates) > 2 else 0.0


if __name__ == "__main__":
    print(
        HEAD + pt.formats.toml({family: msgspec.to_builtins(fitted(family)) for family in FAMILIES}), end=""
    )
