"""Answers without a trace, in closed form: reads of leaf entries from DRAM, from the pages in use.

Sampling tells (core.footprint) the leaf lines per second of CPU time that the process would read from DRAM
with caches of a given size, and of which tables; cost.sampled has the law of what they cost. Where a counter
has the rate of walks (a Calibration), it caps the reads.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..core.columns import DATA_NODES, NO_RATE, Finding, Message, message
from ..core.errors import about
from ..core.footprint import Footprint, together
from ..core.interval import Interval
from ..core.machine import Machine
from ..core.trace import PAGE_SHIFT, REGION_SHIFT
from ..cost.counts import DRAM, LLC
from ..cost.law import Calibration
from ..cost.sampled import Sampled
from ..world.address_space import leaves_of, pages_of
from ..world.mm_events import DISABLED, allowed
from ..world.page_homes import single_node
from ..world.scenario import Scenario
from ..world.trees import one_anonymous_vma
from .setup import Setup

MOST_TAKEN = 0.5  # of the time until the caches are full: where sampling takes more, the rest is not known
PAGE = np.uint64(PAGE_SHIFT)


class Use(NamedTuple):
    """Law of a process by its Footprint.

    tables    of each process (int64[n] indices of guest tables, float64[n] share of the reads from DRAM)
    findings  for a reader
    """

    law: Sampled
    tables: Sequence[tuple[np.ndarray, np.ndarray]]
    findings: tuple[Finding, ...]


def use_of(scenarios: Sequence[Scenario], setup: Setup) -> Use | Finding | None:
    """Use of processes that run together on one machine; None where they were not sampled so; where that
    tells no reads, a Finding that says why there is a bound only, and the way out."""
    first = scenarios[0]
    heats = [scenario.snapshot.heat for scenario in scenarios]
    every = [None if heat is None else heat.footprint for heat in heats]
    each = [one for one in every if one is not None]  # those that use no CPU add no lines
    if heats[0] is None or not each:
        return None
    if not first.space.native:
        return _unknown("guest")
    use = None if None in heats else together(each) if len(each) > 1 else each[0]
    if use is None:
        return _unknown("other-windows")
    if not use.busy:
        return _unknown("idle", cpus=use.cpus)
    machine, llc = first.machine, first.machine.llc
    bounds = [float(llc.lines_at(share)) for share in llc.every_share]
    lines = Interval(bounds[0], float(llc.lines), bounds[-1])
    calibration = setup.calibration if isinstance(setup.calibration, Calibration) else None
    counted = calibration.local if calibration else None
    rate = counted.walks / counted.cycles if counted and counted.walks and counted.cycles else None
    if rate is None and use.used > lines.low and use.taken(lines.middle) > MOST_TAKEN:
        return _unknown("taken", ns=1e9 * use.price, share=use.taken(lines.middle))
    nodes = min(use.busy, len(machine.cpu_nodes))  # from which threads walk at a time
    reads, notes = use.reads(lines, nodes), described(use, lines, nodes, machine)
    exposed, walks = setup.costs.exposed, None
    if calibration is not None and counted is not None:
        exposed = calibration.exposed or exposed
        if counted.cycles and counted.walk is not None:
            walks = counted.walk / counted.cycles
        if rate is not None:
            reads = Interval(*(min(one, rate * machine.ghz * 1e9) for one in reads))
    else:
        notes.append(message("footprint", "uncounted"))
    elapsed = heats[0].over or heats[0].sampled_seconds
    tables = of_tables(use, reached(use, lines), scenarios, every)
    law = Sampled(
        reads,
        leaves_by_node(tables, [captured_at(one) for one in scenarios], machine),
        machine.ghz * 1e9,
        exposed,
        elapsed * use.cpus,
        elapsed,
        walks,
        nodes == 1,
        spared(tables, scenarios, lines),
    )
    return Use(law, tables, (*(Finding("footprint", str(note)) for note in notes), *data_by_node(scenarios)))


def _unknown(code: str, **numbers: float) -> Finding:
    way_out = message("footprint", "way-out")
    return Finding(NO_RATE, str(message("footprint", code, way_out=way_out, **numbers)))


def reached(use: Footprint, lines: Interval) -> float:
    """Lines at which a cache is full within the windows: the machine's likeliest, else those at their end."""
    ends = float(use.mean[-1]) * (1 - 1e-9)
    return next((some for some in (lines.middle, lines.low) if np.isfinite(use.filled(some, 0.0)[0])), ends)


