"""JSON files with a format name and a version, read strictly and written whole; `capture.json` among them,
which says what a capture directory holds and whether it is as written. How binary files begin.
"""

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from ..core import safe_files
from ..core.errors import CaptureError, UsageError
from ..core.machine import Strict
from .atomic import atomic_write, give_to_caller, may_write, says_where, sync
from .text_output import csv_text, record

if TYPE_CHECKING:
    from pandas import DataFrame


class Versioned(Strict):
    """The name and version of a file's format, which its other fields follow."""

    format: str
    version: int


Record = TypeVar("Record", bound=Versioned)


def decode_record(path: Path, text: bytes, kind: type[Record], form: str, version: int) -> Record:
    """A struct of type `kind` from the bytes of file `path`.

    CaptureError where the text is damaged, foreign or of another version.
    """
    try:
        record = safe_files.json_struct(text, kind, form)
    except safe_files.Undecodable as error:
        raise CaptureError(path, error.field, error.value, error.why) from None
    if record.format != form:
        raise CaptureError(path, "format", record.format, f"expected {form}")
    if record.version != version:
        raise CaptureError(path, "version", record.version, f"this release reads version {version}")
    return record


def decode_facts(path: Path, facts: msgspec.Raw, kind: type[msgspec.Struct], form: str) -> dict[str, Any]:
    """The facts of a record as written; CaptureError where they do not fit the struct `kind`."""
    text = bytes(facts)
    try:
        safe_files.json_struct(text, kind, form)
        plain: dict[str, Any] = safe_files.plain_json(text, form)
    except safe_files.Undecodable as error:
        field = "facts" if error.field == "contents" else f"facts.{error.field}"
        raise CaptureError(path, field, error.value, error.why) from None
    return plain


def write_record(path: str | PathLike[str], record: msgspec.Struct) -> None:
    """Write a msgspec struct as indented JSON: whole, synced, 0600."""
    with atomic_write(path) as out:
        out.write(record_text(record))


def record_text(record: msgspec.Struct) -> bytes:
    """A msgspec struct as indented JSON, fields in their order."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


# The first fields of a binary file's header.

HEAD = [("magic", "S8"), ("version", "<u4"), ("byte_order", "<u4"), ("header_bytes", "<u4")]
BYTE_ORDER = 0x01020304


def must_say(path: Path, header: np.void, instead: str = "", **expected: object) -> None:
    """CaptureError for the first field of a header that has another value; `instead` is added to why."""
    for field, value in expected.items():
        if header[field] != value:
            raise CaptureError(path, field, header[field], f"expected {value}{instead}")


# Answers on disk: FILE.json holds what --json prints, FILE.csv the tidy table.


def write_result(
    path: str | PathLike[str],
    what: str,
    value: Callable[[], object],
    table: Callable[[], "DataFrame"],
    refused: Mapping[str, str],
) -> None:
    """Write an answer in the format of its name, FILE.json or FILE.csv: whole, 0600."""
    with atomic_write(path, given=True) as file:
        if str(path).endswith(".json"):
            file.write(json.dumps(record(what, value(), refused), indent=1, allow_nan=False).encode() + b"\n")
        else:
            file.write(csv_text(table()).encode())


MANIFEST = "capture.json"
TRACE = "trace.ptt"
PAGES = "pages.toml"  # a trial of page sizes, as `trial --pages -o` writes it
FORMAT = "ptanalyze-capture"
VERSION = 1
KINDS = ("process", "trace", "vm", "vm-host")
CRC = b'"crc32"'  # the manifest's own: its last field
BLOCK = 1 << 22


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bytes: int
    crc32: int


class Manifest(Versioned):
    """crc32: of what stands before that field in the file, byte for byte."""

    kind: str
    files: dict[str, File]
    provenance: dict[str, Any]
    crc32: int


@contextmanager
def new_capture(out: str | PathLike[str]) -> Iterator[Path]:
    """A private directory (0700) that becomes `out` when the block ends, and vanishes if it raises.

    Under sudo it then belongs to the user who typed that.
    Fill it and seal() it inside the block. UsageError if `out` is there already.
    """
    out = Path(out)
    must_be_new(out)
    with safe_files.unfinished_directory(out.parent, out.name) as inside, says_where(out, inside):
        yield inside
        for path in (*inside.rglob("*"), inside):
            sync(path)
        give_to_caller(inside)
        os.rename(inside, out)
    sync(out.parent)


def must_be_new(out: str | PathLike[str]) -> None:
    """UsageError if a capture directory `out` cannot be made; new_capture asks only when work begins."""
    out = Path(out)
    if os.path.lexists(out):  # also a link to nothing: rename does not replace it
        raise UsageError(f"{out}: exists already; name a new directory, captures are never overwritten")
    if not out.parent.is_dir():
        raise UsageError(f"{out}: {out.parent} is not a directory; create it first")
    if not may_write(out.parent):
        raise UsageError(f"{out}: nothing can be written in {out.parent.resolve()}; name another with -o")


def seal(directory: str | PathLike[str], kind: str, provenance: dict[str, Any]) -> Manifest:
    """Write the manifest over every regular file of `directory`; `provenance` is any JSON object."""
    directory = Path(directory)
    names = sorted(path.name for path in directory.iterdir() if path.is_file() and path.name != MANIFEST)
    names = [name.removesuffix(safe_files.PACKED) for name in names if not name.startswith(".")]
    files = {name: file_sum(directory / name) for name in names}
    blank = Manifest(format=FORMAT, version=VERSION, kind=kind, files=files, provenance=provenance, crc32=0)
    manifest = msgspec.structs.replace(blank, crc32=manifest_crc(record_text(blank)))
    write_record(directory / MANIFEST, manifest)
    return manifest


def manifest_crc(text: bytes) -> int:
    """CRC-32 (zlib) of a manifest's text before its last field, `crc32`."""
    return zlib.crc32(text.rpartition(CRC)[0])


