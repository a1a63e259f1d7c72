"""Counters that contradict each other: refused where they are unusable, else flagged by name."""

from collections.abc import Iterator

from ..core.errors import UsageError
from ..core.interval import Interval
from .closed_forms import Run, exposed_share, most_sharing
from .placement import CONTENDED, LOCAL, REMOTE, Placement

NOISE = 0.02  # of run time, from run to run
MOVED = 0.15  # a local table's walk cycles change less
STILL = 0.05  # a remote table's walk cycles change more
NEAR = 0.05  # of a table: what remote shares of two runs must differ by, to divide by it
APART = 0.05  # two clocks, or two counts of the same work, differ less
BUSY_APART = 0.1  # so do busy CPUs
TURBO = 3.0  # times the base clock: no CPU runs faster
MOST_LOST = 2.0  # cycles per walk cycle, where two threads share a page walker
SHARED_LOSE = f"threads that share a page walker lose at most {MOST_LOST:g}"
SLOWER = 1.25  # times what the nodes' latencies allow: no published run comes near
WHOLE = 100.0  # seconds or cycles: shown without a fraction
MOST_CPUS = 8192  # NR_CPUS of Linux on x86-64
SHORT = 10.0  # seconds: all published runs are longer, and their noise is what intervals have
WAITING = 0.1  # busy CPUs: below, nearly all of the elapsed time is something else


def check_run(which: str, run: Run, walkers: float) -> None:
    """UsageError for an impossible counter, or walks longer than `walkers` per hardware thread allow."""
    for field in ("cycles", "seconds"):
        value = getattr(run, field)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"{which} run: {field} = {value:g}: expected a number above 0")
    if run.cycles is None and run.seconds is None:
        raise UsageError(f"{which} run: neither cycles nor seconds: count cycles, or give its elapsed time")
    for table in ("gpt", "ept"):
        cycles = getattr(run, table)
        if cycles is not None and not 0 <= cycles < float("inf"):
            raise UsageError(f"{which} run: {table} walk cycles = {cycles:g}: expected 0 or more")
    if run.walk is not None and run.cycles is not None and run.walk > walkers * run.cycles * (1 + NOISE):
        raise UsageError(
            f"{which} run: walk cycles = {run.walk:,.0f}: more than {walkers:.2g} page walkers can be busy "
            f"in {run.cycles:,.0f} cycles: are the counters of the same threads and modes?"
        )


def check_pair(local: Run, remote: Run, where: Placement, base: Placement | None = None) -> None:
    """UsageError where the runs have no time in common, are at one placement, or the one with more remote
    tables was not slower."""
    clocks = [c for c in ("seconds", "cycles") if getattr(local, c) and getattr(remote, c)]
    if not clocks:
        raise UsageError("remote run: cycles of one run and seconds of the other: give the same of both")
    here, there = (0.0 if at is None else _far(at) for at in (base, where))
    if abs(here - there) < NEAR:
        also = "all tables are local" if not there else "its tables are as remote as the local run's"
        raise UsageError(f"placement {where.name}: {also}; a second run needs other remote shares")
    if not any((getattr(remote, c) > getattr(local, c)) == (there > here) for c in clocks):
        clock, side = clocks[-1], "above" if there > here else "below"
        raise UsageError(
            f"remote run: {clock} = {_shown(getattr(remote, clock))}: not {side} the local run's "
            f"{_shown(getattr(local, clock))}: is it {where.name}, or are the files swapped?"
        )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= WHOLE else f"{value:.4g}"


def _far(where: Placement) -> float:
    """A number that grows with the remote share of either table and with load."""
    return sum(share * (0 if state == LOCAL else 1 + (state != "remote")) for state, share in where.tables())


def contradictions(
    local: Run, remote: Run, ghz: float, names: tuple[str, str] = ("local run", "remote run")
) -> Iterator[str]:
    """Lines about two runs that cannot both be what they are said to be: other work, or another window."""
    here, there = names
    if local.seconds and remote.seconds and local.cycles and remote.cycles:
        time, cycles = remote.seconds / local.seconds, remote.cycles / local.cycles
        if abs(time / cycles - 1) > APART:
            yield (
                f"{there}: {remote.seconds:g} s are {time:.3f} times the {local.seconds:g} s of {here}, but "
                f"{remote.cycles:.4g} cycles {cycles:.3f} times its {local.cycles:.4g}: were both counted "
                "over the same window?"
            )
    if local.instructions and remote.instructions:
        work = remote.instructions / local.instructions
        if abs(work - 1) > APART:
            yield (
                f"{there}: {remote.instructions:.4g} instructions are {work:.2f} times the "
                f"{local.instructions:.4g} of {here}: not the same work, or threads that spin"
            )
    if local.cpus and remote.cpus and abs(remote.cpus / local.cpus - 1) > BUSY_APART:
        yield (
            f"{there}: {remote.cpus:.3g} CPUs were busy, {local.cpus:.3g} in {here}: not the same threads, "
            "or threads that wait"
        )
    for name, run in zip(names, (local, remote), strict=True):
        if run.cycles and run.seconds and run.cpus:
            clock = run.cycles / run.seconds / run.cpus / 1e9
            if clock > TURBO * ghz:
                yield (
                    f"{name}: {run.cycles:.4g} cycles in {run.seconds:g} s on {run.cpus:.3g} busy CPUs are "
                    f"{clock:.3g} GHz: not of one window"
                )


