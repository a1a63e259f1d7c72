"""The run-time law of page-table placement: closed forms, and their inverses.

    C = NW + e * (G * [1 + f_g (k_g - 1)] + E * [1 + f_e (k_e - 1)])

C   cycles of the run, summed over its CPUs
NW  cycles outside walks
G,E cycles of walks in the guest's table (gPT) and in the nested table (ePT) with both local; native: E = 0
e   exposed share: part of the walk cycles that adds to the run time
f   share of the walk cycles that waits for DRAM
k   stretch: latency of the table's node over local latency, 1 for a local table

The counters of the public vMitosis runs (Panwar et al., ASPLOS 2021, figures 1 and 3) obey it with one e per
workload over all placements. Counters of two page walkers are summed, so G + E may exceed C.
"""

import re
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from ..core.errors import UsageError

LOCAL, REMOTE, CONTENDED = "local", "remote", "contended"
TWO_TABLES = re.compile(r"([LR])([LR])(I?)(?:\+?([EGM]))?")
ONE_TABLE = re.compile(r"([LR])P?(I?)(?:-LD)?(?:\+?(M))?")
ORDER = ("LL", "LR", "LRI", "RL", "RLI", "RR", "RRI", "RRIE", "RRIG", "RRIM")
ORDER_NATIVE = ("LP", "RP", "RPI", "RPIM")
Known = TypeVar("Known")


def counted(number: Known | None, what: str) -> Known:
    """A number counted, or derived from counters; UsageError where `what` was not counted."""
    if number is None:
        raise UsageError(f"{what}: not counted; count walk cycles too (dtlb_*_misses.walk_pending)")
    return number


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counters of a run, summed over its threads.

    cycles   core cycles
    gpt      walk cycles in the first table, None where the CPU does not count them
    ept      walk cycles in the nested table, 0 for a native run, None where not counted
    seconds  wall clock, None where not known
    cpus     CPUs that were busy on average, None where not known
    """

    cycles: float
    gpt: float | None = None
    ept: float | None = None
    seconds: float | None = None
    cpus: float | None = None

    @property
    def walk(self) -> float | None:
        """Walk cycles of both tables, None unless both are counted."""
        return None if self.gpt is None or self.ept is None else self.gpt + self.ept


@dataclass(frozen=True)
class Placement:
    """Locations of the gPT and the ePT as the workload sees them: local, remote, or contended (remote, with
    other load on that node). `ept` is None for a native run."""

    name: str
    gpt: str
    ept: str | None

    @property
    def all_local(self) -> bool:
        return self.gpt == LOCAL and self.ept in (LOCAL, None)

    @property
    def state(self) -> str:
        """State of its remote tables: REMOTE or CONTENDED; LOCAL where none is remote."""
        return next((state for state in (self.gpt, self.ept) if state and state != LOCAL), LOCAL)


def placement(name: str) -> Placement:
    """Placement by its name in the papers' figures; UsageError for any other name.

    vMitosis, figures 1 and 3: gPT then ePT, L or R, I = interference on the remote node, then the repaired
    table: E (ePT), G (gPT) or M (both), with or without a +. Mitosis, figure 6: LP, RP, RPI, RPI+M, with
    or without -LD; L, R, RI for short.
    """
    if parts := TWO_TABLES.fullmatch(name):
        far = CONTENDED if parts[3] else REMOTE
        gpt = LOCAL if parts[1] == "L" or parts[4] in ("G", "M") else far
        ept = LOCAL if parts[2] == "L" or parts[4] in ("E", "M") else far
        return Placement(name, gpt, ept)
    if parts := ONE_TABLE.fullmatch(name):
        far = CONTENDED if parts[2] else REMOTE
        return Placement(name, LOCAL if parts[1] == "L" or parts[3] else far, None)
    if name.endswith(("RD", "RDI")):
        raise UsageError(f"placement {name}: data is remote too; the law is for local data")
    raise UsageError(f"placement {name!r}: expected a name like LL, RRI, RRIE (gPT, ePT) or LP, RPI (native)")


def run_cycles(
    outside: float,
    exposed: float,
    gpt: float,
    ept: float = 0.0,
    share_gpt: float = 1.0,
    share_ept: float = 1.0,
    stretch_gpt: float = 1.0,
    stretch_ept: float = 1.0,
) -> float:
    """C of the law."""
    return outside + exposed * (
        gpt * (1 + share_gpt * (stretch_gpt - 1)) + ept * (1 + share_ept * (stretch_ept - 1))
    )


def exposed_share(local: Run, other: Run) -> float:
    """e from two Runs of a program with tables in different places: added cycles over added walk cycles."""
    added = counted(other.walk, "remote run: walk cycles") - counted(local.walk, "local run: walk cycles")
    return (other.cycles - local.cycles) / added


def added_cycles(waiting: float, part_gpt: float, stretch_gpt: float, stretch_ept: float = 1.0) -> float:
    """Cycles that remote tables add to a run: C - C_LL, from `waiting` = e * (f_g G + f_e E), the cycles that
    the all-local run waits for table entries from DRAM, of which part_gpt are the gPT's."""
    return waiting * (part_gpt * (stretch_gpt - 1) + (1 - part_gpt) * (stretch_ept - 1))


def waiting_cycles(added: float, part_gpt: float, stretch_gpt: float, stretch_ept: float = 1.0) -> float:
    """`waiting` from the cycles that a known placement added; the inverse of added_cycles."""
    return added / (part_gpt * (stretch_gpt - 1) + (1 - part_gpt) * (stretch_ept - 1))
