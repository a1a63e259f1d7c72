"""Setup of a replay: one record from the command line or Python to the kernels."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import entry_points
from inspect import cleandoc
from pathlib import Path
from typing import Any, Self, TypeAlias, Unpack, cast

from ..core.columns import BY_HEAT, CAREFUL, EACH_ONCE, TOGETHER, Finding, message, noted
from ..core.errors import DEFAULT_MACHINE, UsageError, bundled, policy_of, program, written
from ..core.machine import Costs, Machine, load_costs, load_machine, moves_from, sharing
from ..core.options import Keywords, Options, manual
from ..core.process import usable_cpus
from ..core.snapshot import Heat, Snapshot
from ..core.trace import Trace
from ..cost.law import Calibration, PageTrial
from ..formats.capture import Capture, CaptureLike, load
from ..formats.measured import read_measured
from ..policies import Policy
from ..world.scaling import StandsFor, stands_for
from ..world.scenario import Scenario, ScenarioOptions, captured_scenario
from ..world.traced_program import ASSUMED, bare_snapshot

Settings: TypeAlias = Mapping[str, Any]


def heat_of(snapshot: Snapshot) -> Heat:
    """UsageError where the capture has none."""
    if snapshot.heat is None:
        raise UsageError(
            "weight = heat: the capture has no samples of accessed bits; `ptanalyze record -p "
            "PID --tracer heat` takes them"
        )
    return snapshot.heat


AUTO = "auto"
WEIGHTINGS = (AUTO, "walks", "heat", "leaf")  # what pages count by
RESHAPED = (
    "its pages are not those whose accessed bits were sampled: a trace tells how they are walked; "
    "--weight leaf counts each mapped page once"
)


def weighed_by(weight: str, has_trace: bool, has_heat: bool) -> str:
    """By what a capture's pages count, "walks", "heat" or "leaf": for AUTO the best that it has."""
    return ("walks" if has_trace else "heat" if has_heat else "leaf") if weight == AUTO else weight


def weighed(snapshot: Snapshot, trace: Trace | None, weight: str) -> tuple[Snapshot, Trace | None]:
    """(Snapshot, Trace or None) so that pages count by `weight`, one of WEIGHTINGS, AUTO as in weighed_by;
    UsageError where the capture lacks what is asked for."""
    if weight not in WEIGHTINGS:
        raise UsageError(f"weight = {weight}: one of {', '.join(WEIGHTINGS)}")
    if weight == "walks" and trace is None:
        raise UsageError("weight = walks: the capture has no trace; record one with `ptanalyze record`")
    if weight == "heat":
        heat_of(snapshot)
    if weight == "leaf":
        snapshot = replace(snapshot, heat=None)
    return snapshot, trace if weight in (AUTO, "walks") else None


def counted_by(snapshots: Sequence[Snapshot], left_out: bool) -> Finding:
    """By what pages count without a trace, which the capture lacks or which is left out."""
    heats, without = [one.heat for one in snapshots if one.heat], "-left-out" if left_out else ""
    if not heats:
        return noted(EACH_ONCE, CAREFUL, line=f"{EACH_ONCE}{without}")
    total = max(sum(int(heat.walks.sum()) for heat in heats), 1)
    numbers: dict[str, Any] = {
        "samples": sum(int(heat.samples.sum()) for heat in heats),
        "seconds": sum(heat.sampled_seconds for heat in heats),
        "saturated": sum(int(heat.walks[heat.saturated].sum()) for heat in heats) / total,
    }
    return noted(BY_HEAT, CAREFUL, line=f"{BY_HEAT}{without}", **numbers)