def check_busy(which: str, run: Run, busy: float | None) -> None:
    """UsageError for more busy CPUs than Linux has."""
    if busy is not None and busy > MOST_CPUS:
        raise UsageError(
            f"{which} run: {run.cycles:.4g} cycles in {run.seconds:.4g} s are {busy:,.0f} busy CPUs, Linux "
            f"has at most {MOST_CPUS:,}: is the elapsed time in seconds, and of the same window?"
        )


def short(local: Run, remote: Run | None) -> Iterator[str]:
    """A line about a run that is too short for the noise of the published ones."""
    least = min((run.seconds for run in (local, remote) if run is not None and run.seconds), default=SHORT)
    if least < SHORT:
        yield (
            f"a run of {least:.3g} s: intervals have the noise of runs of minutes, and what a program does "
            "once is a greater part of this one: repeat its work for longer"
        )


def waiting(run: Run, busy: float | None) -> Iterator[str]:
    """A line about a run, known alone, whose elapsed time is hardly its CPU's."""
    if busy is not None and run.seconds is not None and busy < WAITING:
        yield (
            f"local run: {busy:.2g} CPUs were busy in its {run.seconds:g} s: it waited for something else "
            "nearly all the time, which placements leave as it is, or its elapsed time is not in seconds"
        )


def beyond_nodes(
    local: Run, remote: Run, where: Placement, ks: tuple[Interval, Interval], names: tuple[str, str]
) -> Iterator[str]:
    """A line about a second run that is slower than its nodes are far; ks: k idle and contended."""
    here, there = names
    far, loaded = (k.high for k in ks)
    data = {LOCAL: 1.0, REMOTE: far, CONTENDED: loaded}[where.data]
    most = max(*where.stretches(far, loaded), 1 + where.data_share * (data - 1))
    for what, of in (("walk cycles", "walk"), ("seconds", "seconds"), ("cycles", "cycles")):
        before, after = getattr(local, of), getattr(remote, of)
        if before and after and after / before > SLOWER * most:
            node = "a loaded" if CONTENDED in (where.state, where.data) else "an idle"
            why = "" if node == "a loaded" else "was it loaded (I), or "
            yield (
                f"{where.name}: {what} of {there} are {after / before:.3g} times those of {here}: {node} "
                f"remote node makes them at most {most:.2f} times as many: {why}is it other work?"
            )
            return


def suspicious(local: Run, remote: Run, where: Placement, alone: bool = False) -> list[str]:
    """Lines about counters of an all-local run and another one that do not fit the placement or the law;
    `alone`: no thread shares its core."""
    return [*_moved(local, remote, where), *_beyond_walks(local, remote, alone)]


def _moved(local: Run, remote: Run, where: Placement) -> Iterator[str]:
    for table, state in (("gpt", where.gpt), ("ept", where.ept)):
        before, after = getattr(local, table), getattr(remote, table)
        if state is None or not before or after is None:
            continue
        change = after / before - 1
        if state == LOCAL and abs(change) > MOVED:
            yield f"{table}: local in both runs, yet its walk cycles change by {change:+.0%}: the same pages?"
        if state != LOCAL and change < STILL:
            yield f"{table}: remote, yet its walk cycles change by {change:+.1%}: was it remote?"


def beyond_walks(local: Run, remote: Run, alone: bool = False) -> float | None:
    """Cycles lost per added walk cycle, where that is more than walks and noise explain; else None."""
    if None in (local.walk, remote.walk, local.cycles, remote.cycles):
        return None
    assert local.walk is not None and remote.walk is not None and local.cycles and remote.cycles
    added, walks = remote.cycles - local.cycles, remote.walk - local.walk
    if added <= (1.0 if alone else MOST_LOST) * max(walks, 0.0) + NOISE * local.cycles:
        return None
    return added / walks if walks > 0 else float("inf")


def _beyond_walks(local: Run, remote: Run, alone: bool) -> Iterator[str]:
    lost = beyond_walks(local, remote, alone)
    if lost == float("inf"):
        assert local.walk is not None and remote.walk is not None and local.cycles and remote.cycles
        yield (
            f"cycles grow by {remote.cycles / local.cycles - 1:.0%}, walk cycles by "
            f"{remote.walk - local.walk:.4g}: something else slowed the run too"
        )
    elif lost is not None:
        yield (
            f"cycles grow {lost:.2f} times as much as walk cycles, "
            + ("a thread alone on its core loses at most 1" if alone else SHARED_LOSE)
            + ": something else slowed the run too"
        )
    elif local.walk and remote.walk and local.cycles and remote.walk > local.walk * (1 + STILL):
        lost = exposed_share(local, remote)
        if lost > 1 + STILL and most_sharing(local.cycles, local.walk) < lost - 1:
            yield f"exposed walk cycles, {lost:.2f} times those counted, are more than the local run took"
