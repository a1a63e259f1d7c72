"""Calibration from the counters of one or two runs: identified and assumed coefficients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import hypot, sqrt
from os import PathLike
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

import ptanalyze as pt

from . import assumed
from .closed_forms import exposed_share, most_sharing, sharing, waited_cycles, waiting_of
from .run_time import check_pair

# Counters that contradict each other: refused where they are unusable, else flagged by name.

NOISE = 0.02  # of run time, from run to run
MOVED = 0.15  # a local table's walk cycles change less
STILL = 0.05  # a remote table's walk cycles change more
APART = 0.05  # two clocks, or two counts of the same work, differ less
BUSY_APART = 0.1  # so do busy CPUs
TURBO = 3.0  # times the base clock: no CPU runs faster
MOST_LOST = 2.0  # cycles per walk cycle, where two threads share a page walker
SHARED_LOSE = f"threads that share a page walker lose at most {MOST_LOST:g}"
SLOWER = 1.25  # times what the nodes' latencies allow: no published run comes near
MOST_CPUS = 8192  # NR_CPUS of Linux on x86-64
SHORT = 10.0  # seconds: all published runs are longer, and their noise is what intervals have
ALL_BUSY = 0.75  # of all CPUs
WAITING = 0.1  # busy CPUs: below, nearly all of the elapsed time is something else


def check_run(which: str, run: pt.law.MeasuredRun, walkers: float) -> None:
    """UsageError for an impossible counter, or walks longer than `walkers` per hardware thread allow."""
    for field, value, why in pt.law.impossible(run):
        raise pt.UsageError(f"{which} run: {field} = {value:g}: {why}")
    if run.cycles is None and run.seconds is None:
        raise pt.UsageError(
            f"{which} run: neither cycles nor seconds: count cycles, or give its elapsed time"
        )
    if run.walk is not None and run.cycles is not None and run.walk > walkers * run.cycles * (1 + NOISE):
        raise pt.UsageError(
            f"{which} run: walk cycles = {run.walk:,.0f}: more than {walkers:.2g} page walkers can be busy "
            f"in {run.cycles:,.0f} cycles: are the counters of the same threads and modes?"
        )


def contradictions(
    local: pt.law.MeasuredRun,
    remote: pt.law.MeasuredRun,
    ghz: float,
    names: tuple[str, str] = ("local run", "remote run"),
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


def short(local: pt.law.MeasuredRun, remote: pt.law.MeasuredRun | None) -> Iterator[str]:
    """A line about a run that is too short for the noise of the published ones."""
    least = min((run.seconds for run in (local, remote) if run is not None and run.seconds), default=SHORT)
    if least < SHORT:
        yield (
            f"a run of {least:.3g} s: intervals have the noise of runs of minutes, and what a program does "
            "once is a greater part of this one: repeat its work for longer"
        )


def waiting(run: pt.law.MeasuredRun, busy: float | None) -> Iterator[str]:
    """A line about a run, known alone, whose elapsed time is hardly its CPU's."""
    if busy is not None and run.seconds is not None and busy < WAITING:
        yield (
            f"local run: {busy:.2g} CPUs were busy in its {run.seconds:g} s: it waited for something else "
            "nearly all the time, which placements leave as it is, or its elapsed time is not in seconds"
        )


def crowded(base: pt.law.Placement | None, busy: float | None, machine: MachineName) -> Iterator[str]:
    """A line about remote tables that are taken for those of idle nodes while all CPUs walk."""
    if base is None or base.whole or base.state != pt.law.REMOTE or busy is None:
        return
    cpus = pt.load_machine(machine_name(machine))
    if busy >= ALL_BUSY * cpus.nodes * cpus.cpus_per_node:
        yield (
            f"{base.name}: {busy:.0f} CPUs were busy, all of the machine: where one node holds the tables "
            "(first touch by one thread) they queue there, and replicas gain more than this says: name the "
            "remote share RI"
        )


