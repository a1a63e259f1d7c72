"""FinishedRun runs priced: the steady state of a region, and what happens once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.columns import NO_RATE, Finding
from ..core.errors import RefusedError, UsageError
from ..core.interval import share_bounds
from ..core.snapshot import Node, Topology
from ..cost import price as cost
from ..cost.price import Away, Native, break_even, lock_held
from ..cost.result import EVERY_NODE, OneTimeCost, Result, SystemCalls
from ..cost.throughput import rated
from ..kernels import Counters
from ..kernels.replay import counters
from ..policies.contract import RECORD
from ..policies.registry import check_nodes, own_code
from ..world.address_space import known_pages
from ..world.scaling import of_one_size
from ..world.scenario import Scenario
from ..world.traced_program import LEFT_OUT
from .findings import bound, cached, of_run, other_machine, short_region
from .footprint import Unknown, Use, captured_at, latencies, paid_back, timed, use_of, with_reads
from .leaf_classes import classify_heat, classify_pages
from .replay import FinishedRun, PolicyRun, label, start, system_calls
from .setup import ONCE_EACH, RESHAPED, alike, counted_by

if TYPE_CHECKING:
    from ..cost.result import Price
    from ..policies import Plan
    from ..world.address_space import AddressSpace
    from .leaf_classes import Classification
    from .setup import Setup


LONGER = 2 / 3  # of what the first run missed beyond the further one, a region longer than a short one misses
UNLIKE = 2.0  # walks that take longer or shorter by that are others: what caches and walkers are not known by


def priced(done: Sequence[FinishedRun], setup: Setup, provenance: dict[str, str]) -> list[Result]:
    """[Result] of runs that have ended; the others are compared with the first.

    Other shares of the LLC widen a speed-up's interval.
    """
    base = done[0]
    short = _short(base, *base.shares[0])
    _must_be_alike(base, bool(short), setup)
    walks = max(float(base.counted.classes.sum()), 1.0)  # the least wait for data is what these allow
    costs = cost.with_data_in_dram(setup.costs, min(_data_in_dram(base) / walks, 1.0))
    setup = replace(setup, costs=costs, native=native_time(base, setup))

    def of_all(how: Setup) -> list[Price]:
        alone = _price(base, short, None, how)
        away = _away(base, short, how)
        return [_price(one, short, alone, how, away if one is base else None) for one in done]

    prices = of_all(setup)
    loaded = of_all(replace(setup, contended=True)) if _may_be_loaded(base, setup) else prices
    middle = len(base.shares) if short else 0  # of Counted: as in a longer region
    results, larger = [], base.scenario.growth
    doubts = (
        of_one_size(base.scenario.stream, base.scenario.space.regions.va, setup.machine.tlb)
        if larger.factor > 1 and larger.alone
        else []
    )
    for one, price, busy in zip(done, prices, loaded, strict=True):
        whole, run = price.covering(middle).reaching(busy.covering(middle)), one.run
        once = _once(one, price.of(middle), price.of(-1) if one.warm else whole, prices[0], middle, setup)
        if one is base:
            once = replace(once, break_even=None)
        series = run.series and rated(run.series, one.scenario.machine, setup.costs, setup.contended)
        region = _short(one, *one.shares[0])
        said = _findings(one, whole, region, setup)
        data = one.data if one is base else None
        result = _result([one], whole, once, base.run.plan.name, said, provenance, series=series, data=data)
        results.append(result.of_larger(one.scenario.times_captured, larger.factor, larger.alone, doubts))
    return results


def _price(
    done: FinishedRun,
    short: Sequence[Finding],
    baseline: Price | None,
    setup: Setup,
    away: Away | None = None,
) -> Price:
    """Price of all runs of a plan."""
    counted = _counted(done, short, setup)
    return cost.price(
        counted.counters,
        done.scenario.machine,
        setup.costs,
        baseline,
        counted.instructions,
        setup.contended,
        counted.made,
        setup.calibration,
        counted.collapsed_ns,
        setup.native,
        away,
        _may_be_loaded(done, setup) or (setup.contended and done.scenario.growth.factor > 1),
    )


def _may_be_loaded(base: FinishedRun, setup: Setup) -> bool:
    """Whether intervals reach to loaded latencies: of a run larger than its trace, where they are known."""
    known = base.scenario.growth.factor > 1 and base.scenario.machine.latency.contended is not None
    return known and not (setup.contended or setup.calibration)


def _away(base: FinishedRun, short: Sequence[Finding], setup: Setup) -> Away | None:
    """What data on other nodes cost, for each run of Counted; None where they were not counted."""
    counts, scenario, machine = base.data, base.scenario, base.scenario.machine
    cpus = np.bincount(scenario.placement.cpu_node)
    held = machine.llc.bytes + machine.l2.bytes * int(cpus.max(initial=0))
    reached = scenario.extent[0]  # of a smaller memory, as the machine's caches are
    if counts is None or (reached > held and not counts.any()):
        return None  # data are counted at walks: without any, only the caches can tell that none wait
    latency = machine.latency_cycles(setup.contended)
    own = latency.diagonal()
    every = np.stack([base.data_at(share) for share, *_ in base.shares])
    if every[..., 1].any(axis=(1, 2)).all():
        every = every[..., 1:]
    number = np.maximum(every.sum(axis=(1, 2, 3)), 1)
    further = ((latency - own[:, None])[..., None] * every).sum(axis=(1, 2, 3)) / number
    further = further if reached > held else np.zeros_like(further)
    runs = [*further, *([further[0], *further] if short else []), further[0]]
    beyond = max(
        1 - held / max(reached, 1), _data_in_dram(base) / max(float(base.counted.classes.sum()), 1.0)
    )
    return Away(np.array(runs), beyond, 1 - float(own.mean() / latency.max()))


def native_time(base: FinishedRun, setup: Setup) -> Native | None:
    """What the captured program took outside the tracer; None where it was not timed, instructions are not
    counted, or the answer is of a larger run.

    Walks of the timed run went to tables of its own machine: all local where that has one node.
    """
    scenario, snapshot = base.scenario, base.scenario.captured.snapshot
    timed, executed = snapshot.facts.get("native"), int(scenario.trace.chunks["instructions"].sum())
    if not timed or not executed or scenario.growth.factor > 1 or snapshot.scale > 1:
        return None
    where = base.first.reads, scenario.machine
    one_node = len(snapshot.topology) == 1
    walks = cost.local_walk_cycles(*where) if one_node else cost.walk_cycles(*where, setup.contended)
    own = float(sum(walks)) / executed * timed["instructions"]
    return Native.of(timed["user_seconds"], timed["ghz"], timed["instructions"], own)


class Counted(NamedTuple):
    """What is priced of a plan, along a leading axis of runs.

    First the run as it is counted, at each share of the LLC; where the region is short, as in a longer one,
    and at each share as if it missed as the first run did; at last as traced.
    """

    counters: Counters
    made: SystemCalls
    instructions: np.ndarray
    collapsed_ns: np.ndarray


def _counted(done: FinishedRun, short: Sequence[Finding], setup: Setup) -> Counted:
    """Where the run is not warm, it is counted as traced."""
    before, scenario, warm, shares = done.run.before, done.scenario, done.warm, done.shares

    def traced(first: Counters) -> Counters:
        return first._replace(
            events=first.events + before.events, host_events=first.host_events + before.host_events
        )

    counted = [further if warm else traced(first) for _, further, first in shares]
    if short:
        counted.append(_with_missing(*shares[0][1:], LONGER))
        counted += [_with_missing(further, first, 1.0) for _, further, first in shares]
    region = len(counted) if warm else 0
    first = system_calls(scenario, done.mapped)
    further = system_calls(done.steady, done.steady_mapped, done.chunk) if warm else first
    part, whole = (cost.instructions(scenario.trace, setup.costs, chunk)[0] for chunk in (done.chunk, 0))
    more = len(counted) - region
    once = collapse_ns(scenario, setup)
    return Counted(
        Counters(*map(np.stack, zip(*counted, traced(done.first), strict=True))),
        SystemCalls(*map(np.stack, zip(*[further] * len(counted), first, strict=True))),
        np.array([*[part] * region, *[whole] * more, whole]),
        np.array([*[0.0 if warm else once] * len(counted), once]),
    )


def _must_be_alike(base: FinishedRun, short: bool, setup: Setup) -> None:
    """UsageError where a calibrated run counted walks that the replayed baseline's cannot be, at any share of
    the LLC."""
    calibration = setup.calibration
    if calibration is None or not calibration.local.walks or not calibration.local.walk:
        return
    counted = calibration.local.walk / calibration.local.walks
    known = [
        cost.cycles_per_walk(count, base.scenario.machine, calibration, setup.contended)
        for _, further, first in base.shares
        for count in (further, *([first] if short else []))
    ]
    least, most = min(one.low for one in known), max(one.high for one in known)
    if least / UNLIKE <= counted <= most * UNLIKE or not base.counted.classes.any():
        return
    raise UsageError(
        f"calibration {calibration.name or '(unnamed)'}: {counted:.0f} cycles per walk counted, "
        f"{known[0].middle:.0f} ({least:.0f}-{most:.0f}) in the trace: not the same program at the same "
        "size; record it at the counted size, count a run of the traced size, or leave --calibration out"
    )


def _data_in_dram(done: FinishedRun) -> int:
    """Walks whose data are in DRAM for sure, at any share of the LLC."""
    return min(cost.walks_with_data_in_dram(further) for _, further, _ in done.shares)


def _short(done: FinishedRun, share: float, further: Counters, first: Counters) -> list[Finding]:
    """findings.short_region at a share of the LLC; of the machine's own, at the least that it may be."""
    own = share == done.scenario.machine.llc.share
    return (
        short_region(first.reads, further.reads, done.scenario, None if own else share) if done.warm else []
    )


