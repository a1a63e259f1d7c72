"""A capture opened for a question: page tables, trace or none, and provenance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..formats.capture import Capture, CaptureLike, load
from ..world.site import ASSUMED, bare_snapshot
from .processes import together

if TYPE_CHECKING:
    from ..core.snapshot import Snapshot
    from ..core.trace import Trace
    from ..world.world import World
    from .setup import Setup


@dataclass(frozen=True)
class Opened:
    """trace: None where the capture holds none; provenance: {what: text} for results."""

    capture: Capture
    snapshot: Snapshot
    trace: Trace | None
    provenance: dict[str, str]

    def world(self, setup: Setup) -> World:
        """The capture on the setup's machine, before any policy."""
        return setup.world(self.snapshot, self.trace, self.capture.cache)

    def others(self, setup: Setup) -> list[World]:
        """Worlds of the processes whose counts add up with this one's: processes.together."""
        return [setup.world(one, None) for one in together(self.capture, setup.weigh)]


def opened(capture: CaptureLike = None) -> Opened:
    """Opened capture; a bare trace gets a snapshot without tables, noted in its provenance."""
    known = load(capture)
    source = provenance_of(known)
    trace = known.trace if known.has_trace else None
    if known.has_snapshot or known.has_vm:
        return Opened(known, known.snapshot, trace, source)
    return Opened(known, bare_snapshot(known.trace), trace, source | {"assumed": ASSUMED})


def provenance_of(capture: Capture) -> dict[str, str]:
    return {"capture": str(capture.directory)}
