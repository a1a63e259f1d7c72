"""Which degree of prefetching and which sharing tier costs least, by VMA: the question, and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Unpack

import numpy as np

from ..core.columns import Column, Finding, brief, described
from ..core.errors import UsageError
from ..core.options import Keywords
from ..core.trace import Reads, blocks
from ..cost.price import fixed_ns_by_group
from ..cost.throughput import spent
from ..formats.capture import CaptureLike
from ..kernels.jit import compile_beside
from ..kernels.replay import (
    FLUSH,
    FREE,
    PTE_COPY,
    REPLICA_FAULT,
    RUN,
    TABLE_DATA,
    TABLE_NEW,
    Counters,
    Groups,
    PteState,
    at_share,
    counters,
    freed_table,
)
from ..policies import Plan, Policy, plan_for
from ..policies.hydra import HYDRA_OFFLINE as OFFLINE
from ..world.address_space import NO_VMA, vma_of
from ..world.cache_pass import first_calls
from ..world.history import History
from ..world.scenario import Scenario
from .findings import of_run, short_region
from .replay import FinishedRun, PolicyRun, replay_steady_state, replay_walks, start, system_calls
from .setup import Setup, baseline_of, open_replay_capture, setup_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..core.machine import Costs, Machine
    from ..cost.result import SystemCalls


# Runs that count by VMA: the same replay, with a loop that knows which VMA a walk or a step belongs to.

BATCH = 1 << 20
PROCESS = "process"  # shootdowns, and what belongs to no page that is walked


def vma_of_walks(scenario: Scenario, page: np.ndarray) -> np.ndarray:
    """int64[n]: index of the VMA of each page walked for (WalkStream.page), len(vmas) for none."""
    return vma_of(address_of_walks(scenario, page), scenario.snapshot.vmas)


def address_of_walks(scenario: Scenario, page: np.ndarray) -> np.ndarray:
    """uint64[n]: first byte of each page walked for (WalkStream.page)."""
    region = scenario.space.regions.va[page >> np.uint32(9)].astype(np.uint64) << np.uint64(21)
    address: np.ndarray = region | (page.astype(np.uint64) & np.uint64(511)) << np.uint64(12)
    return address


class Vmas:
    """VMAs of the snapshot that a Scenario's walks go to, as groups; the last group is of everything else.

    names  [name] of the groups
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.vmas = scenario, scenario.snapshot.vmas
        walked = self._walked()
        self._label = np.full(len(self.vmas) + 1, len(walked), np.int32)
        self._label[walked] = np.arange(len(walked))
        self._asked = np.zeros(0, np.uint32), np.zeros(0, np.int32)
        self.names = [*(self._name(k) for k in walked.tolist()), PROCESS]

    def __len__(self) -> int:
        return len(self.names)

    def of_reads(self, reads: Reads) -> np.ndarray:
        """int32[n]: group of each of the walks; runs ask for the same ones, one after another."""
        page = reads.page
        known, labels = self._asked
        if known is not page:
            labels = self._label[vma_of_walks(self.scenario, page)]
            self._asked = page, labels
        return labels

    def of_steps(self, history: History) -> np.ndarray:
        """int32[S]: group of each step, by the first page that it changes."""
        steps, tables = history.steps, self.scenario.space.tables
        none, freed = np.isin(steps.kind, (FLUSH, RUN, TABLE_DATA)), steps.kind == FREE
        row = np.where(none | freed, 0, steps.row)
        table = np.where(freed, freed_table(steps, slice(None)), history.rows.leaf[row])
        shift = 12 + 9 * (tables.level[table].astype(np.uint64) - np.uint64(1))
        slot = np.where(freed, 0, steps.lo).astype(np.uint64)
        group = self._label[vma_of(tables.base[table] + (slot << shift), self.vmas)]
        return np.where(none, len(self) - 1, group).astype(np.int32)

    def _walked(self) -> np.ndarray:
        """Indices of VMAs, len(vmas) for none, of the walked pages."""
        parts = [
            np.unique(vma_of_walks(self.scenario, page)) for page in blocks(self.scenario.stream.page, BATCH)
        ]
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

    def _name(self, vma: int) -> str:
        if vma == len(self.vmas):
            return NO_VMA
        first, past = (int(self.vmas[end][vma]) for end in ("start", "end"))
        return f"{first:x}-{past:x} {self.scenario.snapshot.vma_names[vma]}".rstrip()