def beyond_nodes(
    local: pt.law.MeasuredRun,
    remote: pt.law.MeasuredRun,
    where: pt.law.Placement,
    ks: tuple[pt.Interval, pt.Interval],
    names: tuple[str, str],
) -> Iterator[str]:
    """A line about a second run that is slower than its nodes are far; ks: k idle and contended."""
    here, there = names
    far, loaded = (k.high for k in ks)
    data = {pt.law.LOCAL: 1.0, pt.law.REMOTE: far, pt.law.CONTENDED: loaded}[where.data]
    most = max(*where.stretches(far, loaded), 1 + where.data_share * (data - 1))
    for what, of in (("walk cycles", "walk"), ("seconds", "seconds"), ("cycles", "cycles")):
        before, after = getattr(local, of), getattr(remote, of)
        if before and after and after / before > SLOWER * most:
            node = "a loaded" if pt.law.CONTENDED in (where.state, where.data) else "an idle"
            why = "" if node == "a loaded" else "was it loaded (I), or "
            yield (
                f"{where.name}: {what} of {there} are {after / before:.3g} times those of {here}: {node} "
                f"remote node makes them at most {most:.2f} times as many: {why}is it other work?"
            )
            return


def suspicious(
    local: pt.law.MeasuredRun, remote: pt.law.MeasuredRun, where: pt.law.Placement, alone: bool = False
) -> list[str]:
    """Lines about counters of an all-local run and another one that do not fit the placement or the law;
    `alone`: no thread shares its core."""
    return [*_moved(local, remote, where), *_beyond_walks(local, remote, alone)]


def _moved(local: pt.law.MeasuredRun, remote: pt.law.MeasuredRun, where: pt.law.Placement) -> Iterator[str]:
    for table, state in (("gpt", where.gpt), ("ept", where.ept)):
        before, after = getattr(local, table), getattr(remote, table)
        if state is None or not before or after is None:
            continue
        change = after / before - 1
        if state == pt.law.LOCAL and abs(change) > MOVED:
            yield f"{table}: local in both runs, yet its walk cycles change by {change:+.0%}: the same pages?"
        if state != pt.law.LOCAL and change < STILL:
            yield f"{table}: remote, yet its walk cycles change by {change:+.1%}: was it remote?"


def beyond_walks(local: pt.law.MeasuredRun, remote: pt.law.MeasuredRun, alone: bool = False) -> float | None:
    """Cycles lost per added walk cycle, where that is more than walks and noise explain; else None."""
    if None in (local.walk, remote.walk, local.cycles, remote.cycles):
        return None
    assert local.walk is not None and remote.walk is not None and local.cycles and remote.cycles
    added, walks = remote.cycles - local.cycles, remote.walk - local.walk
    if added <= (1.0 if alone else MOST_LOST) * max(walks, 0.0) + NOISE * local.cycles:
        return None
    return added / walks if walks > 0 else float("inf")


