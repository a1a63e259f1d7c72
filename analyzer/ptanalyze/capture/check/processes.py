"""Checks of the other processes inside a capture: each is there, and is a sound capture itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .finding import FAILED, NOTE, OK, PARTIAL, Finding, finding

if TYPE_CHECKING:
    from ...formats.capture import Capture

WORST = (FAILED, PARTIAL, NOTE, OK)


def check_there(capture: Capture) -> Finding:
    """All processes that were captured together are in the capture."""
    names = ", ".join(f"pid-{pid}" for pid in capture.lost[:5])
    there = len(capture.processes) + len(capture.lost)
    return finding("processes: there", there, len(capture.lost), f"not in it: {names}")


def summed_up(pid: int, findings: Iterable[Finding]) -> Finding:
    """The findings about a process as one: `wrong` of its checks are not ok, the worst is the verdict."""
    every = list(findings)
    other = [one for one in every if one.verdict != OK]
    verdict = min([OK, *(one.verdict for one in other)], key=WORST.index)
    reasons = "; ".join(f"{one.name}: {one.reason}" for one in other if one.verdict == verdict)
    return Finding(f"process {pid}", len(every), len(other), verdict, reasons)