@dataclass
class GroupedRun(PolicyRun):
    """A PolicyRun whose counts are by VMA, of the guest's table.

    reader  int16[cpus]: node of each CPU, whatever the hooks are told
    """

    by_group: ClassVar[bool] = True
    vmas: Vmas = field(kw_only=True)
    reader: np.ndarray = field(kw_only=True)
    step_group: tuple[History, np.ndarray] | None = None

    def groups(self, scenario: Scenario, reads: Reads) -> Groups:
        history = scenario.history
        if self.step_group is None or self.step_group[0] is not history:
            self.step_group = history, self.vmas.of_steps(history)
        return Groups(self.vmas.of_reads(reads), self.step_group[1], self.reader)

    def parts(self) -> tuple[Counters, Counters]:
        """Counts of the run as traced and of the further run, zeros without one, at the machine's share of
        the LLC."""
        traced = self.first or self.counters
        steady = self.counters if self.first else Counters(*map(np.zeros_like, self.counters))
        llc = self.vmas.scenario.machine.llc
        own = llc.every_share.index(llc.share)
        first, further = (of._replace(reads=at_share(of.reads, own)) for of in (traced, steady))
        return first, further


def grouped_runs(
    plans: Sequence[Plan], scenario: Scenario, vmas: Vmas, reader: np.ndarray
) -> list[GroupedRun]:
    """[GroupedRun] of plans on a Scenario, before the first walk; reader: as GroupedRun."""
    shares, runs = len(scenario.machine.llc.every_share), []
    for plan in plans:
        begun, counts = start(plan, scenario), counters(scenario.nodes, shares=shares, groups=len(vmas))
        runs.append(GroupedRun(plan, begun.states, counts, begun.before, vmas=vmas, reader=reader.copy()))
    return runs


# Every degree of prefetching and every sharing tier replayed once, counted and priced by VMA.

ONE, SOCKET, NODE = "one", "socket", "node"
DEGREES = range(10)
SAME_SOCKET = 1.5  # times a node's own latency: nodes nearer than that share a socket
FILTERS = ("off", "single", "all")  # tlbflush_opt 0, 1, 2 of the Hydra kernels
Wanted = tuple["str | Policy", Mapping[str, Any]]
Calls = tuple["SystemCalls", "SystemCalls | None"]  # of the run as traced, and of its steady part once more


class VmaCycles(NamedTuple):
    """Cycles of VMAs in a run, float64[V]: of walks, and of faults, copies, tables, calls, shootdowns."""

    walks: np.ndarray
    management: np.ndarray

    def cycles(self, exposed: float) -> np.ndarray:
        """float64[V] that the program waits."""
        total: np.ndarray = exposed * self.walks + self.management
        return total


class Point(NamedTuple):
    """A tier and degree of every VMA; degree None: one copy, or prefetching that knows the future.

    traced, steady      VmaCycles of the run as traced, and of its steady part once more
    faults, propagated, tables  int64[V] in both runs: faults that only copy, entries copied, table pages made
    """

    tier: str
    degree: int | None
    traced: VmaCycles
    steady: VmaCycles
    faults: np.ndarray
    propagated: np.ndarray
    tables: np.ndarray

    def cycles(self, exposed: float, repeat: float) -> np.ndarray:
        """float64[V] of the run as traced and `repeat` further ones."""
        return self.traced.cycles(exposed) + repeat * self.steady.cycles(exposed)


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
    findings: tuple[Finding, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)


