"""Plans replayed on a World and priced: one filter pass, one cache pass, many replays."""

from __future__ import annotations

import platform
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.errors import UsageError
from ..core.progress import Progress
from ..core.version import __version__
from ..cost import price as cost
from ..cost.result import Result
from ..policies import Plan, Policy, plan_for
from ..world.data_moves import moves_notes
from ..world.world import World
from .runs import Run, by_socket, replay_walks, start
from .static import static_results
from .system_calls import system_calls

if TYPE_CHECKING:
    from ..core.snapshot import Snapshot
    from ..cost.calibration import Calibration
    from ..cost.result import Price
    from ..kernels.faults import Mapped
    from .setup import Setup


class Finished(NamedTuple):
    """A run that has ended, its World, and the pages mapped at its end."""

    run: Run
    world: World
    mapped: Mapped


def baseline_of(world: World) -> str:
    """Baseline chosen by "auto"."""
    return "linux" if not world.traced or len(world.snapshot.topology) > 1 else "first-touch"


def replay_world(
    captured: World,
    plans: Sequence[Plan],
    setup: Setup,
    provenance: Mapping[str, str] | None = None,
    refused: dict[str, str] | None = None,
) -> list[Result]:
    """[Result] of Plans on a captured World; the others are compared with the first.

    refused  a dict: plans that the capture does not allow are left out, and added with the reason, by name
    """
    known = _complete(provenance)
    if not captured.traced:
        return static_results(captured, plans, setup, known, refused)
    _must_fit(setup.calibration, captured.snapshot)
    done: dict[int, Finished] = {}
    for world, runs in by_world(plans, captured, refused):
        mapped = replay_walks(runs, world, world.reads(), _ticking(setup.progress, world), setup.windows)
        done |= {id(run.plan): Finished(run, world, mapped) for run in runs}
    base = _price(done[id(plans[0])], None, setup)
    kept = [plan for plan in plans if id(plan) in done]
    return [_result(done[id(plan)], plans[0].name, base, setup, known) for plan in kept]


def _must_fit(calibration: Calibration | None, snapshot: Snapshot) -> None:
    """UsageError for a Calibration that cannot be of this capture's program."""
    if calibration is None:
        return
    name = calibration.name or "(unnamed)"
    if calibration.exposed is None or calibration.local.walk is None:
        raise UsageError(
            f"calibration {name}: has no walk cycles; calibrate with counters of page walks, or leave it out"
        )
    if calibration.native != snapshot.native:
        of, is_ = ("native", "a VM's") if calibration.native else ("a VM's", "native")
        raise UsageError(f"calibration {name}: of a run that was {of}, the capture is {is_}")


def _price(done: Finished, baseline: Price | None, setup: Setup) -> Price:
    executed, _ = cost.instructions(done.world.trace, setup.costs)
    calls = system_calls(done.world, done.mapped)
    return cost.price(
        done.run.counters,
        done.world.machine,
        setup.costs,
        baseline,
        executed,
        setup.contended,
        calls,
        setup.calibration,
    )


def _complete(provenance: Mapping[str, str] | None) -> dict[str, str]:
    return {"ptanalyze": __version__, "python": platform.python_version(), **(provenance or {})}


def _ticking(progress: Progress, world: World) -> Callable[[int], None] | None:
    return (lambda done: progress(done, len(world.stream), "replaying walks")) if progress else None


def planned(policies: Sequence[tuple[Policy | str, Mapping[str, Any]]], baseline: str) -> list[Plan]:
    """[Plan]: the baseline's, then the others in their order."""
    plans = [plan_for(policy, params) for policy, params in policies]
    at = next((k for k, plan in enumerate(plans) if plan.name == baseline), None)
    first = plan_for(baseline) if at is None else plans.pop(at)
    return [first, *plans]


def by_world(
    plans: Sequence[Plan], world: World, refused: dict[str, str] | None = None
) -> Iterator[tuple[World, list[Run]]]:
    """Yield (World, [Run]): plans that reshape the World alike share its passes."""
    groups: dict[Hashable, list[Plan]] = {}
    for plan in plans:
        groups.setdefault(plan.reshaping, []).append(plan)
    for alike in groups.values():
        shaped: World | None = None
        runs = []
        for plan in alike:
            try:
                shaped = shaped or plan.reshape(world)
                plan.check(shaped)
                runs.append(start(plan, shaped))
            except UsageError as error:
                if refused is None or plan is plans[0]:
                    raise
                refused[plan.name] = str(error)
        if shaped and runs:
            yield shaped, runs


def _result(done: Finished, baseline: str, base: Price, setup: Setup, provenance: dict[str, str]) -> Result:
    run, world, mapped = done
    space, count = world.space, by_socket(run.counters, world.domains)
    guest = mapped.exists.copy()
    guest[space.guest_tables : space.guest_tables + space.host_tables] = False
    guest[: space.guest_tables] = (
        space.program_tables
    )  # tables freed by the trace's events, yet in the snapshot, were made again
    return Result(
        policy=run.plan.name,
        params=run.plan.params,
        machine=world.machine.name,
        placement=world.placement.how,
        baseline=baseline,
        walks=len(world.stream),
        hits=world.stream.hits.sum(axis=0),
        reads=count.reads,
        classes=count.classes,
        calls=count.events,
        host_calls=count.host_events,
        table_pages=int(run.counters.pages[0]),
        table_pages_peak=int(run.counters.pages[1]),
        single_copy=int(np.count_nonzero(guest)),
        host_pages=int(run.counters.host_pages[0]),
        host_single_copy=space.host_tables,
        aside_pages=world.aside_pages,
        price=_price(done, base, setup),
        facts=run.facts(world),
        notes=tuple(notes(world, cost.instructions(world.trace, setup.costs)[1])),
        provenance=provenance,
        series=run.series,
    )


def notes(world: World, how: str) -> list[str]:
    """Notes for a reader of the results, one line each."""
    space, history = world.space, world.history
    lines = [how, *world.notes, *moves_notes(world)]
    if (ended := world.trace.facts.get("ended", "exit")) not in ("exit", "imported"):
        lines.append(f"the trace may be only part of the run; it ended by: {ended}")
    if world.trace.facts.get("sampled"):
        lines.append("the trace holds samples of the accesses: shares mean more than numbers")
    if len(space.snapshot.topology) == 1 and world.nodes > 1:
        lines.append("recorded on one node: as captured (linux) all tables are on node 0")
    if space.inferred_tables:
        lines.append(f"{space.inferred_tables} table pages were gone at the snapshot: placed by first touch")
    if history.premapped:
        lines.append(
            f"{history.premapped} pages were mapped before the region of interest began: no demand faults"
        )
    lines += world.first_touch_notes
    if sum(space.unresolved.values()):
        lines.append(f"{sum(space.unresolved.values())} guest table pages have no known place in the host")
    return lines
