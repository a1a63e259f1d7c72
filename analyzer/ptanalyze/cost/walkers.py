"""Page walkers per busy hardware thread: how far walks of a thread overlap, and whether threads share one."""

from ..core.interval import Interval
from .closed_forms import Run, most_sharing

THREADS_PER_CORE = 2  # hyperthreads share the page walkers of their core
MANY = 1.5  # busy CPUs on average: more than one thread
LONG = 3600.0  # seconds of CPU time: nobody lets one thread run for hours
SLOWEST = 2.0e9  # cycles per second, where the clock is not known


def busy_cpus(run: Run, ghz: float) -> float | None:
    """CPUs that were busy on average; None where neither wall clock nor CPUs are known.

    The lesser of both: with -a perf counts idle CPUs, and a turbo clock counts more cycles.
    """
    clock = run.cycles / (run.seconds * ghz * 1e9) if run.seconds and run.cycles else None
    return min((known for known in (run.cpus, clock) if known), default=None)


def has_many_threads(run: Run, busy: float | None) -> bool:
    """Whether more than one thread was busy; a guess from CPU time where `busy` is not known."""
    if busy is None:
        return run.cycles is not None and run.cycles > LONG * SLOWEST
    return busy > MANY


def crowding(busy: float, cores: float) -> float:
    """How far a node's own threads load it, 0 with one of them to 1 with one for each core."""
    return min(max((busy - 1) / max(cores - 1, 1), 0.0), 1.0)


def walkers_per_thread(per_core: float, busy: float, cores: float) -> float:
    """Page walkers of a core over its busy threads."""
    return per_core / min(max(busy / cores, 1.0), THREADS_PER_CORE)


def shared_time(walkers: float, walk_per_cycle: float) -> Interval:
    """Interval of s: part of the time that another thread competes for the walker, if the run holds it."""
    return Interval.exactly(min(max(1 / walkers - 1, 0.0), 1.0, most_sharing(1.0, walk_per_cycle)))


def exposed_prior(walk_per_cycle: float, walkers: float, walk_time: float) -> Interval:
    """Interval of e from an all-local run alone: walk cycles per cycle, walkers per hardware thread.

    A thread's walks overlap at most as far as it has walkers, so e >= 1 / walkers, and they cannot take
    longer than the run. Between, a program that waits for DRAM at random addresses spends the share
    `walk_time` of its time in walks. With one walker per thread or less nothing overlaps: e = 1.
    """
    ceiling = min(1.0, 1 / walk_per_cycle) if walk_per_cycle else 1.0
    floor = min(max(1 / walkers, 0.0), ceiling)
    return Interval(
        floor, min(max(walk_time / walk_per_cycle, floor), ceiling) if walk_per_cycle else 1.0, ceiling
    )
