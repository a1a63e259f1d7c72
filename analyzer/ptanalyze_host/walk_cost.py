"""Walk cycles of running processes by hardware counters, where there are some."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import ptanalyze as pt
from ptanalyze_law.perf_stat import DURATION, PENDING

GROUPS = (PENDING, DURATION)  # Intel since Skylake, and before; AMD counts walks, but no cycles of them
NOT_COUNTED = (
    "walk cycles are not counted here: perf opens neither {} nor {} (a VM without a virtual PMU, or AMD, "
    "which counts no cycles of walks)"
)


def counted_here() -> tuple[str, ...]:
    """Events of walk cycles that perf counts here, tried on a program that does nothing."""
    for events in GROUPS:
        with pt.safe_files.temporary_directory() as place:
            file = place / "stat"
            counted = ["-x,", "-e", ",".join(["cycles", *events]), "-o", str(file)]
            try:
                ran = subprocess.run(
                    ["perf", "stat", *counted, "--", "true"], capture_output=True, check=False
                )
            except FileNotFoundError:
                raise pt.UsageError("perf: not found; install it with `apt install linux-perf`") from None
            if ran.returncode == 0 and "<not supported>" not in file.read_text(errors="replace"):
                return events
    raise pt.UsageError(NOT_COUNTED.format(*(events[0] for events in GROUPS)))


def start(pid: int, events: Sequence[str], seconds: float, file: Path) -> "subprocess.Popen[bytes]":
    counted = ["-x,", "-e", ",".join(["cycles", *events]), "-p", str(pid), "-o", str(file)]
    silent = subprocess.DEVNULL
    return subprocess.Popen(
        ["perf", "stat", *counted, "--", "sleep", f"{seconds:g}"], stdout=silent, stderr=silent
    )