def _with_missing(further: Counters, first: Counters, part: float) -> Counters:
    """Counts of the further run with a part of the reads from DRAM that the first had beyond it; their tables
    are where the further run had them."""
    share = _dram_by_reader(further.reads)
    share = share + part * np.maximum(_dram_by_reader(first.reads) - share, 0.0)
    reads = further.reads.sum(axis=-1)
    dram = reads * share[..., None]
    return further._replace(reads=np.stack([reads - dram, dram], axis=-1))


def _dram_by_reader(reads: np.ndarray) -> np.ndarray:
    """float64[bits, nodes]: share of a node's reads of an entry that come from DRAM."""
    share: np.ndarray = reads[..., 1].sum(axis=2) / np.maximum(reads.sum(axis=(2, 3)), 1)
    return share


def _result(
    each: Sequence[FinishedRun],
    price: Price,
    once: OneTimeCost,
    baseline: str,
    findings: Iterable[Finding],
    provenance: dict[str, str],
    **more: Any,
) -> Result:
    """Result of a Plan; each: without a trace, of all processes, whose counts are added."""
    run, scenario = each[0].run, each[0].scenario
    count = _added([done.counted for done in each])
    return Result(
        policy=run.plan.name,
        params=run.plan.params,
        machine=scenario.machine.name,
        host_nodes=scenario.machine.host_nodes,
        placement=scenario.placement.how or EVERY_NODE,
        baseline=baseline,
        walks=int(count.classes.sum()),
        hits=each[0].steady.hits,
        reads=count.reads,
        classes=count.classes,
        calls=count.events,
        host_calls=count.host_events,
        table_pages=sum(int(done.first.pages[0]) for done in each),
        table_pages_peak=sum(int(done.first.pages[1]) for done in each),
        single_copy=sum(done.single_copy for done in each),
        host_pages=int(count.host_pages[0]),
        host_single_copy=sum(done.scenario.space.host_tables for done in each),
        unwalked_table_pages=sum(done.scenario.unwalked_table_pages for done in each),
        price=price,
        one_time=once,
        facts=run.facts(scenario) if len(each) == 1 else {},
        findings=tuple(findings),
        provenance=provenance,
        **more,
    )


