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

The last term of C is what a thread waits while the walker serves the other one; no counter shows it. A thread
that computes Z and is served X per walk arrives as often while the other is served as that one alone would
keep the walker busy, X / (Z + X): mean value analysis of a closed network with one server and two customers
(Reiser and Lavenberg, Journal of the ACM 27(2), 1980, section 3). G + E is of all walkers and may exceed C.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Annotated, ClassVar, TypeAlias, TypeVar

import msgspec

from ..core.columns import message
from ..core.errors import UsageError, program_of
from ..core.interval import Interval

Known = TypeVar("Known")


def counted(number: Known | None, what: str) -> Known:
    """A number counted, or derived from counters; UsageError where `what` was not counted."""
    if number is None:
        raise UsageError(f"{what}: not counted; count walk cycles too (dtlb_*_misses.walk_pending)")
    return number


class MeasuredRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counters of a run, summed over its threads.

    cycles   core cycles, None for a run of which only the time is known
    gpt      walk cycles in the first table, None where the CPU does not count them
    ept      walk cycles in the nested table, 0 for a native run, None where not counted
    seconds  wall clock, None where not known
    cpus     CPUs that were busy on average, None where not known
    instructions, huge_walks  instructions; share of walks that ended at a 2 MiB or 1 GiB page; None: as above
    walks    walks for loads and stores that completed, None where not counted
    from_memory  share of the entries read in walks that memory served; accesses: loads and stores; as above
    """

    cycles: float | None = None
    gpt: float | None = None
    ept: float | None = None
    seconds: float | None = None
    cpus: float | None = None
    instructions: float | None = None
    huge_walks: float | None = None
    walks: float | None = None
    from_memory: float | None = None
    accesses: float | None = None

    @property
    def walk(self) -> float | None:
        """Walk cycles of both tables, None unless both are counted."""
        return None if self.gpt is None or self.ept is None else self.gpt + self.ept

    @property
    def length(self) -> float:
        """Cycles, or seconds where those are not known."""
        return counted(self.seconds if self.cycles is None else self.cycles, "run: cycles or seconds")


LEAST, MOST = 1e-9, 1e24  # of what is measured: quotients and squares of such numbers are numbers


def impossible(run: MeasuredRun) -> Iterator[tuple[str, float, str]]:
    """(field, value, way out) of numbers that no run has."""
    for field in run.__struct_fields__:
        value, zero = getattr(run, field), field not in ("cycles", "seconds")
        if value is not None and not (LEAST <= value <= MOST or (zero and value == 0)):
            yield field, value, f"expected {'0, or ' if zero else ''}a number from {LEAST:g} to {MOST:g}"


def outside_cycles(cycles: float, waited: float, shared: float = 0.0) -> float:
    """Z from C, X and s: the inverse of run_cycles. Negative where X alone is more than the run."""
    return (cycles + sqrt(max(cycles**2 - 4 * shared * waited**2, 0.0))) / 2 - waited


# Where page tables and data are, seen from the threads: names of the papers' figures, or shares.

LOCAL, REMOTE, CONTENDED = "local", "remote", "contended"
DATA = r"(?:-(?P<data>[LR])D(?P<loaded>I?))?"
TWO_TABLES = re.compile(r"(?P<gpt>[LR])(?P<ept>[LR])(?P<far>I?)(?:\+?(?P<mended>[EGM]))?" + DATA)
ONE_TABLE = re.compile(r"(?P<gpt>[LR])P?(?P<far>I?)(?:\+?(?P<before>M))?" + DATA + r"(?:\+?(?P<mended>M))?")
SHARE = re.compile(r"(?P<tables>[LR]{1,2})(?P<far>I?):(?P<share>\d+(?:\.\d+)?)(?P<percent>%?)")
DATA_SHARE = re.compile(r"(?:RD|D)(?P<far>I?):(?P<share>\d+(?:\.\d+)?)(?P<percent>%?)")
ALL = 1e-3  # shares are written with a few digits
EXPECTED = (
    "a name like LL, RRI, RRIE (gPT, ePT) or LP, RPI, RP-RD (native), or shares like LL:0.1,RR:0.9 "
    "or L:0.1,R:0.9 (native)"
)


@dataclass(frozen=True)
class Placement:
    """Locations of the gPT, the ePT and the data: local, remote, or contended (remote, with other load on
    that node), and for which share of the walks (of the data accesses). `ept` is None for a native run;
    `repaired`: some table was remote and no longer is."""

    name: str
    gpt: str
    ept: str | None
    data: str = LOCAL
    gpt_share: float = 1.0
    ept_share: float = 1.0
    data_share: float = 1.0
    repaired: bool = False

    @property
    def all_local(self) -> bool:
        return self.tables_local and self.data == LOCAL

    @property
    def tables_local(self) -> bool:
        return self.gpt == LOCAL and self.ept in (LOCAL, None)

    @property
    def whole(self) -> bool:
        """Whether each table is in one place for all walks."""
        return all(share == 1 for state, share in self.tables() if state != LOCAL)

    @property
    def state(self) -> str:
        """State of its remote tables: REMOTE or CONTENDED; LOCAL where none is remote."""
        return next((state for state in (self.gpt, self.ept) if state and state != LOCAL), LOCAL)

    def tables(self) -> Iterator[tuple[str, float]]:
        """(state, share of the walks) of each table."""
        yield self.gpt, self.gpt_share
        if self.ept is not None:
            yield self.ept, self.ept_share

    def stretches(self, far: float, loaded: float) -> tuple[float, float]:
        """(mean stretch of the gPT, of the ePT) for k of an idle and of a contended remote node."""
        known = {LOCAL: 1.0, None: 1.0, REMOTE: far, CONTENDED: loaded}
        return (1 + self.gpt_share * (known[self.gpt] - 1), 1 + self.ept_share * (known[self.ept] - 1))


def placement(name: str) -> Placement:
    """Placement by its name in the papers' figures, or by shares; UsageError for any other name.

    vMitosis, figures 1 and 3: gPT then ePT, L or R, I = interference on the remote node, then the repaired
    table: E (ePT), G (gPT) or M (both), with or without a +. Mitosis, figure 6: LP, RP, RPI, RPI+M, with
    or without -LD, -RD, -RDI for the data. Shares, as `classify` prints them: LL:0.06,LR:0.19,RL:0.19,RR:0.56
    or 6% ..., natively L:0.25,R:0.75; RRI:1 under load; D:0.75 (DI:0.75) is the share of remote data.
    """
    if ":" in name:
        return _shares(name)
    if parts := TWO_TABLES.fullmatch(name):
        far = CONTENDED if parts["far"] else REMOTE
        gpt = LOCAL if parts["gpt"] == "L" or parts["mended"] in ("G", "M") else far
        ept = LOCAL if parts["ept"] == "L" or parts["mended"] in ("E", "M") else far
        return Placement(name, gpt, ept, _data(parts), repaired=bool(parts["mended"]))
    if parts := ONE_TABLE.fullmatch(name):
        far = CONTENDED if parts["far"] else REMOTE
        mended = parts["mended"] or parts["before"]
        gpt = LOCAL if parts["gpt"] == "L" or mended else far
        return Placement(name, gpt, None, _data(parts), repaired=bool(mended))
    raise UsageError(f"placement {name!r}: expected {EXPECTED}")


def _data(parts: re.Match[str]) -> str:
    return LOCAL if parts["data"] != "R" else CONTENDED if parts["loaded"] else REMOTE


def _shares(name: str) -> Placement:
    """Placement of a list of classes with their shares; UsageError unless they add up to 1."""
    gpt = ept = total = data = 0.0
    widths: set[int] = set()
    loads: dict[str, set[str]] = {"tables": set(), "data": set()}
    for part in name.split(","):
        part = part.strip()
        if parts := DATA_SHARE.fullmatch(part):
            data += _share(parts, name)
            loads["data"].add(parts["far"])
        elif parts := SHARE.fullmatch(part):
            share, tables = _share(parts, name), parts["tables"]
            total += share
            gpt += share * (tables[0] == "R")
            ept += share * (tables[-1] == "R")
            widths.add(len(tables))
            if "R" in tables:
                loads["tables"].add(parts["far"])
        else:
            raise UsageError(f"placement {name}: {part!r}: expected {EXPECTED}")
    if len(widths) != 1 or any(len(load) > 1 for load in loads.values()):
        raise UsageError(f"placement {name}: name either one table (L, R) or two (LL .. RR), all I or none")
    if abs(total - 1) > ALL * 10 or data > 1 + ALL:
        raise UsageError(f"placement {name}: shares of walks add up to {total:g}, of data to {data:g}: not 1")
    native, far = widths == {1}, CONTENDED if "I" in loads["tables"] else REMOTE
    return Placement(
        name,
        far if gpt > ALL else LOCAL,
        None if native else far if ept > ALL else LOCAL,
        LOCAL if data <= ALL else CONTENDED if "I" in loads["data"] else REMOTE,
        min(gpt / total, 1.0) if gpt > ALL else 1.0,
        min(ept / total, 1.0) if ept > ALL and not native else 1.0,
        min(data, 1.0) if data > ALL else 1.0,
    )


def _share(parts: re.Match[str], name: str) -> float:
    share = float(parts["share"]) / (100 if parts["percent"] else 1)
    if share > 1 + ALL:
        raise UsageError(f"placement {name}: {parts[0]}: expected a share from 0 to 1, or with a % sign")
    return share


# Coefficients of the run-time law for a program on a machine, to predict any placement.


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Made by ptanalyze_law.calibrate, kept by formats/measured.py, used by ptanalyze_law.predict.

    local            the run that predictions are relative to: all local, or at the placement `at`
    remote           a run with tables at `placement`, or None
    walkers          page walkers per busy hardware thread, by the middle of what is known of its threads
    busy             CPUs that were busy with the program in the local run, None where not known
    exposed          e: share of the walk cycles that the program waits for; None where walks were not counted
    shared           s: part of the time that another thread competes for the page walker
    dram_share       f: share of the walk cycles that waits for DRAM, over both tables; None as above
    gpt_part         the gPT's share of that waiting: 1 for a native run
    remote_stretch   k of an idle remote node
    contended_stretch  k of a remote node under load
    data_share, data_loaded  growth of the cycles outside walks with data on an idle, on a contended remote
                     node, over (k - 1) of an idle one
    noise            the ratio of two runs of one placement is in 1 - noise .. 1 + noise
    counted_noise    the same where the walk cycles of the run to predict are known
    repair           the same with tables that were repaired
    identified, assumed, flags   measured by the runs, assumed, and warned of
    sources          files of the runs and latencies
    """

    name: str
    machine: str
    native: bool
    local: MeasuredRun
    at: str | None = None
    remote: MeasuredRun | None = None
    placement: str | None = None
    walkers: float
    busy: float | None = None
    exposed: Interval | None = None
    shared: Interval
    dram_share: Interval | None = None
    gpt_part: Interval
    remote_stretch: Interval
    contended_stretch: Interval
    data_share: Interval
    data_loaded: Interval
    noise: float
    counted_noise: float
    repair: float
    identified: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    sources: dict[str, str] = {}

    @property
    def placed(self) -> str | None:
        """Placement of the local run's tables: `at`, all local beside a remote run; None: the baseline's."""
        return self.at or (None if self.remote is None else "LP" if self.native else "LL")


