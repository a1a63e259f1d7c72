"""What workloads have in common, fitted on the published runs: the prior for a program with a single run."""

from collections.abc import Iterable
from functools import cache

import msgspec
import numpy as np

from ..core.interval import Interval
from .observed import Observed, gpt_parts, observed, observed_data, observed_wide, repaired
from .reference import FAMILIES, PER_CORE, STRETCH
from .spread import around, deviation, factor, t_95

MEASURABLE = 0.1  # of run time: what a remote table adds less is too near to the noise to divide by
HELD = 0.9  # of published runs are inside
WIDEST = 4.0  # factor: a share that differs more is no share of this kind
MACHINES = (("thin-2D-4K", "thin-1D-4K"), ("native-thin",))  # families of one machine
PAIRS = "thin-2D-4K"  # the family with runs of which one table is remote
DATA_FAMILY = "native-thin"  # where runs with remote data are published


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """Fitted on `workloads` of a family of runs; intervals hold a further program with 90 %.

    walk_time     share of the run time in walks, of programs with a thread whose walks overlap
    dram_share    f, for `stretch`, remote over local latency, of programs with one thread
    many_share    f of programs with many threads, from 0
    gpt_part      the gPT's part of the waiting for both tables: a walk reads one leaf entry of each, so half
    contention    (k - 1) of a contended remote node over (k - 1) of an idle node, at `walk_rate`
    any_contention  the same of programs whose walk cycles are not known
    slope         growth of contention with u / (1 + u), u walk cycles per cycle; 0 with one walker per core
    walk_rate     mean u / (1 + u) of the all-local runs
    data_share    growth of the cycles outside walks with data on an idle remote node, over (stretch - 1)
    data_loaded   the same on a contended one
    noise         a ratio of two runs of the same placement is in 1 - noise .. 1 + noise, with one thread;
                  many_noise: with many; any_noise: of either kind
    repair        the same of a run with repaired tables and one with local ones: t of all, outliers included
    """

    family: str
    workloads: tuple[str, ...]
    walk_time: float
    dram_share: Interval
    many_share: Interval
    gpt_part: Interval
    contention: Interval
    any_contention: Interval
    slope: float
    walk_rate: float
    stretch: float
    data_share: Interval
    data_loaded: Interval
    noise: float
    many_noise: float
    any_noise: float
    repair: float

    def contention_at(self, walk_per_cycle: float | None) -> Interval:
        """Contention of a program with that many walk cycles per cycle; None: not known."""
        if walk_per_cycle is None:
            return self.any_contention
        more = self.slope * (overlap(walk_per_cycle) - self.walk_rate)
        return self.contention.through(lambda ratio: max(ratio + more, 1.0))

    def share(self, crowding: Interval) -> Interval:
        """f with a node's own load between that of one thread (0) and that of all cores (1)."""
        ends = [*zip(self.dram_share, self.many_share, strict=True)]
        low, middle, high = ([alone + crowd * (many - alone) for alone, many in ends] for crowd in crowding)
        return Interval(min(low[0], high[0]), middle[1], max(low[2], high[2]))

    def noise_at(self, crowding: float) -> float:
        """As `share`, of the noise."""
        return self.noise + crowding * (self.many_noise - self.noise)


def overlap(walk_per_cycle: float) -> float:
    """Chance that a walk meets another one of its core: of a queue, with u walk cycles per cycle."""
    return walk_per_cycle / (1 + walk_per_cycle)


@cache
def shared(family: str, leaving_out: str | None = None) -> Shared:
    """Shared of all reference workloads of `family`, without those named `leaving_out` (in any case, in any
    paper)."""
    left = (leaving_out or "").casefold()
    seen = {name: _kept(observed(name), left) for name in FAMILIES}
    own = seen[family]
    shares = {name: [o.share for o in found] for name, found in seen.items()}
    times = factor([shares[family], *(s for name, s in shares.items() if name != family)])
    near = _near(family, seen)
    slope = _slope(near.values())
    rate = float(np.mean([overlap(o.walk_rate) for o in near[family]]))
    data = _kept(observed_data(DATA_FAMILY), left)
    found = [rows for name in FAMILIES for rows in repaired(name) if rows[0].casefold() != left]
    alone, together = (
        [abs(slower - 1) for _, many, slower in found if many == kind] for kind in (False, True)
    )
    return Shared(
        family=family,
        workloads=tuple(o.workload for o in own if not o.many),
        walk_time=float(np.mean([o.walk_time for o in own if not o.many and o.overlaps] or [1.0])),
        dram_share=_share(around([o.share for o in own if not o.many], min(times, WIDEST))),
        many_share=_many(family, left),
        gpt_part=_half([part for workload, part in gpt_parts(PAIRS) if workload.casefold() != left]),
        contention=_contention(family, near, slope),
        any_contention=_contention(family, near, 0.0, [o.contention for o in own]),
        slope=slope,
        walk_rate=rate,
        stretch=STRETCH[family],
        data_share=_of_data([d.share for d in data]),
        data_loaded=_of_data([d.contention * d.share for d in data]),
        noise=float(np.quantile(alone, HELD)),
        many_noise=float(np.quantile(together, HELD)),
        any_noise=float(np.quantile(alone + together, HELD)),
        repair=deviation(alone + together) * t_95(len(found)),
    )


def _kept(found: Iterable[Observed], left: str) -> list[Observed]:
    return [o for o in found if o.workload.casefold() != left]


def _share(interval: Interval) -> Interval:
    return interval.through(lambda value: min(value, 1.0))


def _half(parts: list[float]) -> Interval:
    within = t_95(len(parts)) * deviation([part - 0.5 for part in parts])
    return Interval(0.5 - within, 0.5, 0.5 + within)


def _of_data(growths: list[float]) -> Interval:
    return around(growths, min(factor([growths]), WIDEST))


def _many(family: str, left: str) -> Interval:
    """f with many threads: the mean of programs, each over all of its runs; from 0 to 1."""
    by_program: dict[str, list[float]] = {}
    thin = [o for name in FAMILIES for o in observed(name) if o.many]
    for o in _kept([*thin, *observed_wide()], left):
        by_program.setdefault(o.workload.casefold(), []).append(min(o.share, 1.0))
    return Interval(0.0, float(np.mean([np.mean(shares) for shares in by_program.values()])), 1.0)


def _near(family: str, seen: dict[str, list[Observed]]) -> dict[str, list[Observed]]:
    """What is measurable of the families of the machine of `family`."""
    machine = next(families for families in MACHINES if family in families)
    return {name: [o for o in seen[name] if o.added > MEASURABLE] for name in machine}


def _contention(
    family: str, near: dict[str, list[Observed]], slope: float, every: list[float] | None = None
) -> Interval:
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