def _added(each: Sequence[Counters]) -> Counters:
    return Counters(*(np.sum(arrays, axis=0) for arrays in zip(*each, strict=True)))


def _findings(done: FinishedRun, price: Price, short: list[Finding], setup: Setup) -> list[Finding]:
    """On the lock, too, where the price is of the region itself."""
    lock = [] if setup.calibration else lock_held(price, _cpus(done), done.scenario.machine.ghz)
    counted = cost.instructions(done.scenario.trace, setup.costs)[1]
    return [*of_run(done, counted), *short, *done.run.plan.findings, *lock]


def _once(
    done: FinishedRun, price: Price, traced: Price, bases: Price, middle: int, setup: Setup
) -> OneTimeCost:
    """bases: Price of all runs of the baseline, of which the one that is `middle` stands beside `price`."""
    base, base_traced = bases.of(middle), bases.of(-1)
    cycles, pays, run_cycles, seconds = cycles_before(done.run, done.scenario, setup), None, None, None
    if done.warm:
        cycles = max(traced.management_cycles - price.management_cycles, 0.0)
        more = cycles - max(base_traced.management_cycles - base.management_cycles, 0.0)
        executed, _ = cost.instructions(done.scenario.trace, setup.costs, done.chunk)
        law = cost.run_law(base, setup.costs, executed, setup.calibration, setup.native)
        if law is not None:
            pays = break_even(more, base, price, law)
            run_cycles = cost.region_cycles(price, law)
            cycles_per_second = _cpus(done) * done.scenario.machine.ghz * 1e9  # of all CPUs that walk
            seconds = cost.region_cycles(base, law) / cycles_per_second
    return OneTimeCost(
        *_once_events(done), done.scenario.data_copied, cycles, pays, int(done.counted.classes.sum()),
        run_cycles, seconds, traced.speedup, not done.warm,
    )  # fmt: skip


