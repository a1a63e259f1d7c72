"""Answers without a trace, in closed form: reads of leaf entries from DRAM, from the pages in use.

Sampling tells (core.footprint) the leaf lines per second of CPU time that the process would read from DRAM
with caches of a given size, and of which tables. Each read takes as long as it is far to the node that serves
the table under a policy; e of it stalls the program (cost.law). The cycles of the process are counted: its
CPU time. So a speed-up needs neither instructions nor a rate of walks: reads that caches answer take as long
under every placement. Where a counter has the rate of walks (a Calibration), it caps the reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core.columns import DATA_NODES, Finding
from ..core.errors import about
from ..core.footprint import together
from ..core.interval import Interval, faster, over_corners, slower
from ..core.snapshot import frame
from ..core.trace import REGION_SHIFT
from ..cost.price import NEVER
from ..world.address_space import leaves_of
from ..world.mm_events import DISABLED, allowed
from ..world.page_homes import single_node
from ..world.trees import one_anonymous_vma

if TYPE_CHECKING:
    from ..core.footprint import Footprint
    from ..core.machine import Machine
    from ..cost.result import Result
    from ..world.scenario import Scenario
    from .setup import Setup

MOST_STALLED = 0.9  # of the cycles: a process that runs does some work
MOST_TAKEN = 0.5  # of the time until the caches are full: where sampling takes more, the rest is not known
LEAST_TIMES = 1.1  # the size of the process: less is not worth asking for
BISECTIONS = 40
LEAST_CPU = 0.01  # CPUs: a process that uses less is idle
COUNTED = (
    "count walks (`perf stat -p PID` with dtlb_load_misses.walk_completed and its stores, then "
    "`ptanalyze calibrate`, --calibration), or record it with a tracer"
)


@dataclass(frozen=True)
class Use:
    """Leaf lines that a process reads from DRAM on a machine, by its Footprint.

    reads    per second of CPU time, by all nodes together
    tables   of each process (int64[n] indices of guest tables, float64[n] share of these reads)
    hertz    cycles per second; exposed: share e of the wait
    seconds  of CPU time that Heat.walks are of; elapsed: of the clock
    walks    counted share of the cycles that walks take, None: no counter
    alone    whether it keeps one CPU busy at most, which is on one node at a time
    small    share of the reads that 2 MiB pages would spare, in memory that may have them
    findings  for a reader
    """

    reads: Interval
    tables: Sequence[tuple[np.ndarray, np.ndarray]]
    hertz: float
    exposed: Interval
    seconds: float
    elapsed: float
    walks: float | None = None
    alone: bool = False
    small: float = 0.0
    findings: tuple[Finding, ...] = ()

    def share(self, latency: float) -> Interval:
        """Share of the run that walks take, where a read from DRAM takes these cycles; without a counter
        what is above the reads from DRAM is open."""
        if self.walks is not None:
            counted = self.walks
            return self.exposed.through(lambda exposed: min(exposed * counted, MOST_STALLED))
        found = over_corners(
            lambda reads, exposed: min(reads * exposed * latency / self.hertz, MOST_STALLED),
            self.reads,
            self.exposed,
        )
        return Interval(found.low, found.middle, 1.0)

    def speedup(self, captured: float, baseline: float, policy: float) -> Interval:
        """Run time under the baseline over that under a policy, from mean cycles of a read in three places.

        captured  where the tables were while the process was sampled
        """

        def ratio(reads: float, exposed: float) -> float:
            each = min(reads * exposed, MOST_STALLED * self.hertz / max(captured, 1e-9)) / self.hertz
            outside = 1 - each * captured
            return (outside + each * baseline) / (outside + each * policy)

        return over_corners(ratio, self.reads, self.exposed)


class Unknown(NamedTuple):
    """Why there is a bound only, and the way out: a line for people."""

    why: str


def use_of(scenarios: Sequence[Scenario], setup: Setup) -> Use | Unknown | None:
    """Use of processes that run together on one machine; None where they were not sampled so,
    Unknown where that tells no reads."""
    first = scenarios[0]
    heats = [scenario.snapshot.heat for scenario in scenarios]
    each = [heat.footprint for heat in heats if heat is not None and heat.footprint is not None]
    if heats[0] is None or heats[0].footprint is None:
        return None
    if not first.space.native:
        return Unknown(f"samples of a guest say nothing of the host's tables; {COUNTED}")
    found = together(each) if len(each) == len(scenarios) > 1 else each[0] if len(scenarios) == 1 else None
    if found is None:
        return Unknown(
            "the processes were sampled in different windows, or some used no CPU: sample them together"
        )
    if found.cpus < LEAST_CPU:
        return Unknown(f"{found.cpus:.2g} CPUs were used during sampling: idle; sample it at work")
    machine, lines = first.machine, lines_left(first.machine)
    counted = setup.calibration.local if setup.calibration else None
    rate = counted.walks / counted.cycles if counted and counted.walks and counted.cycles else None
    if rate is None and found.used > lines.low and found.taken(lines.middle) > MOST_TAKEN:
        return Unknown(
            f"a walk that sets an accessed bit takes up to {1e9 * found.price:.0f} ns longer here, up to "
            f"{100 * found.taken(lines.middle):.0f} % of the time until the caches are full: the program's "
            f"own rate of walks is not known; {answered(found, lines.middle, first.growth.factor)}{COUNTED}"
        )
    nodes = walking(found, machine)
    reads, notes = found.reads(lines, nodes), list(said(found, lines, nodes, machine))
    exposed, calibration, walks = setup.costs.exposed, setup.calibration, None
    if calibration is not None and counted is not None:
        exposed = calibration.exposed or exposed
        if counted.cycles and counted.walk is not None:
            walks = counted.walk / counted.cycles
        if rate is not None:
            reads = Interval(*(min(one, rate * machine.ghz * 1e9) for one in reads))
    else:
        notes.append(
            "the rate of walks is not counted: reads of table entries that caches answer are in no share of "
            "the run; they take as long under every placement"
        )
    elapsed = heats[0].over or heats[0].sampled_seconds
    tables = of_tables(found, reached(found, lines), scenarios, [len(one.base) for one in each])
    return Use(
        reads,
        tables,
        machine.ghz * 1e9,
        exposed,
        elapsed * found.cpus,
        elapsed,
        walks,
        nodes == 1,
        spared(tables, scenarios, lines),
        (*(Finding("footprint", line) for line in notes), *data_by_node(scenarios)),
    )


def answered(found: Footprint, lines: float, factor: float) -> str:
    """Up to how many times its size a process can be answered for; "" where that is no more than its own.

    lines, factor  of the caches, and how many times as large as the process the run is that was asked for
    """
    low, high = lines, max(float(found.mean[-1]), lines)
    if found.taken(high) > MOST_TAKEN:
        return ""
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if found.taken(middle) <= MOST_TAKEN else (middle, high)
    most = factor * lines / high
    return f"ask for --stands-for {about(most)}x at most, " if most >= LEAST_TIMES else ""


def lines_left(machine: Machine) -> Interval:
    """Lines of page tables that the LLC of a node holds, by the share that they may have."""
    llc = machine.llc
    ends = [llc.lines_at(share) for share in llc.every_share]
    return Interval(float(ends[0]), float(llc.lines), float(ends[-1]))


def walking(found: Footprint, machine: Machine) -> int:
    """Nodes from which threads walk at a time: no more than CPUs were busy."""
    return int(np.clip(np.ceil(found.cpus - LEAST_CPU), 1, len(machine.cpu_nodes)))


def reached(found: Footprint, lines: Interval) -> float:
    """Lines at which a cache is full within the windows: the likeliest that the machine may hold, else as
    many as the windows end with."""
    ends = float(found.mean[-1]) * (1 - 1e-9)
    return next((some for some in (lines.middle, lines.low) if np.isfinite(found.filled(some, 0.0)[0])), ends)


def of_tables(
    found: Footprint, lines: float, scenarios: Sequence[Scenario], counts: Sequence[int]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Use.tables without tables that the captures do not map any more. counts: tables of each process."""
    share, first, of_each = found.shares(lines), 0, []
    for scenario, count in zip(scenarios, counts, strict=True):
        these = slice(first, first + count)
        first += count
        tree = scenario.snapshot.guest
        key = tree.base.astype(np.uint64) | tree.level.astype(np.uint64)  # bases end in 12 zero bits
        order = np.argsort(key)
        asked = found.base[these] | found.level[these].astype(np.uint64)
        table = order[np.minimum(np.searchsorted(key, asked, sorter=order), len(key) - 1)]
        known = key[table] == asked
        of_each.append((table[known].astype(np.int64), share[these][known]))
    total = sum(float(part.sum()) for _, part in of_each)
    return [(table, part / total if total else part) for table, part in of_each]


