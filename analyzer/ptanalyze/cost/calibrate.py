"""Calibration from the counters of one or two runs: identified and assumed coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from ..core.errors import UsageError
from ..core.interval import Interval, over_corners
from ..core.machine import load_machine
from .calibration import Calibration
from .closed_forms import (
    CONTENDED,
    LOCAL,
    REMOTE,
    Placement,
    Run,
    exposed_share,
    waiting_cycles,
)
from .closed_forms import placement as placed
from .fit import ONE_WALKER, Shared, exposed_prior, shared
from .run_checks import STILL, check_pair, check_run, suspicious

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

MachineName: TypeAlias = str | PathLike[str] | None
REFERENCE_MACHINE = "vmitosis-cascade-lake"
MOST_WALKERS = 2  # per core, x86 from Broadwell on
THREADS_PER_CORE = 2  # hyperthreads share the page walkers of their core
HALF = Interval(0.45, 0.5, 0.55)  # the gPT's part of the waiting
LEAST_SHARE, MOST_SHARE = 0.5, 1.0  # bounds of f: stated, not measured
LOADED = 0.1  # relative uncertainty of a contended node's stretch


class Latencies(Protocol):
    """ns of a dependent read, [reader's node][serving node]: machine.Latency, node_latency.NodeLatency."""

    @property
    def idle(self) -> ArrayLike: ...

    @property
    def contended(self) -> ArrayLike | None: ...


def calibrate_runs(
    local: Run,
    remote: Run | None = None,
    placement: str | None = None,
    *,
    machine: MachineName = None,
    latency: Latencies | None = None,
    walkers: float | None = None,
    native: bool | None = None,
    common: Shared | None = None,
    name: str = "",
    sources: dict[str, str] | None = None,
) -> Calibration:
    """Calibration from an all-local Run and, better, a `remote` Run with its tables at a known placement.

    placement  name of the remote run's placement, closed_forms.placement
    machine    name or file of a machine, for its latencies and CPUs; None: that of the reference runs
    latency    NodeLatency measured there (formats/node_latency.py)
    walkers    page walkers per hardware thread; None: 2, or 1 where hyperthreads were busy
    native     True for a single table; None: by the placement, else by whether ePT walks were counted
    common     Shared of similar workloads; None: of all reference workloads
    UsageError names the run, its counter and value where counters contradict each other or the placement.
    """
    where = None if remote is None else _known(placement)
    check_run("local", local, walkers or MOST_WALKERS)
    native = _native(local, where, native)
    common = common or shared("thin-2D-4K" if not native else ONE_WALKER if walkers == 1 else "thin-1D-4K")
    walkers, why_walkers = _walkers(local, machine, walkers)
    stretches, why_stretches = _stretches(local, machine, latency, common, where)
    exposed = share = None
    if local.walk:
        exposed, share = exposed_prior(local.walk / local.cycles, walkers, common), _share(common)
    part = _part(local, native, share)
    identified: list[str] = []
    flags: list[str] = []
    if remote is None or where is None:
        _enough(local)
        assumed = _assumed(common, part)
    else:
        check_run("remote", remote, MOST_WALKERS)
        check_pair(local, remote, where)
        exposed = _exposed_of_pair(local, remote, exposed)
        share = _share_of_pair(local, remote, where, exposed, part, stretches)
        identified, assumed = _identified(where, local, remote), _assumed_of_pair(where, part)
        flags = suspicious(local, remote, where)
    return Calibration(
        name=name,
        machine=_machine_name(machine),
        native=native,
        local=local,
        remote=remote,
        placement=None if where is None else where.name,
        walkers=float(walkers),
        exposed=exposed,
        dram_share=share,
        gpt_part=part,
        remote_stretch=stretches[REMOTE],
        contended_stretch=stretches[CONTENDED],
        identified=("cycles and walk cycles with local tables", *identified),
        assumed=(why_walkers, why_stretches, *assumed),
        flags=tuple(flags),
        sources=sources or {},
    )


def _known(name: str | None) -> Placement:
    if name is None:
        raise UsageError("a remote run needs its placement: one of RR, LR, RL, each with I if contended")
    where = placed(name)
    if where.all_local:
        raise UsageError(f"placement {name}: all tables are local; a second run needs a remote table")
    return where


def _enough(local: Run) -> None:
    if local.walk is None:
        raise UsageError(
            "local run: its walk cycles are not counted: add a run with remote tables (--remote)"
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


def _walkers(local: Run, machine: MachineName, walkers: float | None) -> tuple[float, str]:
    """(page walkers per hardware thread, why)."""
    if walkers is not None:
        return walkers, f"{walkers:g} page walkers per hardware thread, as given"
    if not local.seconds and not local.cpus:
        return MOST_WALKERS, "two page walkers per hardware thread: the number of busy threads is not known"
    model = load_machine(_machine_name(machine))
    cores = model.cpus_per_node / THREADS_PER_CORE
    at_base_clock = local.seconds and local.cycles / (local.seconds * model.ghz * 1e9)
    busy = min(known for known in (local.cpus, at_base_clock) if known)  # -a counts idle CPUs, turbo cycles
    walkers = MOST_WALKERS / min(max(busy / cores, 1), THREADS_PER_CORE)
    walkers = min(max(walkers, (local.walk or 0) / local.cycles), MOST_WALKERS)
    return walkers, (
        f"{busy:.3g} CPUs were busy on a node of {cores:g} cores: {walkers:.2g} page walkers per "
        "hardware thread"
    )


def _machine_name(machine: MachineName) -> str:
    return REFERENCE_MACHINE if machine is None else str(machine)


def _stretches(
    local: Run, machine: MachineName, latency: Latencies | None, common: Shared, where: Placement | None
) -> tuple[dict[str, Interval], str]:
    """({state: Interval of k}, why); exact at the state of the measured run: f is relative to it."""
    contention = common.contention_at(local.walk and local.walk / local.cycles)
    loaded: float | None
    if latency is None and machine in (None, REFERENCE_MACHINE):  # rounded in its file
        far, loaded = common.stretch, 1 + contention * (common.stretch - 1)
        why = f"stretch of remote walks as fitted on {', '.join(common.workloads)}"
    else:
        matrices: Latencies = load_machine(_machine_name(machine)).latency if latency is None else latency
        far, loaded = _stretch(matrices.idle), None
        if matrices.contended is not None:
            loaded = _stretch(matrices.contended, matrices.idle)
        why = f"latencies of {'the machine file' if latency is None else 'the latency file'}"
    if loaded is None or loaded <= far:
        loaded = 1 + contention * (far - 1)
        why += f", contention as fitted on {', '.join(common.workloads)}"
    why += f": idle remote {far:.3g}, contended {loaded:.3g} times local"
    if where is not None and where.state == CONTENDED:
        return {REMOTE: _about(far), CONTENDED: Interval.exactly(loaded)}, why
    return {REMOTE: Interval.exactly(far), CONTENDED: _about(loaded)}, why


def _about(stretch: float) -> Interval:
    more = stretch - 1
    return Interval(1 + more * (1 - LOADED), stretch, 1 + more * (1 + LOADED))


def _stretch(latency: ArrayLike, local: ArrayLike | None = None) -> float:
    """Mean latency of remote nodes over the mean of local idle ones."""
    matrix = np.asarray(latency, np.float64)
    idle = matrix if local is None else np.asarray(local, np.float64)
    if len(matrix) < 2:
        raise UsageError("latency: a single node has no remote latency; give a machine with two or more")
    away = ~np.eye(len(matrix), dtype=bool)
    stretch = float(matrix[away].mean() / np.diag(idle).mean())
    if stretch <= 1:
        raise UsageError(
            f"latency: remote nodes are {stretch:.3g} times as far as local ones: expected above 1"
        )
    return stretch


def _share(common: Shared) -> Interval:
    middle = common.dram_share.middle
    return Interval(min(LEAST_SHARE, middle), middle, max(MOST_SHARE, middle))


def _part(local: Run, native: bool, share: Interval | None) -> Interval:
    """The gPT's part of the waiting: a walk reads one leaf entry of each table from DRAM, so half, but no
    table's part exceeds its walk cycles."""
    if native:
        return Interval.exactly(1.0)
    if share is None or local.gpt is None or local.ept is None:
        return HALF
    walk = local.gpt + local.ept
    least = 1 - local.ept / (share.middle * walk)
    most = local.gpt / (share.middle * walk)
    return HALF.through(lambda value: min(max(value, least), most))


def _exposed_of_pair(local: Run, remote: Run, prior: Interval | None) -> Interval | None:
    """Interval of e: exact where walk cycles changed, else the prior of one run; None where not counted."""
    if local.walk is None or remote.walk is None:
        return None
    if remote.walk <= local.walk * (1 + STILL):
        return prior
    return Interval.exactly(exposed_share(local, remote))


def _share_of_pair(
    local: Run,
    remote: Run,
    where: Placement,
    exposed: Interval | None,
    part: Interval,
    stretches: Mapping[str, Interval],
) -> Interval | None:
    walk = local.walk
    if exposed is None or not walk:
        return None

    def share(e: float, gpt_part: float, far: float) -> float:
        ks = [far if state not in (LOCAL, None) else 1.0 for state in (where.gpt, where.ept)]
        return waiting_cycles(remote.cycles - local.cycles, gpt_part, *ks) / (e * walk)

    return over_corners(share, exposed, part, stretches[where.state])


def _identified(where: Placement, local: Run, remote: Run) -> list[str]:
    tables = [t for t, state in (("gPT", where.gpt), ("ePT", where.ept)) if state not in (LOCAL, None)]
    known = [
        f"e f (k - 1) of the {' and '.join(tables)}{' together' if len(tables) > 1 else ''}, {where.state}"
    ]
    if local.walk is not None and remote.walk is not None:
        known.append("e, from added cycles over added walk cycles")
    return known


def _assumed(common: Shared, part: Interval) -> list[str]:
    on = ", ".join(common.workloads)
    lines = [
        f"e from walk cycles per cycle, within bounds; {common.walk_time:.2f} of time in walks as on {on}",
        f"f = {common.dram_share.middle:.2f} of walk cycles wait for DRAM as on {on}; "
        f"at least {LEAST_SHARE:g} stated",
    ]
    return lines + _halves(part)


def _assumed_of_pair(where: Placement, part: Interval) -> list[str]:
    other = "an idle" if where.state == CONTENDED else "a contended"
    return [f"{other} remote node's stretch, within {LOADED:.0%}", *_halves(part)]


def _halves(part: Interval) -> list[str]:
    if part.low == part.high:
        return []
    return [
        f"the gPT's part of the waiting is {part.low:.2f} to {part.high:.2f}: a walk reads one leaf entry of "
        "each table (vMitosis, 2.1: remote gPT and ePT cost almost the same)"
    ]