def cycles_before(run: PolicyRun, scenario: Scenario, setup: Setup) -> float:
    """Cycles of everything that is done before the first walk."""
    spent = float(cost.management_cycles(run.before, scenario.machine, setup.costs))
    return spent + collapse_ns(scenario, setup) * scenario.machine.ghz


def collapse_ns(scenario: Scenario, setup: Setup) -> float:
    return cost.collapse_ns(scenario.data_copied, scenario.data_zeroed, setup.costs)


def _cpus(done: FinishedRun) -> int:
    return len(np.unique(done.scenario.placement.chunk_cpu[done.chunk :]))


def _once_events(done: FinishedRun) -> tuple[np.ndarray, np.ndarray]:
    """(int64[kinds, nodes, nodes], of the host): before the first run, and in it beyond the further run."""
    before = done.run.before
    own, host = before.events.sum(axis=0), before.host_events.sum(axis=0)
    if done.warm:
        first, still = done.first, done.counted
        own = own + np.maximum(first.events.sum(axis=0) - still.events.sum(axis=0), 0)
        host = host + np.maximum(first.host_events.sum(axis=0) - still.host_events.sum(axis=0), 0)
    return own, host


# Replay without a trace: the leaf entry of every mapped page is read once from every node.


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
    held, use = cached(scenarios), use_of(scenarios, setup)
    results: list[Result] = []
    base: _Untraced | None = None
    for plan in plans:
        try:
            found = [_process(plan, scenario) for scenario in scenarios]
            one = _untraced(found, scenarios, base, use, setup)
            base = base or one
            results.append(_untraced_result(plan, found, one, plans[0].name, held, use, setup, provenance))
        except RefusedError as error:
            if refused is None or plan is plans[0]:
                raise
            refused[label(plan, plans)] = error.why
    return results


class _Process(NamedTuple):
    """A Plan on the Scenario of one process; unresolved, remote: as of _count; server: as of served."""

    done: FinishedRun
    unresolved: dict[str, int]
    remote: np.ndarray | None
    server: np.ndarray