@dataclass(frozen=True, kw_only=True)
class Setup(ScenarioOptions):
    """Options of a replay, read and checked: the input of every question. Setup.of takes names and files."""

    costs: Costs = field()
    calibration: Calibration | PageTrial | None = None

    @property
    def as_traced(self) -> bool:
        """Whether the run is counted as traced: asked for, or threads move: there is no further run."""
        return self.cold or bool(self.move_threads)

    @classmethod
    def of(cls, **options: Unpack[Keywords]) -> Self:
        """The Setup of Options; UsageError for latencies that the machine file lacks, TypeError for a name
        that is no option."""
        known = [one.name for one in fields(Options)]
        if unknown := sorted(options.keys() - {*known}):
            raise TypeError(f"{', '.join(unknown)}: no such option; there are: {', '.join(known)}")
        asked = Options(**options)
        named = asked.machine
        machine = named if isinstance(named, Machine) else load_machine(named)
        if asked.cache_share is not None:
            machine = sharing(machine, str(asked.cache_share))
        machine.latency_cycles(asked.contended)  # UsageError before anything is computed
        larger, costs, moves, given = asked.stands_for, asked.costs, asked.autonuma, asked.calibration
        if isinstance(moves, (bool, Mapping)):
            moves = None if moves is False else moves_from({} if moves is True else dict(moves))
        if not isinstance(larger, StandsFor):
            larger = stands_for(larger, asked.fixed)
        if larger.larger and asked.cold:
            raise UsageError("--stands-for: a run as traced is of the traced size; leave out --cold")
        read = {
            "machine": machine,
            "stands_for": larger,
            "costs": costs if isinstance(costs, Costs) else load_costs(machine, costs),
            "calibration": read_measured(given) if isinstance(given, (str, os.PathLike)) else given,
            "autonuma": moves,
            "jobs": asked.jobs or usable_cpus(),
        }
        return cls(**(vars(asked) | read))

    def scenario(self, snapshot: Snapshot, trace: Trace | None) -> Scenario:
        """The Scenario of a Snapshot and a Trace on this machine, before any policy."""
        weighted, walked = weighed(snapshot, trace, self.weigh)
        asked = from_the_beginning(self) if self.as_traced else self
        return captured_scenario(weighted, walked, asked, left_out=walked is not trace)


Setup.__doc__ = f"{cleandoc(str(Setup.__doc__))}\n{manual()}"


HOST_FILE = Path("host.toml")  # that `machines --from-host host.toml` writes, as answers advise
HOST_MODEL = f"machines --from-host {HOST_FILE} --measure"
HOSTS = "ptanalyze.hosts"  # entry points: write_machine_file and captured_host of ptanalyze_host


def own_machine(capture: Capture) -> tuple[str | Machine, str]:
    """(HOST_FILE, or the Machine of a capture of this host, else the default, as always of a bundled sample;
    what is said of it)."""
    if capture.directory.parent == bundled("samples"):
        return DEFAULT_MACHINE, ""
    if HOST_FILE.is_file():
        return str(HOST_FILE), f"{HOST_FILE} of this directory"
    for point in entry_points(group=HOSTS, name="captured"):
        if (machine := point.load()(capture)) is not None:
            how = f"`{program()} {HOST_MODEL}` measures all"
            return machine, f"{machine.name}, {machine.description}; {how}"
    return DEFAULT_MACHINE, ""


def setup_of(setup: Setup | None, options: Keywords, capture: Capture | None) -> Setup:
    """`setup`, or a Setup of keyword arguments, on own_machine of a Capture if none is named; TypeError for
    both at once, UsageError for what is no Setup."""
    if setup is None:
        if capture is not None and options.get("machine") is None:
            options = {**options, "machine": own_machine(capture)[0]}
        return Setup.of(**options)
    if not isinstance(setup, Setup):
        raise UsageError(f"setup = {written(setup)}: not a ptanalyze.Setup; give policies as policies=...")
    if options:
        raise TypeError(f"{', '.join(options)}: give either a Setup or its fields, not both")
    return setup


def from_the_beginning(setup: Setup) -> Setup:
    """The Setup of a question about the run as traced; UsageError for a later begin."""
    if setup.begin:
        raise UsageError(f"--from {setup.begin}: the run as traced begins with the trace; leave it out")
    return setup


# Policies as people write them: one or several, with settings or without.

PolicyLike: TypeAlias = "str | Policy | tuple[str | Policy, Settings]"
Policies: TypeAlias = "PolicyLike | Sequence[PolicyLike]"


def policies_of(asked: Policies) -> list[tuple[str | Policy, dict[str, Any]]]:
    """[(name or Policy, settings)] of a policy or several.

    asked  "hydra", "hydra:prefetch=3", "ptemagnet+hydra", ("hydra", {"prefetch": 3}), a
           policies.contract.Policy of your own in place of a name, or a list of these
    """
    if isinstance(asked, (str, Policy)):
        return [(asked, {}) if isinstance(asked, Policy) else (*policy_of(asked, "policy"),)]
    if len(asked) == 2 and isinstance(asked[0], (str, Policy)) and isinstance(asked[1], Mapping):
        return [(asked[0], dict(asked[1]))]
    return [pair for policy in asked for pair in policies_of(cast("PolicyLike", policy))]