def degree_runs(scenario: Scenario, setup: Setup, prefetch_on: str, provenance: dict[str, str]) -> Degrees:
    """Degrees of a captured Scenario; RefusedError where Hydra cannot run on it."""
    plan_for("hydra").check(scenario)
    compile_beside(first_calls(scenario.space, scenario.placement, scenario.machine))
    vmas, reader = Vmas(scenario), scenario.placement.cpu_node
    single: list[Wanted] = [(baseline_of(scenario), {})]
    filters: list[Wanted] = [("hydra", {"prefetch": 0, "tlbflush": name}) for name in FILTERS]
    more = not setup.move_threads
    runs, mapped, made = replayed(
        scenario, scenario, vmas, reader, [*single, *lazy(prefetch_on), *filters], more
    )
    known = partial(pointed, made=made, setup=setup, machine=scenario.machine)
    points, bounds = [known(runs[0], ONE, None)], [known(runs[11], NODE, None)]
    nodes = [known(run, NODE, degree) for degree, run in zip(DEGREES, runs[1:11], strict=True)]
    shot = {name: known(run, NODE, 0) for name, run in zip(FILTERS, runs[12:], strict=True)}
    sockets = leads(scenario)
    if (sockets != np.arange(scenario.nodes)).any():
        shared = scenario.reshaped(placement=replace(scenario.placement, cpu_node=sockets[reader]))
        again, *_ = replayed(shared, scenario, vmas, reader, lazy(prefetch_on), more)
        points += [known(run, SOCKET, degree) for degree, run in zip(DEGREES, again[:10], strict=True)]
        bounds.append(known(again[10], SOCKET, None))
    begun = PolicyRun(runs[0].plan, runs[0].states, runs[0].before, runs[0].before)
    first = FinishedRun(begun, scenario, mapped, scenario, mapped)
    said = of_run(first, Finding("by-vma", "counted by VMA, of the guest's tables"))
    traced, further = runs[0].parts()
    said += short_region(traced.reads, further.reads, scenario) if more else []
    return Degrees(
        vmas.names, traced.classes[..., 0], [*points, *nodes], bounds, shot, sockets, scenario.machine,
        setup.costs, scenario.placement.how, more, tuple(said), provenance,
    )  # fmt: skip


def lazy(prefetch_on: str) -> list[Wanted]:
    """Every degree, then the bound."""
    degrees: list[Wanted] = [("hydra", {"prefetch": d, "prefetch_on": prefetch_on}) for d in DEGREES]
    return [*degrees, (OFFLINE, {})]


def replayed(
    scenario: Scenario,
    captured: Scenario,
    vmas: Vmas,
    reader: np.ndarray,
    wanted: Sequence[Wanted],
    more: bool,
) -> tuple[list[GroupedRun], PteState, Calls]:
    """([GroupedRun], PteState at the first run's end, Calls) of policies on a Scenario, over the captured
    one's reads.

    more  whether the steady part runs once more
    """
    runs = grouped_runs([plan_for(policy, params) for policy, params in wanted], scenario, vmas, reader)
    caches = captured.caches()
    mapped = replay_walks(runs, scenario, captured.reads(caches=caches), more=more)
    if not more:
        return runs, mapped, (system_calls(scenario, mapped), None)
    steady = scenario.steady_state()
    still = replay_steady_state(runs, steady, captured.steady_state().reads(caches=caches), mapped)
    return runs, mapped, (system_calls(scenario, mapped), system_calls(steady, still, scenario.steady.chunk))


def leads(scenario: Scenario) -> np.ndarray:
    """int16[nodes]: for each node the one whose copy its socket would share: where most of its walks are.

    Nodes of a socket are those within SAME_SOCKET times a node's own latency, if that splits the nodes.
    """
    latency = scenario.machine.latency_cycles()
    near = latency < SAME_SOCKET * latency.diagonal()[:, None]
    if not (near == near[near.argmax(axis=1)]).all():
        return np.arange(scenario.nodes, dtype=np.int16)
    node = scenario.placement.cpu_node[scenario.placement.chunk_cpu]
    walks = np.bincount(node, scenario.walks_by_chunk, scenario.nodes)
    serving: np.ndarray = np.where(near, walks[None, :], -1).argmax(axis=1).astype(np.int16)
    return serving


def pointed(
    run: GroupedRun, tier: str, degree: int | None, made: Calls, setup: Setup, machine: Machine
) -> Point:
    """Point of a run that has ended."""
    traced, steady = run.parts()
    kinds = (traced.events + steady.events).sum(axis=(1, 3, 4))
    columns = (kinds[:, kind] for kind in (REPLICA_FAULT, PTE_COPY, TABLE_NEW))
    traced_part, again_part = (
        part(counts, calls, setup, machine) for counts, calls in zip((traced, steady), made, strict=True)
    )
    faults, propagated, tables = columns
    return Point(tier, degree, traced_part, again_part, faults, propagated, tables)


