"""What a reader of priced runs must know: what was counted, and what the capture cannot show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.columns import (
    AS_TRACED,
    ASSUMED,
    CACHED,
    CAREFUL,
    ELSEWHERE,
    GONE,
    NOTE,
    SAMPLED,
    SHORT,
    SILENT,
    Finding,
    noted,
)
from ..core.errors import UsageError
from ..core.machine import LINE_BYTES, share_of_cache
from ..world.mm_events import region_of_interest
from ..world.page_homes import moves_told
from ..world.part import fills
from .replay import missed, sampled_lines

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.snapshot import Snapshot
    from ..cost.result import Result
    from ..cost.throughput import Series
    from ..world.scenario import Scenario
    from .replay import PolicyRun


# Nodes whose threads hardly walk: what they touched first is remote to nearly all walks.

FEW = 0.001  # share of the walks


def idle_nodes(classes: np.ndarray, cpu_node: np.ndarray) -> list[Finding]:
    """Nodes that have threads, but next to no walk in what is counted; none where every one walks.

    classes   int64[nodes, 4] as Counters; cpu_node: int16[cpus] nodes of the CPUs that have threads
    """
    walks = classes.sum(axis=1)
    nodes = np.unique(cpu_node).tolist()
    silent = [node for node in nodes if walks[node] < FEW * walks.sum()]
    if not silent:
        return []
    return [noted(SILENT, nodes=", ".join(map(str, silent)), few=FEW)]


def silent_points(points: Sequence[tuple[Mapping[str, Any], Result]], axes: Sequence[str]) -> list[str]:
    """On the silent nodes of a sweep's points, each once, after the point's place on the machine's axes."""
    lines = []
    for point, result in points:
        where = " ".join(f"{key}={point[key]}" for key in axes if key in point)
        if silent := result.finding(SILENT):
            lines.append(f"{where}: {silent.line}" if where else silent.line)
    return list(dict.fromkeys(lines))


# Answers without a trace about a machine with another number of nodes than the captured one has.

HOST_MODEL = "machines --from-host host.toml"


def other_machine(snapshot: Snapshot, machine: Machine) -> list[Finding]:
    """Finding: the machine has another number of nodes; none where both have as many.

    Without a trace each node of the machine is taken to walk as the captured process did.
    """
    captured, readers = len(snapshot.topology), len(machine.cpu_nodes)
    if captured == machine.nodes:
        return []
    numbers: dict[str, Any] = {"model": machine.name, "nodes": machine.nodes, "captured": captured}
    return [noted(ELSEWHERE, CAREFUL, readers=readers, **numbers)]


# What an answer without a trace may claim: a bound, and no gain where the caches hold the leaf entries.


def bound(readers: int) -> Finding:
    """What is assumed of the walks."""
    return noted("bound", line="bound-of-nodes" if readers > 1 else "bound", nodes=readers)


