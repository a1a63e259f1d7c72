"""What the walks of running processes cost now, by hardware counters, where there are some."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import ptanalyze as pt
from ptanalyze_law.perf_stat import DURATION, PENDING, read_perf_stat, walk_run

from .survey import Surveyed

GROUPS = (PENDING, DURATION)  # Intel since Skylake, and before; AMD counts walks, but no cycles of them
NOT_COUNTED = (
    "walk cycles are not counted here: perf opens neither {} nor {} (a VM without a virtual PMU, or AMD, "
    "which counts no cycles of walks)"
)


def with_walk_cost(found: Sequence[Surveyed], seconds: float, most: int) -> list[Surveyed]:
    """The Surveyed, the first `most` of them counted together for `seconds`: walk_share.

    UsageError where this machine does not count cycles of walks. A process that has ended meanwhile has none.
    """
    events = counted_here()
    with pt.safe_files.temporary_directory() as place:
        files = {one.pid: place / str(one.pid) for one in found[:most]}
        running = [start(pid, events, seconds, file) for pid, file in files.items()]
        for process in running:
            process.wait()
        return [replace(one, walk_share=walk_share(files.get(one.pid))) for one in found]


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


def walk_share(file: Path | None) -> float | None:
    """Walk cycles / cycles from a file of `perf stat -x,`; None where nothing was counted.

    Two walkers can be busy at once: above 1 is shown as 1.
    """
    if file is None or not file.exists():
        return None
    try:
        run = walk_run(read_perf_stat(file), native=True, allow_multiplexed=True)
    except pt.errors.CaptureError:  # idle, or ended: not counted
        return None
    return min(run.gpt / run.cycles, 1.0) if run.cycles and run.gpt is not None else None
