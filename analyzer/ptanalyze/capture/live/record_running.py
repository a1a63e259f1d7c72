"""Record a program that runs already, by the best samples that this machine has: TLB misses, else heat."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ...core.errors import PartialDataError, UsageError
from ...core.regular import temporary_directory
from ...formats.capture_dir import TRACE, new_capture, seal
from ...formats.perf_script import import_perf_script, print_samples
from ...formats.snapshot_file import read_snapshot
from ...formats.trace_index import add_index
from .dump import dump_process
from .heat import heat_process

MISSES = (  # loads and stores that missed every TLB, by Intel's PEBS: Skylake and later, before
    ("mem_inst_retired.stlb_miss_loads:P", "mem_inst_retired.stlb_miss_stores:P"),
    ("mem_uops_retired.stlb_miss_loads:pp", "mem_uops_retired.stlb_miss_stores:pp"),
)
MEMORY = ("mem-loads", "ibs_op//")
NO_WALKS = (
    "memory samples: there, not used: few of them are walks, which `ptanalyze import` takes where their data "
    "sources tell; accessed bits are read instead"
)


def record_running(
    pid: int, out: str | os.PathLike[str], seconds: int, misses: Sequence[Sequence[str]] = MISSES
) -> list[str]:
    """Make the capture directory `out` of process `pid` in `seconds`; returns lines for people: which source.

    misses  groups of perf's events that are TLB misses; the first group that this machine counts is sampled.
    Without any: accessed bits (heat.py). UsageError, PartialDataError if the process ended too early.
    """
    events, said = sampled_here(misses)
    with new_capture(out) as inside:
        lines = sample_misses(pid, inside, seconds, events) if events else heat_process(pid, inside, seconds)
        facts = read_snapshot(inside).facts
        seal(inside, "process", {key: facts[key] for key in ("pid", "comm", "time") if key in facts})
    return [*said, *lines]


def sampled_here(misses: Sequence[Sequence[str]] = MISSES) -> tuple[Sequence[str], list[str]]:
    """(events of TLB misses that perf opens here, or none; lines that say what was tried)."""
    for events in misses:
        if opens(events):
            return events, [f"precise samples of TLB misses: used ({', '.join(events)})"]
    tried = ["precise samples of TLB misses: not there: perf opens none of these events here"]
    memory = NO_WALKS if any(opens([event]) for event in MEMORY) else "memory samples: not there"
    return (), [*tried, memory, "accessed bits of page tables (heat): used"]


def opens(events: Sequence[str]) -> bool:
    """Whether perf can sample all of these events here, tried on a program that does nothing."""
    with temporary_directory() as place:
        command = ["perf", "record", "-q", "-d", "-e", ",".join(events), "-o", f"{place}/data", "--", "true"]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            return False


def sample_misses(pid: int, inside: Path, seconds: int, events: Sequence[str]) -> list[str]:
    """Write trace and page tables of a process; lines for people."""
    with tempfile.TemporaryDirectory(prefix=".perf.", dir=inside) as place:
        data = Path(place) / "perf.data"
        sample(pid, data, seconds, events)
        with tempfile.TemporaryFile() as text:
            print_samples(data, text)
            if not os.fstat(text.fileno()).st_size:
                raise PartialDataError(
                    f"PID {pid}: no sample in {seconds} s: idle, or ended; nothing was kept"
                )
            count = import_perf_script(text, inside / TRACE)
    add_index(inside)
    return [f"{count} samples of PID {pid} in {seconds} s", *dump_process(pid, inside, bpf=True)]


def sample(pid: int, data: Path, seconds: int, events: Sequence[str]) -> None:
    """Let perf sample a process into the file `data`; UsageError with its last line if it fails."""
    sampled = ["-e", ",".join(events), "-d", "--sample-cpu", "-p", str(pid), "-o", str(data)]
    command = ["perf", "record", "-q", *sampled, "--", "sleep", str(seconds)]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise UsageError(f"perf record: {said[-1]}")
