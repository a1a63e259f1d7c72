"""JSON files with a format name and a version, read strictly and written whole."""

import csv
import io
import json
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from ..core.decode import Undecodable, json_struct, plain_json
from ..core.errors import CaptureError, UsageError
from ..core.safe_files import read_given
from .atomic import atomic_write
from .text_output import SCHEMA, csv_text, record

if TYPE_CHECKING:
    from pandas import DataFrame


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
        out.write(record_text(record))


def record_text(record: msgspec.Struct) -> bytes:
    """A msgspec struct as indented JSON, fields in their order."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


# Answers on disk: FILE.json holds what --json prints, FILE.csv and FILE.parquet the tidy table.

WHAT = "whatif"
EXPECTED = "expected what `ptanalyze whatif` wrote"
MOST_BYTES = 1 << 28
MOST_COUNT = 1 << 64
NOTHING: Mapping[str, str] = MappingProxyType({})
TEXTS = ("policy", "params", "machine", "placement", "baseline", "run", "pays_back")  # columns of text


def write_result(
    path: str | PathLike[str],
    what: str,
    value: Callable[[], object],
    table: Callable[[], "DataFrame"],
    refused: Mapping[str, str] = NOTHING,
) -> None:
    """Write an answer in the format of its name, FILE.json, FILE.csv or FILE.parquet: whole, 0600."""
    with atomic_write(path, given=True) as file:
        if str(path).endswith(".json"):
            whole = record(what, value(), refused)
            file.write(json.dumps(whole, indent=1, allow_nan=False).encode() + b"\n")
        elif str(path).endswith(".csv"):
            file.write(csv_text(table()).encode())
        else:
            with_texts(table()).to_parquet(file)


def with_texts(table: "DataFrame") -> "DataFrame":
    """The table, its columns of lists or of several types as text: a Parquet column has one type."""
    mixed = [name for name in table if table[name].dtype == object and len(set(map(type, table[name]))) > 1]
    lists = [name for name in table if any(isinstance(value, list | dict) for value in table[name])]
    return table.assign(**{str(name): table[name].map(text) for name in dict.fromkeys([*mixed, *lists])})


def text(value: object) -> str | None:
    if value is None or value != value or isinstance(value, str):
        return value if isinstance(value, str) else None
    return json.dumps(value, default=str)


def read_rows(path: str | PathLike[str]) -> list[dict[str, Any]]:
    """[{column: value}] of results in FILE.json, FILE.csv or FILE.parquet; None for a number that is missing.

    CaptureError where there are no results of `ptanalyze whatif` in it.
    """
    path = Path(path)
    readers = {".parquet": _parquet_rows, ".csv": _csv_rows}
    try:
        rows = readers.get(path.suffix, _json_rows)(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except Undecodable as error:
        raise CaptureError(
            path, error.field, error.value, f"no results of `ptanalyze whatif`: {error.why}"
        ) from None
    except (ValueError, csv.Error) as error:
        why = f"{str(error)[:60]!r}"
        raise CaptureError(path, "contents", why, "no results of `ptanalyze whatif`") from None
    for row in rows:
        if not (isinstance(row, dict) and isinstance(row.get("policy"), str) and "params" in row):
            raise CaptureError(path, "result", "a row without a policy", EXPECTED)
        for key, value in row.items():
            if isinstance(value, int) and abs(value) >= MOST_COUNT:
                raise CaptureError(path, key, f"an integer of {value.bit_length()} bits", EXPECTED)
    return [{key: None if value != value else value for key, value in row.items()} for row in rows]


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    import pandas

    content = io.BytesIO(read_given(path, MOST_BYTES))
    try:
        rows: list[dict[str, Any]] = pandas.read_parquet(content).to_dict("records")
    except Exception as error:  # each of pandas' and Arrow's own kinds: the file is not ours
        raise ValueError(str(error)) from None
    return rows


def _csv_rows(path: Path) -> list[dict[str, Any]]:
    text = read_given(path, MOST_BYTES).decode("utf-8")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    if not rows:
        raise ValueError("no rows")
    if any(None in row for row in rows):
        raise ValueError("a row of more cells than the first line")
    return [{key: value if key in TEXTS else _number(value) for key, value in row.items()} for row in rows]


def _number(value: str | None) -> float | None:
    if not value:
        return None
    return int(value) if value.removeprefix("-").isdecimal() else float(value)


def _json_rows(path: Path) -> list[dict[str, Any]]:
    whole = plain_json(read_given(path, MOST_BYTES))
    if not isinstance(whole, dict) or whole.get("what") != WHAT or not isinstance(whole.get("result"), list):
        raise CaptureError(path, "what", _shown(whole), "expected what `ptanalyze whatif --json` prints")
    if whole.get("schema") != SCHEMA:
        raise CaptureError(path, "schema", whole.get("schema"), f"this version reads schema {SCHEMA}")
    rows: list[dict[str, Any]] = whole["result"]
    return rows


def _shown(whole: object) -> str:
    return repr(whole.get("what")) if isinstance(whole, dict) else type(whole).__name__
