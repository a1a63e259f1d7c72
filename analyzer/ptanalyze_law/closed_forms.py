"""Closed forms of the run-time law (ptanalyze.cost.law) that only predictions need, and their inverses."""

from math import sqrt

import ptanalyze as pt


def run_cycles(outside: float, waited: float, shared: float = 0.0) -> float:
    """C of the law from Z, X and s."""
    return outside + waited + (shared * waited**2 / (outside + waited) if waited else 0.0)


def waited_cycles(cycles: float, outside: float, shared: float = 0.0) -> float:
    """X from C, Z and s: the inverse of run_cycles."""
    half = (cycles + 2 * shared * outside) / 2 / (1 + shared)
    return half + sqrt(max(half**2 - shared * outside**2 / (1 + shared), 0.0)) - outside


def exposed_share(local: pt.law.MeasuredRun, other: pt.law.MeasuredRun) -> float:
    """Added cycles over added walk cycles of two Runs of a program with tables in different places."""
    added = pt.law.counted(other.walk, "remote run: walk cycles") - pt.law.counted(
        local.walk, "local run: walk cycles"
    )
    cycles = [pt.law.counted(run.cycles, "run: cycles") for run in (local, other)]
    return (cycles[1] - cycles[0]) / added


def most_sharing(cycles: float, waited: float) -> float:
    """The largest s for which a run of `cycles` holds X = `waited`, with Z from 0."""
    if not waited:
        return 1.0
    ratio = min(cycles / waited, 1e6)  # no bound any more
    return max(ratio**2 / 4 if ratio >= 2 else ratio - 1, 0.0)


def sharing(local: pt.law.MeasuredRun, other: pt.law.MeasuredRun) -> float:
    """s from two Runs that lose more cycles than they walk, with e = 1: the law then gives both."""
    walk, more = (pt.law.counted(run.walk, "run: walk cycles") for run in (local, other))
    cycles, after = (pt.law.counted(run.cycles, "run: cycles") for run in (local, other))
    low, high = 0.0, most_sharing(cycles, walk)

    def short(s: float) -> float:
        return run_cycles(pt.law.outside_cycles(cycles, walk, s), more, s) - after

    if short(high) < 0:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if short(middle) < 0 else (low, middle)
    return (low + high) / 2


def waiting_of(part_gpt: float, stretch_gpt: float, stretch_ept: float = 1.0) -> float:
    """Added waiting per cycle that the all-local run waits for table entries from DRAM, of which part_gpt are
    the gPT's."""
    return part_gpt * (stretch_gpt - 1) + (1 - part_gpt) * (stretch_ept - 1)