def spared(
    tables: Sequence[tuple[np.ndarray, np.ndarray]], scenarios: Sequence[Scenario], lines: Interval
) -> float:
    """Use.small: reads of entries that map 4 KiB in 2 MiB of anonymous memory; the caches must hold the
    entries that take their place. tables: as of Use."""
    share, huge = 0.0, 0
    for (table, part), scenario in zip(tables, scenarios, strict=True):
        if allowed(scenario.snapshot, scenario.trace) == DISABLED:
            continue
        tree = scenario.snapshot.guest
        may = (tree.level == 1) & one_anonymous_vma(scenario.snapshot, tree.base)
        share += float(part[may[table]].sum())
        huge += len(np.unique(tree.base[may] >> np.uint64(REGION_SHIFT) >> np.uint64(3)))
    return share if huge <= lines.low else 0.0


def data_by_node(scenarios: Sequence[Scenario]) -> list[Finding]:
    """Share of the estimated walks whose page is on each node; [] where the nodes are not known."""
    walks = np.zeros(scenarios[0].machine.nodes)
    for scenario in scenarios:
        heat, tree = scenario.snapshot.heat, scenario.snapshot.guest
        if heat is None or single_node(scenario.space):
            return []
        table, slot = leaves_of(tree, heat)
        for level in np.unique(heat.level[table >= 0]).tolist():
            of = (table >= 0) & (heat.level == level)
            frames = frame(tree.entries[table[of], slot[of]], level, tree.encoding)
            node = scenario.snapshot.topology.node_of_frame(frames)
            known = (node >= 0) & (node < len(walks))
            walks += np.bincount(node[known], heat.walks[of][known], len(walks))
    if not walks.any():
        return []
    share = walks / walks.sum()
    there = ", ".join(
        f"{100 * part:.0f} % on node {node}" for node, part in enumerate(share) if part >= 0.005
    )
    text = f"data of its walks: {there}; on which nodes its threads run was not sampled"
    return [Finding(DATA_NODES, text, numbers={f"node {n}": float(part) for n, part in enumerate(share)})]


