"""Counts of policies: of a trace that was replayed, and in closed form without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.columns import NO_RATE, Finding
from ..core.errors import RefusedError
from ..core.interval import share_bounds
from ..core.snapshot import Node, Topology
from ..cost.counts import AS_TRACED, STEADY, TRACED, WARM, Counts
from ..cost.cycles import instructions
from ..cost.price import Unknowns, price
from ..cost.result import EVERY_NODE, Result
from ..kernels import CALLS, Counters
from ..kernels.replay import PteState, counters
from ..policies.contract import RECORD
from ..policies.registry import check_nodes, own_code
from ..world.address_space import known_pages
from ..world.scenario import Scenario
from ..world.traced_program import LEFT_OUT
from .findings import bound, cached, of_run, other_machine, short_region
from .footprint import Unknown, Use, leaves_by_node, use_of, with_reads
from .leaf_classes import classify_heat, classify_pages
from .replay import PolicyRun, at_shares, label, sampled_lines, start, system_calls
from .setup import ONCE_EACH, RESHAPED, alike, counted_by

if TYPE_CHECKING:
    from ..policies import Plan
    from ..world.address_space import AddressSpace
    from .leaf_classes import Classification
    from .setup import Setup


LONGER = 2 / 3  # of what the first run missed beyond the further one, a region longer than a short one misses


def counted(
    run: PolicyRun,
    scenario: Scenario,
    mapped: PteState,
    steady: Scenario,
    steady_mapped: PteState,
    setup: Setup,
) -> Counts:
    """Counts of a run that has ended.

    mapped         pages mapped at the end of the first run
    steady, steady_mapped  Scenario of the further run, what it found mapped; where cold, of the first
    """
    warm = run.first is not None
    runs = [run.first, run.counters] if run.first is not None else [run.counters]
    passes = [(scenario, mapped, 0), (steady, steady_mapped, scenario.steady_from)][: len(runs)]
    sampled = bool(scenario.trace.sampled_walks) and bool((scenario.space.regions.tlb_level == 1).all())
    how = scenario.machine.llc, sampled_lines(scenario) if sampled else {}
    reads = np.stack([at_shares(one.reads, *how) for one in runs])
    short = short_region(reads[TRACED, 0], reads[STEADY, 0], scenario) if warm else []
    executed = [instructions(scenario.trace, setup.costs, chunk) for *_, chunk in passes]
    return Counts(
        **_whose(run, scenario, mapped),
        run=WARM if warm else AS_TRACED,
        reads=reads,
        classes=np.stack([one.classes for one in runs]),
        events=np.stack([[one.events, one.host_events] for one in runs]),
        calls=np.stack([system_calls(*of) for of in passes]),
        instructions=np.array([number for number, _ in executed]),
        hits=steady.hits,
        cpus=len(np.unique(scenario.placement.chunk_cpu[passes[-1][2] :])),
        data=None if run.data is None else at_shares(run.data, *how),
        beyond=0.0 if run.data is None else _beyond(scenario),
        longer=LONGER if short else 0.0,
        timed=_timed(scenario),
        findings=(*of_run(run, scenario, steady, executed[0][1]), *short, *run.plan.findings),
    )


def _whose(run: PolicyRun, scenario: Scenario, mapped: PteState) -> dict[str, Any]:
    """Fields of Counts that do not depend on walks; mapped: pages at the end of the first run."""
    space, pages = scenario.space, (run.first or run.counters).pages
    again = mapped.exists[space.guest_tables + space.host_tables :]  # freed by events, yet in the snapshot
    return {
        "policy": run.plan.name,
        "params": run.plan.params,
        "before": np.stack([run.before.events, run.before.host_events]),
        "pages": {
            "guest": int(pages[0]),
            "guest_peak": int(pages[1]),
            "guest_single": int(np.count_nonzero(space.program_tables)) + int(np.count_nonzero(again)),
            "host": int(run.counters.host_pages[0]),
            "host_single": space.host_tables,
            "aside": scenario.unwalked_table_pages,
        },
        "copied": scenario.data_copied,
        "zeroed": scenario.data_zeroed,
        "placement": scenario.placement.how or EVERY_NODE,
        "facts": run.facts(scenario),
    }


def _beyond(scenario: Scenario) -> float:
    """Counts.beyond; memory and caches as small as the capture."""
    cpus = np.bincount(scenario.placement.cpu_node)
    held = scenario.machine.llc.bytes + scenario.machine.l2.bytes * int(cpus.max(initial=0))
    return 1 - held / max(scenario.extent[0], 1)


def _timed(scenario: Scenario) -> tuple[float, bool] | None:
    """Counts.timed; None where instructions are not counted, or the answer is of a larger run."""
    snapshot = scenario.captured.snapshot
    native, executed = snapshot.facts.get("native"), int(scenario.trace.chunks["instructions"].sum())
    if not native or not executed or scenario.growth.factor > 1 or snapshot.scale > 1:
        return None
    cycles = native["user_seconds"] * native["ghz"] * 1e9
    return cycles / native["instructions"], len(snapshot.topology) == 1


# Without a trace the leaf entry of every mapped page is read once from every node.


def static_results(
    scenarios: Sequence[Scenario],
    plans: Sequence[Plan],
    setup: Setup,
    provenance: dict[str, str],
    refused: dict[str, str] | None = None,
) -> list[Result]:
    """[Result] for Plans on untouched Scenarios, as replay.replay_scenario: no TLB, no caches, no events.

    scenarios  of a process, and of those captured with it whose counts are added to its own

    Each leaf entry of the guest is one walk from each node, or as many as its Heat estimates: one DRAM read
    of it, and one of the host's leaf entry for its first frame; pages that the host does not map are left
    out, a note has their number. RefusedError for policies that depend on threads' accesses, unless
    `refused` takes names and reasons.
    """
    use, machine = use_of(scenarios, setup), scenarios[0].machine
    findings = _findings(scenarios, use)
    every: list[Counts] = []
    for plan in plans:
        try:
            counts, served_by, same = _static_counts(plan, scenarios, findings)
        except RefusedError as error:
            if refused is None or plan is plans[0]:
                raise
            refused[label(plan, plans)] = error.why
            continue
        if isinstance(use, Use) and same:  # of pages of other sizes there is a bound only
            reads = with_reads(counts.reads, use, served_by, scenarios)
            counts = replace(counts, reads=reads, leaves=leaves_by_node(use.tables, served_by, machine))
        every.append(counts)
    unknowns = Unknowns((setup.contended,), use.law if isinstance(use, Use) else None)
    rows = price(every, machine, setup.costs, unknowns, provenance)
    times, larger = scenarios[0].times_captured, scenarios[0].growth.factor
    return [row.of_larger(times, larger) for row in rows]


def _findings(scenarios: Sequence[Scenario], use: Use | Unknown | None) -> list[Finding]:
    """What holds under each policy: by what pages count, and what that says of a machine."""
    first, snapshots = scenarios[0], [scenario.snapshot for scenario in scenarios]
    found = [counted_by(snapshots, first.left_out)]
    found += use.findings if isinstance(use, Use) else [bound(len(first.machine.cpu_nodes))]
    if isinstance(use, Unknown):
        found.append(Finding(NO_RATE, use.why))
    found += [*cached(scenarios), *other_machine(first.snapshot, first.machine)]
    if len(scenarios) > 1:
        found.append(alike(len(scenarios), first.snapshot.heat is not None))
    return found


def _static_counts(
    plan: Plan, scenarios: Sequence[Scenario], said: Sequence[Finding]
) -> tuple[Counts, list[np.ndarray], bool]:
    """(Counts of all processes together, of each `served`, whether the plan leaves its pages as they are)."""
    each, servers, remotes = list[Counts](), list[np.ndarray](), list[np.ndarray]()
    unresolved, own = Counter[str](), dict[Finding, None]()
    shaped = [_shaped(plan, scenario) for scenario in scenarios]
    if len(shaped) > 1 and any(scenario.data_copied for scenario in shaped):
        raise RefusedError(ONCE_EACH, plan.name)
    for scenario in shaped:
        run, mapped = start(plan, scenario), scenario.history.mapped()
        servers.append(served(plan, run, scenario))
        count, left_out, remote = _count(scenario, servers[-1])
        run.counters = count._replace(pages=run.counters.pages, host_pages=run.counters.host_pages)
        each.append(
            Counts(
                **_whose(run, scenario, mapped),
                run=None,
                reads=count.reads[None, None],
                classes=count.classes[None],
                events=np.zeros((1, 2, *count.events.shape), np.int64),
                calls=np.zeros((1, 4, len(CALLS), scenario.nodes), np.int64),
                instructions=np.zeros(1),
                hits=scenario.hits,
            )
        )
        unresolved += Counter(left_out)
        remotes += [] if remote is None else [remote]
        own |= dict.fromkeys(scenario.findings)
    first, *others = each
    findings = (*said, *own, *_left_out(unresolved), *_sampling(remotes, plan.name), *plan.findings)
    if others:
        arrays = ("reads", "classes", "before")
        sums = {name: sum(getattr(one, name) for one in each) for name in arrays}
        pages = {name: sum(one.pages[name] for one in each) for name in first.pages}
        first = replace(first, **sums, pages=pages, copied=sum(one.copied for one in each), facts={})
    same = all(scenario is known for scenario, known in zip(shaped, scenarios, strict=True))
    return replace(first, findings=findings), servers, same


def _shaped(plan: Plan, scenario: Scenario) -> Scenario:
    captured = scenario.snapshot.guest
    with own_code(plan):
        scenario = plan.reshape(scenario)
    heat, guest = scenario.snapshot.heat, scenario.snapshot.guest
    if heat and guest is not captured and known_pages(guest, heat) < known_pages(captured, heat):
        raise RefusedError(RESHAPED, plan.name)
    return scenario


def served(plan: Plan, run: PolicyRun, scenario: Scenario) -> np.ndarray:
    """int16[T, nodes]: node that serves each table to each reader."""
    space = scenario.space
    split, servers = space.guest_tables, []
    for (part, _), state, ids in zip(
        (plan.guest, plan.host),
        run.states,
        (slice(0, split), slice(split, split + space.host_tables)),
        strict=True,
    ):
        with own_code(plan):
            served = part.initial_servers(state, ids) if part.initial_servers else None
        if served is None:
            missing = f"needs the order of accesses, so it needs a trace: {RECORD}"
            raise RefusedError(LEFT_OUT if scenario.left_out else missing, plan.name)
        check_nodes(plan.name, "initial_servers returned", served, scenario.machine)
        servers.append(served)
    return np.concatenate(servers)


def _count(scenario: Scenario, server: np.ndarray) -> tuple[Counters, dict[str, int], np.ndarray | None]:
    """(Counters, pages without a class by reason, walks of samples as _remote returns them): a classification
    by servers and level of the tables."""
    space, nodes, readers = scenario.space, scenario.nodes, scenario.machine.cpu_nodes
    level = np.minimum(space.tables.level, 3).astype(np.int16)
    kinds, of_table = _distinct(np.column_stack([server, level]))
    placed = _with_nodes(space, of_table, len(kinds))
    seen = classify_heat(placed) if space.snapshot.heat else classify_pages(placed)
    pages = seen.counts[0, 0]
    count = counters(nodes)
    for guest, host in np.argwhere(pages).tolist():
        n = int(pages[guest, host])
        for reader in readers:
            far = _read(count, 8, kinds[guest], reader, n)
            far_host = 0 if space.native else _read(count, 1, kinds[host], reader, n)
            count.classes[reader, 2 * far + far_host] += n
    return count, seen.unresolved, _remote(seen, kinds[:, :nodes] == np.arange(nodes), list(readers))


def _remote(seen: Classification, local: np.ndarray, readers: list[int]) -> np.ndarray | None:
    """float64[parts + 1, 2]: walks with local leaf entries, and all, without each part of the time's samples,
    at last with all; NaN where nothing is left, None where nothing was sampled.

    local  bool[kinds of servers, nodes]: whether a table of a kind is local to each node
    """
    if seen.left_out is None or not seen.counts.any():
        return None
    local = local[:, readers]
    both = (local[:, None] if seen.native else local[:, None] & local).mean(axis=-1)
    found = [
        (float((known * both).sum()), total) if (total := int(known.sum())) else (np.nan, np.nan)
        for part in [*seen.left_out[:, 0, 0], seen.counts[0, 0]]
        for known in [part[: len(local), : both.shape[1]]]
    ]
    return np.array(found)


def _sampling(each: Sequence[np.ndarray | None], policy: str) -> list[Finding]:
    """Between which bounds the share of all walks with a remote leaf entry lies, by the samples."""
    walks = [one for one in each if one is not None]
    if not walks:
        return []
    local, total = np.sum(walks, axis=0).T
    remote = 1 - local / total
    low, high = share_bounds(remote[-1], remote[:-1])
    bounds = {"low": float(low), "high": float(high)}
    ends = dict.fromkeys(f"{100 * end:.{1 if high < 0.1 else 0}f}" for end in (low, high))
    text = f"{'-'.join(ends)} % of walks read a remote leaf entry (95 %, by the samples)"
    return [Finding("remote-by-samples", text, policy=policy, numbers=bounds)]


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(distinct rows, index into them of each row); column by column, as numbers sort faster than rows."""
    of_row = np.zeros(len(rows), np.int64)
    for column in rows.T:
        span = int(column.max(initial=0)) + 2
        _, first, of_row = np.unique(of_row * span + column + 1, return_index=True, return_inverse=True)
    return rows[first], of_row


def _with_nodes(space: AddressSpace, of_table: np.ndarray, nodes: int) -> AddressSpace:
    """The AddressSpace with tables on other nodes, `nodes` in number."""
    nowhere = np.zeros((0, 2), np.int64)
    topology = Topology(tuple(Node(node, (), nowhere) for node in range(nodes)))
    tables = space.tables._replace(node=of_table)
    return replace(space, snapshot=replace(space.snapshot, topology=topology), tables=tables)


def _read(count: Counters, bit: int, kind: np.ndarray, reader: int, n: int) -> int:
    """Count n DRAM reads of leaf entries of tables of a (servers, level); 1 if they are remote, else 0."""
    *servers, level = kind.tolist()
    count.reads[bit * level, reader, servers[reader], -1] += n
    return int(servers[reader] != reader)


def _left_out(unresolved: Mapping[str, int]) -> list[Finding]:
    return [
        Finding("pages-left-out", f"{count} mapped pages left out: {reason}", numbers={"pages": count})
        for reason, count in unresolved.items()
        if count
    ]
