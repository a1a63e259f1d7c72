"""Captures made from files of other tools."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from ..core.errors import UsageError
from ..formats.capture_dir import TRACE, new_capture, seal
from ..formats.lackey import import_lackey
from ..formats.perf_script import import_perf_script
from ..formats.ptdump_text import import_ptdump
from ..formats.snapshot_file import read_snapshot
from ..formats.trace_file import read_index
from ..formats.trace_index import INDEX, write_index

Source: TypeAlias = str | os.PathLike[str]


def lackey(source: Source, inside: Path, strip: bool = True) -> str:
    import_lackey(source, inside / TRACE, strip=strip)
    return "trace"


def perf_script(source: Source, inside: Path) -> str:
    import_perf_script(source, inside / TRACE)
    return "trace"


def vmitosis(source: Source, inside: Path, nested: Source | None = None) -> str:
    import_ptdump(source, inside, nested)
    return "process" if nested is None else "vm"


def dump_directory(source: Source, inside: Path) -> str:
    """Output of `ptdump process PID -o DIR` on a machine without Python, for example inside a guest."""
    read_snapshot(source)
    for file in Path(source).iterdir():
        if file.is_file():
            shutil.copy(file, inside / file.name)
    return "process"


FORMATS: dict[str, tuple[Callable[[Source, Path], str], str]] = {
    "lackey": (lackey, "valgrind --tool=lackey --trace-mem=yes"),
    "perf-script": (perf_script, "perf script -F tid,cpu,time,event,addr"),
    "vmitosis": (vmitosis, "text dump of the Mitosis and vMitosis kernels' /proc/ptdump"),
    "ptdump": (dump_directory, "directory that the ptdump tool of this project wrote"),
}


def import_capture(
    form: str, source: Source, out: Source, nested: Source | None = None, *, strip: bool = True
) -> None:
    """Make the capture directory `out` from `source`, written in the foreign format `form` (FORMATS).

    nested  the VM's nested table beside it, vmitosis only
    strip   False: keep touches that change no TLB, lackey only
    UsageError for unknown formats and missing files, CaptureError for damaged ones; nothing is left then.
    """
    read, _ = FORMATS[form]
    if nested is not None and read is not vmitosis:
        raise UsageError(f"--ept {nested}: only the vmitosis format has a nested table in a second file")
    if not strip and read is not lackey:
        raise UsageError(f"--strip off: only lackey's text is stripped, {form} never is")
    if not Path(source).exists():
        raise UsageError(f"{source}: no such file")
    with new_capture(out) as inside:
        kind = _read(read, source, inside, nested, strip)
        if kind == "trace":
            write_index(inside / INDEX, inside / TRACE, read_index(inside / TRACE))
        seal(inside, kind, {"imported": form, "source": Path(source).name})


def _read(
    read: Callable[[Source, Path], str], source: Source, inside: Path, nested: Source | None, strip: bool
) -> str:
    if nested is not None:
        return vmitosis(source, inside, nested)
    return read(source, inside) if strip else lackey(source, inside, strip)
