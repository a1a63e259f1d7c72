"""Notes for a reader of priced runs: what was counted, and what the capture cannot show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import plural, size_in_words
from ..core.interval import NOTHING
from ..core.machine import LINE_BYTES, cache_note
from ..world.data_migration import moves_notes
from ..world.mm_events import region_of_interest
from ..world.world import ENTRIES_PER_LINE
from .replay import by_socket

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.snapshot import Snapshot
    from ..cost.result import Result, Series
    from ..world.world import World
    from .replay import Finished


# Nodes whose threads hardly walk: what they touched first is remote to nearly all walks.

FEW = 0.001  # share of the walks
BEGINS = f"less than {100 * FEW:g} % of the walks come from "


def silent_note(classes: np.ndarray, cpu_node: np.ndarray, domains: int) -> str:
    """A note on nodes that have threads, but next to no walk in what is counted; "" where every one walks.

    classes   int64[sockets, 4] as Counters; cpu_node: int16[cpus] nodes of the CPUs that have threads
    """
    walks = classes.sum(axis=1)
    nodes = np.unique(cpu_node // domains).tolist()
    silent = [node for node in nodes if walks[node] < FEW * walks.sum()]
    if not silent:
        return ""
    named = f"node{'s' * (len(silent) > 1)} {', '.join(map(str, silent))}"
    return f"{BEGINS}{named}, where threads run: what they touched first is remote to nearly all walks"


def silent_points(points: Sequence[tuple[Mapping[str, Any], Result]], axes: Sequence[str]) -> list[str]:
    """The notes of a sweep's points, each once, after the point's place on the machine's axes."""
    lines = []
    for point, result in points:
        where = " ".join(f"{key}={point[key]}" for key in axes if key in point)
        lines += [f"{where}: {note}" if where else note for note in result.notes if note.startswith(BEGINS)]
    return list(dict.fromkeys(lines))


# Answers without a trace about a machine with another number of nodes than the captured one has.

HOST_MODEL = "ptanalyze machines --from-host host.toml"


def elsewhere(snapshot: Snapshot, machine: Machine) -> str:
    """A line for people; "" where both have as many nodes.

    Without a trace each node of the machine is taken to walk as the captured process did.
    """
    captured, readers = len(snapshot.topology), len(machine.cpu_nodes)
    if captured == machine.nodes:
        return ""
    return (
        f"captured on {plural(captured, 'node')}, replayed on {machine.nodes} ({machine.name}); each of "
        f"{readers} is taken to walk as much as the process did, so this says nothing about the captured "
        "machine"
    )


# What an answer without a trace may claim: a bound, and no gain where the caches hold the leaf entries.

NO_ADVICE = "No recommendation without a trace"


def bound_note(readers: int) -> str:
    """Line for people: what is assumed of the walks."""
    return (
        "what is saved of walk cycles is a bound: without a trace every leaf entry is taken to be read from "
        f"DRAM{',' if readers > 1 else ''}{from_nodes(readers)}, and how often TLBs miss is not known"
    )


