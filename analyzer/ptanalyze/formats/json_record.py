"""JSON files with a format name and a version, read strictly and written whole."""

from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from ..core.decode import Undecodable, json_struct, plain_json
from ..core.errors import CaptureError
from .atomic import atomic_write


class Versioned(Protocol):
    """A msgspec struct with the name and version of its format."""

    @property
    def format(self) -> str: ...

    @property
    def version(self) -> int: ...


Record = TypeVar("Record", bound=Versioned)


def decode_record(
    path: str | PathLike[str], text: bytes, kind: type[Record], form: str, version: int
) -> Record:
    """A struct of type `kind` from the bytes of file `path`.

    CaptureError names file, field and value where the text is damaged, foreign or of another version.
    """
    try:
        record = json_struct(text, kind, form)
    except Undecodable as error:
        raise error.of(path) from None
    if record.format != form:
        raise CaptureError(path, "format", record.format, f"expected {form}")
    if record.version != version:
        raise CaptureError(path, "version", record.version, f"this release reads version {version}")
    return record


def decode_facts(path: Path, facts: msgspec.Raw, kind: type[msgspec.Struct], form: str) -> dict[str, Any]:
    """The facts of a record as written; CaptureError where they do not fit the struct `kind`."""
    text = bytes(facts)
    try:
        json_struct(text, kind, form)
        plain: dict[str, Any] = plain_json(text, form)
    except Undecodable as error:
        field = "facts" if error.field == "contents" else f"facts.{error.field}"
        raise CaptureError(path, field, error.value, error.why) from None
    return plain


def write_record(path: str | PathLike[str], record: msgspec.Struct, *, given: bool = False) -> None:
    """Write a msgspec struct as indented JSON: whole, synced, 0600; given: somebody typed `path`."""
    with atomic_write(path, given=given) as out:
        out.write(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