def _beyond_walks(local: pt.law.MeasuredRun, remote: pt.law.MeasuredRun, alone: bool) -> Iterator[str]:
    lost = beyond_walks(local, remote, alone)
    if lost == float("inf"):
        assert local.walk is not None and remote.walk is not None and local.cycles and remote.cycles
        yield (
            f"cycles grow by {100 * (remote.cycles / local.cycles - 1):.0f} %, walk cycles by "
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


# What two runs with tables in different places identify together.

Z_90 = 1.645  # standard deviations that 90 % of a normal distribution are within
MOST_SHARED = 2.0  # s: beyond, something else than the page walker is waited for


def waiting_shares(
    local: pt.law.MeasuredRun,
    remote: pt.law.MeasuredRun,
    exposed: pt.Interval | None,
    competing: pt.Interval,
    alone: bool,
    noise: float,
) -> tuple[pt.Interval | None, pt.Interval]:
    """(e, s) where walk cycles changed, else those of one run; e None where not counted.

    Cycles lost per walk cycle are known as well as two runs differ for no reason, `noise` of their ratio at
    90 %: what page walkers allow and one run lets expect counts beside them (`weighed`), and the interval
    reaches from there to the straight line through both. More cycles lost than walked mean a walker that is
    shared, from not at all (Basu) to what explains them; `alone`: not with one thread per core.
    """
    if local.walk is None or remote.walk is None or local.cycles is None or remote.cycles is None:
        return exposed, competing
    if abs(remote.walk - local.walk) <= local.walk * STILL:
        return exposed, competing
    lost = exposed_share(local, remote)
    if exposed is None or lost <= 0 or lost * local.walk >= local.cycles * (1 + competing.high):
        return exposed, competing
    apart = noise / Z_90 * hypot(local.cycles, remote.cycles) / sqrt(2)
    if lost <= 1 or alone:
        within = apart / abs(remote.walk - local.walk)
        walkers = pt.Interval(exposed.low / assumed.LEAST_WAIT, exposed.middle, exposed.high)
        mean, line = weighed(lost, within, walkers), min(max(lost, exposed.low), exposed.high)
        return pt.Interval(min(line, mean), mean, max(line, mean)), pt.Interval.exactly(0.0)
    fewer, more = sorted((local, remote), key=lambda run: run.walk or 0.0)
    found = min(sharing(fewer, more), MOST_SHARED)
    return pt.Interval.exactly(1.0), pt.Interval(0.0, found, found)


def weighed(measured: float, within: float, expected: pt.Interval) -> float:
    """A number measured with a standard deviation `within`, and expected in an interval of which it may be
    anywhere: the mean by inverse variances (a uniform distribution's is a twelfth of its width squared), kept
    in the interval."""
    spread = (expected.high - expected.low) ** 2 / 12
    mean = (
        expected.middle
        if not spread
        else ((measured * spread + expected.middle * within**2) / (spread + within**2))
    )
    return min(max(mean, expected.low), expected.high)


def dram_share(
    local: pt.law.MeasuredRun,
    remote: pt.law.MeasuredRun,
    places: tuple[pt.law.Placement | None, pt.law.Placement],
    unknown: tuple[pt.Interval | None, pt.Interval, pt.Interval, pt.Interval, pt.Interval],
) -> pt.Interval | None:
    """Interval of f from the cycles of two runs; None where walk cycles were not counted.

    places   of the local run, None: all local, and of the remote one
    unknown  e, s, the gPT's part of the waiting, k of an idle and of a contended remote node
    """
    exposed, competing, part, far, loaded = unknown
    if exposed is None or not local.walk or not local.cycles or not remote.cycles:
        return None
    rate, slower = local.walk / local.cycles, remote.cycles / local.cycles
    base, where = places

    def share(e: float, s: float, part: float, far: float, loaded: float) -> float:
        waited = e * rate
        added = waited_cycles(slower, pt.law.outside_cycles(1.0, waited, s), s) - waited
        here = 0.0 if base is None else waiting_of(part, *base.stretches(far, loaded))
        waiting = added / (waiting_of(part, *where.stretches(far, loaded)) - here)
        rest = waited - waiting * here
        return max(waiting / rest, 0.0) if rest else 0.0

    return pt.interval.combined(share, exposed, competing, part, far, loaded)


def identified_by(
    where: pt.law.Placement, local: pt.law.MeasuredRun, remote: pt.law.MeasuredRun
) -> tuple[str, ...]:
    """Sentences: what the second run at `where` measures."""
    tables = ("gPT",) if where.ept is None else ("gPT", "ePT")
    far = [t for t, (state, _) in zip(tables, where.tables(), strict=True) if state != pt.law.LOCAL]
    state = "contended" if where.state == pt.law.CONTENDED else "remote"
    known = [f"what waiting for the {state} {' and '.join(far)} costs" if far else "what local tables save"]
    if local.walk is not None and remote.walk is not None:
        known.append("cycles lost per walk cycle, from added cycles over added walk cycles")
    return tuple(known)


# k of the law: latency of remote nodes over that of local ones, idle and under load.

MachineName: TypeAlias = str | PathLike[str] | None
REFERENCE_MACHINE = "vmitosis-cascade-lake"
ESTIMATE = "estimate"  # begins the source of a number in a machine file that was not measured


def machine_name(machine: MachineName) -> str:
    return REFERENCE_MACHINE if machine is None else str(machine)


def stretches(
    machine: MachineName, common: assumed.FittedPrior, walk_per_cycle: float | None, many: bool = False
) -> tuple[pt.Interval, pt.Interval, str]:
    """(k of an idle remote node, of a contended one, why).

    Fitted ones for the machine of the reference runs (rounded in its file); else those of the latencies. f is
    relative to k, so that the idle one needs no interval. What a loaded node costs is the machine's: without
    loaded latencies that were measured there, the interval reaches over all machines (FittedPrior.anywhere).
    walk_per_cycle  walk cycles per cycle, None: not known; many: threads
    """
    ratio = common.contention_at(walk_per_cycle, many)
    if machine in (None, REFERENCE_MACHINE):
        far, fitted = common.stretch, f"contention as fitted on {', '.join(common.workloads)}"
        loaded, why = (
            ratio.through(lambda value: 1 + value * (far - 1)),
            f"stretch of remote walks and {fitted}",
        )
    else:
        model = pt.load_machine(machine_name(machine))
        idle, contended = model.latency.idle, model.latency.contended
        far, why = stretch(idle), "latencies of the machine file"
        measured = None if contended is None else stretch(contended, idle)
        if measured is None or measured <= far:
            loaded = common.anywhere.through(lambda value: 1 + value * (far - 1))
            why = f"{why}, contention of other machines"
        elif model.sources.get("latency_contended", "").startswith(ESTIMATE):
            most = max(common.anywhere.high, (measured - 1) / (far - 1))
            loaded = pt.Interval(far, measured, 1 + most * (far - 1))
            why = f"{why}, loaded ones an estimate, within those of other machines"
        else:  # as uncertain as the ratio is among programs
            scale = (measured - 1) / ratio.middle
            loaded = ratio.through(lambda value: 1 + scale * value)
    shown = f"idle remote {far:.3g}, contended {loaded.low:.3g} to {loaded.high:.3g} times local"
    return pt.Interval.exactly(far), loaded, f"{why}: {shown}"


def stretch(latency: ArrayLike, local: ArrayLike | None = None) -> float:
    """Mean latency of remote nodes over the mean of local idle ones; UsageError unless above 1."""
    matrix = np.asarray(latency, np.float64)
    idle = matrix if local is None else np.asarray(local, np.float64)
    if len(matrix) < 2:
        raise pt.UsageError("latency: a single node has no remote latency; give a machine with two or more")
    ratio = float(matrix[(~np.eye(len(matrix), dtype=bool))].mean() / np.diag(idle).mean())
    if ratio <= 1:
        raise pt.UsageError(
            f"latency: remote nodes are {ratio:.3g} times as far as local ones: expected above 1"
        )
    return ratio


# 2 MiB pages, as the counters of a run show them: how much of a walk then waits for DRAM is hardly known.

# ePT over gPT walk cycles: 1.01 to 1.27 in the published runs of 4 KiB pages; 0.25 to 0.88 in those of THP
LEAST_EPT = 0.9
FEW = 0.1  # share of walks that end at 2 MiB pages
# f of the five published programs with THP: none for GUPS, PageRank and LibLinear, all of it for BTree
SHARE = pt.Interval(0.0, 0.2, 1.0)
PART = pt.Interval(
    0.5, 0.9, 0.95
)  # the gPT's of the waiting: the host's table of 2 MiB pages mostly is cached


def in_the_host(run: pt.law.MeasuredRun) -> bool:
    """Whether a virtual machine's run had 2 MiB pages, at least in the host: nested walks are shorter."""
    return bool(run.gpt and run.ept and run.ept < LEAST_EPT * run.gpt)


def fragmented(run: pt.law.MeasuredRun) -> str:
    """What shows that pages of both sizes are walked for in one run; "" where nothing does.

    With memory in fragments some pages are of 2 MiB and others of 4 KiB, in each run others: published runs
    took 1.0 to 2.4 times as long as repaired ones, whatever their walk cycles.
    """
    if run.huge_walks is not None and FEW < run.huge_walks < 1 - FEW:
        return f"{100 * run.huge_walks:.0f} % of its walks end at 2 MiB pages, the others at 4 KiB pages"
    if in_the_host(run) and run.walk and run.cycles and run.walk >= run.cycles:
        return "it has 2 MiB pages in the host, and walks all of the time as if they were of 4 KiB"
    return ""


def signs(run: pt.law.MeasuredRun) -> str:
    """A sentence: how a run shows 2 MiB pages, and what follows; "" where it does not."""
    if run.huge_walks is not None and run.huge_walks > FEW:
        sign = f"{100 * run.huge_walks:.0f} % of its walks end at 2 MiB pages"
    elif in_the_host(run) and run.gpt and run.ept:
        sign = (
            f"ePT walk cycles are {run.ept / run.gpt:.2f} times the gPT's, with 4 KiB pages about 1 or more"
        )
    else:
        return ""
    return (
        f"2 MiB pages: {sign}; between none and all of the walk cycles wait for DRAM, no counter of a local "
        "run says how much: add a run with remote tables"
    )


PER_CORE = 2  # page walkers, x86 from Broadwell on
ELSE = 2.0  # factor of uncertainty of what a loaded node costs, where more than walks slowed the run: stated
LEAST_PART = 0.05  # of the waiting is for either table
LITTLE = 0.05  # crowding of a node that one thread, or not many more, run on
MANY_THREADS = (
    "local run: many threads load their own node: between none and all of the walk cycles wait for DRAM, no "
    "counter of a local run says how much: add a run with remote tables (--remote)"
)
ONE_OR_MANY = (
    "local run: one thread or many? Its elapsed time tells (--seconds): the middle is one thread's, the "
    "interval holds many threads' too"
)
TWO_TABLES, ONE_TABLE, ONE_WALKER = "thin-2D-4K", "thin-1D-4K", "native-thin"


def calibrate_runs(
    local: pt.law.MeasuredRun,
    remote: pt.law.MeasuredRun | None = None,
    placement: str | None = None,
    *,
    at: str | None = None,
    machine: MachineName = None,
    walkers: float | None = None,
    threads: float | None = None,
    native: bool | None = None,
    common: assumed.FittedPrior | None = None,
    name: str = "",
    sources: dict[str, str] | None = None,
) -> pt.law.Calibration:
    """Calibration from a measured run, all local unless `at` says otherwise, and, better, one at `placement`.

    placement  name or shares of the second run's placement, cost.law
    at         the same of the first run
    machine    name or file of a machine, for its latencies and CPUs; None: that of the reference runs
    walkers    page walkers per core, None: 2; below 1: those per busy hardware thread
    threads    busy hardware threads per core, 1 to 2; None: as far as busy CPUs tell
    native     True for a single table; None: by the placement, else by whether ePT walks were counted
    common     FittedPrior of similar workloads; None: of all reference workloads
    UsageError names the run, its counter and value where counters contradict each other or the placement.
    """
    if remote is not None and placement is None:
        raise pt.UsageError("a remote run needs its placement: one of RR, LR, RL, each with I if contended")
    where = pt.law.placement(placement) if remote is not None and placement is not None else None
    base = None if at is None else pt.law.placement(at)
    native = _native(local, where or base, native)
    for tables in (base, where):
        if tables is not None and (tables.ept is None) != native:
            of = "native" if native else "of a virtual machine"
            raise pt.UsageError(f"placement {tables.name}: the run is {of}")
    walkers = PER_CORE if walkers is None else walkers
    common = common or assumed.prior_of(
        TWO_TABLES if not native else ONE_WALKER if walkers <= 1 else ONE_TABLE
    )
    check_run("local", local, max(walkers, 1))
    if threads is not None and not 1 <= threads <= assumed.THREADS_PER_CORE:
        raise pt.UsageError(f"threads per core = {threads:g}: expected 1 to {assumed.THREADS_PER_CORE}")
    found_threads = _threads(local, machine, walkers, threads, base)
    busy, crowd, alone = found_threads.busy, found_threads.crowd, found_threads.alone
    if busy is not None and busy > MOST_CPUS:
        raise pt.UsageError(
            f"local run: {local.cycles:.4g} cycles in {local.seconds:.4g} s are {busy:,.0f} busy CPUs, Linux "
            f"has at most {MOST_CPUS:,}: is the elapsed time in seconds, and of the same window?"
        )
    rate = local.walk / local.cycles if local.walk is not None and local.cycles else None
    far, loaded, why_stretches = stretches(machine, common, rate, crowd.middle > LITTLE)
    if base is not None and not base.whole:  # remote nodes of a wide program serve others too
        far = pt.Interval(far.low, far.middle, max(far.high, loaded.middle))
    found = _from_one(local, native, found_threads, common, rate)
    between = common.noise + crowd.middle * (common.many_noise - common.noise)
    noise = common.any_noise if crowd.low < crowd.high else between
    if remote is None or where is None:
        _enough(local)
        found = replace(found, flags=(*found.flags, *waiting(local, busy), *crowded(base, busy, machine)))
    else:
        check_run("remote", remote, PER_CORE)
        check_pair(local, remote, where, base)
        files, ghz = sources or {}, pt.load_machine(machine_name(machine)).ghz
        names = files.get("local", "local run"), files.get("remote", "remote run")
        odd = suspicious(local, remote, where, alone) if base is None else []
        odd += beyond_nodes(local, remote, where, (far, loaded), names)
        odd += [] if base is None else beyond_nodes(remote, local, base, (far, loaded), names[::-1])
        found, far, loaded = _from_two(found, local, remote, (base, where), (far, loaded), alone, noise)
        found = replace(found, flags=(*contradictions(local, remote, ghz, names), *odd, *found.flags))
    return pt.law.Calibration(
        name=name,
        machine=machine_name(machine),
        native=native,
        local=local,
        at=at,
        remote=remote,
        placement=None if where is None else where.name,
        walkers=found_threads.walkers.middle,
        busy=busy,
        exposed=found.exposed,
        shared=found.shared,
        dram_share=found.share,
        gpt_part=found.part,
        remote_stretch=far,
        contended_stretch=loaded,
        data_share=common.data_share,
        data_loaded=common.data_loaded,
        noise=noise,
        counted_noise=max(common.any_noise, noise),
        repair=common.repair,
        identified=(_measured(local), *found.identified),
        assumed=(found_threads.why, why_stretches, *found.assumed),
        flags=(*found.flags, *short(local, remote)),
        sources=sources or {},
    )


@dataclass(frozen=True)
class Found:
    """e, s, f and the gPT's part of the waiting, with what is said of them."""

    exposed: pt.Interval | None
    shared: pt.Interval
    share: pt.Interval | None
    part: pt.Interval
    identified: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Threads:
    """busy CPUs; page walkers per busy hardware thread; crowding of the node; whether every thread has a core
    to itself; the sentence that says so."""

    busy: float | None
    walkers: pt.Interval
    crowd: pt.Interval
    alone: bool
    why: str


def _from_one(
    local: pt.law.MeasuredRun, native: bool, threads: Threads, common: assumed.FittedPrior, rate: float | None
) -> Found:
    """What the local run says, with `rate` walk cycles per cycle, and what other programs let expect."""
    walkers, crowd = threads.walkers, threads.crowd
    competing = pt.Interval.exactly(0.0) if threads.alone else assumed.shared_time(walkers, rate or 0.0)
    if rate is None:
        part = _part(local, native, None, common)
        return Found(None, competing, None, part, assumed=tuple(_halves(part)))
    share, huge = common.share(crowd), signs(local)
    flags = (MANY_THREADS,) if crowd.middle > LITTLE else (ONE_OR_MANY,) if crowd.high > LITTLE else ()
    part = _part(local, native, share, common)
    if huge:
        share, part, flags = SHARE, PART if in_the_host(local) else part, (f"local run: {huge}",)
    if local.from_memory is not None and local.from_memory > share.middle:
        # Memory takes longest of what serves the walker: more of its time than of its reads. f is relative to
        # a fitted k, and the counters have errata (HSD25, BDM69, BDM98), so the lower end stays.
        share = pt.Interval(share.low, local.from_memory, 1.0)
    return Found(
        assumed.exposed_prior(rate, walkers),
        competing,
        share,
        part,
        assumed=tuple(_assumed(common, crowd.high, share, part)),
        flags=flags,
    )


def _from_two(
    one: Found,
    local: pt.law.MeasuredRun,
    remote: pt.law.MeasuredRun,
    places: tuple[pt.law.Placement | None, pt.law.Placement],
    ks: tuple[pt.Interval, pt.Interval],
    alone: bool,
    noise: float,
) -> tuple[Found, pt.Interval, pt.Interval]:
    """(what both runs say, k of an idle and of a contended node).

    Where all of f would be above 1, it is 1 and k - 1 of both nodes so much larger, unless something else
    slowed the run."""
    far, loaded = ks
    if slowed := beyond_walks(local, remote, alone) is not None:
        loaded = pt.Interval(1 + (loaded.low - 1) / ELSE, loaded.middle, 1 + (loaded.high - 1) * ELSE)
    exposed, competing = waiting_shares(local, remote, one.exposed, one.shared, alone, noise)
    share = dram_share(local, remote, places, (exposed, competing, one.part, far, loaded))
    flags: tuple[str, ...] = ()
    if share is not None:
        more = 1.0 if slowed else max(share.low, 1.0)
        if more > 1 + NOISE:
            name, k = places[1].name, (far if places[1].state == pt.law.REMOTE else loaded).middle
            flags = (
                f"{name}: its cycles grow {more:.2f} times as much as if all walk cycles waited for DRAM, "
                f"{k:.3g} times as long there: taken for {1 + more * (k - 1):.3g} times (-m: machine)",
            )
        far, loaded = (k.through(lambda each: 1 + more * (each - 1)) for k in (far, loaded))
        share = share.through(lambda each: min(each / more, 1.0))
    stretch = f"the other state's stretch, {loaded.low:.3g} to {loaded.high:.3g}"
    identified, assumed = identified_by(places[1], local, remote), (stretch, *_halves(one.part))
    return Found(exposed, competing, share, one.part, identified, assumed, flags), far, loaded


def _measured(local: pt.law.MeasuredRun) -> str:
    known = [("cycles", local.cycles), ("walk cycles", local.walk), ("seconds", local.seconds)]
    shown = f"{', '.join(what for what, value in known if value is not None)} of the local run"
    if local.from_memory is None:
        return shown
    return f"{shown}; memory served {100 * local.from_memory:.0f} % of the entries that its walks read"


def _enough(local: pt.law.MeasuredRun) -> None:
    if local.cycles is None or local.walk is None:
        missing = "cycles" if local.cycles is None else "walk cycles"
        raise pt.UsageError(
            f"local run: its {missing} are not counted: add a run with remote tables (--remote), or count "
            "cycles and walk cycles"
        )
    if why := fragmented(local):
        raise pt.UsageError(
            f"local run: 2 MiB pages in fragmented memory: {why}: no counter of a local run says what other "
            "tables cost; add a run with remote tables (--remote), or run it with one page size"
        )
    if not local.walk:
        raise pt.UsageError("local run: walk cycles = 0: no page walk, no placement changes its run time")


def _native(local: pt.law.MeasuredRun, where: pt.law.Placement | None, native: bool | None) -> bool:
    says = None if where is None else where.ept is None
    counted = None if local.ept is None else local.ept == 0
    for known in (native, says):
        if known is not None:
            if known and local.ept:
                raise pt.UsageError(f"local run: ePT walk cycles = {local.ept:,.0f}: a native run has none")
            return known
    return bool(counted)


def _threads(
    local: pt.law.MeasuredRun,
    machine: MachineName,
    walkers: float,
    given: float | None,
    base: pt.law.Placement | None,
) -> Threads:
    """Threads of the local run: as given, else from the CPUs that were busy."""
    model = pt.load_machine(machine_name(machine))
    busy, cores = assumed.busy_cpus(local, model.ghz), None
    # counters with fewer walkers are not those of the machine that is taken where none is named
    if busy is not None and (machine is not None or walkers >= PER_CORE):
        nodes = -(-busy // model.cpus_per_node) if base is None or base.whole else model.nodes
        cores = nodes * model.cpus_per_node / assumed.THREADS_PER_CORE
    per_core = assumed.threads_per_core(busy, cores) if given is None else pt.Interval.exactly(given)
    if local.cycles and local.walk and walkers >= 1:  # no walker is busy for longer than the run
        most = max(walkers * local.cycles / local.walk, 1.0)
        per_core = per_core.through(lambda each: min(each, most))
    words = "" if given is None else f"{given:g} threads per core, as given"
    if walkers < 1:
        words = "as given"
    found = per_core.through(lambda each: walkers / each) if walkers >= 1 else pt.Interval.exactly(walkers)
    return Threads(
        busy,
        found,
        pt.Interval.exactly(1.0) if walkers < 1 else _crowd(busy, cores, per_core),
        found.low >= max(walkers, 1),
        _why(local, busy, cores, found, words),
    )


def _crowd(busy: float | None, cores: float | None, per_core: pt.Interval) -> pt.Interval:
    if busy is None:
        return pt.Interval.exactly(1.0) if per_core.low > 1 else pt.Interval(0.0, 0.0, 1.0)
    return pt.Interval.exactly(float(busy > assumed.MANY) if cores is None else assumed.crowding(busy, cores))


def _why(
    local: pt.law.MeasuredRun, busy: float | None, cores: float | None, walkers: pt.Interval, given: str
) -> str:
    each = f"{walkers.low:.2g}" if walkers.low == walkers.high else f"{walkers.low:.2g} to {walkers.high:.2g}"
    if given:
        why = given
    elif busy is None:
        missing = "cycles are" if local.seconds else "elapsed time is"
        why = f"1 or 2 threads per core: {missing} not known (--threads-per-core)"
    elif busy <= assumed.MANY:
        why = f"one thread: {busy:.3g} CPUs were busy"
    elif cores is None:
        why = f"{busy:.3g} CPUs were busy: on how many cores is not known (-m, --threads-per-core)"
    else:
        why = f"{busy:.3g} CPUs were busy on {cores:g} cores (--threads-per-core)"
    return f"{each} page walkers per busy hardware thread: {why}"


def _part(
    local: pt.law.MeasuredRun, native: bool, share: pt.Interval | None, common: assumed.FittedPrior
) -> pt.Interval:
    """The gPT's part of the waiting: a walk reads one leaf entry of each table from DRAM, so half, but no
    table's part exceeds its walk cycles."""
    if native:
        return pt.Interval.exactly(1.0)
    if share is None or not share.middle or local.gpt is None or local.ept is None or not local.walk:
        return common.gpt_part
    waiting = share.middle * (local.gpt + local.ept)
    least, most = 1 - local.ept / waiting, local.gpt / waiting
    return common.gpt_part.through(lambda value: min(max(value, least, LEAST_PART), most, 1 - LEAST_PART))


def _assumed(common: assumed.FittedPrior, crowd: float, share: pt.Interval, part: pt.Interval) -> list[str]:
    on = ", ".join(common.workloads) + (" and, with many threads, others" if crowd > LITTLE else "")
    return [
        "e from walk cycles per cycle, as if page walkers were busy independently of each other",
        f"f = {share.middle:.2f} ({share.low:.2f} to {share.high:.2f}) of walk cycles wait for DRAM: {on}",
        *_halves(part),
    ]


def _halves(part: pt.Interval) -> list[str]:
    if part.low == part.high:
        return []
    return [
        f"the gPT's part of the waiting is {part.low:.2f} to {part.high:.2f}: a walk reads one leaf entry of "
        "each table (vMitosis, 2.1: remote gPT and ePT cost almost the same)"
    ]
