"""Setup of a replay: one record from the command line or Python to the kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

from ..core.errors import DEFAULT_MACHINE
from ..core.machine import Costs, Machine, load_costs, load_machine, sharing
from ..formats.capture import PathLike
from ..formats.machine_file import read_calibration
from ..world.captured_world import captured_world
from ..world.moves import Moves, moves_from
from ..world.placement import AUTO
from .weights import weighed

if TYPE_CHECKING:
    from ..core.progress import Progress
    from ..core.snapshot import Snapshot
    from ..core.trace import Trace
    from ..cost.closed_forms import Calibration
    from ..world.world import World

MachineLike: TypeAlias = "PathLike | Machine"
Settings: TypeAlias = Mapping[str, Any]


class Options(TypedDict, total=False):
    """A Setup as people write it: names and files may stand for their contents.

    machine       name of `list_machines`, a TOML file or a Machine; costs: a file or Costs instead of its own
    cache_share   share of the LLC left to page tables, "0.25", or its bounds, "0.1:0.5"; None: the machine's
    calibration   of a measured run (`calibrate`), or its file; scales run-time estimates to that run
    autonuma      whether data pages migrate towards the nodes that access them, or how ({"delay_ms": 10})
    """

    machine: MachineLike
    costs: PathLike | Costs | None
    cache_share: str | float | None
    threads_on: str
    baseline: str
    calibration: PathLike | Calibration | None
    contended: bool
    autonuma: bool | Settings | Moves | None
    move_threads: str
    windows: int
    cold: bool
    weigh: str
    jobs: int
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Machine, placement and options of every replay; `Setup.of` takes names and files.

    threads_on    where threads run: "auto", "recorded", "round-robin", "block" or nodes as "0,0,1,1"; see
                  world.placement.place
    baseline      policy that speed-ups are over; "auto": linux where the capture has several nodes or no
                  trace, else first-touch (on one node every table is on node 0)
    calibration   scales run-time estimates to this measured run
    contended     use loaded instead of idle DRAM latencies
    moves         how data pages move, None: by the trace's events alone
    move_threads  threads that move to another node while the trace runs, "0:1@30%"; see world.thread_moves
    windows       number of equal-length time windows that each Result.series has
    cold          count the first run, TLBs and caches empty at first and everything touched first within it,
                  with what a policy does before it, instead of a further run with warm ones
    weigh         what pages count by: "auto", "walks", "heat" or "leaf"; see weights.weighed
    jobs          number of computing threads; counts do not depend on it
    progress      called with (done, total, what)
    """

    machine: Machine
    costs: Costs
    threads_on: str = AUTO
    baseline: str = AUTO
    calibration: Calibration | None = None
    contended: bool = False
    moves: Moves | None = None
    move_threads: str = ""
    windows: int = 0
    cold: bool = False
    weigh: str = AUTO
    jobs: int = 1
    progress: Progress = None

    @property
    def as_traced(self) -> bool:
        """Whether the run is counted as traced: asked for, or threads move: there is no further run."""
        return self.cold or bool(self.move_threads)

    @classmethod
    def of(cls, **options: Unpack[Options]) -> Setup:
        """The Setup that Options describe; UsageError for latencies that the machine file lacks.

        TypeError for a name that is not in Options, as Python does not enforce types.
        """
        if unknown := options.keys() - Options.__annotations__.keys():
            raise TypeError(
                f"{', '.join(sorted(unknown))}: no such option; there are: "
                f"{', '.join(Options.__annotations__)}"
            )
        machine = machine_of(options.get("machine", DEFAULT_MACHINE))
        if (share := options.get("cache_share")) is not None:
            machine = sharing(machine, str(share))
        contended = options.get("contended", False)
        machine.latency_cycles(contended)  # UsageError before anything is computed
        return cls(
            machine=machine,
            costs=costs_of(machine, options.get("costs")),
            threads_on=options.get("threads_on", AUTO),
            baseline=options.get("baseline", AUTO),
            calibration=calibration_of(options.get("calibration")),
            contended=contended,
            moves=moves_of(options.get("autonuma", False)),
            move_threads=options.get("move_threads", ""),
            windows=options.get("windows", 0),
            cold=options.get("cold", False),
            weigh=options.get("weigh", AUTO),
            jobs=options.get("jobs", 1),
            progress=options.get("progress"),
        )

    def world(self, snapshot: Snapshot, trace: Trace | None, cache_dir: PathLike | None = None) -> World:
        """The World of a Snapshot and a Trace on this machine, before any policy.

        cache_dir  directory where the walk stream is kept, None: not kept
        """
        captured = trace
        snapshot, trace = weighed(snapshot, trace, self.weigh)
        return captured_world(
            snapshot,
            trace,
            self.machine,
            threads_on=self.threads_on,
            jobs=self.jobs,
            cache_dir=cache_dir,
            progress=self.progress,
            moves=self.moves,
            move_threads=self.move_threads,
            left_out=trace is not captured,
        )


def setup_of(setup: Setup | None, options: Options) -> Setup:
    """`setup`, or a Setup of keyword arguments; TypeError for both at once."""
    if setup is None:
        return Setup.of(**options)
    if options:
        raise TypeError(f"{', '.join(options)}: give either a Setup or its fields, not both")
    return setup


def machine_of(machine: MachineLike) -> Machine:
    return machine if isinstance(machine, Machine) else load_machine(machine)


def costs_of(machine: Machine, costs: PathLike | Costs | None) -> Costs:
    return costs if isinstance(costs, Costs) else load_costs(machine, costs)


def calibration_of(calibration: PathLike | Calibration | None) -> Calibration | None:
    if isinstance(calibration, (str, os.PathLike)):
        return read_calibration(calibration)
    return calibration


def moves_of(autonuma: bool | Settings | Moves | None) -> Moves | None:
    if not isinstance(autonuma, (bool, Mapping)):
        return autonuma
    if autonuma is False:
        return None
    return moves_from({} if autonuma is True else dict(autonuma))
