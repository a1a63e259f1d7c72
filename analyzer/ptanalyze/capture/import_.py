"""Captures made from files of other tools."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from ..core.errors import Strip, UsageError
from ..core.regular import open_inside
from ..formats.capture_dir import TRACE, copy_private, new_capture, seal
from ..formats.champsim import import_champsim
from ..formats.drmemtrace import import_drmemtrace
from ..formats.lackey import import_lackey, import_pinatrace
from ..formats.perf_script import FIELDS, Samples, import_perf_data, import_samples
from ..formats.ptdump_text import import_ptdump
from ..formats.recognise import read_mapped_pages, recognise
from ..formats.snapshot_file import FILE as SNAPSHOT
from ..formats.snapshot_file import read_snapshot
from ..formats.table_dump import import_table_dump
from ..formats.trace_index import add_index
from ..formats.trace_writer import Damaged, damage
from ..formats.vm_file import FILE as VM_FILE
from .mapped import copy_tables, write_mapped

Source: TypeAlias = str | os.PathLike[str]


class Reader(Protocol):
    def __call__(self, source: Source, out: Path, *, strip: Strip) -> int: ...


def trace_by(read: Reader) -> Callable[..., str]:
    """What makes a capture of a trace alone."""

    def make(source: Source, inside: Path, strip: Strip = Strip.ON) -> str:
        read(source, inside / TRACE, strip=strip)
        return "trace"

    return make


def samples_by(read: Callable[[Source, Path], Samples]) -> Callable[..., str]:
    """What makes a capture of perf's samples, and adds to `said` what its manifest keeps."""

    def make(source: Source, inside: Path, said: dict[str, Any]) -> str:
        said |= read(source, inside / TRACE).said()
        return "trace"

    return make


def vmitosis(source: Source, inside: Path, nested: Source | None = None) -> str:
    import_ptdump(source, inside, nested)
    read_snapshot(inside)  # nodes that overlap, for one
    return "process" if nested is None else "vm"


def table_dump(
    source: Source, inside: Path, nested: Source | None = None, nodes: Source | None = None
) -> str:
    import_table_dump(source, inside, nested, nodes)
    read_snapshot(inside)
    return "process" if nested is None else "vm"


def dump_directory(source: Source, inside: Path) -> str:
    """Output of `ptdump process PID -o DIR` on a machine without Python, for example inside a guest."""
    if (Path(source) / VM_FILE).exists() and not (Path(source) / SNAPSHOT).exists():
        raise UsageError(
            f"{source}: a host's dump of a VM, without the guest's tables: ptanalyze join {source} GUEST"
        )
    native = read_snapshot(source).native
    for path in Path(source).iterdir():
        if path.is_file():
            with open_inside(path) as file:
                copy_private(file, inside / path.name)
    if (inside / TRACE).exists():
        from ..formats.trace_file import read_trace  # imports Numba

        read_trace(inside / TRACE)
    return "process" if native else "vm"


FORMATS: dict[str, tuple[Callable[..., str], str]] = {
    "lackey": (trace_by(import_lackey), "valgrind --tool=lackey --trace-mem=yes"),
    "perf-script": (samples_by(import_samples), f"perf script -F {FIELDS}"),
    "perf-data": (samples_by(import_perf_data), "perf.data, read by the installed perf"),
    "drmemtrace": (
        trace_by(import_drmemtrace),
        "DynamoRIO's offline trace: a directory, or one of its files",
    ),
    "champsim": (trace_by(import_champsim), "ChampSim's trace, also as .xz or .gz"),
    "pinatrace": (trace_by(import_pinatrace), "Intel Pin's example tool pinatrace"),
    "vmitosis": (vmitosis, "text dump of the Mitosis and vMitosis kernels' /proc/ptdump"),
    "gptdump": (table_dump, "binary dump of a guest's tables, GPTDUMP1; NPTDUMP1 as --ept"),
    "ptdump": (dump_directory, "directory that the ptdump tool of this project wrote"),
}

STRIPPED = ("lackey", "drmemtrace", "champsim", "pinatrace")
DUMPS = ("vmitosis", "gptdump")
SAMPLED = ("perf-script", "perf-data")
SALVAGED = (*STRIPPED, "perf-script")
TRACES = (*STRIPPED, *SAMPLED)


def beside(pages: Path, inside: Path) -> str:
    """Page tables beside a trace, of a capture or a list of mapped pages; returns the kind of capture."""
    if pages.is_dir():
        return copy_tables(pages, inside)
    write_mapped(read_mapped_pages(pages), inside)
    return "process"


@contextmanager
def says_the_way_out(form: str) -> Iterator[None]:
    """Errors about damage name --salvage, where it helps and was not asked for."""
    try:
        yield
    except Damaged as error:
        if damage() is None and form in SALVAGED:
            error.args = (f"{error}; --salvage keeps what comes before",)
        raise


def import_capture(
    form: str | None,
    source: Source,
    out: Source,
    nested: Source | None = None,
    *,
    strip: Strip = Strip.ON,
    pages: Source | None = None,
    nodes: Source | None = None,
) -> str:
    """Make the capture directory `out` from `source`; returns the format that it was read in.

    form    of FORMATS; None: recognised
    nested  the VM's nested table beside it, of DUMPS
    nodes   file that says where physical memory is (formats.table_dump.read_nodes), gptdump only
    strip   what touches to leave out of a trace of all accesses (STRIPPED); others are never stripped
    pages   page tables beside a trace: a capture of them, or a file of mapped pages (formats.mapped_pages)
    UsageError for unknown formats and missing files, CaptureError for damaged ones; nothing is left then.
    """
    for file in (source, pages):
        if file is not None and not Path(file).exists():
            raise UsageError(f"{file}: no such file")
    form = recognise(source) if form is None else form
    read, _ = FORMATS[form]
    if nested is not None and form not in DUMPS:
        raise UsageError(f"--ept {nested}: only {' and '.join(DUMPS)} have nested tables in a second file")
    if nodes is not None and read is not table_dump:
        raise UsageError(f"--nodes {nodes}: only gptdump needs to be told where memory is")
    if pages is not None and form not in TRACES:
        raise UsageError(f"--pages {pages}: {form} is no trace; traces are {', '.join(TRACES)}")
    if damage() is not None and form not in SALVAGED:
        raise UsageError(f"--salvage: not for {form}; for {', '.join(SALVAGED)}")
    if strip != Strip.ON and form not in STRIPPED:
        raise UsageError(f"--strip {Strip(strip).name.lower()}: {form} is never stripped; leave it out")
    with new_capture(out) as inside, says_the_way_out(form):
        said: dict[str, Any] = {}
        more: dict[str, Any] = {"strip": strip} if form in STRIPPED else {}
        if form in SAMPLED:
            more["said"] = said
        if read is table_dump:
            more["nodes"] = nodes
        if nested is not None:
            more["nested"] = nested
        kind = read(source, inside, **more)
        if kind == "trace":
            add_index(inside)
        if pages is not None:
            kind = beside(Path(pages), inside)
        lost = {"salvaged": list(known)} if (known := damage()) else {}
        seal(inside, kind, {"imported": form, "source": Path(source).name, **said, **lost})
    return form
