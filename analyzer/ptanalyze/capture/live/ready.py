"""What must be there before a program is run and traced for hours: privileges, tools, disk space."""

import os
import shutil
import subprocess
from pathlib import Path

from ...core.errors import UsageError
from ...core.regular import temporary_directory

LEAST_FREE = 64 << 20  # bytes below which nothing is begun
SLOWER = "6 to 70 times"  # wall time of traced programs over native, measured
GROWTH = 2e8  # bytes of trace per native second and thread: random reads of 256 MiB took 1.2e8


def rehearse(dumper: Path) -> None:
    """Dump our own page tables and throw them away: UsageError if that fails, as it would after the run."""
    with temporary_directory() as place:
        argv = [
            str(dumper),
            "process",
            str(os.getpid()),
            "--quiet",
            "--retries",
            "0",
            "-o",
            f"{place}/tables",
        ]
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode in (0, 3):
        return
    said = done.stderr.strip().splitlines() or [f"ptdump ended with {done.returncode}"]
    why = said[-1].removeprefix("ptdump: ").removesuffix("; run as root")
    raise UsageError(
        f"page tables cannot be read: {why}. Nothing was run; use sudo, or record the trace alone: --no-dump"
    )


def free_bytes(directory: Path) -> int:
    """Bytes free for us where `directory` is. UsageError if that is next to nothing."""
    free = shutil.disk_usage(directory).free
    if free < LEAST_FREE:
        raise UsageError(
            f"{directory}: only {free >> 20} MB are free, too few for a trace; free space, or name another "
            "directory with -o"
        )
    return free
