"""The run-time law of page-table placement: closed forms, and their inverses.

    C = Z + X + s X^2 / (Z + X),  X = e * (G * [1 + f_g (k_g - 1)] + E * [1 + f_e (k_e - 1)])

C   cycles of the run, summed over its CPUs
Z   cycles that neither wait for walks nor for the page walker
X   cycles that wait for the thread's own walks
s   share of the time that another thread of the core competes for the same page walker, 0 to 1
G,E cycles of walks in the guest's table (gPT) and in the nested table (ePT) with both local; native: E = 0
e   exposed share: part of the walk cycles that is waited for; below 1 where walks of a thread overlap
f   share of the walk cycles that waits for DRAM
k   stretch: latency of the table's node over local latency, 1 for a local table

The last term of C is what a thread waits while the walker serves the other one: counted by nobody. A thread
that computes Z and is served X per walk arrives as often while the other is served as that one alone would
keep the walker busy, X / (Z + X): mean value analysis of a closed network with one server and two customers
(Reiser and Lavenberg, Journal of the ACM 27(2), 1980, section 3). Counters of two page walkers are summed, so
G + E may exceed C.
"""

from math import sqrt
from typing import TypeVar

import msgspec

from ..core.errors import UsageError

Known = TypeVar("Known")


def counted(number: Known | None, what: str) -> Known:
    """A number counted, or derived from counters; UsageError where `what` was not counted."""
    if number is None:
        raise UsageError(f"{what}: not counted; count walk cycles too (dtlb_*_misses.walk_pending)")
    return number


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counters of a run, summed over its threads.

    cycles   core cycles, None for a run of which only the time is known
    gpt      walk cycles in the first table, None where the CPU does not count them
    ept      walk cycles in the nested table, 0 for a native run, None where not counted
    seconds  wall clock, None where not known
    cpus     CPUs that were busy on average, None where not known
    instructions, huge_walks  instructions; share of walks that ended at a 2 MiB or 1 GiB page; None: as above
    walks    walks for loads and stores that completed, None where not counted
    """

    cycles: float | None = None
    gpt: float | None = None
    ept: float | None = None
    seconds: float | None = None
    cpus: float | None = None
    instructions: float | None = None
    huge_walks: float | None = None
    walks: float | None = None

    @property
    def walk(self) -> float | None:
        """Walk cycles of both tables, None unless both are counted."""
        return None if self.gpt is None or self.ept is None else self.gpt + self.ept

    @property
    def length(self) -> float:
        """Cycles, or seconds where those are not known."""
        return counted(self.seconds if self.cycles is None else self.cycles, "run: cycles or seconds")


def walk_cycles(
    gpt: float,
    ept: float = 0.0,
    share_gpt: float = 1.0,
    share_ept: float = 1.0,
    stretch_gpt: float = 1.0,
    stretch_ept: float = 1.0,
) -> float:
    """Walk cycles with tables elsewhere: X of the law over e."""
    return gpt * (1 + share_gpt * (stretch_gpt - 1)) + ept * (1 + share_ept * (stretch_ept - 1))


def run_cycles(outside: float, waited: float, shared: float = 0.0) -> float:
    """C of the law from Z, X and s."""
    return outside + waited + (shared * waited**2 / (outside + waited) if waited else 0.0)


def outside_cycles(cycles: float, waited: float, shared: float = 0.0) -> float:
    """Z from C, X and s: the inverse of run_cycles. Negative where X alone is more than the run."""
    return (cycles + sqrt(max(cycles**2 - 4 * shared * waited**2, 0.0))) / 2 - waited


def waited_cycles(cycles: float, outside: float, shared: float = 0.0) -> float:
    """X from C, Z and s: the inverse of run_cycles."""
    half = (cycles + 2 * shared * outside) / 2 / (1 + shared)
    return half + sqrt(max(half**2 - shared * outside**2 / (1 + shared), 0.0)) - outside


def lost_share(outside: float, waited: float, shared: float = 0.0) -> float:
    """Cycles that the run loses for each further cycle of X: 1 without sharing, at most 2."""
    busy = waited / (outside + waited)
    return 1 + shared * (2 * busy - busy**2)


def exposed_share(local: Run, other: Run) -> float:
    """Added cycles over added walk cycles of two Runs of a program with tables in different places."""
    added = counted(other.walk, "remote run: walk cycles") - counted(local.walk, "local run: walk cycles")
    cycles = [counted(run.cycles, "run: cycles") for run in (local, other)]
    return (cycles[1] - cycles[0]) / added


def most_sharing(cycles: float, waited: float) -> float:
    """The largest s for which a run of `cycles` holds X = `waited`, with Z from 0."""
    if not waited:
        return 1.0
    ratio = min(cycles / waited, 1e6)  # no bound any more
    return max(ratio**2 / 4 if ratio >= 2 else ratio - 1, 0.0)


def sharing(local: Run, other: Run) -> float:
    """s from two Runs that lose more cycles than they walk, with e = 1: the law then gives both."""
    walk, more = (counted(run.walk, "run: walk cycles") for run in (local, other))
    cycles, after = (counted(run.cycles, "run: cycles") for run in (local, other))
    low, high = 0.0, most_sharing(cycles, walk)

    def short(s: float) -> float:
        return run_cycles(outside_cycles(cycles, walk, s), more, s) - after

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
