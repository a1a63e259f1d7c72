"""Page walkers per busy hardware thread: how far walks of a thread overlap, and whether threads share one."""

from ..core.interval import Interval
from .closed_forms import Run, most_sharing

THREADS_PER_CORE = 2  # hyperthreads share the page walkers of their core
MANY = 1.5  # busy CPUs on average: more than one thread


def busy_cpus(run: Run, ghz: float) -> float | None:
    """CPUs that were busy on average; None where neither wall clock nor CPUs are known.

    The lesser of both: with -a perf counts idle CPUs, and a turbo clock counts more cycles.
    """
    clock = run.cycles / (run.seconds * ghz * 1e9) if run.seconds and run.cycles else None
    return min((known for known in (run.cpus, clock) if known), default=None)


def crowding(busy: float, cores: float) -> float:
    """How far a node's own threads load it, 0 with one of them to 1 with one for each core."""
    return min(max((busy - 1) / max(cores - 1, 1), 0.0), 1.0)


def threads_per_core(busy: float | None, cores: float | None) -> Interval:
    """Busy hardware threads of each core that is busy, 1 to 2, from busy CPUs and the cores they run on.

    One busy CPU shares its core with no other. `cores` that are fewer than the busy CPUs hold more than one
    each; Linux fills idle cores first (select_idle_core, kernel/sched/fair.c), but not always. CPU time says
    nothing: a thread may run for hours.
    """
    if busy is not None and busy <= MANY:
        return Interval.exactly(1.0)
    least = 1.0 if busy is None or cores is None else min(max(busy / cores, 1.0), THREADS_PER_CORE)
    return Interval(least, least, THREADS_PER_CORE)


def shared_time(walkers: Interval, walk_per_cycle: float) -> Interval:
    """Interval of s: part of the time that another thread competes for the walker, if the run holds it.

    From 0, threads that never meet, to what threads give each other that always want to walk.
    """
    most = most_sharing(1.0, walk_per_cycle)
    _, middle, high = walkers.through(lambda each: min(max(1 / each - 1, 0.0), 1.0, most))
    return Interval(0.0, middle, high)


def exposed_prior(walk_per_cycle: float, walkers: Interval, walk_time: float) -> Interval:
    """Interval of e from an all-local run alone: walk cycles per cycle, walkers per hardware thread.

    A thread's walks overlap at most as far as it has walkers, so e >= 1 / walkers, and they cannot take
    longer than the run. Between, a program that waits for DRAM at random addresses spends the share
    `walk_time` of its time in walks. With one walker per thread or less nothing overlaps: e = 1.
    """
    ceiling = min(1.0, 1 / walk_per_cycle) if walk_per_cycle else 1.0
    least, floor, _ = walkers.through(lambda each: min(1 / each, ceiling))
    return Interval(
        least, min(max(walk_time / walk_per_cycle, floor), ceiling) if walk_per_cycle else 1.0, ceiling
    )