def cached(scenarios: Sequence[Scenario], share: float | None = None) -> list[Finding]:
    """Finding: the least that the machine's LLC may leave to page tables holds every line with a leaf
    entry of processes that run together; else none.

    share  of the LLC, in place of the least
    """
    lines, llc = sum(scenario.leaf_lines for scenario in scenarios), scenarios[0].machine.llc
    if lines > llc.lines_at(share or llc.every_share[0]):
        return []
    kib = -(-lines * LINE_BYTES // 1024)
    return [noted(CACHED, KiB=kib, size=kib * 1024)]


UNSEEN = 0.05  # of further samples: more of them reach lines that none has
BLOCK = 1 << 22  # walks that are looked at together
MUCH = 0.1  # share of walks to memory that was gone, above which the answer is only partial, as of `check`
DRAM_MATTERS = 0.05  # share of the reads: less is of no importance


def short_region(
    first: np.ndarray, further: np.ndarray, scenario: Scenario, share: float | None = None
) -> list[Finding]:
    """Warns if the region is so short that its page tables fit in the caches: the program may read more.

    first, further  Counters.reads of the two runs, at a share of the LLC
    share           which, where it is not the machine's own
    None where the caches would hold the leaf entries of all that the program has mapped, too.
    """
    was, still = dram_share(first), dram_share(further)
    if was < DRAM_MATTERS or still > was / 2:
        return []
    if not scenario.space.inferred_tables and cached([scenario], share):
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
    return float(reads[..., 1].sum() / max(reads.sum(), 1))


def gone(scenario: Scenario) -> list[Finding]:
    """Table pages that were gone at the snapshot, to be careful with where many walks go there."""
    tables, share = scenario.space.inferred_tables, scenario.unmapped_walk_share
    if not tables:
        return []
    much = share > MUCH
    line = "tables-gone-much" if much else "tables-gone-walked" if share else GONE
    return [noted(GONE, CAREFUL if much else NOTE, line=line, tables=tables, share=share)]


def of_run(run: PolicyRun, scenario: Scenario, steady: Scenario, counted: Finding) -> list[Finding]:
    """Findings on a run; steady: Scenario of the further run, if any; counted: how instructions were."""
    warm, series = run.first is not None, run.series
    space, history, facts = scenario.space, scenario.history, scenario.trace.facts
    region = region_of_interest(scenario.trace.events)
    found = [
        counted,
        *scenario.findings,
        *region.findings,
        *moves_told(scenario, steady.data_after),
    ]
    found.append(noted("steady-state" if warm else AS_TRACED))
    if warm and region.begin is None and not scenario.steady_from:
        found += fills(scenario.trace, scenario.captured.stream, scenario.captured.space.regions)
    found += idle_nodes(run.counters.classes, scenario.placement.cpu_node)
    found += moved(series) if series is not None else []
    found += share_of_cache(scenario.machine)
    if (ended := facts.get("ended", "exit")) not in ("exit", "imported"):
        found.append(noted("cut", by=ended))
    if facts.get("sampled"):
        found.append(noted(SAMPLED, CAREFUL))
        found += of_samples(scenario) if facts.get("walks") else []
    if len(space.snapshot.topology) == 1 and scenario.nodes > 1:
        found.append(noted("one-node"))
    found += gone(scenario)
    if pages := history.mapped_at_start:
        found.append(noted("premapped", pages=pages))
    found += scenario.first_touches_unseen
    if pages := sum(space.unresolved.values()):
        found.append(noted("unplaced", pages=pages))
    return found


# Findings of several results together, each once; one that only some policies have names them.


def owned(results: Sequence[Result], assumptions: bool = True) -> list[Finding]:
    """Findings, and assumptions, in the order of the results: of "thp", of "all but thp" if not of all."""
    owners: dict[Finding, set[str]] = {}
    for result in results:
        assumed = [Finding(ASSUMED, result.assumptions)] * assumptions
        for finding in (*result.findings, *assumed):
            owners.setdefault(finding, set()).add(result.policy)
    policies = list(dict.fromkeys(result.policy for result in results))
    return [replace(one, policy=one.policy or named(whose, policies)) for one, whose in owners.items()]


def named(whose: set[str], policies: Sequence[str]) -> str:
    """Names of policies, "" of all."""
    others = [policy for policy in policies if policy not in whose]
    if not others:
        return ""
    if len(others) < len(whose):
        return f"all but {', '.join(others)}"
    return ", ".join(policy for policy in policies if policy in whose)


def of_samples(scenario: Scenario) -> list[Finding]:
    """On reads from DRAM by a trace of sampled walks, in closed form (replay.FinishedRun); [] where caches
    hold all leaf lines."""
    held, stream = scenario.machine.llc.lines, scenario.stream
    if not len(stream):
        return []
    each = sampled_lines(scenario)
    share = sum(missed(one, held) * one.walks for one in each.values()) / len(stream)
    if not share:
        return []
    return [noted("reads-by-samples", samples=len(stream), share=share)]


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
