"""Captures made from files of other tools."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from ..core.errors import UsageError
from ..core.regular import open_inside
from ..formats.capture_dir import TRACE, copy_private, new_capture, seal
from ..formats.lackey import import_lackey
from ..formats.perf_script import import_perf_script
from ..formats.ptdump_text import import_ptdump
from ..formats.snapshot_file import read_snapshot

Source: TypeAlias = str | os.PathLike[str]


def lackey(source: Source, inside: Path) -> str:
    import_lackey(source, inside / TRACE)
    return "trace"


def perf_script(source: Source, inside: Path) -> str:
    import_perf_script(source, inside / TRACE)
    return "trace"


def vmitosis(source: Source, inside: Path, nested: Source | None = None) -> str:
    import_ptdump(source, inside, nested)
    read_snapshot(inside)  # nodes that overlap, for one
    return "process" if nested is None else "vm"


def dump_directory(source: Source, inside: Path) -> str:
    """Output of `ptdump process PID -o DIR` on a machine without Python, for example inside a guest."""
    read_snapshot(source)
    for path in Path(source).iterdir():
        if path.is_file():
            with open_inside(path) as file:
                copy_private(file, inside / path.name)
    if (inside / TRACE).exists():
        from ..formats.trace_file import read_trace  # imports Numba

        read_trace(inside / TRACE)
    return "process"


FORMATS: dict[str, tuple[Callable[[Source, Path], str], str]] = {
    "lackey": (lackey, "valgrind --tool=lackey --trace-mem=yes"),
    "perf-script": (perf_script, "perf script -F tid,cpu,time,event,addr"),
    "vmitosis": (vmitosis, "text dump of the Mitosis and vMitosis kernels' /proc/ptdump"),
    "ptdump": (dump_directory, "directory that the ptdump tool of this project wrote"),
}


def import_capture(form: str, source: Source, out: Source, nested: Source | None = None) -> None:
    """Make the capture directory `out` from `source`, written in the foreign format `form` (FORMATS).

    nested  the VM's nested table beside it, vmitosis only
    UsageError for unknown formats and missing files, CaptureError for damaged ones; nothing is left then.
    """
    read, _ = FORMATS[form]
    if nested is not None and read is not vmitosis:
        raise UsageError(f"--ept {nested}: only the vmitosis format has a nested table in a second file")
    if not Path(source).exists():
        raise UsageError(f"{source}: no such file")
    with new_capture(out) as inside:
        kind = read(source, inside) if nested is None else vmitosis(source, inside, nested)
        seal(inside, kind, {"imported": form, "source": Path(source).name})
