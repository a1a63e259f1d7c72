"""Setup of a replay: one record from the command line or Python to the kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack, cast

from ..core.errors import DEFAULT_MACHINE, UsageError, is_whole
from ..core.finding import TOGETHER, Finding
from ..core.machine import Costs, Machine, load_costs, load_machine, sharing
from ..core.process import usable_cpus
from ..formats.capture import Capture, CaptureLike, PathLike, load
from ..formats.measured.machine import read_calibration
from ..policies import Policy
from ..world.captured_world import Scenario, captured_world
from ..world.moves import Moves, moves_from
from ..world.phases import ALL, LAST
from ..world.scaling import StandsFor, stands_for
from ..world.site import ASSUMED, bare_snapshot
from ..world.thread_placement import AUTO
from .leaf_classes import AUTO as LEAF_CLASSES_AUTO
from .leaf_classes import weighed, weighed_by

if TYPE_CHECKING:
    from ..core.process import Progress
    from ..core.snapshot import Snapshot
    from ..core.trace import Trace
    from ..cost.law import Calibration
    from ..cost.price import Native
    from ..world.world import World


MachineLike: TypeAlias = "PathLike | Machine"
Settings: TypeAlias = Mapping[str, Any]


class Options(TypedDict, total=False):
    """A Setup as people write it: names and files may stand for their contents.

    machine       name of `list_machines`, a TOML file or a Machine; costs: a file or Costs instead of its own
    cache_share   share of the LLC left to page tables, "0.25", or its bounds, "0.1:0.5"; None: the machine's
    calibration   of a measured run (`calibrate`), or its file; scales run-time estimates to that run
    autonuma      whether data pages migrate towards the nodes that access them, or how ({"delay_ms": 10})
    stands_for    times as large as the captured one the run is that the answer is about, or its size, "200G"
    fixed         memory that does not grow with it, see world.scaling.fixed_vmas
    """

    machine: MachineLike
    costs: PathLike | Costs | None
    cache_share: str | float | None
    threads_on: str
    baseline: str
    calibration: PathLike | Calibration | None
    contended: bool
    autonuma: bool | Settings | Moves | None
    move_threads: str
    windows: int
    cold: bool
    weigh: str
    stands_for: str | float | StandsFor | None
    fixed: str
    phase: str | int
    jobs: int
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class Setup(Scenario):
    """A Scenario and how it is priced: the input of every replay; `Setup.of` takes names and files.

    baseline      policy that speed-ups are over; "auto": linux where the capture has several nodes or no
                  trace, else first-touch (on one node every table is on node 0)
    calibration   scales run-time estimates to this measured run
    contended     use loaded instead of idle DRAM latencies
    windows       number of equal-length time windows that each Result.series has
    cold          count the first run, TLBs and caches empty at first and everything touched first within it,
                  with what a policy does before it, instead of a further run with warm ones
    weigh         what pages count by: "auto", "walks", "heat" or "leaf"; see weights.weighed
    native        what the program took outside the tracer, where the capture has it: pricing.native_time
    """

    costs: Costs
    baseline: str = AUTO
    calibration: Calibration | None = None
    contended: bool = False
    windows: int = 0
    cold: bool = False
    weigh: str = AUTO
    phase: str = LAST
    native: Native | None = None

    @property
    def as_traced(self) -> bool:
        """Whether the run is counted as traced: asked for, or threads move: there is no further run."""
        return self.cold or bool(self.move_threads)

    @classmethod
    def of(cls, **options: Unpack[Options]) -> Setup:
        """The Setup that Options describe; UsageError for latencies that the machine file lacks.

        TypeError for a name that is not in Options, as Python does not enforce types.
        """
        if unknown := options.keys() - Options.__annotations__.keys():
            raise TypeError(
                f"{', '.join(sorted(unknown))}: no such option; there are: "
                f"{', '.join(Options.__annotations__)}"
            )
        asked: dict[str, Any] = {**options}
        machine = machine_of(asked.pop("machine", DEFAULT_MACHINE))
        if (share := asked.pop("cache_share", None)) is not None:
            machine = sharing(machine, str(share))
        machine.latency_cycles(asked.get("contended", False))  # UsageError before anything is computed
        larger = larger_run(asked.pop("stands_for", None), asked.pop("fixed", ""))
        if larger.larger and asked.get("cold", False):
            raise UsageError("--stands-for: a run as traced is of the traced size; leave out --cold")
        asked["costs"] = costs_of(machine, asked.get("costs"))
        asked["calibration"] = calibration_of(asked.get("calibration"))
        asked["moves"] = moves_of(asked.pop("autonuma", False))
        asked["phase"], asked["jobs"] = phase_of(options), asked.get("jobs") or usable_cpus()
        return cls(**asked, machine=machine, stands_for=larger)

    def world(self, snapshot: Snapshot, trace: Trace | None, cache_dir: PathLike | None = None) -> World:
        """The World of a Snapshot and a Trace on this machine, before any policy.

        cache_dir  directory where the walk stream is kept, None: not kept
        """
        weighted, walked = weighed(snapshot, trace, self.weigh)
        asked = replace(self, phase=ALL) if self.as_traced else self
        return captured_world(weighted, walked, asked, cache_dir, left_out=walked is not trace)


def setup_of(setup: Setup | None, options: Options) -> Setup:
    """`setup`, or a Setup of keyword arguments; TypeError for both at once."""
    if setup is None:
        return Setup.of(**options)
    if options:
        raise TypeError(f"{', '.join(options)}: give either a Setup or its fields, not both")
    return setup


def phase_of(options: Options) -> str:
    """Options.phase; UsageError for what is no phase, and where the run is counted as traced."""
    phase = str(options.get("phase", LAST))
    if phase in (LAST, ALL):
        return phase
    if not is_whole(phase) or not int(phase):
        raise UsageError(f"phase {phase}: give {LAST}, {ALL} or the number of a phase, from 1 on")
    if options.get("cold") or options.get("move_threads"):
        raise UsageError(
            f"phase {phase}: the run as traced has all phases; leave --cold and --move-threads out"
        )
    return phase


def machine_of(machine: MachineLike) -> Machine:
    return machine if isinstance(machine, Machine) else load_machine(machine)


def costs_of(machine: Machine, costs: PathLike | Costs | None) -> Costs:
    return costs if isinstance(costs, Costs) else load_costs(machine, costs)


def calibration_of(calibration: PathLike | Calibration | None) -> Calibration | None:
    if isinstance(calibration, (str, os.PathLike)):
        return read_calibration(calibration)
    return calibration


def larger_run(asked: str | float | StandsFor | None, fixed: str) -> StandsFor:
    return asked if isinstance(asked, StandsFor) else stands_for(asked, fixed)


def moves_of(autonuma: bool | Settings | Moves | None) -> Moves | None:
    if not isinstance(autonuma, (bool, Mapping)):
        return autonuma
    if autonuma is False:
        return None
    return moves_from({} if autonuma is True else dict(autonuma))


# Policies as people write them: one or several, with settings or without.

PolicyLike: TypeAlias = "str | Policy | tuple[str | Policy, Settings]"
Policies: TypeAlias = "PolicyLike | Sequence[PolicyLike]"


def policies_of(asked: Policies) -> list[tuple[str | Policy, dict[str, Any]]]:
    """[(name or Policy, settings)] of a policy or several.

    asked  "hydra", "ptemagnet+hydra", ("hydra", {"prefetch": 3}), a policies.Policy of your own in
           place of a name, or a list of these
    """
    if isinstance(asked, (str, Policy)):
        return [(asked, {})]
    if len(asked) == 2 and isinstance(asked[0], (str, Policy)) and isinstance(asked[1], Mapping):
        return [(asked[0], dict(asked[1]))]
    return [pair for policy in asked for pair in policies_of(cast("PolicyLike", policy))]


def asked_or_usual(asked: Policies, snapshot: Snapshot) -> list[tuple[str | Policy, dict[str, Any]]]:
    """As policies_of; nothing asked for: mitosis and hydra, in a guest that sees no nodes what needs none.

    That is vMitosis' migration, and its replication by hypercalls (no-p; vMitosis, section 3.3.3).
    """
    if found := policies_of(asked):
        return found
    if snapshot.numa_oblivious:
        return [("vmitosis-migrate", {}), ("vmitosis-replicate", {"mode": "no-p"})]
    return [("mitosis", {}), ("hydra", {})]


# Processes that were captured together: which of them an answer counts.

ONCE_EACH = (
    "of several processes: pages that they share would count once for each; ask about one of them alone, "
    "DIR/pid-PID"
)


def others(capture: Capture) -> dict[int, Capture]:
    """{PID: Capture} of the processes with page tables that were captured with this one."""
    return {pid: one for pid, one in capture.members.items() if one is not capture and one.has_snapshot}


def together(capture: Capture, weigh: str = LEAF_CLASSES_AUTO) -> list[Snapshot]:
    """Snapshots of the other processes, where each mapped page counts once, or by the process's own samples
    of accessed bits (`heat --tree`), and counts thus add up.

    weigh  Setup.weigh
    [] where the capture's trace, which is of one process, weighs its pages, or it alone has samples.
    """
    weight = weighed_by(weigh, capture.has_trace, capture.has_heat)
    if weight == "walks" or not capture.has_snapshot:
        return []
    if weight == "heat":
        found = [*heated(capture).values()]
    else:
        found = [replace(one.snapshot, heat=None) for one in others(capture).values()]
    if found and len({(one.native, len(one.topology)) for one in (capture.snapshot, *found)}) > 1:
        raise UsageError(f"{capture.directory}: its processes were captured on different machines")
    return found


def heated(capture: Capture) -> dict[int, Snapshot]:
    """{PID: Snapshot} of the processes that were sampled with this one, their walks in as long a time."""
    own = capture.snapshot.heat if capture.has_heat else None
    return {
        pid: replace(one.snapshot, heat=replace(heat, over=own.sampled_seconds))
        for pid, one in others(capture).items()
        if own and one.has_heat and (heat := one.snapshot.heat)
    }


def alike(number: int, by_heat: bool) -> Finding:
    """How many processes an answer counts."""
    how = "what a process maps counts, not how busy it is"
    if by_heat:
        how = "a page counts by the walks of the process that maps it, estimated for the same time"
    text = f"{number} processes together, each with tables of its own: {how}"
    short = f"{number} processes count {'together' if by_heat else 'alike'}"
    return Finding(TOGETHER, text, short=short, numbers={"processes": number})


def asked_of_processes(capture: Capture, setup: Setup) -> str:
    """Line for people: of which processes of a Capture a replay is; "" where there is but one."""
    by_heat = weighed_by(setup.weigh, capture.has_trace, capture.has_heat) == "heat"
    return counted(capture, len(together(capture, setup.weigh)), by_heat)


def counted(capture: Capture, more: int, by_heat: bool = False) -> str:
    """Line for people: the number of processes beside the Capture's first that are counted; "" for none."""
    known = others(capture)
    if not known:
        return ""
    number, own = len(known) + 1, capture.manifest.provenance.get("pid")
    said = f"PID {own} alone, of {number} processes captured together"
    if more:
        left_out = f"; {len(known) - more} without samples are left out" if more < len(known) else ""
        said = f"{alike(1 + more, by_heat).text}{left_out}"
    return f"{said}; one of them alone: {next(iter(known.values())).directory}"


# A capture opened for a question: page tables, trace or none, and provenance.


@dataclass(frozen=True)
class Opened:
    """trace: None where the capture holds none; provenance: {what: text} for results."""

    capture: Capture
    snapshot: Snapshot
    trace: Trace | None
    provenance: dict[str, str]

    def world(self, setup: Setup) -> World:
        """The capture on the setup's machine, before any policy."""
        return setup.world(self.snapshot, self.trace, self.capture.cache)

    def others(self, setup: Setup) -> list[World]:
        """Worlds of the processes whose counts add up with this one's: processes.together."""
        return [setup.world(one, None) for one in together(self.capture, setup.weigh)]


def opened(capture: CaptureLike = None) -> Opened:
    """Opened capture; a bare trace gets a snapshot without tables, noted in its provenance."""
    known = load(capture)
    source = provenance_of(known)
    trace = known.trace if known.has_trace else None
    if known.has_snapshot or known.has_vm:
        return Opened(known, known.snapshot, trace, source)
    return Opened(known, bare_snapshot(known.trace), trace, source | {"assumed": ASSUMED})


def provenance_of(capture: Capture) -> dict[str, str]:
    return {"capture": str(capture.directory)}