def cached(worlds: Sequence[World], share: float | None = None) -> str:
    """A note where the least that the machine's LLC may leave to page tables holds every line with a leaf
    entry of processes that run together; else "".

    share  of the LLC, in place of the least
    """
    lines, llc = sum(world.leaf_lines for world in worlds), worlds[0].machine.llc
    if lines > llc.lines_at(share or llc.every_share[0]):
        return ""
    kib = -(-lines * LINE_BYTES // 1024)
    return f"its leaf entries, {size_in_words(kib * 1024)} of page-table lines, {NOTHING}"


def equally(base: Result) -> str:
    """A sentence on where walks are taken to start; "" where there is one node."""
    readers = int(np.count_nonzero(base.reads.sum(axis=(0, 2, 3))))
    return f"The program is taken to walk{from_nodes(readers)}." if readers > 1 else ""


def from_nodes(readers: int) -> str:
    return f" equally from {readers} nodes" if readers > 1 else ""


def sentence_of(note: str) -> str:
    return f"{note[0].upper()}{note[1:]}."


BLOCK = 1 << 22  # walks that are looked at together
IN_ONE_GO = 64  # walks: a run through pages reads a line eight times, a few such runs take turns
DRAM_MATTERS = 0.05  # share of the reads: less is of no importance


def short_region(first: np.ndarray, further: np.ndarray, world: World, share: float | None = None) -> str:
    """A note where the caches hold what the region reads, as it is short: the program may read more.

    first, further  Counters.reads of the two runs, at a share of the LLC
    share           which, where it is not the machine's own
    "" where the caches would hold the leaf entries of all that the program has mapped, too.
    """
    was, still = dram_share(first), dram_share(further)
    if was < DRAM_MATTERS or still > was / 2:
        return ""
    if not world.space.inferred_tables and cached([world], share):
        return ""
    return (
        f"{100 * was:.0f} % of the table reads came from DRAM in the first run, {100 * still:.0f} % in the "
        "further run: the caches hold what a short region reads; a longer one tells what they hold of the "
        "program's, middles of speed-ups are estimates of that"
    )


def missing_in_longer(done: Finished) -> float:
    """Part of the lines of leaf entries a region reads that a longer one would miss when it reads them.

    Of n walks that read D lines, f of them once (or in one go), the next walk finds a new line with f / n
    (Good, Biometrika 40, 1953): a cache of D lines misses that often, one of all L lines of the program
    never, and one of C in between: f / n (L - C) / (L - D), which is exact for uniform walks. The first run
    missed D / n. Nodes are taken together; where L is not known (tables that were gone at the snapshot), C is
    taken for D.
    """
    world = done.world
    read, once = lines_by_node(world)
    if not read:
        return 0.0
    held, lines = world.machine.llc.lines, read / len(world.readers)
    if world.space.inferred_tables or lines >= held:
        return once / read
    every = float(world.leaf_lines)
    return once / read * (every - held) / (every - lines) if every > held else 0.0


def lines_by_node(world: World) -> tuple[int, int]:
    """(lines of guest leaf entries that nodes' walks read, those read once or in one go), summed."""
    placement, stream = world.placement, world.stream
    node = placement.cpu_node[placement.chunk_cpu] // world.domains
    kept, begun, left = ([np.zeros(0, np.int64)] for _ in range(3))
    for first in range(0, len(stream), BLOCK):
        page = stream.page[first : first + BLOCK]
        chunk = np.searchsorted(stream.offset, np.arange(first, first + len(page)), side="right") - 1
        line = (page // ENTRIES_PER_LINE).astype(np.int64) * world.nodes + node[chunk]
        found, at = np.unique(line, return_index=True)
        _, back = np.unique(line[::-1], return_index=True)
        kept.append(found)
        begun.append(first + at)
        left.append(first + len(page) - 1 - back)
    lines, where = np.unique(np.concatenate(kept), return_inverse=True)
    since, until = np.full(len(lines), len(stream)), np.zeros(len(lines), np.int64)
    np.minimum.at(since, where, np.concatenate(begun))
    np.maximum.at(until, where, np.concatenate(left))
    return len(lines), int(np.count_nonzero(until - since < IN_ONE_GO))


def moved_notes(series: Series) -> list[str]:
    """How much of the memory moved; of a capture that stands for a larger program, of the program's too."""
    moved = int(series.data_moved[-1]) if len(series.data_moved) else 0
    if not moved:
        return []
    line = f"{moved} data pages moved, {moved / max(series.pages, 1):.0%} of the {series.pages} mapped"
    if series.scale > 1:
        line += f"; of the program they stand for, {moved * series.scale} of {series.pages * series.scale}"
    return [line]


def dram_share(reads: np.ndarray) -> float:
    return float(reads[..., 1].sum() / max(reads.sum(), 1))


def notes(done: Finished, how: str) -> list[str]:
    """Notes for a reader of the results, one line each."""
    world = done.world
    space, history = world.space, world.history
    lines = [how, *world.notes, *region_of_interest(world.trace.events).notes, *moves_notes(world)]
    lines.append(
        "steady state: counts and speed-ups are of a further run with warm TLBs and caches; memory that it "
        "maps, or unmaps and maps again, is faulted in again and counts"
        if done.warm
        else "as traced: TLBs and caches empty at first, everything touched first within the run, and the "
        "time to make the policy's tables before the first walk counted with it"
    )
    if done.warm and world.steady.note:
        lines.append(world.steady.note)
    counted = by_socket(done.counted, world.domains)
    if note := silent_note(counted.classes, world.placement.cpu_node, world.domains):
        lines.append(note)
    if done.run.series is not None:
        lines += moved_notes(done.run.series)
    if note := cache_note(world.machine):
        lines.append(note)
    if (ended := world.trace.facts.get("ended", "exit")) not in ("exit", "imported"):
        lines.append(f"the trace may be only part of the run; it ended by: {ended}")
    if world.trace.facts.get("sampled"):
        lines.append("the trace holds samples of the accesses: shares mean more than numbers")
    if len(space.snapshot.topology) == 1 and world.nodes > 1:
        lines.append("recorded on one node: as captured (linux) all tables are on node 0")
    if space.inferred_tables:
        share = (
            f", {100 * world.gone_share:.1f} % of the walks of the trace go there" if world.gone_share else ""
        )
        lines.append(
            f"{space.inferred_tables} table pages were gone at the snapshot: placed by first touch{share}"
        )
    if history.premapped:
        lines.append(
            f"{history.premapped} pages were mapped before the region of interest began: no demand faults"
        )
    lines += world.first_touch_notes
    if sum(space.unresolved.values()):
        lines.append(f"{sum(space.unresolved.values())} guest table pages have no known place in the host")
    return lines


# Notes of several results together, each once; one that only some policies have names them.


def owned_notes(results: Sequence[Result], assumptions: bool = True) -> list[str]:
    """Notes, and assumptions, in the order of the results: "thp: ..." or "all but thp: ..." if not of all."""
    owners: dict[str, set[str]] = {}
    for result in results:
        for note in (*result.notes, *[result.price.assumptions] * assumptions):
            owners.setdefault(note, set()).add(result.policy)
    policies = list(dict.fromkeys(result.policy for result in results))
    return [named(note, whose, policies) for note, whose in owners.items()]


def named(note: str, whose: set[str], policies: Sequence[str]) -> str:
    """The note behind the names of its policies, unless all have it or it begins with a name itself."""
    if note.startswith(tuple(member for policy in whose for member in policy.split("+"))):
        return note
    others = [policy for policy in policies if policy not in whose]
    if not others:
        return note
    if len(others) < len(whose):
        return f"all but {', '.join(others)}: {note}"
    return f"{', '.join(policy for policy in policies if policy in whose)}: {note}"