RATIOS = ("gain", "contiguous", "huge_over_split")  # of a PageTrial
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class UnfitError(UsageError):
    """A calibration that tells nothing of a capture. why: the reason, and another way out than without it."""

    def __init__(self, program: str, why: str) -> None:
        super().__init__(f"calibration {program}: {why}; or leave --calibration out")
        self.why = why


class PageTrial(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A program measured with pages as found and with huge ones in turns: a calibration, as one by counters.

    program, command, kernel, cpu, date   what ran, where and when; figure: of its work
    nodes            of memory: on one all tables were local, on several as under the baseline
    gain             speed with huge pages over as found: median, and its range
    contiguous       speed as split again over as found, huge_over_split: huge over that; None: not measured
    pairs, seconds   turns of both states, and what all took
    blocks           of 2 MiB that were collapsed
    resident_bytes   anonymous memory
    huge_share_found, huge_share_huge   part of it in huge pages as found, and where they were made
    refused          {why the kernel left a block as it was: how many}
    enabled          /sys/kernel/mm/transparent_hugepage/enabled
    """

    program: str
    command: str = ""
    kernel: str
    cpu: str
    date: str
    nodes: Annotated[int, msgspec.Meta(ge=1)]
    figure: str
    gain: Interval
    contiguous: Interval | None = None
    huge_over_split: Interval | None = None
    pairs: Annotated[int, msgspec.Meta(ge=1)]
    seconds: Annotated[float, msgspec.Meta(gt=0)]
    blocks: Count
    resident_bytes: Count
    huge_share_found: Share
    huge_share_huge: Share
    refused: dict[str, Count] = {}
    enabled: str = ""

    LEAST_GAIN: ClassVar = 1.05  # of huge pages: the law divides by what they save
    MOST_LEFT: ClassVar = 0.7  # of the walk cycles, with them: noise would be divided by what is saved
    LEAST_HUGE: ClassVar = 0.5  # of the memory: below, which part became huge says more than how much did
    MOSTLY_HUGE: ClassVar = 0.9  # of the memory as found, from which on more huge pages cannot gain
    LEAST_PAIRS: ClassVar = 3  # of measurements that show a range
    UNLIKE_SIZE: ClassVar = 2.0  # programs that are larger or smaller by that are others
    NOISE: ClassVar = 0.03  # of the ratio of two runs (ADR 40)
    PARTLY: ClassVar = 0.01  # of the memory huge as found
    COMM: ClassVar = 15  # bytes that the kernel keeps of a program's name
    FILLED: ClassVar = 0.9  # of a block, from which on it is made huge (--least)

    @property
    def share(self) -> float:
        """Part of the memory in small pages that became huge."""
        return (self.huge_share_huge - self.huge_share_found) / max(1 - self.huge_share_found, LEAST)

    @property
    def answer(self) -> Interval:
        """The gain over small pages in turns, with no drift of the load in it; where some pages were huge as
        found, over that."""
        return self.gain if self.huge_share_found > self.PARTLY else self.huge_over_split or self.gain

    def of(self, cpu: str, command: str) -> bool:
        """Whether it is of a program of that name, which the kernel cuts, on a machine with that CPU."""
        return self.cpu == cpu and self.named(command)

    def named(self, command: str) -> bool:
        return program_of(command)[: self.COMM] == self.program[: self.COMM]

    def must_fit(
        self,
        traced: bool,
        mapped: float | None = None,
        saved: float | None = None,
        gain: Interval | None = None,
    ) -> None:
        """UsageError where the trial tells nothing of placements: by itself, of a program with `mapped`
        bytes, or where huge pages save that part of the walk cycles. Without a trace it tells of page size
        alone, if it is of this program. gain: the one that must be sure, None: over pages as found"""
        gain = gain or self.gain
        size, took = self.resident_bytes, 1 - 1 / gain.middle
        wrong = {
            "few": self.pairs < self.LEAST_PAIRS,
            "gain": gain.middle < self.LEAST_GAIN,
            "noisy": gain.low <= 1,
            "found": self.huge_share_found > self.LEAST_HUGE,
            "fragmented": self.share < self.LEAST_HUGE,
            "size": mapped is not None and not size / self.UNLIKE_SIZE <= mapped <= size * self.UNLIKE_SIZE,
            "left": saved is not None and saved < 1 - self.MOST_LEFT,
            "more": saved is not None and saved < took,
        }
        code = next((code for code, is_so in wrong.items() if is_so and (traced or code == "size")), None)
        if code is not None:
            numbers = {"share": self.share, "size": size, "mapped": mapped, "saved": saved, "took": took}
            about = {"gain": gain, "found": self.huge_share_found, "pairs": self.pairs}
            raise UnfitError(self.program, str(message("trial", code, **about, **numbers)))
