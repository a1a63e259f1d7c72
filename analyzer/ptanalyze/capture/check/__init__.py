"""Checks that a capture is usable: every finding has a name, a number and a reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ...formats.capture_dir import damaged_files
from .finding import FAILED, NOTE, OK, PARTIAL, Finding
from .heat import check_heat
from .kept import check_kept
from .processes import check_there, summed_up
from .tables import check_tables
from .trace import check_trace
from .vm import check_host, check_joined

if TYPE_CHECKING:
    from ...formats.capture import Capture

__all__ = ["FAILED", "NOTE", "OK", "PARTIAL", "Finding", "check_capture", "exit_code"]


def check_capture(capture: Capture, *, quick: bool = False) -> Iterator[Finding]:
    """Yield a Finding for each check of a capture, files first.

    Damaged files end the list: their contents cannot be trusted.
    quick  compare lengths of files, not contents, and leave the touches of the trace alone
    """
    damaged = list(damaged_files(capture.directory, capture.manifest, quick=quick))
    files = len(capture.manifest.files)
    yield Finding(
        "files: as long as sealed" if quick else "files: as sealed",
        files,
        len(damaged),
        FAILED if damaged else OK,
        "; ".join(f"{name}: {why}" for name, why in damaged),
    )
    if damaged:
        return
    yield from check_kept(capture)  # first: reading the trace may add an index
    if capture.has_snapshot:
        yield from check_tables(capture.snapshot)
    if capture.has_snapshot and capture.has_heat:
        yield check_heat(capture.snapshot)
    if capture.has_vm:
        yield from (
            check_joined(capture.snapshot, capture.vm) if capture.has_snapshot else check_host(capture.vm)
        )
    if capture.has_trace:
        interrupted = capture.manifest.provenance.get("interrupted") is True
        snapshot = capture.snapshot if capture.has_snapshot else None
        yield from check_trace(capture.trace, snapshot, interrupted, quick=quick)
    if capture.processes or capture.manifest.provenance.get("processes"):
        yield check_there(capture)
        for pid, one in capture.processes.items():
            yield summed_up(pid, check_capture(one, quick=quick))


def exit_code(findings: Iterable[Finding]) -> int:
    """0 all well, 1 something failed, 3 usable but partial."""
    verdicts = {finding.verdict for finding in findings}
    return 1 if FAILED in verdicts else 3 if PARTIAL in verdicts else 0
