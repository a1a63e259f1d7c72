"""Counts of policies, of a trace that was replayed and in closed form without one, and what a reader must
know of them: what was counted, and what the capture cannot show."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.columns import (
    CACHED,
    CAREFUL,
    COLD,
    ELSEWHERE,
    GONE,
    NOTE,
    REFILLS,
    SAMPLED,
    SHORT,
    SILENT,
    UNREAD,
    Finding,
    noted,
)
from ..core.errors import RefusedError, UsageError
from ..core.interval import share_bounds
from ..core.machine import LINE_BYTES, share_of_cache
from ..core.snapshot import Node, Topology
from ..core.trace import GUEST_BIT, SLOT_BITS, blocks, lines_per_page
from ..cost.counts import AS_TRACED, DRAM, STEADY, TRACED, WARM, Counts, Series, instructions
from ..cost.price import Unknowns, of_larger, price
from ..cost.result import EVERY_NODE, Result
from ..kernels import CALLS, FAULT, PTE_COPY, PTE_FANOUT, Counters
from ..kernels.replay import PteState, counters
from ..policies import Plan
from ..policies.contract import RECORD
from ..policies.registry import check_nodes, own_code
from ..world.address_space import AddressSpace, known_pages
from ..world.mm_events import region_of_interest
from ..world.page_homes import moves_told
from ..world.scaling import more_tables
from ..world.scenario import Scenario
from ..world.traced_program import LEFT_OUT
from .footprint import Use, leaves_by_node, use_of, with_reads
from .leaf_classes import Classification, classify_heat, classify_pages
from .replay import PolicyRun, at_shares, label, missed, sampled_lines, start, system_calls
from .setup import ONCE_EACH, RESHAPED, Setup, alike, counted_by

# Nodes whose threads hardly walk: what they touched first is remote to nearly all walks.

FEW = 0.001  # share of the walks


def idle_nodes(classes: np.ndarray, cpu_node: np.ndarray) -> list[Finding]:
    """Nodes that have threads, but next to no walk in what is counted; none where every one walks.

    classes   int64[nodes, 4] as Counters; cpu_node: int16[cpus] nodes of the CPUs that have threads
    """
    walks = classes.sum(axis=1)
    nodes = np.unique(cpu_node).tolist()
    silent = [node for node in nodes if walks[node] < FEW * walks.sum()]
    return [noted(SILENT, nodes=", ".join(map(str, silent)), few=FEW)] if silent else []


def unread_copies(run: PolicyRun) -> list[Finding]:
    """Nodes with copies of tables that no walk reads."""
    parts = zip(run.before, run.counters, *filter(None, [run.first]), strict=True)
    total = Counters(*map(np.add.reduce, parts))
    guest, every = (reads.sum(axis=(0, 1, 3)) for reads in (total.reads[::GUEST_BIT], total.reads))
    unread = np.zeros(len(every), bool)
    for events, read in (total.events, guest), (total.host_events, every - guest):
        copied = events[:, PTE_COPY].sum(axis=(0, 2)) + events[:, PTE_FANOUT].sum(axis=(0, 1))
        unread |= (copied > 0) & (read == 0)
    if not unread.any() or not every.any():
        return []
    walk, nodes = (np.flatnonzero(at).tolist() for at in (total.classes.sum(axis=1), unread))
    sparing = run.plan.params.get("nodes") == "" and not run.plan.params.get("groups")
    way = f"; nodes={','.join(map(str, walk))} makes none there" if sparing else ""
    named = ", ".join(map(str, nodes))
    return [noted(UNREAD, CAREFUL, run.plan.name, count=len(nodes), nodes=named, way=way)]


def silent_points(points: Sequence[tuple[Mapping[str, Any], Result]], axes: Sequence[str]) -> list[str]:
    """On the silent nodes of a sweep's points, each once, after the point's place on the machine's axes."""
    lines = []
    for point, result in points:
        where = " ".join(f"{key}={point[key]}" for key in axes if key in point)
        if silent := result.finding(SILENT):
            lines.append(f"{where}: {silent.line}" if where else silent.line)
    return list(dict.fromkeys(lines))


