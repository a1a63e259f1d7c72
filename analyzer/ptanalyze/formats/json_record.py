"""JSON files with a format name and a version, read strictly and written whole."""

from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from ..core.errors import CaptureError
from .atomic import atomic_write


class Versioned(Protocol):
    """A msgspec struct that says what it is."""

    @property
    def format(self) -> str: ...

    @property
    def version(self) -> int: ...


Record = TypeVar("Record", bound=Versioned)
Struct = TypeVar("Struct")


def decode_record(
    path: str | PathLike[str], text: bytes, kind: type[Record], form: str, version: int
) -> Record:
    """A struct of type `kind` from the bytes of file `path`.

    CaptureError names file, field and value where the text is no such record, foreign, or of another version.
    """
    record = decode(path, "contents", text, kind, form)
    if record.format != form:
        raise CaptureError(path, "format", record.format, f"expected {form}")
    if record.version != version:
        raise CaptureError(path, "version", record.version, f"this release reads version {version}")
    return record


def decode_facts(path: Path, facts: msgspec.Raw, kind: type[msgspec.Struct], form: str) -> dict[str, Any]:
    """The facts of a record as they are written; CaptureError where they do not fit the struct `kind`."""
    decode(path, "facts", bytes(facts), kind, form)
    plain: dict[str, Any] = msgspec.json.decode(facts)
    return plain


def decode(path: str | PathLike[str], field: str, text: bytes, kind: type[Struct], form: str) -> Struct:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CaptureError(path, field, text[:30], f"not a {form} file: {error}") from None


def write_record(path: str | PathLike[str], record: msgspec.Struct) -> None:
    """Write a msgspec struct as indented JSON: whole, synced, 0600."""
    with atomic_write(path) as out:
        out.write(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
