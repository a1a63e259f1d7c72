"""What the arguments that all replays share stand for, once, for what the API and the commands ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.progress import Progress
from ..formats.capture import CaptureLike, PathLike, load
from .arguments import (
    MachineLike,
    Settings,
    calibration_of,
    costs_of,
    machine_of,
    moves_of,
    provenance_of,
    tables_of,
)

if TYPE_CHECKING:
    from ..core.machine import Costs, Machine
    from ..core.snapshot import Snapshot
    from ..core.trace import Trace
    from ..cost.calibration import Calibration
    from ..formats.capture import Capture
    from ..world.world import World


@dataclass(frozen=True)
class Asked:
    """What to replay. how: keyword arguments of whatif.whatif; pricing: those that only replayed takes."""

    capture: Capture
    snapshot: Snapshot
    trace: Trace | None
    machine: Machine
    walking: dict[str, Any]
    pricing: dict[str, Any]

    @property
    def how(self) -> dict[str, Any]:
        return self.walking | self.pricing

    def world(self) -> World:
        """The capture on the machine, before any policy."""
        from ..world.captured_world import captured_world

        return captured_world(self.snapshot, self.trace, self.machine, **self.walking)


def asked(
    capture: CaptureLike,
    machine: MachineLike,
    *,
    placement: str,
    costs: PathLike | Costs | None,
    calibration: PathLike | Calibration | None,
    contended: bool,
    move_threads: str,
    autonuma: bool | Settings,
    threads: int,
    progress: Progress,
) -> Asked:
    """Arguments as of replays.replay."""
    target, opened = machine_of(machine), load(capture)
    target.latency_cycles(contended)  # UsageError before anything is computed
    snapshot, said = tables_of(opened)
    walking = {
        "placement": placement,
        "threads": threads,
        "cache_dir": opened.cache,
        "progress": progress,
        "moves": moves_of(autonuma),
        "move_threads": move_threads,
    }
    pricing = {
        "costs": costs_of(target, costs),
        "contended": contended,
        "calibration": calibration_of(calibration),
        "provenance": provenance_of(opened) | said,
    }
    return Asked(opened, snapshot, opened.trace if opened.has_trace else None, target, walking, pricing)
