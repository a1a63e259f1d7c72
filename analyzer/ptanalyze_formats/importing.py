"""Captures made from files of other tools."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ptanalyze.core.errors import UNKNOWN_NODE, Strip, UsageError
from ptanalyze.core.safe_files import open_inside
from ptanalyze.core.snapshot import (
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
from ptanalyze.formats.atomic import map_new
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.record import TRACE as TRACE_FILE
from ptanalyze.formats.record import copy_private, new_capture, seal
from ptanalyze.formats.snapshot import enclosing_tables, read_snapshot, write_snapshot
from ptanalyze.formats.trace import add_index
from ptanalyze.formats.trace_writer import Damaged, damage

from . import DUMP, FORMATS, SAMPLES, TRACE, imported, names
from .recognise import REGION, MappedPages, read_mapped_pages, recognise

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
        if damage() is None and FORMATS[form].salvaged:
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
    dump: int | None = None,
) -> str:
    """Make the capture directory `out` from `source`; returns the format that it was read in.

    form    of ptanalyze_formats.FORMATS; None: recognised
    nested  the VM's nested table beside it
    nodes   file that says where physical memory is (ptanalyze_formats.table_dump.read_nodes), gptdump only
    strip   what touches to leave out of a trace of all accesses; others are never stripped
    dump    number from 1 of a dump of several in a file, vmitosis only; None: the last that is whole
    pages   page tables beside a trace: a capture of them, or a file of mapped pages
            (ptanalyze_formats.recognise)
    UsageError for unknown formats and missing files, CaptureError for damaged ones; nothing is left then.
    """
    for file in (source, pages):
        if file is not None and not Path(file).exists():
            raise UsageError(f"{file}: no such file")
    row = FORMATS[recognise(source) if form is None else form]
    if nested is not None and "--ept" not in row.takes:
        having = " and ".join(names(taking="--ept"))
        raise UsageError(f"--ept {nested}: only {having} have nested tables in a second file")
    if nodes is not None and "--nodes" not in row.takes:
        raise UsageError(f"--nodes {nodes}: only gptdump needs to be told where memory is")
    if dump is not None and "--dump" not in row.takes:
        raise UsageError(f"--dump {dump}: only a file of {names(taking='--dump')[0]} holds several")
    if pages is not None and row.holds == DUMP:
        traces = ", ".join(names(TRACE, SAMPLES))
        raise UsageError(f"--pages {pages}: {row.name} is no trace; traces are {traces}")
    if damage() is not None and not row.salvaged:
        others = ", ".join(names(TRACE, taking="--salvage"))
        raise UsageError(f"--salvage: not for {row.name}; for {others}")
    if strip != Strip.ON and row.holds != TRACE:
        raise UsageError(f"--strip {Strip(strip).name.lower()}: {row.name} is never stripped; leave it out")
    with new_capture(out) as inside, says_the_way_out(row.name):
        read, said, kind = imported(row.reader), {}, "trace"
        if row.holds == TRACE:
            read(source, inside / TRACE_FILE, strip=strip)
        elif row.holds == SAMPLES:
            said = read(source, inside / TRACE_FILE).said()
        else:
            beside_it = {"nested": nested, "nodes": nodes, "dump": dump}
            asked = {name: value for name, value in beside_it.items() if value is not None}
            facts = read(source, inside, **asked).facts
            said = {"dumps": facts["dumps"]} if "dumps" in facts else {}
            kind = "process" if read_snapshot(inside).native else "vm"
        if row.holds != DUMP:
            add_index(inside)
        if pages is not None:
            kind = beside(Path(pages), inside)
        lost = {"salvaged": list(known)} if (known := damage()) else {}
        seal(inside, kind, {"imported": row.name, "source": Path(source).name, **said, **lost})
    return row.name