def file_sum(path: Path) -> File:
    """Size in bytes and CRC-32 (zlib) of a regular file, read once in blocks; holes are not read."""
    with safe_files.open_inside(path) as file:
        return File(os.fstat(file.fileno()).st_size, safe_files.crc_of(file))


def copy_private(source: BufferedReader, target: Path, most: int | None = None) -> None:
    """Copy an open file, or its first `most` bytes, to the new file `target` (0600); holes stay holes."""
    with open(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
        size = os.fstat(source.fileno()).st_size if most is None else most
        for start, end in safe_files.pieces(source.fileno(), size):
            file.seek(start)
            for at in range(start, end, BLOCK):
                file.write(os.pread(source.fileno(), min(BLOCK, end - at), at))
        file.truncate(size)


def read_manifest(directory: str | PathLike[str]) -> Manifest:
    """Manifest of a capture directory; UsageError if there is none, CaptureError if damaged or too new."""
    path = Path(directory) / MANIFEST
    try:
        text = safe_files.read_inside(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{directory}: no {MANIFEST} in it, so this is not a finished capture; "
            "make one with `ptanalyze record` or `ptanalyze dump`"
        ) from None
    except PermissionError:
        raise UsageError(f"{directory}: not readable by you: name a copy of your own, or use sudo") from None
    manifest = decode_record(path, text, Manifest, FORMAT, VERSION)
    if (crc := manifest_crc(text)) != manifest.crc32:
        why = f"damaged: sealed with {manifest.crc32:08x}; take another copy"
        raise CaptureError(path, "CRC-32", f"{crc:08x}", why)
    if manifest.kind not in KINDS:
        raise CaptureError(path, "kind", manifest.kind, f"expected one of {', '.join(KINDS)}")
    for name in manifest.files:
        if name != Path(name).name:
            raise CaptureError(path, "files", name, "file names must stay inside the capture")
    return manifest


def damaged_files(
    directory: str | PathLike[str], manifest: Manifest, *, quick: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield (name, reason) for each file that is missing or not as long or not the same as when sealed.

    quick  look at lengths alone, not at contents
    """
    for name, sealed in manifest.files.items():
        if why := damage(Path(directory) / name, sealed, contents=not quick):
            yield name, why


def damage(path: Path, sealed: File, contents: bool = True) -> str:
    """How a file is not as it was sealed, "" if it is. contents: whether they are compared too, by CRC-32."""
    try:
        with safe_files.open_inside(path) as file:
            size = os.fstat(file.fileno()).st_size
            crc = safe_files.crc_of(file) if contents and size == sealed.bytes else sealed.crc32
    except FileNotFoundError:
        return "missing"
    except CaptureError as error:  # not regular, or packed and damaged
        return str(error).removeprefix(f"{path.parent}/")
    if size != sealed.bytes:
        return f"{size} bytes, sealed with {sealed.bytes}"
    return "" if crc == sealed.crc32 else f"CRC-32 {crc:08x}, sealed with {sealed.crc32:08x}"
