"""What one run leaves open: threads that share a page walker, and the prior fitted on published runs."""

from functools import cache

import msgspec

import ptanalyze as pt

from .closed_forms import most_sharing

# Page walkers per busy hardware thread: how far walks of a thread overlap, and whether threads share one.

THREADS_PER_CORE = 2  # hyperthreads share the page walkers of their core
MANY = 1.5  # busy CPUs on average: more than one thread


def busy_cpus(run: pt.law.MeasuredRun, ghz: float) -> float | None:
    """CPUs that were busy on average; None where neither wall clock nor CPUs are known.

    The lesser of both: with -a perf counts idle CPUs, and a turbo clock counts more cycles.
    """
    clock = run.cycles / (run.seconds * ghz * 1e9) if run.seconds and run.cycles else None
    return min((known for known in (run.cpus, clock) if known), default=None)


def crowding(busy: float, cores: float) -> float:
    """How far a node's own threads load it, 0 with one of them to 1 with one for each core."""
    return min(max((busy - 1) / max(cores - 1, 1), 0.0), 1.0)


def threads_per_core(busy: float | None, cores: float | None) -> pt.Interval:
    """Busy hardware threads of each core that is busy, 1 to 2, from busy CPUs and the cores they run on.

    One busy CPU shares its core with no other. `cores` that are fewer than the busy CPUs hold more than one
    each; Linux fills idle cores first (select_idle_core, kernel/sched/fair.c), but not always. CPU time says
    nothing: a thread may run for hours.
    """
    if busy is not None and busy <= MANY:
        return pt.Interval.exactly(1.0)
    least = 1.0 if busy is None or cores is None else min(max(busy / cores, 1.0), THREADS_PER_CORE)
    return pt.Interval(least, least, THREADS_PER_CORE)


def shared_time(walkers: pt.Interval, walk_per_cycle: float) -> pt.Interval:
    """Interval of s: part of the time that another thread competes for the walker, if the run holds it.

    From 0, threads that never meet, to what threads give each other that always want to walk.
    """
    most = most_sharing(1.0, walk_per_cycle)
    _, middle, high = walkers.through(lambda each: min(max(1 / each - 1, 0.0), 1.0, most))
    return pt.Interval(0.0, middle, high)


LEAST_WAIT = 0.8  # of 1 / walkers: 0.82 (Canneal, one walker) and 0.88 (GUPS, two) were measured


def exposed_prior(walk_per_cycle: float, walkers: pt.Interval) -> pt.Interval:
    """Interval of e from an all-local run alone: walk cycles per cycle, walkers per hardware thread.

    A thread's walks overlap at most as far as it has walkers, so e >= 1 / walkers but for what it computes
    meanwhile (LEAST_WAIT), and they cannot take longer than the run; at most every walk cycle is waited for
    (Basu et al., ISCA 2013). Between, walkers are taken to be busy independently of each other: each for u /
    w of the time, some of them for 1 - (1 - u / w)^w of it. Nothing is fitted
    (docs/adr/0029-a-law-beside-its-rivals.md). With one walker per thread or less nothing overlaps: e = 1.
    """
    ceiling = min(1.0, 1 / walk_per_cycle) if walk_per_cycle else 1.0

    def chance(each: float) -> float:
        if each <= 1 or not walk_per_cycle:
            return 1.0
        return float((1 - (1 - min(walk_per_cycle / each, 1.0)) ** each) / walk_per_cycle)

    least, floor, _ = walkers.through(lambda each: min(1 / each, ceiling))
    return pt.Interval(LEAST_WAIT * least, min(max(chance(walkers.middle), floor), ceiling), ceiling)


# What workloads have in common, fitted on the published runs: the prior for a program with a single run.


class FittedPrior(msgspec.Struct, frozen=True, kw_only=True):
    """Fitted on `workloads` of a family of runs; intervals hold a further program with 90 %.

    dram_share    f, for `stretch`, remote over local latency, of programs with one thread
    many_share    f of programs with many threads, from 0
    gpt_part      the gPT's part of the waiting for both tables: a walk reads one leaf entry of each, so half
    contention    (k - 1) of a contended remote node over (k - 1) of an idle node, at `walk_rate`
    any_contention  the same of programs whose walk cycles are not known
    anywhere      the same on a machine of which no loaded latency was measured: from none to the worst
    slope         growth of contention with u / (1 + u), u walk cycles per cycle, of one thread; 0 with one
                  walker per core
    walk_rate     mean u / (1 + u) of the all-local runs
    data_share    growth of the cycles outside walks with data on an idle remote node, over (stretch - 1)
    data_loaded   the same on a contended one
    noise         a ratio of two runs of the same placement is in 1 - noise .. 1 + noise, with one thread;
                  many_noise: with many; any_noise: of either kind
    repair        the same of a run with repaired tables and one with local ones: t of all, outliers included
    """

    family: str
    workloads: tuple[str, ...]
    dram_share: pt.Interval
    many_share: pt.Interval
    gpt_part: pt.Interval
    contention: pt.Interval
    any_contention: pt.Interval
    anywhere: pt.Interval
    slope: float
    walk_rate: float
    stretch: float
    data_share: pt.Interval
    data_loaded: pt.Interval
    noise: float
    many_noise: float
    any_noise: float
    repair: float

    def contention_at(self, walk_per_cycle: float | None, many: bool = False) -> pt.Interval:
        """Contention of a program with that many walk cycles per cycle; None: not known. `many` threads, of
        which none was fitted: the mean of programs."""
        if walk_per_cycle is None:
            return self.any_contention
        more = 0.0 if many else self.slope * (overlap(walk_per_cycle) - self.walk_rate)
        return self.contention.through(lambda ratio: max(ratio + more, 1.0))

    def share(self, crowding: pt.Interval) -> pt.Interval:
        """f with a node's own load between that of one thread (0) and that of all cores (1)."""
        ends = [*zip(self.dram_share, self.many_share, strict=True)]
        low, middle, high = ([alone + crowd * (many - alone) for alone, many in ends] for crowd in crowding)
        return pt.Interval(min(low[0], high[0]), middle[1], max(low[2], high[2]))


def overlap(walk_per_cycle: float) -> float:
    """Chance that a walk meets another one of its core: of a queue, with u walk cycles per cycle."""
    return walk_per_cycle / (1 + walk_per_cycle)


@cache
def prior_of(family: str) -> FittedPrior:
    """FittedPrior of all reference workloads of a family: models/reference/prior.toml, which
    `python -m ptanalyze_law.prior` writes."""
    content = (pt.errors.bundled("models") / "reference" / "prior.toml").read_bytes()
    return pt.safe_files.struct_of(pt.safe_files.plain_toml(content)[family], FittedPrior)
