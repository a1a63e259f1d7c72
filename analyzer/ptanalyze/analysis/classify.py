"""Where leaf entries are, and how scattered: classes of pages and walks, fragmentation of a VM.

Locality of a capture's leaf entries: of its mapped pages, or of the walks of its trace on a machine.

Fragmentation of a capture: ePT cache lines per gPT cache line, before and after reservations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ..core.errors import UsageError
from ..core.options import Keywords
from ..core.snapshot import Snapshot
from ..formats.capture import Capture, CaptureLike, load
from ..kernels import RL
from ..policies import plan_for
from ..world.address_space import address_space
from ..world.reservations import Fragmentation, measure
from ..world.scenario import Scenario
from . import setup as setups
from .frames import classes_frame, fragmentation_frame
from .leaf_classes import Classification, classify_heat, classify_pages, classify_walks
from .replay import replay_walks, start

if TYPE_CHECKING:
    from pandas import DataFrame


TRACED = ("walks", "samples")  # weights that need a trace
GROUPS = {  # weight: by what it can be grouped
    "leaf": ("all", "vma", "process"),
    "heat": ("all", "vma", "process", "page"),
    "walks": ("all", "vma", "thread"),
    "samples": ("all", "vma", "thread"),
}


def classify(
    capture: CaptureLike = None,
    *,
    weight: str = "leaf",
    by: str = "all",
    setup: setups.Setup | None = None,
    **options: Unpack[Keywords],
) -> DataFrame:
    """Locality of leaf entries, seen from each socket: group, socket, class, count, share, weight.

    weight  "leaf": each leaf entry once, "walks": each TLB miss of the trace on the setup's machine with
            threads where the setup places them, "heat": each leaf entry by its walks, estimated from samples
            of accessed bits; share_low and share_high are their precision; "samples": each access of a trace
            that holds samples of accesses (perf), which no TLB can be asked about
    by      "all", "vma", (walks and samples only) "thread", or (leaf and heat only) "process": each of
            those that were captured together, with heat those sampled together, which "all" adds up; any
            other answer is of the first; or (heat only) "page", those that were found used
    class   Local-Local ... Remote-Remote, guest first; native Local and Remote
    vMitosis (ASPLOS '21), section 2.2, Figure 2. attrs["unresolved"]: {weight: {reason: count}}.
    """
    known = load(capture)
    how = setups.setup_of(setup, options, known if weight == "walks" else None)  # else no machine is asked
    classes, walked = classified(known, weight, by, how)
    return classes_frame([classes], known.source | where(walked))


def where(walked: Scenario | None) -> dict[str, str]:
    """{"machine", "placement"} of the threads that walk; {} where none do."""
    return {"machine": walked.machine.name, "placement": walked.placement.how} if walked else {}


def classified(
    known: Capture, weight: str, by: str, how: setups.Setup
) -> tuple[Classification, Scenario | None]:
    """(Classification behind `classify`, Scenario of the walks or samples that it counts)."""
    for what, value, choices in (("weight", weight, GROUPS), ("by", by, GROUPS.get(weight, ()))):
        if value not in choices:
            of = f" with weight = {weight}" if what == "by" else ""
            raise UsageError(f"{what} = {value}:{of} one of {', '.join(choices)}")
    if weight in TRACED:
        return walk_locality(known, how, by=by, weight=weight)
    if by == "process":
        return process_locality(known, weight), None
    if by == "all" and (setups.heated(known) if weight == "heat" else setups.others(known)):
        each = process_locality(known, weight)
        left_out = None if each.left_out is None else each.left_out.sum(axis=1, keepdims=True)
        counts = each.counts.sum(axis=0, keepdims=True)
        return replace(each, groups=("all",), counts=counts, left_out=left_out), None
    return locality(known.snapshot, weight, by), None


def weight_of(facts: Mapping[str, Any]) -> str:
    """The weight that a trace of these facts has: "samples" of accesses, else "walks"."""
    return "samples" if facts.get("sampled") and not facts.get("walks") else "walks"


def locality(snapshot: Snapshot, weight: str = "leaf", by: str = "all") -> Classification:
    """Classification of the leaf entries of a Snapshot, each once ("leaf") or by its samples ("heat")."""
    space = address_space(snapshot, np.zeros(0, np.uint64))
    return classify_heat(space, by) if weight == "heat" else classify_pages(space, by)


def process_locality(capture: Capture, weight: str) -> Classification:
    """Classification of the leaf entries of each process of a Capture; groups: "PID name"."""
    sampled = setups.heated(capture) if weight == "heat" else None
    processes = {
        pid: process
        for pid, process in capture.members.items()
        if process.has_snapshot and (sampled is None or process is capture or pid in sampled)
    }
    if not processes:
        why = "no process is captured here; `dump process --tree` does it"
        raise UsageError(f"{capture.directory}: by = process: {why}")
    snapshots = {pid: process.snapshot for pid, process in processes.items()} | (sampled or {})
    each = [locality(snapshots[pid], weight) for pid in processes]
    if len({(part.native, part.sockets, part.nodes) for part in each}) > 1:
        raise UsageError(f"{capture.directory}: its processes were captured on different machines")
    left_out = [part.left_out for part in each if part.left_out is not None]
    names = (f"{pid} {process.manifest.provenance.get('comm', '')}" for pid, process in processes.items())
    return replace(
        each[0],
        groups=tuple(name.strip() for name in names),
        counts=np.concatenate([part.counts for part in each]),
        left_out=np.concatenate(left_out, axis=1) if left_out else None,
        unresolved=dict(sum((Counter(part.unresolved) for part in each), Counter())),
        tracers=sum(part.tracers for part in each),
    )


def walk_locality(
    capture: Capture, setup: setups.Setup, *, by: str = "all", weight: str = "walks"
) -> tuple[Classification, Scenario]:
    """(Classification, Scenario of the walks) of the trace's TLB misses on the setup's machine.

    weight  "samples": of the pages that a trace's samples touched, each once, seen by the socket of its CPU:
            where leaf entries in use are, not how often they are walked. UsageError for a trace of all.
    """
    trace = capture.trace
    if weight == "samples":
        if not trace.facts.get("sampled"):
            raise UsageError("weight = samples: the trace holds all accesses, not samples; use walks")
        trace = replace(trace, facts={**trace.facts, "walks": True})  # through no TLB
    scenario = setups.from_the_beginning(setup).scenario(capture.snapshot, trace)
    classes = classify_walks(scenario.space, scenario.stream, scenario.placement, scenario.trace, by)
    return replace(classes, weight=weight), scenario


def remote_by_first_touch(scenario: Scenario) -> float:
    """Share of the walks that would read a remote leaf entry, had first touch placed the tables."""
    run = start(plan_for("first-touch"), scenario)
    replay_walks([run], scenario, scenario.reads())
    classes = run.counters.classes
    return float(classes[:, RL].sum() / max(classes.sum(), 1))


def fragmentation(
    capture: CaptureLike = None,
    *,
    by: str = "all",
    after: bool | setups.Settings = False,
    setup: setups.Setup | None = None,
    **options: Unpack[Keywords],
) -> DataFrame:
    """gPT cache lines by number of their ePT cache lines: group, lines, ept_lines, count, share, state.

    lines is "all", or "full" for lines with all eight pages; ept_lines is 1 to 8; state "before" or "after".
    after  also with PTEMagnet's allocator: True, or its parameters ({"group": 4})
    The metric of PTEMagnet (ASPLOS '21), section 3.2.
    attrs: "means" {state: {lines: mean}}, "facts" of the reservations. The capture must be of a VM.
    """
    known = load(capture)
    settings = after if isinstance(after, Mapping) else {} if after else None
    measured, reshaped = fragmented(known, by, settings, setups.setup_of(setup, options, known))
    table = fragmentation_frame(measured, known.source)
    table.attrs["facts"] = dict(reshaped.facts) if reshaped else {}
    return table


def fragmented(
    capture: Capture, by: str, settings: setups.Settings | None, setup: setups.Setup
) -> tuple[dict[str, Fragmentation], Scenario | None]:
    """({"before": Fragmentation}, with settings of ptemagnet also "after"; its Scenario) of a capture."""
    before = {"before": measure(address_space(capture.snapshot, np.zeros(0, np.uint64)), by=by)}
    if settings is None:
        return before, None
    scenario = setups.open_replay_capture(capture).scenario(setup)
    reshaped = plan_for("ptemagnet", dict(settings)).reshape(scenario)
    return before | {"after": measure(reshaped.space, by=by, filled=True)}, reshaped
