"""What would another policy change, at what price? One filter pass, one cache pass, many replays."""

import platform

import msgspec
import numpy as np

from . import __version__, cost
from .machine import load_costs
from .policies import find
from .policies.base import Policy, World
from .progress import adding_up
from .replay import replay, start
from .result import Result
from .static_whatif import static_results
from .world.address_space import address_space
from .world.cache_pass import cache_pass
from .world.history import history
from .world.placement import AUTO, place
from .world.tlb_filter import filter_trace


def whatif(
    snapshot,
    trace,
    machine,
    policies,
    *,
    placement=AUTO,
    baseline=AUTO,
    costs=None,
    contended=False,
    threads=1,
    cache_dir=None,
    progress=None,
    provenance=None,
):
    """[Result]: the baseline's first, then one for each of `policies` that is not the baseline itself.

    policies   [(Policy or its name, its parameters as {key: value or text})]
    placement  see placement.place; baseline: a policy's name, or "auto": linux when the capture has several
               nodes or there is no trace, else first-touch (on one node every table is on node 0)
    threads    for the passes and the replays; counts do not depend on it
    cache_dir  directory where the walk stream is kept, None: not kept
    progress   called with (done, of so many, what): touches of the TLB filter pass, then walks replayed
    Without a trace (None) every mapped page counts once for each node; policies that depend on order refuse.
    Raises UsageError for parameters and placements that are not possible.
    """
    costs = costs or load_costs(machine)
    if baseline == AUTO:
        baseline = "linux" if trace is None or len(snapshot.topology) > 1 else "first-touch"
    chosen = configured(policies, baseline)
    provenance = {"ptanalyze": __version__, "python": platform.python_version(), **(provenance or {})}
    if trace is None:
        return static_results(snapshot, machine, chosen, costs, provenance, contended)
    placed = place(trace, machine, placement, snapshot.topology)
    space = address_space(snapshot, trace.regions)
    filtered = adding_up(progress, trace.touches, "filtering touches")
    stream = filter_trace(
        trace, space, placed, machine.tlb, threads=threads, cache_dir=cache_dir, progress=filtered
    )
    readers = tuple(sorted(set(placed.cpu_node[placed.chunk_cpu].tolist())))
    world = World(space, history(snapshot, trace, space, placed, stream), machine, readers)
    runs = [start(policy, params, world) for policy, params in chosen]
    batches = cache_pass(space, placed, machine, stream, events=trace.events)
    tick = (lambda done: progress(done, len(stream), "replaying walks")) if progress else None
    mapped = replay(runs, world, placed, batches, threads, tick)
    return _results(runs, world, trace, placed, stream, mapped, costs, provenance, contended)


def configured(policies, baseline):
    """[(Policy, parameters)]: the baseline, then the others in their order."""
    asked = [(policy if isinstance(policy, Policy) else find(policy), params) for policy, params in policies]
    at = next((k for k, (policy, _) in enumerate(asked) if policy.name == baseline), None)
    first = (find(baseline), {}) if at is None else asked.pop(at)
    return [(policy, policy.configure(dict(params or {}))) for policy, params in [first, *asked]]


def _results(runs, world, trace, placed, stream, mapped, costs, provenance, contended):
    executed, how = cost.instructions(trace, costs)
    space = world.space
    guest = mapped.exists.copy()
    guest[space.guest_tables : space.guest_tables + space.host_tables] = False
    guest[: space.guest_tables] = (
        space.program_tables
    )  # what the trace's events freed and the snapshot has, was made again
    found = notes(world, trace, how)
    return [
        Result(
            policy=run.policy.name,
            params=msgspec.structs.asdict(run.params),
            machine=world.machine.name,
            placement=placed.how,
            baseline=runs[0].policy.name,
            walks=len(stream),
            hits=stream.hits.sum(axis=0),
            reads=run.counters.reads,
            classes=run.counters.classes,
            events=run.counters.events,
            table_pages=int(run.counters.pages[0]),
            table_pages_peak=int(run.counters.pages[1]),
            single_copy=int(np.count_nonzero(guest)),
            host_pages=run.host_pages,
            host_single_copy=space.host_tables,
            price=cost.price(run.counters, world.machine, costs, runs[0].counters, executed, contended),
            notes=tuple(found),
            provenance=provenance,
        )
        for run in runs
    ]


def notes(world, trace, how):
    """What a reader of the results should know, one line each."""
    space, history = world.space, world.history
    found = [how]
    if (ended := trace.facts.get("ended", "exit")) not in ("exit", "imported"):
        found.append(f"the trace may be only part of the run; it ended by: {ended}")
    if len(space.snapshot.topology) == 1 and world.nodes > 1:
        found.append("recorded on one node: as captured (linux) all tables are on node 0")
    if space.inferred_tables:
        found.append(f"{space.inferred_tables} table pages were gone at the snapshot: placed by first touch")
    if history.premapped:
        found.append(
            f"{history.premapped} pages were mapped before the region of interest began: no demand faults"
        )
    if sum(space.unresolved.values()):
        found.append(f"{sum(space.unresolved.values())} guest table pages have no known place in the host")
    return found
