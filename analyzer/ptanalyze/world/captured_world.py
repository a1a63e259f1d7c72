"""The World of a capture on a machine, before any policy."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from os import PathLike

import numpy as np

from ..core.finding import CAREFUL, MADVISE, Finding
from ..core.machine import Machine
from ..core.options import Options
from ..core.process import adding_up
from ..core.snapshot import Snapshot
from ..core.trace import REGION_SHIFT, Trace
from .huge_pages import ADVISED, DISABLED, PRCTL, advice, allowed, promote_guest, within
from .mm_events import linux, within_region
from .moves import NOTHING_MOVES, Moves
from .phases import ALL, SteadyPart, may_end_sooner, until
from .scaling import AS_CAPTURED, StandsFor, growth, scaled_by, scaled_machine, scaled_moves
from .site import Effort
from .thread_placement import ACTIVE, place
from .world import World, untouched


@dataclass(frozen=True, kw_only=True)
class Scenario(Options):
    """What is asked of a capture before any policy, names and files read.

    autonuma  how data pages move, None: by the trace's events alone
    """

    machine: Machine = field()
    autonuma: Moves | None = None
    stands_for: StandsFor = AS_CAPTURED
    phase: str = ALL
    jobs: int = 1


def captured_world(
    snapshot: Snapshot,
    trace: Trace | None,
    asked: Scenario,
    cache_dir: str | PathLike[str] | None = None,
    left_out: bool = False,
) -> World:
    """The World of a Snapshot and a Trace's region of interest, up to the end of the phase that is asked for.

    trace      None: no page is touched and no event happens; a larger run needs a Footprint then
    cache_dir  directory where the walk stream is kept, None: not kept
    left_out   whether the capture has a trace, which was left out as asked

    For a larger program than the trace is of (Snapshot.scale, stands_for) the machine's caches and moves are
    scaled.
    """
    if trace is None and (snapshot.heat is None or snapshot.heat.footprint is None):
        asked.stands_for.must_have_a_trace()
    larger = growth(snapshot, asked.stands_for)
    if trace is None:
        world = untouched(snapshot, scaled_machine(asked.machine, larger.factor), left_out)
        return replace(world, growth=larger).noted(*scaled_by(larger.factor), *larger.findings)
    trace, version = within_region(trace), linux(asked.kernel, snapshot.facts.get("kernel"))
    scale = snapshot.scale * larger.factor
    machine, pace = scaled_machine(asked.machine, scale), scaled_moves(asked.autonuma or NOTHING_MOVES, scale)
    said = *scaled_by(scale), *larger.findings

    def on_machine(trace: Trace, answered: SteadyPart | None = None) -> World:
        filtered = adding_up(asked.progress, trace.touches, "filtering touches")
        again = adding_up(asked.progress, trace.touches, "filtering touches again")
        placed = place(trace, machine, asked.threads_on, snapshot.topology, asked.move_threads)
        effort = Effort(asked.jobs, cache_dir, filtered, again)
        world = World(snapshot, trace, machine, placed, effort, moves=pace, growth=larger, findings=said)
        return with_advice(flushed(replace(world, phase=asked.phase, answered=answered, linux=version)))

    world = on_machine(trace)
    if may_end_sooner(trace, asked.phase) and world.steady.end < len(trace.chunks):
        return on_machine(until(trace, world.steady.end), world.steady)
    return world


def flushed(world: World) -> World:
    """The World with a finding where shootdowns of a program on many CPUs interrupt nobody."""
    if not (world.linux.broadcasts and world.machine.invlpgb and world.snapshot.native):
        return world
    if len(np.unique(world.placement.chunk_cpu)) <= ACTIVE:
        return world
    release = ".".join(map(str, world.linux))
    text = (
        f"shootdowns interrupt no CPU: Linux {release} flushes a process on more than {ACTIVE} CPUs by an "
        "instruction that this machine has (INVLPGB); --kernel 6.14 has the IPIs of before"
    )
    return world.noted(Finding("broadcast", text))


def with_advice(world: World) -> World:
    """The World with huge pages where the program asked for them and natively has them.

    An emulator does not pass the advice on, and its memory has none. Findings tell how much is huge here, and
    what is not though natively it is. Page tables of a program that ran natively are what it had.
    """
    asked, snapshot, may = advice(world.trace.events), world.snapshot, allowed(world.snapshot, world.trace)
    if "qemu" not in str(world.trace.facts.get("tracer")) or not (len(asked.asked) or len(asked.collapsed)):
        return world
    if may == DISABLED:
        text = f"the program asks for huge pages ({ADVISED}) and has none: prctl({PRCTL})"
        return world.noted(Finding(MADVISE, text))

    def wanted(bases: np.ndarray) -> np.ndarray:
        """bool[n]: 2 MiB from each base on have a huge page natively."""
        given = within(bases, 1 << REGION_SHIFT, asked.collapsed)
        return given if may == "never" else given | within(bases, 1 << REGION_SHIFT, asked.asked)

    space = world.space
    huge = promote_guest(space, 1, 0.0, 0, asked.forbidden, wanted(snapshot.guest.base))
    unseen = space.regions.leaf >= space.guest_tables + space.host_tables
    gone = int(np.count_nonzero(wanted(space.regions.va[unseen] << np.uint64(REGION_SHIFT))))
    if huge.regions:
        world = replace(world, snapshot=replace(snapshot, guest=huge.tree))
    return world.noted(*advice_findings(huge.regions, gone + huge.without_block, may))


def advice_findings(regions: int, small: int, may: str | None) -> Iterator[Finding]:
    """On what the program asks huge pages for: `regions` of 2 MiB that are huge in the baseline,
    `small` that are not though natively they are; may: as of `allowed`."""
    if may == "never":
        yield Finding(
            MADVISE, f"the program asks for huge pages ({ADVISED}); the captured machine gives none"
        )
    if regions:
        unknown = "" if may else "; taken for granted that its machine gives them, which was not recorded"
        yield Finding(
            MADVISE,
            f"{regions * 2} MiB have huge pages under every policy: the program asks for them ({ADVISED}), "
            f"and without the emulator it has them{unknown}",
            numbers={"MiB": regions * 2},
        )
    if small:
        yield Finding(
            MADVISE,
            f"{small * 2} MiB stay 4 KiB here that are huge without the emulator ({ADVISED}): they "
            "were gone when the page tables were read; walks and faults there are too many",
            CAREFUL,
            "some memory is huge without the emulator",
            numbers={"MiB": small * 2},
        )