def said(found: Footprint, lines: Interval, nodes: int, machine: Machine) -> list[str]:
    """Notes: what the use was found to be."""
    longest, busy = found.seconds[-1], about(found.cpus)
    fill = found.filled(lines.middle)[0]
    used = (
        f"in closed form, from accessed bits in windows of {about(1e3 * found.seconds[0] / found.cpus)} to "
        f"{about(1e3 * longest / found.cpus)} ms, {busy} CPUs busy: {found.used:,} leaf lines in use"
    )
    if found.used <= lines.low:
        return [f"{used}, which the caches of each node of {machine.name} hold"]
    notes = [f"{used}, the caches of a node hold {lines.low:,.0f} to {lines.high:,.0f}"]
    if np.isfinite(fill):
        notes[0] += f" and are full after {1e3 * fill / found.cpus:.3g} ms"
    if nodes == 1 < len(machine.cpu_nodes):
        notes.append("one CPU is busy at a time, on which node is not known: ranges reach over all of them")
    if nodes > 1:
        notes.append(
            f"whether {nodes} nodes walk for the same pages or each for its own is not known: the lower "
            "bound is of pages of their own"
        )
    if not found.steady:
        blur = ", and caches fill between two updates of it: reads may be twice as many"
        notes.append(
            "the CPU time of the process came in bursts while it was sampled"
            f"{blur if found.blurred(lines.middle) else ''}; sample it where CPUs are free"
        )
    return notes


# Prices.


