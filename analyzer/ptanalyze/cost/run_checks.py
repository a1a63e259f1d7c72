"""Counters that contradict each other: refused where they are unusable, else flagged by name."""

from collections.abc import Iterator

from ..core.errors import UsageError
from .closed_forms import LOCAL, Placement, Run, exposed_share

NOISE = 0.02  # of run time, from run to run
MOVED = 0.15  # a local table's walk cycles change less
STILL = 0.05  # a remote table's walk cycles change more


def check_run(which: str, run: Run, walkers: float) -> None:
    """UsageError for an impossible counter, or walks longer than `walkers` per hardware thread allow."""
    if not 0 < run.cycles < float("inf"):
        raise UsageError(f"{which} run: cycles = {run.cycles:g}: expected a number above 0")
    for table in ("gpt", "ept"):
        cycles = getattr(run, table)
        if cycles is not None and not 0 <= cycles < float("inf"):
            raise UsageError(f"{which} run: {table} walk cycles = {cycles:g}: expected 0 or more")
    if run.walk is not None and run.walk > walkers * run.cycles * (1 + NOISE):
        raise UsageError(
            f"{which} run: walk cycles = {run.walk:,.0f}: more than {walkers:.2g} page walkers can be busy "
            f"in {run.cycles:,.0f} cycles: are the counters of the same threads and modes?"
        )


def check_pair(local: Run, remote: Run, where: Placement) -> None:
    """UsageError where the run with remote tables was not slower."""
    if remote.cycles <= local.cycles:
        raise UsageError(
            f"remote run: cycles = {remote.cycles:,.0f}: not above the local run's {local.cycles:,.0f}: "
            f"is it {where.name}, or are the files swapped?"
        )


def suspicious(local: Run, remote: Run, where: Placement) -> list[str]:
    """Lines about counters of a pair of runs that do not fit the placement or the law."""
    return [*_moved(local, remote, where), *_beyond_walks(local, remote)]


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


def _beyond_walks(local: Run, remote: Run) -> Iterator[str]:
    if local.walk is None or remote.walk is None or remote.walk <= local.walk * (1 + STILL):
        return
    exposed = exposed_share(local, remote)
    if exposed > 1 + STILL:
        yield f"cycles grow {exposed:.2f} times as much as walk cycles: something else slowed the run too"
    if exposed * local.walk > local.cycles * (1 + NOISE):
        yield f"exposed walk cycles, {exposed:.2f} times those counted, are more than the local run took"
