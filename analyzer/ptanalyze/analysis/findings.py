"""What a reader of priced runs must know: what was counted, and what the capture cannot show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
)
from ..core.errors import UsageError, plural, size_in_words
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
    from ..policies import Plan
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
    named = f"node{'s' * (len(silent) > 1)} {', '.join(map(str, silent))}"
    text = f"less than {100 * FEW:g} % of the walks come from {named}, where threads run: what they touched"
    return [Finding(SILENT, f"{text} first is remote to nearly all walks")]


def silent_points(points: Sequence[tuple[Mapping[str, Any], Result]], axes: Sequence[str]) -> list[str]:
    """On the silent nodes of a sweep's points, each once, after the point's place on the machine's axes."""
    lines = []
    for point, result in points:
        where = " ".join(f"{key}={point[key]}" for key in axes if key in point)
        if silent := result.finding(SILENT):
            lines.append(f"{where}: {silent.line}" if where else silent.line)
    return list(dict.fromkeys(lines))


# Few leaf tables by turns on several nodes: which of them the busy threads are beside is chance.

BY_CHANCE = 0.05  # standard deviation of the share of remote walks: below it, it says something


def turns_by_chance(plan: Plan, scenario: Scenario, steady: Scenario) -> list[Finding]:
    """Finding: the share of remote walks under `interleave` depends on which table came first; native, equal
    weights, and by walks: each is counted at its leaf entry, read from DRAM or not."""
    if plan.name != "interleave" or plan.params.get("weights") or not scenario.space.native:
        return []
    walks = walks_by_leaf_table(steady)
    remote, spread = remote_by_turns(walks)
    if spread < BY_CHANCE:
        return []
    text = (
        f"the leaf entries that walks read are in {plural(len(walks), 'table')}, by turns on "
        f"{walks.shape[1]} nodes: {100 * remote:.0f} % of walks remote, give or take {100 * spread:.0f} "
        "points by the order of first use alone"
    )
    numbers = {"tables": len(walks), "remote": remote, "spread": spread}
    return [Finding("few-tables", text, CAREFUL, "few leaf tables are interleaved", "interleave", numbers)]


def walks_by_leaf_table(scenario: Scenario) -> np.ndarray:
    """int64[tables, nodes]: walks of each node that end in each guest table with any."""
    tables, row = np.unique(scenario.space.regions.leaf, return_inverse=True)
    count = np.zeros(len(tables) * scenario.nodes, np.int64)
    for _, page, node in blocks_of_walks(scenario):
        count += np.bincount(row[page >> 9] * scenario.nodes + node, minlength=len(count))
    found = count.reshape(len(tables), scenario.nodes)
    return found[found.any(axis=1)]


def blocks_of_walks(scenario: Scenario) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Iterate (number of the first walk, pages, nodes), BLOCK walks of the stream at a time."""
    placement, stream = scenario.placement, scenario.stream
    node = placement.cpu_node[placement.chunk_cpu]
    for first in range(0, len(stream), BLOCK):
        page = stream.page[first : first + BLOCK]
        chunk = np.searchsorted(stream.offset, np.arange(first, first + len(page)), side="right") - 1
        yield first, page, node[chunk]


def remote_by_turns(walks: np.ndarray) -> tuple[float, float]:
    """(mean, standard deviation) of the share of remote walks when tables in any order take turns on nodes in
    any order; walks int[tables, nodes].

    Two of n = q k + r tables share one of k nodes with probability p = (r (q + 1) q + (k - r) q (q - 1)) /
    (n (n - 1)); the second moment of the local walks is the sum over pairs.
    """
    tables, nodes = walks.shape
    read = walks.astype(np.float64) / max(int(walks.sum()), 1)
    if nodes < 2 or not read.any():
        return 0.0, 0.0
    full, rest = divmod(tables, nodes)
    together = rest * (full + 1) * full + (nodes - rest) * full * (full - 1)
    p = together / (tables * (tables - 1)) if tables > 1 else 0.0
    alone = float((read**2).sum())
    same = float((read.sum(axis=0) ** 2).sum()) - alone
    others = 1 - float((read.sum(axis=1) ** 2).sum()) - same
    second = (alone + p * same + (1 - p) / (nodes - 1) * others) / nodes
    return 1 - 1 / nodes, float(np.sqrt(max(second - 1 / nodes**2, 0.0)))


# Answers without a trace about a machine with another number of nodes than the captured one has.

HOST_MODEL = "machines --from-host host.toml"


def other_machine(snapshot: Snapshot, machine: Machine) -> list[Finding]:
    """Finding: the machine has another number of nodes; none where both have as many.

    Without a trace each node of the machine is taken to walk as the captured process did.
    """
    captured, readers = len(snapshot.topology), len(machine.cpu_nodes)
    if captured == machine.nodes:
        return []
    there = plural(captured, "node")
    text = (
        f"this is about the machine model {machine.name} ({machine.nodes} nodes), not about the captured "
        f"host ({there}); each of {readers} nodes is assumed to walk as much as the process did"
    )
    return [Finding(ELSEWHERE, text, CAREFUL, f"it was captured on {there} and replayed on {machine.nodes}")]


# What an answer without a trace may claim: a bound, and no gain where the caches hold the leaf entries.

NO_ADVICE = "No recommendation"


def bound(readers: int) -> Finding:
    """What is assumed of the walks."""
    text = (
        "what is saved of walk cycles is a bound: without a trace every leaf entry is taken to be read from "
        f"DRAM{',' if readers > 1 else ''}{from_nodes(readers)}, and how often TLBs miss is not known"
    )
    return Finding("bound", text, short="savings are at most these")


def cached(scenarios: Sequence[Scenario], share: float | None = None) -> list[Finding]:
    """Finding: the least that the machine's LLC may leave to page tables holds every line with a leaf
    entry of processes that run together; else none.

    share  of the LLC, in place of the least
    """
    lines, llc = sum(scenario.leaf_lines for scenario in scenarios), scenarios[0].machine.llc
    if lines > llc.lines_at(share or llc.every_share[0]):
        return []
    kib = -(-lines * LINE_BYTES // 1024)
    text = (
        f"its leaf entries, {size_in_words(kib * 1024)} of page-table lines, fit the caches: placement can "
    )
    return [Finding(CACHED, f"{text}gain next to nothing", numbers={"KiB": kib})]


def equally(base: Result) -> str:
    """A sentence on where walks are taken to start; "" where there is one node."""
    readers = int(np.count_nonzero(base.reads.sum(axis=(0, 2, 3))))
    return f"The program is taken to walk{from_nodes(readers)}." if readers > 1 else ""


def from_nodes(readers: int) -> str:
    return f" equally from {readers} nodes" if readers > 1 else ""


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
    text = (
        f"{100 * was:.0f} % of the table reads came from DRAM in the first run, {100 * still:.0f} % in the "
        "further run: the caches hold what a short region reads; a longer one tells what they hold of the "
        "program's, middles of speed-ups are estimates of that"
    )
    return [
        Finding(SHORT, text, CAREFUL, short="the region is short", numbers={"first": was, "further": still})
    ]


def moved(series: Series) -> list[Finding]:
    """How much of the memory moved; of a capture that stands for a larger program, of the program's too."""
    pages = int(series.data_moved[-1]) if len(series.data_moved) else 0
    if not pages:
        return []
    text = f"{pages} data pages moved, {pages / max(series.pages, 1):.0%} of the {series.pages} mapped"
    if series.scale > 1:
        text += f"; of the program they stand for, {pages * series.scale} of {series.pages * series.scale}"
    return [Finding("data-moved", text, numbers={"pages": pages})]


