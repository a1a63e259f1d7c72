"""Every degree of prefetching and every sharing tier replayed once, counted and priced by VMA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..cost.price import fixed_ns_by_group
from ..cost.throughput import spent
from ..kernels.hooks import compile_beside
from ..kernels.replay import PTE_COPY, REPLICA_FAULT, TABLE_NEW
from ..policies import Policy, plan_for
from ..policies.hydra import HYDRA_OFFLINE as OFFLINE
from ..world.cache_pass import first_calls
from .finished import Finished
from .grouped_run import GroupedRun, Vmas, grouped_runs, of_group
from .replay import baseline_of
from .run_notes import notes, short_region
from .runs import replay_again, replay_walks
from .system_calls import system_calls

if TYPE_CHECKING:
    from ..core.machine import Costs, Machine
    from ..cost.result import SystemCalls
    from ..kernels.replay import Grouped, Mapped
    from ..world.world import World
    from .setup import Setup

ONE, SOCKET, NODE = "one", "socket", "node"
DEGREES = range(10)
SAME_SOCKET = 1.5  # times a node's own latency: nodes nearer than that share a socket
FILTERS = ("off", "single", "all")  # tlbflush_opt 0, 1, 2 of the Hydra kernels
Wanted = tuple["str | Policy", Mapping[str, Any]]
Calls = tuple["SystemCalls", "SystemCalls | None"]  # of the run as traced, and of its steady part once more


class Part(NamedTuple):
    """Cycles of VMAs in a run, float64[V]: of walks, and of faults, copies, tables, calls, shootdowns."""

    walks: np.ndarray
    management: np.ndarray

    def cycles(self, exposed: float) -> np.ndarray:
        """float64[V] that the program waits."""
        total: np.ndarray = exposed * self.walks + self.management
        return total


class Point(NamedTuple):
    """A tier and degree of every VMA; degree None: one copy, or prefetching that knows the future.

    traced, again       Part of the run as traced, and of its steady part once more
    faults, propagated, tables  int64[V] in both runs: faults that only copy, entries copied, table pages made
    """

    tier: str
    degree: int | None
    traced: Part
    again: Part
    faults: np.ndarray
    propagated: np.ndarray
    tables: np.ndarray

    def cycles(self, exposed: float, repeat: float) -> np.ndarray:
        """float64[V] of the run as traced and `repeat` further ones."""
        return self.traced.cycles(exposed) + repeat * self.again.cycles(exposed)


@dataclass(frozen=True)
class Degrees:
    """V VMAs, the last of which is what belongs to no page that is walked.

    names    [V]; walks  int64[V, nodes] as traced, by walker's node
    points   tiers and degrees, one copy first; bounds: the tiers of copies, by prefetching that knows the
             future
    filters  {filter: Point of a copy per node with degree 0}
    sockets  int16[nodes]: node that has the socket's copy
    steady   whether there is a further run: not where threads move while the trace runs
    """

    names: list[str]
    walks: np.ndarray
    points: list[Point]
    bounds: list[Point]
    filters: dict[str, Point]
    sockets: np.ndarray
    machine: Machine
    costs: Costs
    placement: str
    steady: bool = True
    notes: tuple[str, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)


def degree_runs(world: World, setup: Setup, prefetch_on: str, provenance: dict[str, str]) -> Degrees:
    """Degrees of a captured World; RefusedError where Hydra cannot run on it."""
    plan_for("hydra").check(world)
    compile_beside(first_calls(world.space, world.placement, world.machine))
    vmas, reader = Vmas(world), world.placement.cpu_node
    single: list[Wanted] = [(baseline_of(world), {})]
    filters: list[Wanted] = [("hydra", {"prefetch": 0, "tlbflush": name}) for name in FILTERS]
    more = not setup.move_threads
    runs, mapped, made = replayed(world, world, vmas, reader, [*single, *lazy(prefetch_on), *filters], more)
    known = partial(pointed, made=made, setup=setup, machine=world.machine)
    points, bounds = [known(runs[0], ONE, None)], [known(runs[11], NODE, None)]
    nodes = [known(run, NODE, degree) for degree, run in zip(DEGREES, runs[1:11], strict=True)]
    shot = {name: known(run, NODE, 0) for name, run in zip(FILTERS, runs[12:], strict=True)}
    sockets = leads(world)
    if (sockets != np.arange(world.nodes)).any():
        shared = world.reshaped(placement=replace(world.placement, cpu_node=sockets[reader]))
        again, *_ = replayed(shared, world, vmas, reader, lazy(prefetch_on), more)
        points += [known(run, SOCKET, degree) for degree, run in zip(DEGREES, again[:10], strict=True)]
        bounds.append(known(again[10], SOCKET, None))
    first = Finished(replace(runs[0], first=None), world, mapped, world, mapped)
    said = notes(first, "counted by VMA, of the guest's tables")
    traced, further = runs[0].parts()
    if more and (short := short_region(traced.reads, further.reads, world)):
        said.append(short)
    return Degrees(
        vmas.names, traced.walks, [*points, *nodes], bounds, shot, sockets, world.machine,
        setup.costs, world.placement.how, more, tuple(said), provenance,
    )  # fmt: skip


def lazy(prefetch_on: str) -> list[Wanted]:
    """Every degree, then the bound."""
    degrees: list[Wanted] = [("hydra", {"prefetch": d, "prefetch_on": prefetch_on}) for d in DEGREES]
    return [*degrees, (OFFLINE, {})]


def replayed(
    world: World, captured: World, vmas: Vmas, reader: np.ndarray, wanted: Sequence[Wanted], more: bool
) -> tuple[list[GroupedRun], Mapped, Calls]:
    """([GroupedRun], Mapped at the first run's end, Calls) of policies on a World, over the captured one's
    reads.

    more  whether the steady part runs once more
    """
    runs = grouped_runs([plan_for(policy, params) for policy, params in wanted], world, vmas, reader)
    caches = captured.caches()
    mapped = replay_walks(runs, world, captured.reads(caches=caches), more=more)
    if not more:
        return runs, mapped, (system_calls(world, mapped), None)
    again = world.again()
    still = replay_again(runs, again, captured.again().reads(caches=caches), mapped)
    return runs, mapped, (system_calls(world, mapped), system_calls(again, still, world.steady.chunk))


def leads(world: World) -> np.ndarray:
    """int16[nodes]: for each node the one whose copy its socket would share: where most of its walks are.

    Nodes of a socket are those within SAME_SOCKET times a node's own latency, if that splits the nodes.
    """
    latency = world.machine.latency_cycles()
    near = latency < SAME_SOCKET * latency.diagonal()[:, None]
    if not (near == near[near.argmax(axis=1)]).all():
        return np.arange(world.nodes, dtype=np.int16)
    node = world.placement.cpu_node[world.placement.chunk_cpu]
    walks = np.bincount(node, world.walks_by_chunk, world.nodes)
    serving: np.ndarray = np.where(near, walks[None, :], -1).argmax(axis=1).astype(np.int16)
    return serving


def pointed(
    run: GroupedRun, tier: str, degree: int | None, made: Calls, setup: Setup, machine: Machine
) -> Point:
    """Point of a run that has ended."""
    traced, again = run.parts()
    kinds = (traced.events + again.events).sum(axis=(1, 3, 4))
    columns = (kinds[:, kind] for kind in (REPLICA_FAULT, PTE_COPY, TABLE_NEW))
    traced_part, again_part = (
        part(counts, calls, setup, machine) for counts, calls in zip((traced, again), made, strict=True)
    )
    faults, propagated, tables = columns
    return Point(tier, degree, traced_part, again_part, faults, propagated, tables)


def part(counts: Grouped, made: SystemCalls | None, setup: Setup, machine: Machine) -> Part:
    """Part of a run with these system calls, priced as Result's; made: None where there is no such run."""
    groups = range(len(counts.walks))
    cycles = np.array([spent(of_group(counts, k), machine, setup.costs, setup.contended) for k in groups])
    management = cycles[:, 1:].sum(axis=1)
    if made is not None:
        management += fixed_ns_by_group(counts.events, setup.costs, made) * machine.ghz
    return Part(cycles[:, 0], management)
