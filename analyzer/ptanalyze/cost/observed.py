"""What each published run says of the law's numbers, one by one: material for cost/shared.py."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from .closed_forms import (
    Run,
    counted,
    exposed_share,
    outside_cycles,
    waited_cycles,
)
from .placement import CONTENDED, LOCAL, REMOTE, Placement, placement
from .reference import LOCAL_RUN, PER_CORE, STRETCH, WIDE_FAMILIES, many_threads, runs

SATURATED = 1.05  # e within 5 % of its bound says nothing about the time spent in walks
QUARTERS = 0.75  # of table reads are remote, where four nodes share a table
SHARED_WALKER = 2  # threads per core of programs with many threads


@dataclass(frozen=True)
class Observed:
    """A workload of a family of runs.

    walk_rate   walk cycles per cycle of the all-local run
    walk_time   share of its time in walks: e times that
    overlaps    whether its walks overlap less than its walkers allow
    share       f, or the share of data accesses, that explains the time added by an idle remote node
    contention  time added by a loaded node over time added by an idle one; walked: walk cycles likewise
    added       time added by an idle remote node, over the run time
    """

    family: str
    workload: str
    many: bool
    walk_rate: float
    walk_time: float
    overlaps: bool
    share: float
    contention: float
    added: float
    walked: float = 1.0


def law_of(family: str, many: bool) -> tuple[float, float]:
    """(page walkers per thread, s) of a reference run."""
    walkers = PER_CORE[family] / (SHARED_WALKER if many else 1)
    return walkers, max(1 / walkers - 1, 0.0)


def ratio(local: Run, other: Run) -> float:
    """Run time of `other` over that of `local`: wall clock where both are known, else cycles."""
    if local.seconds and other.seconds:
        return other.seconds / local.seconds
    return counted(other.cycles, "run: cycles") / counted(local.cycles, "run: cycles")


@cache
def observed(family: str) -> tuple[Observed, ...]:
    """Of the workloads in a family of runs with tables in one place; those that are fitted."""
    return tuple(
        _seen(family, workload, configs)
        for workload, configs in runs(family, ("fit",)).items()
        if _complete(family, configs)
    )


def _complete(family: str, configs: Mapping[str, Run]) -> bool:
    """Whether there is a local run with counters, and one of an idle and of a contended remote node."""
    local = configs.get(LOCAL_RUN[family])
    states = {where.state for where, _, _ in misplaced(configs)}
    return local is not None and local.walk is not None and states == {REMOTE, CONTENDED}


def misplaced(configs: Mapping[str, Run]) -> Iterator[tuple[Placement, Run, float]]:
    """(Placement, Run, remote part of the walk, each table being half of it) of runs with counters and local
    data."""
    for name, run in configs.items():
        where = placement(name)
        if not where.tables_local and where.data == LOCAL and run.walk is not None:
            states = [state for state, _ in where.tables()]
            yield where, run, sum(state != LOCAL for state in states) / len(states)


def _seen(family: str, workload: str, configs: Mapping[str, Run]) -> Observed:
    local = configs[LOCAL_RUN[family]]
    many = many_threads(family, workload)
    walkers, shared = law_of(family, many)
    walk, cycles = counted(local.walk, "run: walk cycles"), counted(local.cycles, "run: cycles")
    exposed = min(max(_exposed(configs, local), 1 / walkers), 1.0) if walkers > 1 else 1.0
    waited = exposed * walk
    outside = outside_cycles(cycles, waited, shared)
    grown: dict[str, list[float]] = {REMOTE: [], CONTENDED: []}
    added: dict[str, list[float]] = {REMOTE: [], CONTENDED: []}
    walked: dict[str, list[float]] = {REMOTE: [], CONTENDED: []}
    for where, run, part in misplaced(configs):
        slower = ratio(local, run)
        grown[where.state].append((waited_cycles(cycles * slower, outside, shared) / waited - 1) / part)
        added[where.state].append((slower - 1) / part)
        walked[where.state].append((counted(run.walk, "run: walk cycles") / walk - 1) / part)
    idle = float(np.mean(added[REMOTE]))
    return Observed(
        family=family,
        workload=workload,
        many=many,
        walk_rate=walk / cycles,
        walk_time=exposed * walk / cycles,
        overlaps=walkers > 1 and exposed * walkers > SATURATED,
        share=float(np.mean(grown[REMOTE])) / (STRETCH[family] - 1),
        contention=float(np.mean(grown[CONTENDED])) / float(np.mean(grown[REMOTE])),
        added=idle,
        walked=float(np.mean(walked[CONTENDED])) / float(np.mean(walked[REMOTE])),
    )


def _exposed(configs: Mapping[str, Run], local: Run) -> float:
    """e over all placements, by least squares: added cycles over added walk cycles."""
    found = [run for _, run, _ in misplaced(configs)]
    weights = [counted(run.walk, "run") - counted(local.walk, "run") for run in found]
    shares = [exposed_share(local, run) for run in found]
    return float(np.average(shares, weights=np.square(weights)))


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
    """Of runs whose tables are on several nodes, and then replicated: `share` alone is theirs."""
    return tuple(
        _replicated(family, workload, configs[before], configs[after])
        for family, pairs in WIDE_FAMILIES.items()
        for workload, configs in runs(family, ("fit",)).items()
        for before, after in pairs
        if before in configs and after in configs
    )


def _replicated(family: str, workload: str, before: Run, after: Run) -> Observed:
    _, shared = law_of(family, True)
    cycles, walk = counted(before.cycles, "run: cycles"), counted(before.walk, "run: walk cycles")
    outside = outside_cycles(cycles, walk, shared)
    waited = waited_cycles(cycles / ratio(after, before), outside, shared)
    share = max(walk / waited - 1, 0.0) / QUARTERS / (STRETCH[family] - 1)
    return Observed(family, workload, True, walk / cycles, walk / cycles, False, share, 1.0, 0.0)


@cache
def observed_data(family: str) -> tuple[Observed, ...]:
    """Of runs with remote data and local tables: `share` and `contention` are those of data."""
    found = []
    for workload, configs in runs(family, ("fit", "data")).items():
        if not {LOCAL_RUN[family], "LP-RD", "LP-RDI"} <= configs.keys():
            continue
        local = configs[LOCAL_RUN[family]]
        many = many_threads(family, workload)
        outside = [
            outside_cycles(
                counted(run.cycles, "run: cycles"), counted(run.walk, "run: walk"), law_of(family, many)[1]
            )
            for run in (local, configs["LP-RD"], configs["LP-RDI"])
        ]
        idle, loaded = (here / outside[0] - 1 for here in outside[1:])
        rate = counted(local.walk, "run: walk") / counted(local.cycles, "run: cycles")
        share = idle / (STRETCH[family] - 1)
        found.append(Observed(family, workload, many, rate, rate, False, share, loaded / idle, idle))
    return tuple(found)


def repaired(family: str) -> Iterator[tuple[str, bool, float]]:
    """(workload, whether it has many threads, run time with repaired tables over that with local ones)."""
    for workload, configs in runs(family).items():
        if LOCAL_RUN[family] not in configs:
            continue
        local = configs[LOCAL_RUN[family]]
        for name, run in configs.items():
            if name != LOCAL_RUN[family] and placement(name).all_local:
                yield workload, many_threads(family, workload), ratio(local, run)