def dram_share(reads: np.ndarray) -> float:
    return float(reads[..., 1].sum() / max(reads.sum(), 1))


def gone(scenario: Scenario) -> list[Finding]:
    """Table pages that were gone at the snapshot, to be careful with where many walks go there."""
    tables, share = scenario.space.inferred_tables, scenario.unmapped_walk_share
    if not tables:
        return []
    text = f"{tables} table pages were gone at the snapshot: placed by first touch"
    if share:
        text += f", {100 * share:.1f} % of the walks of the trace go there"
    numbers = {"tables": tables, "share": share}
    if share <= MUCH:
        return [Finding(GONE, text, numbers=numbers)]
    text = (
        f"{100 * share:.0f} % of the walks go to memory that was freed before the page tables were read: "
        f"{tables} table pages are placed by first touch. Policies that change page sizes leave it as it is "
        "here, so their gain is not known. Record a region that frees less, or all with --dump-at peak"
    )
    return [Finding(GONE, text, CAREFUL, f"{100 * share:.0f} % of the walks go to freed memory", "", numbers)]


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
    found.append(STEADY if warm else TRACED)
    if warm and region.begin is None and not scenario.steady_from:
        found += fills(scenario.trace, scenario.captured.stream, scenario.captured.space.regions)
    found += idle_nodes(run.counters.classes, scenario.placement.cpu_node)
    found += turns_by_chance(run.plan, scenario, steady)
    found += moved(series) if series is not None else []
    found += share_of_cache(scenario.machine)
    if (ended := facts.get("ended", "exit")) not in ("exit", "imported"):
        found.append(Finding("cut", f"the trace may be only part of the run; it ended by: {ended}"))
    if facts.get("sampled"):
        found.append(SAMPLES)
        found += of_samples(scenario) if facts.get("walks") else []
    if len(space.snapshot.topology) == 1 and scenario.nodes > 1:
        found.append(
            Finding("one-node", "recorded on one node: as captured (linux) all tables are on node 0")
        )
    found += gone(scenario)
    if pages := history.mapped_at_start:
        text = f"{pages:,} pages were mapped before the region of interest began: no demand faults"
        found.append(Finding("premapped", text, numbers={"pages": pages}))
    found += scenario.first_touches_unseen
    if pages := sum(space.unresolved.values()):
        text = f"{pages} guest table pages have no known place in the host"
        found.append(Finding("unplaced", text, numbers={"pages": pages}))
    return found


STEADY = Finding(
    "steady-state",
    "steady state: counts and speed-ups are of a further run with warm TLBs and caches; memory that it "
    "maps, or unmaps and maps again, is faulted in again and counts",
)
TRACED = Finding(
    AS_TRACED,
    "as traced: TLBs and caches empty at first, everything touched first within the run, and the time to "
    "make the policy's tables before the first walk counted with it",
)
SAMPLES = Finding(
    SAMPLED,
    "the trace holds samples, not all accesses: what TLBs hold between two samples is not known, so shares "
    "of walks mean more than their number",
    CAREFUL,
    "the trace holds samples of the accesses",
)


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
    text = (
        f"in closed form, from {len(stream):,} samples of walks, {share:.2f} of the walks read their leaf "
        "entry from DRAM"
    )
    return [Finding("reads-by-samples", text, NOTE, "", "", {"share": share})]


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
