"""The World of a snapshot and a trace on a machine, as they were captured."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from ..core.progress import Progress, adding_up
from .moves import NOTHING_MOVES, Moves
from .placement import AUTO, place
from .site import Effort
from .world import World, untouched

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.snapshot import Snapshot
    from ..core.trace import Trace


def captured_world(
    snapshot: Snapshot,
    trace: Trace | None,
    machine: Machine,
    placement: str = AUTO,
    threads: int = 1,
    cache_dir: str | PathLike[str] | None = None,
    progress: Progress = None,
    moves: Moves | None = None,
    move_threads: str = "",
) -> World:
    """The World of a capture, untouched where there is no trace (None).

    placement     see world.placement.place; move_threads: see world.thread_moves
    threads       for the TLB filter pass; results do not depend on it
    cache_dir     directory where the walk stream is kept, None: not kept
    progress      called with (done, of so many, "filtering touches")
    moves         how data pages move, None: by the trace's events alone
    Raises UsageError for placements and moves that are not possible.
    """
    if trace is None:
        return untouched(snapshot, machine)
    filtered = adding_up(progress, trace.touches, "filtering touches")
    placed = place(trace, machine, placement, snapshot.topology, move_threads)
    effort = Effort(threads, cache_dir, filtered)
    return World(snapshot, trace, machine, placed, effort, moves=moves or NOTHING_MOVES)
