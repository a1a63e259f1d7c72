"""Add samples of accessed bits to a capture of the same process that is there."""

import os
from collections.abc import Sequence
from pathlib import Path

from ...core.errors import UsageError
from ...core.regular import is_own, unfinished_directory
from ...formats.capture import open_capture
from ...formats.capture_dir import seal
from ...formats.heat_file import FILE, read_heat
from ...world.address_space import known_pages
from .heat import LENGTHS, provenance, sample

LEAST = 0.5  # of the pages that were used must be mapped in the capture


def add_heat(
    pid: int, directory: str | os.PathLike[str], seconds: int, lengths: Sequence[int] = LENGTHS
) -> list[str]:
    """Sample process `pid` for `seconds` into the capture in `directory`, sealed anew; lines for people.

    UsageError for a capture with heat, without page tables, of somebody else, or of another process: less
    than half of the used pages mapped in it.
    """
    capture, directory = open_capture(directory), Path(directory)
    if capture.has_heat or not capture.has_snapshot or capture.has_vm or not is_own(directory):
        why = "has heat" if capture.has_heat else "must be your own, of a process, with page tables"
        raise UsageError(f"{directory}: {why}; make a new capture with `ptanalyze heat PID -o DIR`")
    snapshot, others = capture.snapshot, provenance()
    with unfinished_directory(directory, FILE) as inside:
        out = inside / FILE
        lines = sample(pid, out, seconds, lengths)
        heat = read_heat(out)
        known, pages = known_pages(snapshot.guest, heat), len(heat.address)
        if known < LEAST * pages:
            raise UsageError(
                f"{directory}: maps {known} of the {pages} pages that PID {pid} uses: a capture of another "
                "process, or too old; make a new one with `ptanalyze heat PID -o DIR`"
            )
        os.replace(out, directory / FILE)
    seal(directory, capture.manifest.kind, capture.manifest.provenance | others)
    return [*lines, f"{known} of the {pages} pages used are mapped in {directory}"]
