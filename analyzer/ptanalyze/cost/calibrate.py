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
    THREADS_PER_CORE,
    busy_cpus,
    crowding,
    exposed_prior,
    has_many_threads,
    shared_time,
    walkers_per_thread,
)

PER_CORE = 2  # page walkers, x86 from Broadwell on
ELSE = 2.0  # factor of uncertainty of what a loaded node costs, where more than walks slowed the run: stated
LEAST_PART = 0.05  # of the waiting is for either table
LITTLE = 0.05  # crowding of a node that one thread, or not many more, run on
MANY_THREADS = (
    "local run: many threads load their own node: between none and all of the walk cycles wait for DRAM, no "
    "counter of a local run says how much: add a run with remote tables (--remote)"
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
    walkers    page walkers per core, None: 2; below 1: those per busy hardware thread, if that is known
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
    busy, walkers, crowd, why_walkers = _threads(local, machine, walkers, base)
    check_busy("local", local, busy)
    rate = local.walk / local.cycles if local.walk is not None and local.cycles else None
    far, loaded, why_stretches = stretches(machine, latency, common, rate)
    if base is not None and not base.whole:  # remote nodes of a wide program serve others too
        far = Interval(far.low, far.middle, max(far.high, loaded.middle))
    found = _from_one(local, native, walkers, crowd, common, rate)
    if remote is None or where is None:
        _enough(local)
        found = replace(found, flags=(*found.flags, *waiting(local, busy)))
    else:
        check_run("remote", remote, PER_CORE)
        check_pair(local, remote, where, base)
        files, ghz = sources or {}, load_machine(machine_name(machine)).ghz
        names = files.get("local", "local run"), files.get("remote", "remote run")
        odd = suspicious(local, remote, where) if base is None else []
        odd += beyond_nodes(local, remote, where, (far, loaded), names)
        odd += [] if base is None else beyond_nodes(remote, local, base, (far, loaded), names[::-1])
        found, loaded = _from_two(found, local, remote, (base, where), (far, loaded))
        found = replace(found, flags=(*contradictions(local, remote, ghz, names), *odd))
    return Calibration(
        name=name,
        machine=machine_name(machine),
        native=native,
        local=local,
        at=at,
        remote=remote,
        placement=None if where is None else where.name,
        walkers=float(walkers),
        busy=busy,
        exposed=found.exposed,
        shared=found.shared,
        dram_share=found.share,
        gpt_part=found.part,
        remote_stretch=far,
        contended_stretch=loaded,
        data_share=common.data_share,
        data_loaded=common.data_loaded,
        noise=common.noise_at(crowd),
        counted_noise=common.any_noise,
        repair=common.repair,
        identified=(_measured(local), *found.identified),
        assumed=(why_walkers, why_stretches, *found.assumed),
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


def _from_one(
    local: Run, native: bool, walkers: float, crowd: float, common: Shared, rate: float | None
) -> Found:
    """What the local run says, with `rate` walk cycles per cycle, and what other programs let expect."""
    competing = shared_time(walkers, rate or 0.0)
    if rate is None:
        part = _part(local, native, None, common)
        return Found(None, competing, None, part, assumed=tuple(_halves(part)))
    share, huge, flags = common.share(crowd), signs(local), (MANY_THREADS,) if crowd > LITTLE else ()
    part = _part(local, native, share, common)
    if huge:
        share, part, flags = SHARE, PART if in_the_host(local) else part, (f"local run: {huge}",)
    return Found(
        exposed_prior(rate, walkers, common.walk_time),
        competing,
        share,
        part,
        assumed=tuple(_assumed(common, crowd, share, part)),
        flags=flags,
    )


def _from_two(
    one: Found,
    local: Run,
    remote: Run,
    places: tuple[Placement | None, Placement],
    ks: tuple[Interval, Interval],
) -> tuple[Found, Interval]:
    """(what both runs say, k of a contended node)."""
    far, loaded = ks
    if beyond_walks(local, remote) is not None:
        loaded = Interval(1 + (loaded.low - 1) / ELSE, loaded.middle, 1 + (loaded.high - 1) * ELSE)
    exposed, competing = waiting_shares(local, remote, one.exposed, one.shared)
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
    local: Run, machine: MachineName, walkers: float, base: Placement | None
) -> tuple[float | None, float, float, str]:
    """(busy CPUs, page walkers per busy thread, crowding of the node, why)."""
    model = load_machine(machine_name(machine))
    busy = busy_cpus(local, model.ghz)
    many = has_many_threads(local, busy) or walkers < 1
    threads = "many threads" if many else "one thread"
    if walkers < 1:
        return busy, walkers, 1.0, f"{walkers:g} page walkers per hardware thread, as given"
    if busy is None or _foreign(machine, walkers):
        found = walkers / (THREADS_PER_CORE if many else 1)
        by = "by the CPU time: elapsed time is not known (--seconds)"
        if busy is not None:
            by = (
                "all cores busy: the number of cores is not known (-m)"
                if many
                else "by wall clock and cycles"
            )
        return busy, found, float(many), f"{found:g} page walkers per hardware thread: {threads}, {by}"
    nodes = -(-busy // model.cpus_per_node) if base is None or base.whole else model.nodes
    cores = nodes * model.cpus_per_node / THREADS_PER_CORE
    found = walkers_per_thread(walkers, busy, cores)
    if local.cycles:
        found = min(max(found, (local.walk or 0) / local.cycles), walkers)
    why = f"{busy:.3g} CPUs were busy on {cores:g} cores with {walkers:g} page walkers each"
    return busy, found, crowding(busy, cores), f"{found:.2g} page walkers per hardware thread: {why}"


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