def _process(plan: Plan, scenario: Scenario) -> _Process:
    captured = scenario.snapshot.guest
    with own_code(plan):
        scenario = plan.reshape(scenario)
    heat, guest = scenario.snapshot.heat, scenario.snapshot.guest
    if heat and guest is not captured and known_pages(guest, heat) < known_pages(captured, heat):
        raise RefusedError(RESHAPED, plan.name)
    run, mapped = start(plan, scenario), scenario.history.mapped()
    server = served(plan, run, scenario)
    count, unresolved, remote = _count(scenario, server)
    run.counters = count._replace(pages=run.counters.pages, host_pages=run.counters.host_pages)
    return _Process(FinishedRun(run, scenario, mapped, scenario, mapped), unresolved, remote, server)


class _Untraced(NamedTuple):
    """latency: float64[nodes that walk], cycles of a read from DRAM in closed form; None without."""

    price: Price
    one_time: OneTimeCost
    latency: np.ndarray | None = None


def _untraced(
    found: Sequence[_Process],
    scenarios: Sequence[Scenario],
    base: _Untraced | None,
    use: Use | Unknown | None,
    setup: Setup,
) -> _Untraced:
    """base: of the baseline; None: these are the baseline's. A policy that reshapes has a bound only."""
    each = [one.done for one in found]
    machine, servers = each[0].scenario.machine, [one.server for one in found]
    count, once = _added([one.counted for one in each]), _untraced_once(each, setup)
    if not isinstance(use, Use) or any(
        one.scenario is not scenario for one, scenario in zip(each, scenarios, strict=True)
    ):
        return _Untraced(cost.price(count, machine, setup.costs, contended=setup.contended), once)
    count = with_reads(count, use, servers, scenarios)
    for one in each:  # results count the reads of all processes in the first
        reads = np.zeros_like(one.run.counters.reads)
        if one is each[0]:
            reads[..., 0], reads[..., -1] = count.reads[..., 0], count.reads[..., 1]
        one.run.counters = one.run.counters._replace(reads=reads)
    price = cost.price(count, machine, setup.costs, contended=setup.contended)
    latency = latencies(use, servers, machine, setup.contended)
    captured = latencies(use, [captured_at(scenario) for scenario in scenarios], machine, setup.contended)
    baseline = base.latency if base and base.latency is not None else latency
    price = timed(price, use, captured, baseline, latency, machine)
    first = base or _Untraced(price, once)
    return _Untraced(price, paid_back(once, first.one_time, price, first.price, use), latency)


def _untraced_result(
    plan: Plan,
    found: Sequence[_Process],
    one: _Untraced,
    baseline: str,
    held: Sequence[Finding],
    use: Use | Unknown | None,
    setup: Setup,
    provenance: dict[str, str],
) -> Result:
    each, first = [process.done for process in found], found[0].done.scenario
    if len(each) > 1 and any(done.scenario.data_copied for done in each):
        raise RefusedError(ONCE_EACH, plan.name)
    readers = len(first.machine.cpu_nodes)
    how = use.findings if isinstance(use, Use) else [bound(readers)]
    if isinstance(use, Unknown):
        how = [*how, Finding(NO_RATE, use.why)]
    findings = (
        counted_by([done.scenario.snapshot for done in each], first.left_out),
        *how,
        *held,
        *other_machine(first.snapshot, first.machine),
        *([alike(len(each), first.snapshot.heat is not None)] if len(each) > 1 else []),
        *dict.fromkeys(finding for done in each for finding in done.scenario.findings),
        *_left_out(sum((Counter(process.unresolved) for process in found), Counter())),
        *_sampling([process.remote for process in found], plan.name),
        *plan.findings,
    )
    result = _result(each, one.price, one.one_time, baseline, findings, provenance)
    return result.of_larger(first.times_captured, first.growth.factor)


def _untraced_once(each: Sequence[FinishedRun], setup: Setup) -> OneTimeCost:
    """What it takes to get from the captured tables to the policy's; when it pays is not known."""
    own, host = (np.sum(events, axis=0) for events in zip(*map(_once_events, each), strict=True))
    spent = sum(cycles_before(one.run, one.scenario, setup) for one in each)
    copied = sum(one.scenario.data_copied for one in each)
    return OneTimeCost(own, host, copied, spent, None, 0, None, None, None)


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
    count = counters(nodes, len(scenario.machine.llc.every_share))
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
