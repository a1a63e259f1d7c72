"""Processes that were captured together: which of them an answer counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.errors import UsageError
from .weights import AUTO

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
    """Snapshots of the other processes, where each mapped page counts once and counts thus add up.

    weigh  Setup.weigh
    [] where the capture's trace or its samples of accessed bits, which are of one process, weigh its pages.
    """
    each_once = weigh == "leaf" or (weigh == AUTO and not capture.has_trace and not capture.has_heat)
    if not each_once or not capture.has_snapshot:
        return []
    found = [replace(one.snapshot, heat=None) for one in others(capture).values()]
    if found and len({(one.native, len(one.topology)) for one in (capture.snapshot, *found)}) > 1:
        raise UsageError(f"{capture.directory}: its processes were captured on different machines")
    return found


def alike(number: int) -> str:
    """Line for people about an answer that counts so many processes."""
    return (
        f"{number} processes together, each with tables of its own: what a process maps counts, "
        "not how busy it is"
    )


def asked_of_processes(capture: Capture, setup: Setup) -> str:
    """Line for people: of which processes of a Capture a replay is; "" where there is but one."""
    return counted(capture, bool(together(capture, setup.weigh)))


def counted(capture: Capture, all_of_them: bool) -> str:
    """Line for people: an answer is of all processes of a Capture, or of the first; "" where it is one."""
    known = others(capture)
    if not known:
        return ""
    number, own = len(known) + 1, capture.manifest.provenance.get("pid")
    said = alike(number) if all_of_them else f"PID {own} alone, of {number} processes captured together"
    return f"{said}; one of them alone: {next(iter(known.values())).directory}"
