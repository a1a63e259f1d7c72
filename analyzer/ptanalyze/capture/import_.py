"""Captures made from files of other tools."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from ..core.errors import UNKNOWN_NODE, Strip, UsageError
from ..core.safe_files import open_inside
from ..core.snapshot import (
    ENTRIES_PER_TABLE,
    HUGE,
    INFERRED,
    PRESENT,
    VMA_DTYPE,
    Node,
    Snapshot,
    Topology,
    Tree,
)
from ..formats.atomic import map_new
from ..formats.capture import open_capture
from ..formats.foreign.champsim import import_champsim
from ..formats.foreign.drmemtrace import import_drmemtrace
from ..formats.foreign.perf_samples import FIELDS, Samples, import_perf_data, import_samples
from ..formats.foreign.ptdump_text import import_ptdump
from ..formats.foreign.recognise import REGION, MappedPages, read_mapped_pages, recognise
from ..formats.foreign.table_dump import import_table_dump
from ..formats.foreign.text_traces import import_lackey, import_pinatrace
from ..formats.manifest import TRACE, copy_private, new_capture, seal
from ..formats.snapshot import FILE as SNAPSHOT
from ..formats.snapshot import read_snapshot, write_snapshot
from ..formats.tables import enclosing_tables
from ..formats.trace_index import add_index
from ..formats.trace_writer import Damaged, damage
from ..formats.vm import FILE as VM_FILE

# A snapshot from pages that another tool listed: leaves as it says, tables above them inferred.

TABLES = ("gpt.tables", "gpt.entries", "maps", "snapshot.json")
NESTED_TABLES = ("ept.tables", "ept.entries", "vm.json")
UNKNOWN = ("table frame", "table node", "data node", "entry flags", "vmas", "cpus", "distances")
FOUR_LEVELS = 1 << 48
USER = np.uint64(4)


def copy_tables(source: Path, directory: Path) -> str:
    """Copy the page tables of a capture into `directory`; returns the kind of capture that this makes.

    CaptureError where the source is damaged, UsageError where it has no page tables.
    """
    capture = open_capture(source)
    nested = capture.snapshot.host is not None
    for name in TABLES + (NESTED_TABLES if nested else ()):
        with open_inside(source / name) as file:
            copy_private(file, directory / name)
    return "vm" if nested else "process"


def write_mapped(pages: MappedPages, directory: Path) -> None:
    """Write the snapshot (gpt.*, maps, snapshot.json) of MappedPages into the existing `directory`.

    Of the machine nothing is known: one node has all memory.
    """
    entries = pages.frame.astype(np.uint64) << 12 | PRESENT | USER
    levels = 4 if int(pages.address[-1]) < FOUR_LEVELS else 5
    facts = {
        "method": f"pages listed in {pages.source}",
        "import": {"pages": len(entries), "absent": pages.absent},
        "unknown": [*UNKNOWN, *([] if pages.frame.any() else ["page frame (all hidden)"])],
    }
    topology = Topology((Node(0, (), np.zeros((0, 2), np.int64)),))
    leaf_level = 2 if pages.size == REGION else 1
    if leaf_level == 2:
        entries |= HUGE
    tree = infer_tree(pages.address, entries, leaf_level, levels, directory)
    write_snapshot(directory, Snapshot(tree, np.zeros(0, VMA_DTYPE), (), topology, None, facts))


def infer_tree(
    address: np.ndarray, leaves: np.ndarray, leaf_level: int, levels: int, directory: Path
) -> Tree:
    """Tree with the leaf entries `leaves` uint64[n] of level `leaf_level` at `address` int64[n], sorted.

    Its entries are a memory map of a nameless file in `directory`.
    """
    bases, heights, below = [], [], address
    for height in range(leaf_level, levels + 1):
        span = 1 << (12 + 9 * height)
        below = np.unique(below & -span) if height < levels else np.zeros(1, np.int64)
        bases.append(below)
        heights.append(np.full(len(below), height))
    base, level = np.concatenate(bases), np.concatenate(heights)
    order = np.lexsort((-level, base))
    base, level = base[order], level[order]
    parent = enclosing_tables(level, levels)
    with tempfile.TemporaryFile(dir=directory) as file:
        entries = map_new(file, np.uint64, (len(base), ENTRIES_PER_TABLE))
    child = np.flatnonzero(level < levels)
    entries[parent[child], base[child] >> (3 + 9 * (level[child] + 1)) & 511] = PRESENT | USER
    tables = np.flatnonzero(level == leaf_level)
    above = tables[np.searchsorted(base[tables], address, side="right") - 1]
    entries[above, address >> (3 + 9 * leaf_level) & 511] = leaves
    return Tree(
        entries=entries,
        base=base.astype(np.uint64),
        frame=np.full(len(base), -1),
        parent=parent.astype(np.int32),
        node=np.full(len(base), UNKNOWN_NODE, np.int16),
        level=level.astype(np.uint8),
        flags=np.full(len(base), INFERRED, np.uint8),
        levels=levels,
    )


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
        from ..formats.trace import read_trace

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
    nodes   file that says where physical memory is (formats.foreign.table_dump.read_nodes), gptdump only
    strip   what touches to leave out of a trace of all accesses (STRIPPED); others are never stripped
    pages   page tables beside a trace: a capture of them, or a file of mapped pages
            (formats.foreign.recognise)
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
