"""Processes that were captured together: which of them an answer counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.errors import UsageError
from .weights import AUTO, weighed_by

if TYPE_CHECKING:
    from ..core.snapshot import Snapshot
    from ..formats.capture import Capture
    from .setup import Setup

ONCE_EACH = (
    "of several processes: pages that they share would count once for each; ask about one of them alone, "
    "DIR/pid-PID"
)


def others(capture: Capture) -> dict[int, Capture]:
    """{PID: Capture} of the processes with page tables that were captured with this one."""
    return {pid: one for pid, one in capture.members.items() if one is not capture and one.has_snapshot}


def together(capture: Capture, weigh: str = AUTO) -> list[Snapshot]:
    """Snapshots of the other processes, where each mapped page counts once, or by the process's own samples
    of accessed bits (`heat --tree`), and counts thus add up.

    weigh  Setup.weigh
    [] where the capture's trace, which is of one process, weighs its pages, or it alone has samples.
    """
    weight = weighed_by(weigh, capture.has_trace, capture.has_heat)
    if weight == "walks" or not capture.has_snapshot:
        return []
    if weight == "heat":
        found = [*heated(capture).values()]
    else:
        found = [replace(one.snapshot, heat=None) for one in others(capture).values()]
    if found and len({(one.native, len(one.topology)) for one in (capture.snapshot, *found)}) > 1:
        raise UsageError(f"{capture.directory}: its processes were captured on different machines")
    return found


def heated(capture: Capture) -> dict[int, Snapshot]:
    """{PID: Snapshot} of the processes that were sampled with this one, their walks in as long a time."""
    own = capture.snapshot.heat if capture.has_heat else None
    return {
        pid: replace(one.snapshot, heat=replace(heat, over=own.sampled_seconds))
        for pid, one in others(capture).items()
        if own and one.has_heat and (heat := one.snapshot.heat)
    }


def alike(number: int, by_heat: bool) -> str:
    """Line for people about an answer that counts so many processes."""
    how = "what a process maps counts, not how busy it is"
    if by_heat:
        how = "a page counts by the walks of the process that maps it, estimated for the same time"
    return f"{number} processes together, each with tables of its own: {how}"


def asked_of_processes(capture: Capture, setup: Setup) -> str:
    """Line for people: of which processes of a Capture a replay is; "" where there is but one."""
    by_heat = weighed_by(setup.weigh, capture.has_trace, capture.has_heat) == "heat"
    return counted(capture, len(together(capture, setup.weigh)), by_heat)


def counted(capture: Capture, more: int, by_heat: bool = False) -> str:
    """Line for people: an answer is of a Capture's first process and so many more; "" where it is one."""
    known = others(capture)
    if not known:
        return ""
    number, own = len(known) + 1, capture.manifest.provenance.get("pid")
    said = f"PID {own} alone, of {number} processes captured together"
    if more:
        left_out = f"; {len(known) - more} without samples are left out" if more < len(known) else ""
        said = f"{alike(1 + more, by_heat)}{left_out}"
    return f"{said}; one of them alone: {next(iter(known.values())).directory}"
