"""Captures made from files of other tools, and which tool's a file is, from its first bytes."""

import lzma
import os
import re
import zlib
from pathlib import Path
from typing import Any, TypeAlias

import ptanalyze as pt

from . import DUMP, FORMATS, SAMPLES, Head, imported

TABLES = ("gpt.tables", "gpt.entries", "maps", "snapshot.json")
NESTED_TABLES = ("ept.tables", "ept.entries", "vm.json")

Source: TypeAlias = str | os.PathLike[str]


def import_capture(
    form: str | None,
    source: Source,
    out: Source,
    nested: Source | None = None,
    *,
    pages: Source | None = None,
) -> str:
    """Make the capture directory `out` from `source`; returns the format that it was read in.

    form    of ptanalyze_formats.FORMATS; None: recognised
    nested  file with the VM's nested table
    pages   a capture with page tables, for a trace
    UsageError for unknown formats and missing files, CaptureError for damaged ones; nothing is left then.
    """
    for file in (source, pages):
        if file is not None and not Path(file).exists():
            raise pt.UsageError(f"{file}: no such file")
    row = FORMATS[recognise(source) if form is None else form]
    if nested is not None and not row.takes_nested:
        having = " and ".join(row.name for row in FORMATS.values() if row.takes_nested)
        raise pt.UsageError(f"--ept {nested}: only {having} has nested tables in a second file")
    if pages is not None and row.holds == DUMP:
        traces = ", ".join(row.name for row in FORMATS.values() if row.holds != DUMP)
        raise pt.UsageError(f"--pages {pages}: {row.name} is not a trace; traces are {traces}")
    with pt.formats.new_capture(out) as inside:
        read, kind = imported(row.reader), "trace"
        provenance: dict[str, Any] = {"imported": row.name, "source": Path(source).name}
        if row.holds == DUMP:
            snapshot = read(source, inside, **({} if nested is None else {"nested": nested}))
            kind = "process" if snapshot.native else "vm"
        else:
            samples = read(source, inside / pt.formats.TRACE)
            if row.holds == SAMPLES:
                provenance |= samples.provenance()
        if pages is not None:
            kind = copy_tables(Path(pages), inside)
        pt.formats.seal(inside, kind, provenance)
    return row.name


def copy_tables(source: Path, directory: Path) -> str:
    """Copy the page tables of a capture into `directory`; returns the kind of capture that this makes.

    CaptureError where the source is damaged, UsageError where it has no page tables.
    """
    nested = pt.open_capture(source).snapshot.host is not None
    for name in TABLES + (NESTED_TABLES if nested else ()):
        with pt.safe_files.open_inside(source / name) as file:
            pt.formats.copy_private(file, directory / name)
    return "vm" if nested else "process"


# Which format a file or directory is in.

HEAD = 1 << 16
GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\0"
COMMENT = re.compile(rb"==|--|#")


def recognise(source: Source) -> str:
    """Name of the format (FORMATS) of `source`; UsageError where none fits."""
    head = head_of(Path(source))
    found = next((row.name for row in FORMATS.values() if head and row.knows(head)), None)
    if found is None:
        raise pt.UsageError(
            f"{source}: in none of the formats that are recognised; name one: import FORMAT {source}"
        )
    return found


def head_of(path: Path) -> Head | None:
    """None where the file is packed and cannot be unpacked."""
    if path.is_dir():
        return Head(path, b"", b"", b"")
    with path.open("rb") as file:
        first = data = file.read(HEAD)
    try:
        if first.startswith(GZIP):
            data = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(first, HEAD)
        elif first.startswith(XZ):
            data = lzma.LZMADecompressor().decompress(first, HEAD)
    except (zlib.error, lzma.LZMAError):
        return None
    lines = [line.rstrip() for line in data.split(b"\n")[:-1] or [data]]
    return Head(path, first, data, next((line for line in lines if line and not COMMENT.match(line)), b""))


# The directory of the ptdump tool itself.


def is_dump(head: Head) -> bool:
    """Whether ptdump wrote the directory, of a process or a VM."""
    return (head.path / "gpt.tables").exists() or (head.path / pt.formats.VM_FILE).exists()


def import_directory(source: Source, directory: Source) -> pt.Snapshot:
    """Copy what `ptdump process PID -o DIR` wrote on a machine without Python, for example inside a guest,
    into the existing `directory`; its Snapshot. UsageError for a host's dump of a VM alone."""
    source, directory = Path(source), Path(directory)
    if (source / pt.formats.VM_FILE).exists() and not (source / pt.formats.SNAPSHOT_FILE).exists():
        raise pt.UsageError(
            f"{source}: a host's dump of a VM, without the guest's tables: ptanalyze join {source} GUEST"
        )
    snapshot = pt.formats.read_snapshot(source)
    for path in source.iterdir():
        if path.is_file():
            with pt.safe_files.open_inside(path) as file:
                pt.formats.copy_private(file, directory / path.name)
    if (directory / pt.formats.TRACE).exists():
        pt.formats.read_trace(directory / pt.formats.TRACE)
    return snapshot