def part(counts: Counters, made: SystemCalls | None, setup: Setup, machine: Machine) -> VmaCycles:
    """Part of a run with these system calls, priced as Result's; made: None where there is no such run."""
    groups = (
        counts._replace(reads=reads, events=events, host_events=np.zeros_like(events))
        for reads, events in zip(counts.reads, counts.events, strict=True)
    )
    cycles = np.array([spent(group, machine, setup.costs, setup.contended) for group in groups])
    management = cycles[:, 1:].sum(axis=1)
    if made is not None:
        management += fixed_ns_by_group(counts.events, setup.costs, made) * machine.ghz
    return VmaCycles(cycles[:, 0], management)


# The cheapest degree and sharing tier of each VMA, and of all together, beside the bound.

TIERS = {ONE: "no replicas", SOCKET: "a replica per socket", NODE: "a replica per node"}
WHEN = ("first", "every")
MOST_REPEATS = 1e15


@dataclass(frozen=True)
class Chosen:
    """The cheapest point of each VMA, and of all together, by the middle of the exposed share.

    repeat          how often the steady part runs once more after the run as traced
    by_vma, of_all  indices into known.points
    sure, all_sure  whether the ends of the exposed share lead to the same
    """

    known: Degrees
    repeat: float
    by_vma: np.ndarray
    of_all: int
    sure: np.ndarray
    all_sure: bool

    @cached_property
    def cycles(self) -> np.ndarray:
        """float64[points, V]"""
        exposed = self.known.costs.exposed.middle
        return np.array([point.cycles(exposed, self.repeat) for point in self.known.points])

    @property
    def of_each(self) -> np.ndarray:
        """float64[V]: cycles of each VMA's cheapest point."""
        chosen: np.ndarray = self.cycles[self.by_vma, np.arange(len(self.by_vma))]
        return chosen

    @cached_property
    def bound(self) -> np.ndarray:
        """float64[V]: no tier of a VMA with any prefetching costs less."""
        exposed = self.known.costs.exposed.middle
        tiers = (self.known.points[0], *self.known.bounds)
        least: np.ndarray = np.min([point.cycles(exposed, self.repeat) for point in tiers], axis=0)
        return least

    def best(self, vma: int) -> Point:
        return self.known.points[int(self.by_vma[vma])]

    @property
    def overall(self) -> Point:
        """The cheapest point that all VMAs share, as the kernels have a single setting."""
        return self.known.points[self.of_all]

    def point(self, tier: str, degree: int | None) -> Point:
        return next(p for p in self.known.points if (p.tier, p.degree) == (tier, degree))

    def never_used(self, point: Point) -> np.ndarray:
        """int64[V]: entries copied that their node does not use before they are rewritten or cleared.

        Every degree copies what degree 0 does, sooner or later: that is what is used.
        """
        if point.degree is None:
            return np.zeros(len(point.propagated), np.int64)
        unused: np.ndarray = point.propagated - self.point(point.tier, 0).propagated
        return unused

    @cached_property
    def break_even(self) -> np.ndarray:
        """float64[V + 1]: further runs after which copies beat one copy, for each VMA, then for all.

        0: within the run as traced; infinite: never.
        """
        exposed = self.known.costs.exposed.middle
        one, *copies = (
            (with_total(p.traced.cycles(exposed)), with_total(p.steady.cycles(exposed)))
            for p in self.known.points
        )
        after = [earned(first - one[0], one[1], again) for first, again in copies]
        soonest: np.ndarray = np.min(after, axis=0)
        return soonest


def with_total(by_vma: np.ndarray) -> np.ndarray:
    return np.append(by_vma, by_vma.sum())