def latencies(use: Use, servers: Sequence[np.ndarray], machine: Machine, contended: bool) -> np.ndarray:
    """float64[nodes that walk]: cycles of a read from each, mean over the tables that are read.

    servers  of each process int16[T, nodes]: node that serves each table to each reader
    """
    latency, readers = machine.table_cycles(contended), np.array(machine.cpu_nodes)
    total = np.zeros(len(readers))
    for (table, share), server in zip(use.tables, servers, strict=True):
        total += (latency[readers, server[table][:, readers]] * share[:, None]).sum(axis=0)
    return total if any(share.any() for _, share in use.tables) else latency[readers, readers]


def captured_at(scenario: Scenario) -> np.ndarray:
    """int16[T, nodes]: node of each table where it was captured, to any reader; of no known node: 0."""
    machine = scenario.machine
    node = np.asarray(scenario.space.tables.node).astype(np.int16)
    node = np.where((node >= 0) & (node < machine.nodes), node, 0)
    return np.repeat(node[:, None], machine.nodes, axis=1)


def with_reads(
    counted: np.ndarray, use: Use, servers: Sequence[np.ndarray], scenarios: Sequence[Scenario]
) -> np.ndarray:
    """Counts.reads of estimated walks, of which some read a leaf entry from DRAM, the others from caches.

    Each node is taken to walk as much as the processes did.
    """
    dram = use.reads.middle * use.seconds
    readers = scenarios[0].machine.cpu_nodes
    walks = counted.sum() / max(len(readers), 1)
    reads = np.zeros(counted.shape, np.float64)
    reads[..., 0] = counted[..., 1] * max(1 - dram / max(walks, 1), 0.0)
    for (table, share), server, scenario in zip(use.tables, servers, scenarios, strict=True):
        level = np.minimum(scenario.space.tables.level, 3).astype(np.int64)[table]
        for reader in readers:
            np.add.at(reads[0, 0], (8 * level, reader, server[table, reader], 1), dram * share)
    return np.rint(reads).astype(np.int64)


def timed(
    row: Result,
    base: Result | None,
    use: Use,
    latency: tuple[np.ndarray, np.ndarray, np.ndarray],
    machine: Machine,
) -> Result:
    """The Result with speed-ups: over the baseline, of local tables, and of leaf entries in the LLC where 2
    MiB pages could be; and when its one-time cost is earned back, in runs as long as the sampling.

    base     the baseline's, None: this is it
    latency  float64[nodes that walk] of a read: as captured, under the baseline, under the policy

    A process that keeps one CPU busy walks from one node at a time: its intervals reach over all of them.
    """
    captured, _, policy = latency

    def over(before: np.ndarray, after: np.ndarray) -> Interval:
        found = use.speedup(*(float(place.mean()) for place in (captured, before, after)))
        if not use.alone:
            return found
        places = zip(captured, before, after, strict=True)
        each = [found, *(use.speedup(*map(float, at)) for at in places)]
        return Interval(min(one.low for one in each), found.middle, max(one.high for one in each))

    speedup = over(*latency[1:])
    local = np.minimum(policy, machine.table_cycles().diagonal()[list(machine.cpu_nodes)])
    fewer = use.small * np.minimum(policy, machine.llc.cycles) + (1 - use.small) * policy
    share = use.share(float(policy.mean()))
    here, there = float(captured.mean()), float(policy.mean())
    run_cycles = use.seconds * use.hertz * len(policy) * use.speedup(here, there, here).middle
    taken = (
        f"{use.exposed.low:.2g} to {use.exposed.high:.2g} of the wait for table entries from DRAM stalls the "
        f"program, its cycles are its CPU time at {use.hertz / 1e9:g} GHz"
    )
    back = None
    if base is not None and base.run_cycles is not None:
        more, run = row.once_cycles - base.once_cycles, base.run_cycles

        def runs(ratio: float) -> float:
            if more <= 0 and not slower(ratio):
                return 0.0
            return more / (run * (1 - 1 / ratio)) if faster(ratio) else NEVER

        back = speedup.through(runs)
    return replace(
        row,
        speedup=speedup,
        run_cycles=run_cycles,
        run_seconds=use.elapsed if base is None or base.run_cycles is not None else None,
        walk_share=share,
        kernel_share=Interval.exactly(0.0),
        table_share=share,
        local_tables=over(policy, local),
        cached_tables=over(policy, fewer),
        assumptions=f"{taken}; {row.assumptions}",
        break_even=back,
    )