def asked_or_usual(asked: Policies, snapshot: Snapshot) -> list[tuple[str | Policy, dict[str, Any]]]:
    """Policies as of policies_of; by default mitosis and hydra, in a guest without nodes vMitosis' own."""
    usual = ("vmitosis-migrate", REPLICATE) if snapshot.numa_oblivious else ("mitosis", "hydra")
    return policies_of(asked) or [(name, numbered(name, snapshot)) for name in usual]


def numbered(policy: str, snapshot: Snapshot) -> dict[str, Any]:
    """Settings by how a guest gets node numbers: of hypercalls (vMitosis, 3.3.3) where it sees none."""
    return {"mode": "no-p"} if REPLICATE in policy and snapshot.numa_oblivious else {}


REPLICATE = "vmitosis-replicate"


def baseline_of(scenario: Scenario, asked: Policies) -> tuple[str | Policy, dict[str, Any]]:
    """(policy, settings) of the baseline that is asked for; UsageError where that is none, or several."""
    if asked == AUTO:
        asked = "linux" if not scenario.traced or len(scenario.snapshot.topology) > 1 else "first-touch"
    try:
        [baseline] = policies_of(asked)
    except (TypeError, ValueError):
        how = 'name one policy, "bind", "bind:node=1" or ("bind", {"node": 1})'
        raise UsageError(f"baseline = {written(asked)}: {how}") from None
    return baseline


# Processes that were captured together: which of them an answer counts.

ONCE_EACH = (
    "of several processes: pages that they share would count once for each; ask about one of them alone, "
    "DIR/pid-PID"
)


def others(capture: Capture) -> dict[int, Capture]:
    """{PID: Capture} of the processes with page tables that were captured with this one."""
    return {pid: one for pid, one in capture.members.items() if one is not capture and one.has_snapshot}


def together(capture: Capture, weigh: str = AUTO) -> list[Snapshot]:
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
    return noted(TOGETHER, line=f"{TOGETHER}{'-by-heat' if by_heat else ''}", processes=number)


def asked_of_processes(capture: Capture, setup: Setup) -> str:
    """Line for people: of which processes of a Capture a replay is; "" where there is but one."""
    by_heat = weighed_by(setup.weigh, capture.has_trace, capture.has_heat) == "heat"
    if capture.untraced_children[0]:
        names = ", ".join(capture.untraced_children[1]) or "names unknown"
        return str(message("processes", "untraced", names=names))
    return counted(capture, len(together(capture, setup.weigh)), by_heat)


def counted(capture: Capture, more: int, by_heat: bool = False) -> str:
    """Line for people: the number of processes beside the Capture's first that are counted; "" for none."""
    members = others(capture)
    if not members:
        return ""
    own = capture.manifest.provenance.get("pid")
    first = max(members.values(), key=lambda one: one.has_trace and one.trace.accesses).directory  # busiest
    which: object = message("processes", "one", own=own, processes=len(members) + 1)
    if more:
        left = len(members) - more
        which = f"{alike(1 + more, by_heat).text}{message('processes', 'left', left=left) if left else ''}"
    return str(message("processes", "counted", which=which, first=first))


# A capture opened for a question: page tables, trace or none, and provenance.


@dataclass(frozen=True)
class ReplayCapture:
    """trace: None where the capture holds none; provenance: {what: text} for results."""

    capture: Capture
    snapshot: Snapshot
    trace: Trace | None
    provenance: dict[str, str]

    def scenario(self, setup: Setup) -> Scenario:
        """The capture on the setup's machine, before any policy.

        UsageError for the run as traced, but over time, of a capture that was made smaller: what happens
        once would be of the small run.
        """
        scale = self.snapshot.scale
        if setup.cold and not setup.windows and scale > 1 and self.trace is not None:
            raise UsageError(
                f"--cold: the capture stands for a run of {scale:g} times its memory, and a run as traced is "
                "of the traced size; leave out --cold"
            )
        return setup.scenario(self.snapshot, self.trace)

    def others(self, setup: Setup) -> list[Scenario]:
        """Scenarios of the processes whose counts add up with this one's, as `together`."""
        return [setup.scenario(one, None) for one in together(self.capture, setup.weigh)]


def open_replay_capture(capture: CaptureLike = None) -> ReplayCapture:
    """ReplayCapture capture; a bare trace gets a snapshot without tables, noted in its provenance."""
    known = load(capture)
    trace = known.trace if known.has_trace else None
    if known.has_snapshot or known.has_vm:
        trial = read_measured(known.pages) if known.pages else None
        return ReplayCapture(known, replace(known.snapshot, trial=trial), trace, known.source)
    return ReplayCapture(known, bare_snapshot(known.trace), trace, known.source | {"assumed": ASSUMED})
