"""Notes for a reader of priced runs: what was counted, and what the capture cannot show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.cache_share import cache_note
from ..world.data_moves import moves_notes
from ..world.demotion import demotion_notes
from ..world.region_of_interest import region_of_interest
from .silent_nodes import silent_note
from .sockets import by_socket
from .untraced import cached

if TYPE_CHECKING:
    import numpy as np

    from ..cost.result import Series
    from ..world.world import World
    from .finished import Finished

DRAM_MATTERS = 0.05  # share of the reads: less is of no importance


def short_region(first: np.ndarray, further: np.ndarray, world: World) -> str:
    """A note where the caches hold what the region reads, as it is short: the program may read more.

    first, further  Counters.reads of the two runs
    "" where the caches would hold the leaf entries of all that the program has mapped, too.
    """
    was, still = dram_share(first), dram_share(further)
    if was < DRAM_MATTERS or still > was / 2:
        return ""
    if not world.space.inferred_tables and cached([world]):
        return ""
    return (
        f"{100 * was:.0f} % of the table reads came from DRAM in the first run, {100 * still:.0f} % in the "
        "further run: the caches hold what a short region reads; a longer one tells what they hold of the "
        "program's"
    )


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
    lines += demotion_notes(world, history)
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
