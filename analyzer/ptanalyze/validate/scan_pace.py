"""How fast Linux' NUMA balancing follows threads that have moved: its scan period, from its own rules.

kernel/sched/fair.c of Linux 4.17 (update_task_scan_period): at the end of each pass over the memory, the
period of a task whose pages others use too grows by the tenths of its faults beyond seven that were local, at
least by one tenth, or shrinks by those that are missing.
"""

from collections.abc import Iterator
from typing import NamedTuple

TENTHS, ENOUGH = 10, 7  # NUMA_PERIOD_SLOTS, NUMA_PERIOD_THRESHOLD
FIRST_MS = 1000.0  # sysctl_numa_balancing_scan_delay: the period that a task begins with
WINDOW_MIB, SECOND_MS = 2560.0, 1000.0  # MAX_SCAN_WINDOW per second at most
ALL, NONE = 1.0, 0.0  # shares of the faults


class Pace(NamedTuple):
    """learning  s after the threads' move in which pages are looked at for the first time; period  ms from
    one scan to the next in the pass that moves them."""

    learning: float
    period: float


def next_period(period: float, local: float, scan_mib: float) -> float:
    """The period (ms) after a pass in which a share of the faults was local."""
    tenths = int(TENTHS * local)
    slots = max(tenths - ENOUGH, 1) if tenths >= ENOUGH else tenths - ENOUGH
    return max(period + slots * period / TENTHS, SECOND_MS * scan_mib / WINDOW_MIB)


def settled_period(seconds: float, mib: float, scan_mib: float) -> float:
    """The period (ms) after so many seconds in which all pages were local, of so much memory."""
    period = FIRST_MS
    while (seconds := seconds - one_pass(period, mib, scan_mib)) >= 0:
        period = next_period(period, ALL, scan_mib)
    return period


def one_pass(period: float, mib: float, scan_mib: float) -> float:
    """s of a pass over all of the memory."""
    return mib / scan_mib * period / 1000


def paces(seconds: float, mib: float, scan_mib: float) -> Iterator[Pace]:
    """The Pace that the rules give threads that move after so many seconds, as a pass begins; the fastest,
    with the period that tasks begin with; the slowest, of a move so late in a pass that the period stays."""
    settled = settled_period(seconds, mib, scan_mib)
    for before, local in ((settled, NONE), (FIRST_MS, NONE)):
        yield Pace(one_pass(before, mib, scan_mib), next_period(before, local, scan_mib))
    yield Pace(one_pass(settled, mib, scan_mib), settled)