def of_tables(
    use: Footprint, lines: float, scenarios: Sequence[Scenario], every: Sequence[Footprint | None]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Use.tables without tables that the captures do not map any more. every: that of each process."""
    share, first, of_each = use.shares(lines), 0, []
    for scenario, one in zip(scenarios, every, strict=True):
        these = slice(first, first + (len(one.base) if one else 0))
        first = these.stop
        tree = scenario.snapshot.guest
        key = tree.base.astype(np.uint64) | tree.level.astype(np.uint64)  # bases end in 12 zero bits
        order = np.argsort(key)
        asked = use.base[these] | use.level[these].astype(np.uint64)
        table = order[np.minimum(np.searchsorted(key, asked, sorter=order), len(key) - 1)]
        known = key[table] == asked
        of_each.append((table[known].astype(np.int64), share[these][known]))
    total = sum(float(part.sum()) for _, part in of_each)
    return [(table, part / total if total else part) for table, part in of_each]


def spared(
    tables: Sequence[tuple[np.ndarray, np.ndarray]], scenarios: Sequence[Scenario], lines: Interval
) -> float:
    """Sampled.small: reads of entries that map 4 KiB in 2 MiB of anonymous memory; the caches must hold the
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
        frames, _ = pages_of(tree, leaves_of(tree, heat)[0], (heat.address >> PAGE).astype(np.int64))
        node = scenario.snapshot.topology.node_of_frame(frames)
        known = (node >= 0) & (node < len(walks))
        walks += np.bincount(node[known], heat.walks[known], len(walks))
    if not walks.any():
        return []
    share = walks / walks.sum()
    there = [f"{100 * part:.0f} % on node {node}" for node, part in enumerate(share) if part >= 0.005]
    text = str(message("footprint", "data", there=", ".join(there)))
    return [Finding(DATA_NODES, text, numbers={f"node {n}": float(part) for n, part in enumerate(share)})]


def described(use: Footprint, lines: Interval, nodes: int, machine: Machine) -> list[Message]:
    """Notes: what the use of the process is."""
    shortest, longest = (about(1e3 * use.seconds[end] / use.cpus) for end in (0, -1))
    numbers = {"shortest": shortest, "longest": longest, "busy": about(use.cpus), "used": use.used}
    used, fill = message("footprint", "used", **numbers), use.filled(lines.middle)[0]
    if use.used <= lines.low:
        return [message("footprint", "held", used=used, machine=machine.name)]
    full = message("footprint", "full", ms=1e3 * fill / use.cpus) if np.isfinite(fill) else ""
    notes = [message("footprint", "more", used=used, least=lines.low, most=lines.high, full=full)]
    if nodes == 1 < len(machine.cpu_nodes):
        notes.append(message("footprint", "alone"))
    if nodes > 1:
        notes.append(message("footprint", "apart", nodes=nodes))
    if not use.steady:
        blur = message("footprint", "blurred") if use.blurred(lines.middle) else ""
        notes.append(message("footprint", "bursts", blur=blur))
    return notes


def leaves_by_node(
    tables: Sequence[tuple[np.ndarray, np.ndarray]], servers: Sequence[np.ndarray], machine: Machine
) -> np.ndarray:
    """Counts.leaves; its own node serves each reader where nothing is read.

    servers  of each process int16[T, nodes]: node that serves each table to each reader
    """
    readers = list(machine.cpu_nodes)
    served = np.zeros((len(readers), machine.nodes))
    for (table, share), server in zip(tables, servers, strict=True):
        for k, reader in enumerate(readers):
            served[k] += np.bincount(server[table, reader], share, machine.nodes)
    return served if served.any() else np.eye(machine.nodes)[readers]


def captured_at(scenario: Scenario) -> np.ndarray:
    """int16[T, nodes]: node of each table where it was captured, to any reader; of no known node: 0."""
    machine = scenario.machine
    node = np.asarray(scenario.space.tables.node).astype(np.int16)
    node = np.where((node >= 0) & (node < machine.nodes), node, 0)
    return np.repeat(node[:, None], machine.nodes, axis=1)


def with_reads(
    counted: np.ndarray, use: Use, servers: Sequence[np.ndarray], scenarios: Sequence[Scenario]
) -> np.ndarray:
    """Counts.reads of estimated walks, of which some read a leaf entry from DRAM, the others from the LLC.

    Each node is taken to walk as much as the processes did.
    """
    dram = use.law.reads.middle * use.law.seconds
    readers = scenarios[0].machine.cpu_nodes
    walks = counted.sum() / max(len(readers), 1)
    reads = np.zeros(counted.shape, np.float64)
    reads[..., LLC] = counted[..., DRAM] * max(1 - dram / max(walks, 1), 0.0)
    for (table, share), server, scenario in zip(use.tables, servers, scenarios, strict=True):
        level = np.minimum(scenario.space.tables.level, 3).astype(np.int64)[table]
        for reader in readers:
            np.add.at(reads[0, 0], (8 * level, reader, server[table, reader], DRAM), dram * share)
    return np.rint(reads).astype(np.int64)
