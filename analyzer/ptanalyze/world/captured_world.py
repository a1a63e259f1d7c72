"""The World of a capture on a machine, before any policy."""

from os import PathLike

from ..core.errors import UsageError
from ..core.machine import Machine
from ..core.progress import Progress, adding_up
from ..core.sample import Sample, sample_of
from ..core.snapshot import Snapshot
from ..core.trace import Trace
from .moves import NOTHING_MOVES, Moves
from .placement import AUTO, place
from .region_of_interest import within_region
from .scaled import scale_notes, scaled_machine, scaled_moves
from .site import LEFT_OUT, Effort
from .traced_windows import sample_of_windows
from .world import World, untouched


def captured_world(
    snapshot: Snapshot,
    trace: Trace | None,
    machine: Machine,
    threads_on: str = AUTO,
    jobs: int = 1,
    cache_dir: str | PathLike[str] | None = None,
    progress: Progress = None,
    moves: Moves | None = None,
    move_threads: str = "",
    sample: Sample | None = None,
    left_out: bool = False,
) -> World:
    """The World of a Snapshot and a Trace's region of interest.

    trace         None: no page is touched and no event happens
    threads_on    node of each thread, see placement.place; move_threads: later moves, see thread_moves
    jobs          threads for computing; counts do not depend on it
    cache_dir     directory where the walk stream is kept, None: not kept
    progress      called with (done, total, what) by the TLB filter pass
    sample        part of the trace to look at in place of all, None: all
    moves         how data pages move, None: by the trace's events alone
    left_out      whether the capture has a trace, which was left out as asked

    A capture that stands for a larger program (Snapshot.scale) has the machine's caches and moves scaled.
    """
    if trace is None and sample:
        lacks = LEFT_OUT if left_out else "the capture has no trace to sample; leave the option out"
        raise UsageError(f"sample = {sample}: {lacks}")
    if trace is None and moves and moves.demote_idle_ms:
        raise UsageError("demote-idle: pages are idle in a trace, and none is replayed; leave the option out")
    if trace is None:
        return untouched(snapshot, machine, left_out)
    trace = within_region(trace)
    sample = sample_for(trace, sample)
    filtered = adding_up(progress, trace.touches, "filtering touches")
    again = adding_up(progress, trace.touches, "filtering touches again")
    placed = place(trace, machine, threads_on, snapshot.topology, move_threads)
    effort = Effort(jobs, cache_dir, filtered, again)
    machine = scaled_machine(machine, snapshot.scale)
    pace = scaled_moves(moves or NOTHING_MOVES, snapshot.scale)
    notes = scale_notes(snapshot.scale)
    return World(snapshot, trace, machine, placed, effort, moves=pace, sample=sample, notes=notes)


def sample_for(trace: Trace, asked: Sample | None) -> Sample | None:
    """The Sample to look at: the part of which the trace was recorded, or what is asked for, None: all.

    UsageError where the trace lacks what is asked for.
    """
    of_windows = "every_ns" in trace.facts
    recorded = sample_of_windows(trace) if of_windows else sample_of(trace.facts.get("sample"))
    if recorded and asked and asked != recorded:
        raise UsageError(
            f"sample = {asked}: the trace was recorded as {recorded} and holds no other part; leave the "
            "option out, or record anew"
        )
    return recorded or asked