# What an answer without a trace may claim: a bound, and no gain where the caches hold the leaf entries.


def cached(scenarios: Sequence[Scenario]) -> list[Finding]:
    """Finding: the least that an LLC may leave to page tables holds all leaf lines of processes together."""
    lines, llc = sum(scenario.leaf_lines for scenario in scenarios), scenarios[0].machine.llc
    if lines > llc.lines_at(llc.every_share[0]):
        return []
    return [noted(CACHED, size=-(-lines * LINE_BYTES // 1024) * 1024)]


UNSEEN = 0.05  # of further samples: more of them reach lines that none has
HALF, ONE = np.uint64(32), np.uint64(1)
MUCH = 0.1  # share of walks to memory that was gone, above which the answer is only partial, as of `check`
DRAM_MATTERS = 0.05  # share of the reads: less is of no importance


def short_region(first: np.ndarray, further: np.ndarray, scenario: Scenario) -> list[Finding]:
    """Warns if the region is so short that its page tables fit in the caches: the program may read more.

    first, further  reads of the two runs, [bits, nodes, nodes, from], at the machine's share of the LLC
    [] where the caches would hold the leaf entries of all that the program has mapped, too.
    """
    was, still = dram_share(first), dram_share(further)
    if was < DRAM_MATTERS or still > was / 2:
        return []
    if not scenario.space.inferred_tables and cached([scenario]):
        return []
    return [noted(SHORT, CAREFUL, first=was, further=still)]


def moved(series: Series) -> list[Finding]:
    """How much of the memory moved; of a capture that stands for a larger program, of the program's too."""
    pages = int(series.data_moved[-1]) if len(series.data_moved) else 0
    if not pages:
        return []
    line = "data-moved-of-larger" if series.scale > 1 else "data-moved"
    larger: dict[str, Any] = {"whole": pages * series.scale, "all": series.pages * series.scale}
    share = pages / max(series.pages, 1)
    return [noted("data-moved", line=line, pages=pages, mapped=series.pages, share=share, **larger)]


def dram_share(reads: np.ndarray) -> float:
    return float(reads[..., DRAM].sum() / max(reads.sum(), 1))


def gone(scenario: Scenario) -> list[Finding]:
    """Table pages that were gone at the snapshot, to be careful with where many walks go there."""
    tables, share = scenario.space.inferred_tables, scenario.unmapped_walk_share
    if not tables:
        return []
    much = share > MUCH
    line = "tables-gone-much" if much else "tables-gone-walked" if share else GONE
    return [noted(GONE, CAREFUL if much else NOTE, line=line, tables=tables, share=share)]


def of_runs(run: PolicyRun, scenario: Scenario, steady: Scenario, counted: Finding) -> list[Finding]:
    """Findings on the runs of a Scenario, the same under every policy.

    run      any of them; steady: Scenario of the further run, if any; counted: how instructions were
    """
    warm, series = run.first is not None, run.series
    space, history, facts = scenario.space, scenario.history, scenario.trace.facts
    region = region_of_interest(scenario.trace.events)
    found = [counted, *scenario.findings, *region.findings, *moves_told(scenario, steady.data_after)]
    found.append(noted("steady-state" if warm else COLD))
    if warm and region.begin is None and not scenario.steady_from:
        found += scenario.captured.filling
        first, further = (one.events[:, FAULT].sum() for one in (run.first or run.counters, run.counters))
        found += [noted(REFILLS)] if 0 < first <= 2 * further else []
    found += idle_nodes(run.counters.classes, scenario.placement.cpu_node)
    found += moved(series) if series is not None else []
    found += share_of_cache(scenario.machine)
    if (ended := facts.get("ended", "exit")) not in ("exit", "imported"):
        found.append(noted("cut", NOTE if ended == "signal" else CAREFUL, by=ended))
    if facts.get("sampled"):
        found.append(noted(SAMPLED, CAREFUL))
        found += of_samples(scenario) if facts.get("walks") else []
    if len(space.snapshot.topology) == 1 and scenario.nodes > 1:
        found.append(noted("one-node"))
    found += gone(scenario)
    if pages := history.mapped_at_start:
        found.append(noted("premapped", pages=pages))
    found += scenario.first_touches_unseen
    if pages := space.unplaced:
        found.append(noted("unplaced", pages=pages))
    return found


def of_samples(scenario: Scenario) -> list[Finding]:
    """Share of walks that read their leaf entry from DRAM, of a trace of sampled walks in closed form
    (replay.at_shares); [] where caches hold all leaf lines."""
    held, stream = scenario.machine.llc.lines, scenario.stream
    if not len(stream):
        return []
    each = sampled_lines(scenario)
    share = sum(missed(one, held) * one.walks for one in each.values()) / len(stream)
    return [noted("reads-by-samples", samples=len(stream), share=share)] if share else []


def must_be_enough(scenario: Scenario) -> None:
    """UsageError where samples of walks reach fewer leaf lines than the caches hold, and others would reach
    more: of n that reach a line once among N, n / N of further walks reach a line that none has (Good, "The
    population frequencies of species", Biometrika 40, 1953)."""
    held = scenario.machine.llc.lines
    for one in sampled_lines(scenario).values():
        further = np.count_nonzero(one.counts == 1) / max(one.counts.sum(), 1)
        if len(one.counts) <= held and further > UNSEEN:
            raise UsageError(
                f"trace: {one.walks:,} samples of walks from a node saw {len(one.counts):,} lines of leaf "
                f"entries, {100 * further:.0f} % of further ones would see others, and its caches hold "
                f"{held:,}: too few samples to tell reads from DRAM; sample longer or more often, or take "
                "`--tracer heat`"
            )


LONGER = 2 / 3  # of what the first run missed beyond the further one, a region longer than a short one misses


def counted(
    runs: Sequence[PolicyRun],
    scenario: Scenario,
    mapped: PteState,
    steady: Scenario,
    steady_mapped: PteState,
    setup: Setup,
) -> list[Counts]:
    """Counts of each run of a Scenario, when all have ended.

    mapped         pages mapped at the end of the first run
    steady, steady_mapped  Scenario of the further run, what it found mapped; where cold, of the first
    """
    warm = runs[0].first is not None
    passes = [(scenario, mapped, 0), (steady, steady_mapped, scenario.steady_from)][: 1 + warm]
    executed = [instructions(scenario.trace, setup.costs, chunk) for *_, chunk in passes]
    findings = of_runs(runs[0], scenario, steady, executed[0][1])
    beyond, adjacent = _walked(steady)
    sampled = bool(scenario.trace.sampled_walks) and bool((scenario.space.regions.tlb_level == 1).all())
    how = scenario.machine.llc, sampled_lines(scenario) if sampled else {}
    common: dict[str, Any] = {
        "run": WARM if warm else AS_TRACED,
        "calls": np.stack([system_calls(*of) for of in passes]),
        "instructions": np.array([number for number, _ in executed]),
        "hits": steady.hits,
        "cpus": at_work(scenario, passes[-1][2]),
        "more_tables": more_tables(scenario.space, scenario.growth),
        "timed": _timed(scenario),
        "beyond": beyond,
        "adjacent": adjacent,
    }
    if adjacent[1] > 0.5 and not runs[0].plan.reshaping:  # of the run asked about, once
        findings.append(noted("in-order", CAREFUL, share=adjacent[1]))
    if setup.move_threads:
        findings.append(noted("threads-move", CAREFUL))
    every = []
    for run in runs:
        each = [run.counters] if run.first is None else [run.first, run.counters]
        reads = np.stack([at_shares(one.reads, *how) for one in each])
        short = short_region(reads[TRACED, 0], reads[STEADY, 0], scenario) if warm else []
        counts = Counts(
            **_whose(run, scenario, mapped),
            **common,
            reads=reads,
            classes=np.stack([one.classes for one in each]),
            events=np.stack([[one.events, one.host_events] for one in each]),
            data=None if run.data is None else at_shares(run.data, *how),
            longer=LONGER if short else 0.0,
            series=run.series,
            findings=(*findings, *short, *unread_copies(run), *run.plan.findings),
        )
        every.append(counts)
    return every


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


def at_work(scenario: Scenario, first: int) -> float:
    """CPUs at work at a time from chunk `first` on: what all execute over what the busiest does, which ends
    last, and is a thread that moves between CPUs, too; one that waits is none."""
    chunks, cpu = scenario.trace.chunks[first:], scenario.placement.chunk_cpu[first:]
    work = chunks["instructions" if chunks["instructions"].any() else "accesses"]
    busiest = max(np.bincount(one, work).max(initial=1) for one in (cpu, chunks["thread"]))
    return max(float(work.sum() / busiest), 1.0)


def _walked(scenario: Scenario) -> tuple[tuple[float, float], tuple[float, float]]:
    """Counts.beyond and adjacent. Memory and caches are as small as the capture; of a page they hold the
    lines it uses. Eight pages have their entries in one line, in a guest those of its host, too.

    Every other walk tells which pages are walked most, the rest how much goes to others: few walks a page
    would else look like a preference. Of pages walked as often as each other, any may be held.
    """
    machine, cpus = scenario.machine, np.bincount(scenario.placement.cpu_node)
    walks = np.zeros(len(scenario.space.regions.va) << SLOT_BITS, np.uint64)  # chosen << 32 | judged
    line = after = 0
    for block in blocks(scenario.stream.page):
        line += int(np.count_nonzero(block[1:] >> 3 == block[:-1] >> 3))
        after += int(np.count_nonzero(block[1:] == block[:-1] + 1))
        for half, one in enumerate((ONE << HALF, ONE)):
            np.add.at(walks, block[half::2].astype(np.intp), one)  # of other types it takes 20 times as long
    walks.sort()
    judged, shares, page = walks.view(np.uint32)[::2], [], LINE_BYTES * lines_per_page(scenario.trace)
    for held in (machine.l2.bytes * cpus.sum(), machine.l2.bytes * cpus.max(initial=0) + machine.llc.bytes):
        less = past = left = max(len(walks) - int(held / page), 0)
        if left < len(walks):
            bound = walks[left] >> HALF
            less, past = np.searchsorted(walks, [bound << HALF, bound + ONE << HALF])
        others = judged[:less].sum() + judged[less:past].sum() * (left - less) / max(past - less, 1)
        shares.append(float(others / max(judged.sum(), 1)))
    every = max(len(scenario.stream.page), 1)
    return (shares[0], shares[1]), (line / every, after / every)


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
    """[Result] for Plans on untouched Scenarios, as whatif.replay_scenario: no TLB, no caches, no events.

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
    larger, asked = scenarios[0].times_captured, scenarios[0].growth.factor
    return of_larger(rows, every, machine, unknowns.contended, larger, asked)


def _findings(scenarios: Sequence[Scenario], use: Use | Finding | None) -> list[Finding]:
    """What holds under each policy: by what pages count, and what that says of a machine."""
    first, snapshots = scenarios[0], [scenario.snapshot for scenario in scenarios]
    found = [counted_by(snapshots, first.left_out)]
    machine, captured = first.machine, len(first.snapshot.topology)
    nodes = len(machine.cpu_nodes)  # from which each walk is assumed to be made
    at_most = noted("bound", line="bound-of-nodes" if nodes > 1 else "bound", nodes=nodes)
    found += use.findings if isinstance(use, Use) else [at_most]
    found += [use] if isinstance(use, Finding) else []
    found += cached(scenarios)
    if captured != machine.nodes:
        about: dict[str, Any] = {"model": machine.name, "nodes": machine.nodes, "captured": captured}
        found.append(noted(ELSEWHERE, CAREFUL, readers=nodes, **about))
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
        count, without_class, remote = _count(scenario, servers[-1])
        run.counters = count._replace(pages=run.counters.pages, host_pages=run.counters.host_pages)
        each.append(
            Counts(
                **_whose(run, scenario, mapped),
                run=None,
                more_tables=more_tables(scenario.space, scenario.growth),
                reads=count.reads[None, None],
                classes=count.classes[None],
                events=np.zeros((1, 2, *count.events.shape), np.int64),
                calls=np.zeros((1, 4, len(CALLS), scenario.nodes), np.int64),
                instructions=np.zeros(1),
                hits=scenario.hits,
            )
        )
        unresolved += Counter(without_class)
        remotes += [] if remote is None else [remote]
        own |= dict.fromkeys(scenario.findings)
    first, *others = each
    left_out = [noted("pages-left-out", pages=n, reason=why) for why, n in unresolved.items() if n]
    findings = (*said, *own, *left_out, *_sampling(remotes, plan.name), *plan.findings)
    if others:
        arrays = ("reads", "classes", "before")
        sums = {name: sum(getattr(one, name) for one in each) for name in arrays}
        pages = {name: sum(one.pages[name] for one in each) for name in first.pages}
        more = np.average([one.more_tables for one in each], 0, [one.pages["guest_single"] for one in each])
        sums["more_tables"] = tuple(more.tolist())
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
    servers, sides = [], (plan.guest, plan.host)
    for (part, _), state, ids in zip(sides, run.states, scenario.space.sides, strict=True):
        with own_code(plan):
            served = part.initial_servers(state, ids) if part.initial_servers else None
        if served is None:
            missing = f"needs the order of accesses, so it needs a trace: {RECORD}"
            raise RefusedError(LEFT_OUT if scenario.left_out else missing, plan.name)
        check_nodes(plan.name, "initial_servers returned", served, scenario.machine)
        servers.append(served)
    return np.concatenate(servers)


def _count(scenario: Scenario, server: np.ndarray) -> tuple[Counters, dict[str, int], np.ndarray | None]:
    """(Counters, pages without a class by reason, _remote's walks of samples), by servers and level."""
    space, nodes, readers = scenario.space, scenario.nodes, scenario.machine.cpu_nodes
    kinds, of_table = _distinct(np.column_stack([server, np.minimum(space.tables.level, 3).astype(np.int16)]))
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
    at last with all; NaN where nothing is left that would tell, None where nothing was sampled.

    local  bool[kinds of servers, nodes]: whether a table of a kind is local to each node
    """
    if seen.left_out is None or not seen.counts.any():
        return None
    local = local[:, readers]
    both = (local[:, None] if seen.native else local[:, None] & local).mean(axis=-1)
    parts = np.stack([*seen.left_out, seen.counts])[:, 0, 0, : len(local), : both.shape[1]]
    found = np.column_stack([(parts * both).sum(axis=(1, 2)), parts.sum(axis=(1, 2))])
    if len(np.unique(both[parts[-1] > 0])) == 1:  # the same wherever walks go
        return np.broadcast_to(found[-1], found.shape)
    return np.where(found[:, 1:] > 0, found, np.nan)


def _sampling(each: Sequence[np.ndarray], policy: str) -> list[Finding]:
    """Between which bounds the share of walks with a remote leaf entry lies, by the samples; [] none has."""
    remote = 1 - np.divide(*np.sum(each, axis=0).T) if each else np.zeros(1)
    if not remote.any():
        return []
    low, high = share_bounds(remote[-1], remote[:-1])
    bounds = {"low": float(low), "high": float(high)}
    ends = dict.fromkeys(f"{100 * end:.{1 if high < 0.1 else 0}f}" for end in (low, high))
    how = "95 %, by the samples" if low < high else "as all nodes walk alike"
    text = f"{'-'.join(ends)} % of walks read a remote leaf entry ({how})"
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
    count.reads[bit * level, reader, servers[reader], DRAM] += n
    return int(servers[reader] != reader)
