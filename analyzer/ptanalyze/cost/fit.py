"""Coefficients that workloads share, fitted on the published runs: the prior for a program with a single run.

The exposed share e is not free. A thread's walks overlap at most as far as it has page walkers, so
e >= 1 / walkers, and they cannot take longer than the run, e * (G + E) <= C. Between these bounds, a program
that waits for DRAM at random addresses spends a fixed share of its time in walks, since a two-dimensional
walk reads two leaf entries from DRAM and the access itself one line: about 2/3, native 1/2. That share, the
share f of walks that waits for DRAM, and the extra stretch of a contended node are fitted. GUPS is bound by
its two walkers: its independent accesses overlap, its walks do not.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import msgspec
import numpy as np

from ..core.interval import Interval
from .closed_forms import LOCAL, Placement, Run, counted, exposed_share, placement
from .reference import LOCAL_RUN, runs

WALKERS = {"thin-2D-4K": 2, "thin-1D-4K": 2, "native-thin": 1}
# Remote over local latency where the runs were made: vMitosis, see its machine file; Mitosis (Achermann et
# al., ASPLOS 2020), 580 over 280 cycles. A scale only: the runs determine f (k - 1).
STRETCH = {"thin-2D-4K": 1.9, "thin-1D-4K": 1.9, "native-thin": 580 / 280}
SATURATED = 1.05  # e within 5 % of its bound says nothing about the time spent in walks
ONE_WALKER = "native-thin"


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """Fitted on `workloads` of a family of runs.

    walk_time     share of the run time in walks, of programs limited by neither bound
    most_exposed  e with one page walker per hardware thread: the rest is hidden by out-of-order execution
    dram_share    f, for `stretch`: remote over local latency
    contention    (k - 1) of a contended remote node over (k - 1) of an idle node, mean of the workloads
    overlap       growth of contention per walk cycle per cycle: walks that overlap queue up behind each
                  other at a loaded node; 0 with one walker
    walk_rate     mean walk cycles per cycle of the all-local runs
    """

    family: str
    workloads: tuple[str, ...]
    walk_time: float
    most_exposed: Interval
    dram_share: Interval
    contention: Interval
    overlap: float
    walk_rate: float
    stretch: float

    def contention_at(self, walk_rate: float | None) -> float:
        """Contention of a program with `walk_rate` walk cycles per cycle; None: with the mean."""
        more = 0.0 if walk_rate is None else self.overlap * (walk_rate - self.walk_rate)
        return max(self.contention.middle + more, 1.0)


@cache
def shared(family: str, leaving_out: str | None = None) -> Shared:
    """Shared of all reference workloads of `family`, without those named `leaving_out` (in any case, in any
    paper)."""
    members = _members(family, leaving_out)
    seen = {workload: _seen(family, configs) for workload, configs in members.items()}
    single = [
        min(_exposed(ONE_WALKER, configs), 1.0) for configs in _members(ONE_WALKER, leaving_out).values()
    ]
    stretch = STRETCH[family]
    shares = [idle / (stretch - 1) for _, _, idle, _ in seen.values()]
    contentions = [ratio for *_, ratio in seen.values()]
    free = [e * u for e, u, *_ in seen.values() if e * WALKERS[family] > SATURATED]
    return Shared(
        family=family,
        workloads=tuple(seen),
        walk_time=float(np.mean(free or [e * u for e, u, *_ in seen.values()])),
        most_exposed=_spread(single),
        dram_share=_spread(shares),
        contention=_spread(contentions),
        overlap=_overlap(leaving_out) if WALKERS[family] > 1 else 0.0,
        walk_rate=float(np.mean([u for _, u, *_ in seen.values()])),
        stretch=stretch,
    )


def _overlap(leaving_out: str | None) -> float:
    """Slope of contention over walk cycles per cycle, least squares over all families of two walkers."""
    rates: list[float] = []
    ratios: list[float] = []
    for family in (family for family, walkers in WALKERS.items() if walkers > 1):
        rows = [_seen(family, configs) for configs in _members(family, leaving_out).values()]
        for values, column in ((rates, 1), (ratios, 3)):
            own = np.array([row[column] for row in rows])
            values.extend(own - own.mean())
    return float(np.dot(rates, ratios) / np.dot(rates, rates))


def _members(family: str, leaving_out: str | None) -> dict[str, dict[str, Run]]:
    left = (leaving_out or "").casefold()
    return {w: configs for w, configs in runs(family, ("fit",)).items() if w.casefold() != left}


def _seen(family: str, configs: Mapping[str, Run]) -> tuple[float, float, float, float]:
    """(e, walk cycles over cycles, stretch of walks minus 1 at an idle remote node, contention)."""
    local = configs[LOCAL_RUN[family]]
    added: dict[str, list[float]] = {state: [] for state in ("remote", "contended")}
    walks: dict[str, list[float]] = {state: [] for state in added}
    for where, run, part in _misplaced(family, configs):
        added[where.state].append((run.cycles / local.cycles - 1) / part)
        walks[where.state].append((_walk(run) / _walk(local) - 1) / part)
    ratio = np.mean(added["contended"]) / np.mean(added["remote"])
    return (
        _exposed(family, configs),
        _walk(local) / local.cycles,
        float(np.mean(walks["remote"])),
        float(ratio),
    )


def _walk(run: Run) -> float:
    return counted(run.walk, "reference run: walk cycles")


def _misplaced(family: str, configs: Mapping[str, Run]) -> Iterator[tuple[Placement, Run, float]]:
    """(Placement, Run, remote part of the walk, each table being half of it)."""
    for name, run in configs.items():
        where = placement(name)
        if not where.all_local:
            tables = (where.gpt,) if where.ept is None else (where.gpt, where.ept)
            yield where, run, sum(state != LOCAL for state in tables) / len(tables)


def _exposed(family: str, configs: Mapping[str, Run]) -> float:
    """e over all placements, by least squares: added cycles over added walk cycles."""
    local = configs[LOCAL_RUN[family]]
    weights = [_walk(run) - _walk(local) for _, run, _ in _misplaced(family, configs)]
    shares = [exposed_share(local, run) for _, run, _ in _misplaced(family, configs)]
    return float(np.average(shares, weights=np.square(weights)))


def _spread(values: Sequence[float]) -> Interval:
    return Interval(float(min(values)), float(np.mean(values)), float(max(values)))


def exposed_prior(walk_per_cycle: float, walkers: float, common: Shared) -> Interval:
    """Interval of e from an all-local run alone: walk cycles per cycle, walkers per hardware thread."""
    ceiling = min(1.0, 1 / walk_per_cycle)
    most = min(common.most_exposed.middle, ceiling)
    floor = min(1 / walkers, common.most_exposed.low, ceiling)
    middle = min(max(common.walk_time / walk_per_cycle, 1 / walkers), most)
    return Interval(min(floor, middle), middle, ceiling)
