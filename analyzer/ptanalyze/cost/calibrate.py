"""Calibration from the counters of one or two runs: identified and assumed coefficients."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..core.errors import UsageError
from ..core.interval import Interval
from ..core.machine import load_machine
from .calibration import Calibration
from .closed_forms import Run
from .huge_pages import PART, SHARE, in_the_host, signs
from .pair import dram_share, identified_by, waiting_shares
from .placement import Placement
from .placement import placement as placed
from .run_checks import (
    beyond_nodes,
    beyond_walks,
    check_busy,
    check_pair,
    check_run,
    contradictions,
    short,
    suspicious,
    waiting,
)
from .shared import Shared, shared
from .stretches import Latencies, MachineName, machine_name, stretches
from .walkers import (
    MANY,
    THREADS_PER_CORE,
    busy_cpus,
    crowding,
    exposed_prior,
    shared_time,
    threads_per_core,
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
    local: Run,
    remote: Run | None = None,
    placement: str | None = None,
    *,
    at: str | None = None,
    machine: MachineName = None,
    latency: Latencies | None = None,
    walkers: float | None = None,
    threads: float | None = None,
    native: bool | None = None,
    common: Shared | None = None,
    name: str = "",
    sources: dict[str, str] | None = None,
) -> Calibration:
    """Calibration from a Run, all local unless `at` says otherwise, and, better, a second one at `placement`.

    placement  name or shares of the second run's placement, cost.placement
    at         the same of the first run
    machine    name or file of a machine, for its latencies and CPUs; None: that of the reference runs
    latency    NodeLatency measured there (formats/node_latency.py)
    walkers    page walkers per core, None: 2; below 1: those per busy hardware thread
    threads    busy hardware threads per core, 1 to 2; None: as far as busy CPUs tell
    native     True for a single table; None: by the placement, else by whether ePT walks were counted
    common     Shared of similar workloads; None: of all reference workloads
    UsageError names the run, its counter and value where counters contradict each other or the placement.
    """
    where, base = _known(placement, remote), None if at is None else placed(at)
    native = _native(local, where or base, native)
    if base is not None and (base.ept is None) != native:
        of = "native" if native else "of a virtual machine"
        raise UsageError(f"placement {base.name}: the run is {of}")
    walkers = PER_CORE if walkers is None else walkers
    common = common or shared(TWO_TABLES if not native else ONE_WALKER if walkers <= 1 else ONE_TABLE)
    check_run("local", local, max(walkers, 1))
    if threads is not None and not 1 <= threads <= THREADS_PER_CORE:
        raise UsageError(f"threads per core = {threads:g}: expected 1 to {THREADS_PER_CORE}")
    found_threads = _threads(local, machine, walkers, threads, base)
    busy, crowd, alone = found_threads.busy, found_threads.crowd, found_threads.alone
    check_busy("local", local, busy)
    rate = local.walk / local.cycles if local.walk is not None and local.cycles else None
    far, loaded, why_stretches = stretches(machine, latency, common, rate)
    if base is not None and not base.whole:  # remote nodes of a wide program serve others too
        far = Interval(far.low, far.middle, max(far.high, loaded.middle))
    found = _from_one(local, native, found_threads, common, rate)
    if remote is None or where is None:
        _enough(local)
        found = replace(found, flags=(*found.flags, *waiting(local, busy)))
    else:
        check_run("remote", remote, PER_CORE)
        check_pair(local, remote, where, base)
        files, ghz = sources or {}, load_machine(machine_name(machine)).ghz
        names = files.get("local", "local run"), files.get("remote", "remote run")
        odd = suspicious(local, remote, where, alone) if base is None else []
        odd += beyond_nodes(local, remote, where, (far, loaded), names)
        odd += [] if base is None else beyond_nodes(remote, local, base, (far, loaded), names[::-1])
        found, loaded = _from_two(found, local, remote, (base, where), (far, loaded), alone)
        found = replace(found, flags=(*contradictions(local, remote, ghz, names), *odd))
    noise = common.any_noise if crowd.low < crowd.high else common.noise_at(crowd.middle)
    return Calibration(
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

    exposed: Interval | None
    shared: Interval
    share: Interval | None
    part: Interval
    identified: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Threads:
    """busy CPUs; page walkers per busy hardware thread; crowding of the node; whether every thread has a core
    to itself; the sentence that says so."""

    busy: float | None
    walkers: Interval
    crowd: Interval
    alone: bool
    why: str


def _from_one(local: Run, native: bool, threads: Threads, common: Shared, rate: float | None) -> Found:
    """What the local run says, with `rate` walk cycles per cycle, and what other programs let expect."""
    walkers, crowd = threads.walkers, threads.crowd
    competing = Interval.exactly(0.0) if threads.alone else shared_time(walkers, rate or 0.0)
    if rate is None:
        part = _part(local, native, None, common)
        return Found(None, competing, None, part, assumed=tuple(_halves(part)))
    share, huge, flags = common.share(crowd), signs(local), _asked(crowd)
    part = _part(local, native, share, common)
    if huge:
        share, part, flags = SHARE, PART if in_the_host(local) else part, (f"local run: {huge}",)
    return Found(
        exposed_prior(rate, walkers, common.walk_time),
        competing,
        share,
        part,
        assumed=tuple(_assumed(common, crowd.high, share, part)),
        flags=flags,
    )


def _asked(crowd: Interval) -> tuple[str, ...]:
    if crowd.middle > LITTLE:
        return (MANY_THREADS,)
    return (ONE_OR_MANY,) if crowd.high > LITTLE else ()


def _from_two(
    one: Found,
    local: Run,
    remote: Run,
    places: tuple[Placement | None, Placement],
    ks: tuple[Interval, Interval],
    alone: bool,
) -> tuple[Found, Interval]:
    """(what both runs say, k of a contended node)."""
    far, loaded = ks
    if beyond_walks(local, remote, alone) is not None:
        loaded = Interval(1 + (loaded.low - 1) / ELSE, loaded.middle, 1 + (loaded.high - 1) * ELSE)
    exposed, competing = waiting_shares(local, remote, one.exposed, one.shared, alone)
    share = dram_share(local, remote, places, (exposed, competing, one.part, far, loaded))
    stretch = f"the other state's stretch, {loaded.low:.3g} to {loaded.high:.3g}"
    identified, assumed = identified_by(places[1], local, remote), (stretch, *_halves(one.part))
    return Found(exposed, competing, share, one.part, identified, assumed), loaded


def _measured(local: Run) -> str:
    known = [("cycles", local.cycles), ("walk cycles", local.walk), ("seconds", local.seconds)]
    return f"{', '.join(what for what, value in known if value is not None)} of the local run"


def _known(name: str | None, remote: Run | None) -> Placement | None:
    if remote is None:
        return None
    if name is None:
        raise UsageError("a remote run needs its placement: one of RR, LR, RL, each with I if contended")
    return placed(name)


def _enough(local: Run) -> None:
    if local.cycles is None or local.walk is None:
        missing = "cycles" if local.cycles is None else "walk cycles"
        raise UsageError(
            f"local run: its {missing} are not counted: add a run with remote tables (--remote), or count "
            "cycles and walk cycles"
        )
    if not local.walk:
        raise UsageError("local run: walk cycles = 0: no page walk, no placement changes its run time")


def _native(local: Run, where: Placement | None, native: bool | None) -> bool:
    says = None if where is None else where.ept is None
    counted = None if local.ept is None else local.ept == 0
    for known in (native, says):
        if known is not None:
            if known and local.ept:
                raise UsageError(f"local run: ePT walk cycles = {local.ept:,.0f}: a native run has none")
            return known
    return bool(counted)


def _threads(
    local: Run, machine: MachineName, walkers: float, given: float | None, base: Placement | None
) -> Threads:
    """Threads of the local run: as given, else from the CPUs that were busy."""
    model = load_machine(machine_name(machine))
    busy, cores = busy_cpus(local, model.ghz), None
    if busy is not None and not _foreign(machine, walkers):
        nodes = -(-busy // model.cpus_per_node) if base is None or base.whole else model.nodes
        cores = nodes * model.cpus_per_node / THREADS_PER_CORE
    per_core = threads_per_core(busy, cores) if given is None else Interval.exactly(given)
    if local.cycles and local.walk and walkers >= 1:  # no walker is busy for longer than the run
        most = max(walkers * local.cycles / local.walk, 1.0)
        per_core = per_core.through(lambda each: min(each, most))
    found = per_core.through(lambda each: walkers / each) if walkers >= 1 else Interval.exactly(walkers)
    return Threads(
        busy,
        found,
        Interval.exactly(1.0) if walkers < 1 else _crowd(busy, cores, per_core),
        found.low >= max(walkers, 1),
        _why(local, busy, cores, found, "as given" if walkers < 1 else _said(given)),
    )


def _said(given: float | None) -> str:
    return "" if given is None else f"{given:g} threads per core, as given"


def _crowd(busy: float | None, cores: float | None, per_core: Interval) -> Interval:
    if busy is None:
        return Interval.exactly(1.0) if per_core.low > 1 else Interval(0.0, 0.0, 1.0)
    return Interval.exactly(float(busy > MANY) if cores is None else crowding(busy, cores))


def _why(local: Run, busy: float | None, cores: float | None, walkers: Interval, given: str) -> str:
    each = f"{walkers.low:.2g}" if walkers.low == walkers.high else f"{walkers.low:.2g} to {walkers.high:.2g}"
    if given:
        why = given
    elif busy is None:
        missing = "cycles are" if local.seconds else "elapsed time is"
        why = f"1 or 2 threads per core: {missing} not known (--threads-per-core)"
    elif busy <= MANY:
        why = f"one thread: {busy:.3g} CPUs were busy"
    elif cores is None:
        why = f"{busy:.3g} CPUs were busy: on how many cores is not known (-m, --threads-per-core)"
    else:
        why = f"{busy:.3g} CPUs were busy on {cores:g} cores (--threads-per-core)"
    return f"{each} page walkers per busy hardware thread: {why}"


def _foreign(machine: MachineName, walkers: float) -> bool:
    """Whether the counters are not those of the machine that is taken where none is named."""
    return machine is None and walkers < PER_CORE


def _part(local: Run, native: bool, share: Interval | None, common: Shared) -> Interval:
    """The gPT's part of the waiting: a walk reads one leaf entry of each table from DRAM, so half, but no
    table's part exceeds its walk cycles."""
    if native:
        return Interval.exactly(1.0)
    if share is None or not share.middle or local.gpt is None or local.ept is None or not local.walk:
        return common.gpt_part
    waiting = share.middle * (local.gpt + local.ept)
    least, most = 1 - local.ept / waiting, local.gpt / waiting
    return common.gpt_part.through(lambda value: min(max(value, least, LEAST_PART), most, 1 - LEAST_PART))


def _assumed(common: Shared, crowd: float, share: Interval, part: Interval) -> list[str]:
    on = ", ".join(common.workloads) + (" and, with many threads, others" if crowd > LITTLE else "")
    return [
        f"e from walk cycles per cycle; {common.walk_time:.2f} of the time in walks where they overlap",
        f"f = {share.middle:.2f} ({share.low:.2f} to {share.high:.2f}) of walk cycles wait for DRAM: {on}",
        *_halves(part),
    ]


def _halves(part: Interval) -> list[str]:
    if part.low == part.high:
        return []
    return [
        f"the gPT's part of the waiting is {part.low:.2f} to {part.high:.2f}: a walk reads one leaf entry of "
        "each table (vMitosis, 2.1: remote gPT and ePT cost almost the same)"
    ]