def earned(once: np.ndarray, before: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Runs after which what a run saves, where that can be read (as_read), exceeds `once`; 0 where nothing
    has to be earned back."""
    after = np.full(len(once), np.inf)
    np.divide(once, before - now, out=after, where=as_read(now, before) < 1)
    return np.where(once < 0, 0.0, after)


def chosen(capture: CaptureLike, setup: Setup, prefetch_on: str = "first", repeat: float = 0.0) -> Chosen:
    """Chosen for a capture. UsageError without a trace or walks, and where Hydra cannot run."""
    if prefetch_on not in WHEN:
        raise UsageError(f"prefetch_on = {prefetch_on}: {' or '.join(WHEN)}")
    if not 0 <= repeat <= MOST_REPEATS:
        raise UsageError(f"repeat = {repeat:g}: 0 to {MOST_REPEATS:g} further runs")
    if repeat and setup.move_threads:
        raise UsageError(
            f"repeat = {repeat:g}: threads that move while the trace runs leave no steady part to repeat; "
            "leave out one of the two"
        )
    known = open_replay_capture(capture)
    known.capture.trace  # noqa: B018 - UsageError without a trace
    scenario = known.scenario(replace(setup, cache_share=str(setup.machine.llc.share)))
    if not len(scenario.stream):
        raise UsageError(f"{known.capture.directory}: no page walks in the trace: record a longer one")
    return choose(degree_runs(scenario, setup, prefetch_on, known.provenance), repeat)


def choose(known: Degrees, repeat: float = 0.0) -> Chosen:
    """The cheapest of the points, by their shares of one copy's cycles as they are read; of those that read
    alike, one copy before several, then the cheapest, then the lower degree."""
    low, middle, high = (cheapest(known, share, repeat) for share in known.costs.exposed)
    sure = (low[0] == middle[0]) & (middle[0] == high[0])
    return Chosen(known, repeat, *middle, sure, low[1] == middle[1] == high[1])


def cheapest(known: Degrees, exposed: float, repeat: float) -> tuple[np.ndarray, int]:
    """(int64[V], the point that is cheapest for all VMAs together)."""
    cycles = np.array([with_total(point.cycles(exposed, repeat)) for point in known.points])
    tier = np.broadcast_to([[list(TIERS).index(point.tier)] for point in known.points], cycles.shape)
    first = np.lexsort((cycles.T, tier.T, as_read(cycles, cycles[0]).T))[:, 0]
    return first[:-1], int(first[-1])


def as_read(cycles: np.ndarray, one: np.ndarray) -> np.ndarray:
    """float64: share of one copy's cycles, to a tenth of a percent as degree_settings.share writes it."""
    shares = np.divide(cycles, one, out=np.ones_like(cycles), where=one > 0)
    rounded: np.ndarray = np.round(shares, 3)
    return rounded


# What was chosen as a sentence, and as settings of kernels that exist: one setting for a whole process.

MOST = 9  # the degree of a whole table page
OPTION = {"off": 0, "single": 1, "all": 2}  # filters as /proc/hydra/tlbflush_opt numbers them
COMMAND = "COMMAND"


def sentence(found: Chosen) -> str:
    """What costs least and by how much; when copies pay; how many of them are of use."""
    best, total = found.overall, found.cycles.sum(axis=1)
    one, mine = float(total[0]), float(total[found.of_all])
    several, least = float(found.of_each.sum()), float(found.bound.sum())
    if best.tier == ONE:
        first = "Cheapest for all VMAs together: no replicas"
    else:
        first = f"Cheapest: {said(best)}, at {share(mine, one)} of the cycles without replicas"
    unsure = "" if found.all_sure else " (not at both ends of the exposed share)"
    each, bound = (share(cycles, one) for cycles in (several, least))
    best_known = share(mine, one)
    rest = "" if each == best_known else f" A choice for each VMA: {each}."
    rest += "" if bound == each else f" Lower bound with any prefetching: {bound}."
    return f"{first}{unsure}.{rest} {payback(found)} {copies(found)}"


def payback(found: Chosen) -> str:
    after = float(found.break_even[-1])
    if after == 0:
        return "Replicas break even within the trace."
    if not found.known.steady:
        return "Threads move while the trace runs, so there is no estimate for a longer run."
    if np.isinf(after):
        return "Replicas never break even: the steady part of the trace is no faster with them."
    return f"Replicas break even after {after:,.3g} further runs of the steady part of the trace."


def copies(found: Chosen) -> str:
    """How many of the entries that the highest degree copies are never used, and what is saved."""
    most = found.point(tier_of(found.overall), MOST)
    copied, unused = int(most.propagated.sum()), int(found.never_used(most).sum())
    if not copied:
        return "No entry is ever copied: no node uses another node's entries."
    saved, entries = saved_entries(found), f"Degree {MOST} copies {copied:,} entries"
    fewer = (
        ""
        if share(saved, copied) == share(0, copied)
        else (f"; a choice for each VMA copies {saved:,} fewer ({share(saved, copied)})")
    )
    return f"{entries}, {share(unused, copied)} of them never used{fewer}."


def saved_entries(found: Chosen) -> int:
    """Entries that degree 9 of the tier (of one copy: per node) propagates beyond the choice."""
    most = found.point(tier_of(found.overall), MOST)
    mine = sum(int(found.best(vma).propagated[vma]) for vma in range(len(found.known.names)))
    return int(most.propagated.sum()) - mine


def tier_of(point: Point) -> str:
    """The tier whose degrees are of interest."""
    return NODE if point.tier == ONE else point.tier


def said(point: Point) -> str:
    return TIERS[point.tier] + ("" if point.degree is None else f" with degree {point.degree}")


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def share(part: float, whole: float) -> str:
    percent = f"{100 * part / whole:.1f} %" if whole else "0 %"
    return percent.replace(".0 %", " %") if percent in ("0.0 %", "100.0 %") else percent


def settings(found: Chosen) -> dict[str, Any]:
    """Plain values: what to set for the cheapest point that all VMAs share.

    hydra    repl_order and tlbflush_opt of its kernels, by the cheapest degree of a copy per node
    wasp     node whose replica each node's CPUs walk (PR_SET_PGTABLE_REPL_STEERING); None: no replicas
    numactl  a line; --pgtablerepl needs the numactl of Mitosis
    """
    at = [k for k, point in enumerate(found.known.points) if point.tier == NODE]
    order = found.known.points[at[int(found.cycles[at].sum(axis=1).argmin())]].degree
    option = flush_option(found)
    commands = [f"echo {order} > /proc/hydra/repl_order", f"echo {option} > /proc/hydra/tlbflush_opt"]
    hydra = {"repl_order": order, "tlbflush_opt": option, "commands": commands}
    return {"tier": found.overall.tier, "hydra": hydra, "wasp": steering(found), "numactl": numactl(found)}


def flush_option(found: Chosen) -> int:
    """The filter of shootdowns that costs least; of equal ones the paper's, 1."""
    exposed = found.known.costs.exposed.middle
    cycles = {name: p.cycles(exposed, found.repeat).sum() for name, p in found.known.filters.items()}
    least = min(cycles, key=lambda name: (cycles[name], abs(OPTION[name] - 1)))
    return OPTION[least]


def steering(found: Chosen) -> list[int] | None:
    if found.overall.tier == ONE:
        return None
    nodes = np.arange(found.known.machine.nodes)
    serving = found.known.sockets if found.overall.tier == SOCKET else nodes
    return [int(node) for node in serving]


def numactl(found: Chosen) -> str:
    """Where threads run, as in the trace; for one node its memory, else Mitosis's replicas where they pay."""
    used = np.flatnonzero(found.known.walks.sum(axis=0)).tolist()
    where, serving = f"numactl --cpunodebind={listed(used)}", steering(found)
    if len(used) == 1:
        return f"{where} --membind={listed(used)} -- {COMMAND}"
    if serving is None:
        return f"{where} --localalloc -- {COMMAND}"
    return f"{where} --pgtablerepl={listed(sorted({serving[node] for node in used}))} -- {COMMAND}"


def listed(nodes: list[int]) -> str:
    return ",".join(map(str, nodes))


def degrees(
    capture: CaptureLike = None,
    setup: Setup | None = None,
    *,
    prefetch_on: str = "first",
    repeat: float = 0,
    **options: Unpack[Keywords],
) -> DataFrame:
    """Cost of every degree of Hydra's prefetching and every sharing tier, by VMA; the capture needs a trace.

    prefetch_on  "first": prefetch with the first copy of a table page (the paper's 4.1), or "every" copy
    repeat       how often the steady part of the trace runs once more: copies are made once

    One row per VMA, tier and degree, with COLUMNS. Counts are of the run as traced and one further run. The
    last VMA, "process", is what belongs to no walked page. attrs: sentence, settings. Other arguments as in
    `replay`; of a VM, its guest's tables.
    """
    return frame(chosen(capture, setup_of(setup, options), prefetch_on, repeat))


def frame(found: Chosen) -> DataFrame:
    """The table of `degrees`."""
    from pandas import DataFrame

    table = DataFrame(rows(found)).astype({"degree": "Int64"})
    machine, placement = found.known.machine.name, found.known.placement
    source = found.known.provenance | {"machine": machine, "placement": placement}
    return described(
        table, found.known.findings, source, COLUMNS, sentence=sentence(found), settings=settings(found)
    )


class OfVma(NamedTuple):
    """A point's part in a VMA's costs: a row of the answer."""

    found: Chosen
    vma: int
    at: int

    @property
    def point(self) -> Point:
        return self.found.known.points[self.at]

    def of(self, counts: np.ndarray) -> int:
        return int(counts[self.vma])

    def cycles(self, kind: str) -> float:
        """Of a field of VmaCycles: of the run as traced, and of the steady part as often as it runs again."""
        once, again = (getattr(one, kind)[self.vma] for one in (self.point.traced, self.point.steady))
        return float(once + self.found.repeat * again)


COLUMNS = (
    Column("vma", "mapping", lambda r: r.found.known.names[r.vma], brief=1),
    Column("tier", "one: a single table, as captured; socket, node: lazy copies", lambda r: r.point.tier,
           brief=2),
    Column("degree", "of prefetching: 2^degree entries at once", lambda r: r.point.degree, brief=3),
    Column("walks", "page walks, as traced", lambda r: int(r.found.known.walks[r.vma].sum()), brief=4),
    Column("walk_cycles", "of the guest's page walks", lambda r: r.cycles("walks")),
    Column("management_cycles", "of faults, copies, tables, updates and shootdowns",
           lambda r: r.cycles("management")),
    Column("cycles", "exposed share of walk_cycles, and management_cycles",
           lambda r: float(r.found.cycles[r.at, r.vma]), brief=5),
    Column("bound_cycles", "of the VMA: no tier with any prefetching costs less",
           lambda r: float(r.found.bound[r.vma]), brief=6),
    Column("replica_faults", "faults that copy entries", lambda r: r.of(r.point.faults), brief=7),
    Column("entries_propagated", "entries copied", lambda r: r.of(r.point.propagated), brief=8),
    Column("never_used", "of these, entries that no walk reads", lambda r: r.of(r.found.never_used(r.point))),
    Column("tables_new", "table pages made", lambda r: r.of(r.point.tables)),
    Column("chosen", "whether it is the cheapest of the VMA", lambda r: bool(r.found.by_vma[r.vma] == r.at),
           brief=9),
    Column("sure", "whether both ends of the exposed share choose it", lambda r: bool(r.found.sure[r.vma]),
           brief=10),
    Column("pays_back_runs", "of the VMA: further runs after which copies cost less; infinite: never",
           lambda r: float(r.found.break_even[r.vma])),
)  # fmt: skip
BRIEF = brief(COLUMNS)  # for Markdown and LaTeX


def rows(found: Chosen) -> list[dict[str, Any]]:
    """{column: value} of COLUMNS: one row per VMA, tier and degree."""
    vmas, points = range(len(found.known.names)), range(len(found.known.points))
    every = (OfVma(found, vma, at) for vma in vmas for at in points)
    return [{one.key: one.of(row) for one in COLUMNS} for row in every]


def as_record(found: Chosen) -> dict[str, Any]:
    """For JSON: the sentence, the settings, and the rows, where None stands for an infinite number."""
    plain = [{key: None if value == np.inf else value for key, value in row.items()} for row in rows(found)]
    return {"sentence": sentence(found), "settings": settings(found), "vmas": plain}
