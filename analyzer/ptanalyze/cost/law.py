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
(Reiser and Lavenberg, Journal of the ACM 27(2), 1980, section 3). Counters of two page walkers are summed, so
G + E may exceed C.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import TypeVar

import msgspec

from ..core.errors import UsageError, bundled
from ..core.interval import Interval
from ..core.safe_files import Undecodable, plain_toml, struct_of

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
    from_memory  share of the entries read in walks that memory served, None where not counted
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


def exposed_share(local: MeasuredRun, other: MeasuredRun) -> float:
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


def sharing(local: MeasuredRun, other: MeasuredRun) -> float:
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


# Where page tables and data are, seen from the threads: names of the papers' figures, or shares.

LOCAL, REMOTE, CONTENDED = "local", "remote", "contended"
DATA = r"(?:-(?P<data>[LR])D(?P<loaded>I?))?"
TWO_TABLES = re.compile(r"(?P<gpt>[LR])(?P<ept>[LR])(?P<far>I?)(?:\+?(?P<mended>[EGM]))?" + DATA)
ONE_TABLE = re.compile(r"(?P<gpt>[LR])P?(?P<far>I?)(?:\+?(?P<before>M))?" + DATA + r"(?:\+?(?P<mended>M))?")
SHARE = re.compile(r"(?P<tables>[LR]{1,2})(?P<far>I?):(?P<share>\d+(?:\.\d+)?)(?P<percent>%?)")
DATA_SHARE = re.compile(r"(?:RD|D)(?P<far>I?):(?P<share>\d+(?:\.\d+)?)(?P<percent>%?)")
ORDER = ("LL", "LR", "LRI", "RL", "RLI", "RR", "RRI", "RRIE", "RRIG", "RRIM")
ORDER_NATIVE = ("LP", "RP", "RPI", "RPIM")
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
    if parts["data"] != "R":
        return LOCAL
    return CONTENDED if parts["loaded"] else REMOTE


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
    """Made by calibrate.calibrate_runs, kept by formats/measured/machine.py, used by predict.py.

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
    exposed: Interval | None
    shared: Interval
    dram_share: Interval | None
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


# Page walkers per busy hardware thread: how far walks of a thread overlap, and whether threads share one.

THREADS_PER_CORE = 2  # hyperthreads share the page walkers of their core
MANY = 1.5  # busy CPUs on average: more than one thread


def busy_cpus(run: MeasuredRun, ghz: float) -> float | None:
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


LEAST_WAIT = 0.8  # of 1 / walkers: 0.82 (Canneal, one walker) and 0.88 (GUPS, two) were measured


def exposed_prior(walk_per_cycle: float, walkers: Interval) -> Interval:
    """Interval of e from an all-local run alone: walk cycles per cycle, walkers per hardware thread.

    A thread's walks overlap at most as far as it has walkers, so e >= 1 / walkers but for what it computes
    meanwhile (LEAST_WAIT), and they cannot take longer than the run; at most every walk cycle is waited for
    (Basu et al., ISCA 2013). Between, walkers are
    taken to be busy independently of each other: each for u / w of the time, some of them for
    1 - (1 - u / w)^w of it. Nothing is fitted (docs/adr/0029-a-law-beside-its-rivals.md). With one walker
    per thread or less nothing overlaps: e = 1.
    """
    ceiling = min(1.0, 1 / walk_per_cycle) if walk_per_cycle else 1.0

    def chance(each: float) -> float:
        if each <= 1 or not walk_per_cycle:
            return 1.0
        return float((1 - (1 - min(walk_per_cycle / each, 1.0)) ** each) / walk_per_cycle)

    least, floor, _ = walkers.through(lambda each: min(1 / each, ceiling))
    return Interval(LEAST_WAIT * least, min(max(chance(walkers.middle), floor), ceiling), ceiling)


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
    dram_share: Interval
    many_share: Interval
    gpt_part: Interval
    contention: Interval
    any_contention: Interval
    anywhere: Interval
    slope: float
    walk_rate: float
    stretch: float
    data_share: Interval
    data_loaded: Interval
    noise: float
    many_noise: float
    any_noise: float
    repair: float

    def contention_at(self, walk_per_cycle: float | None, many: bool = False) -> Interval:
        """Contention of a program with that many walk cycles per cycle; None: not known. `many` threads, of
        which none was fitted: the mean of programs."""
        if walk_per_cycle is None:
            return self.any_contention
        more = 0.0 if many else self.slope * (overlap(walk_per_cycle) - self.walk_rate)
        return self.contention.through(lambda ratio: max(ratio + more, 1.0))

    def share(self, crowding: Interval) -> Interval:
        """f with a node's own load between that of one thread (0) and that of all cores (1)."""
        ends = [*zip(self.dram_share, self.many_share, strict=True)]
        low, middle, high = ([alone + crowd * (many - alone) for alone, many in ends] for crowd in crowding)
        return Interval(min(low[0], high[0]), middle[1], max(low[2], high[2]))

    def noise_at(self, crowding: float) -> float:
        """As `share`, of the noise."""
        return self.noise + crowding * (self.many_noise - self.noise)


def overlap(walk_per_cycle: float) -> float:
    """Chance that a walk meets another one of its core: of a queue, with u walk cycles per cycle."""
    return walk_per_cycle / (1 + walk_per_cycle)


@cache
def prior_of(family: str) -> FittedPrior:
    """FittedPrior of all reference workloads of a family: models/reference/prior.toml, which
    `python -m ptanalyze.validate.prior` writes."""
    path = bundled("models") / "reference" / "prior.toml"
    try:
        return struct_of(plain_toml(path.read_bytes())[family], FittedPrior)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except KeyError:
        raise UsageError(f"{path}: {family}: expected its prior") from None
    except Undecodable as error:
        raise UsageError(f"{path}: {error}") from None
