"""Answers as JSON: plain values only, and the version of their schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.errors import printable

if TYPE_CHECKING:
    from pandas import DataFrame


Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | None"

SCHEMA = 3
SURROGATE = re.compile("[\ud800-\udfff]")  # a byte of a name that is no UTF-8, which becomes \\xff


def plain(value: object) -> Json:
    """`value` as dicts, lists, strings and finite numbers (else null); TypeError for other types."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):  # readers of JSON refuse half a surrogate pair
        return SURROGATE.sub(lambda one: printable(one[0]), value)
    if value is None or isinstance(value, int | float):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form")


def record(what: str, value: object, refused: Mapping[str, str], **about: Json) -> dict[str, Json]:
    """The object that `--json` prints: {"schema": N, "what": ..., "result": value}.

    refused  {policy: why the capture does not allow it}: a field of its own if there is any
    about    further fields, before the result
    """
    said: dict[str, Json] = {"refused": plain(dict(refused))} if refused else {}
    return {"schema": SCHEMA, "what": what, **about, **said, "result": plain(value)}


# TOML as this package writes it: plain values, lists, and tables of them; None is left out.


def toml(fields: Mapping[str, Any]) -> str:
    """TOML of {key: value}, tables last; text ends with a newline."""
    return "\n".join(_lines(fields, ())).strip("\n") + "\n"


def _lines(fields: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    known = {key: value for key, value in fields.items() if value is not None}
    yield from (f"{_key(key)} = {_value(v)}" for key, v in known.items() if not isinstance(v, dict))
    for key, table in known.items():
        if isinstance(table, dict):
            yield from ("", f"[{'.'.join(map(_key, (*path, key)))}]")
            yield from _lines(table, (*path, key))


def _key(key: str) -> str:
    return key if key.isidentifier() and key.isascii() else _value(key)


def _value(value: object) -> str:
    """A TOML value: TOML's basic strings are JSON's, but for surrogate pairs and DEL."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)


# Tables as CSV that is safe to open: no cell steers a terminal, and none is a formula to a spreadsheet.

FORMULA = re.compile(r"[=+\-@](?![\d.]*$).")  # neither a number nor a dash alone


def csv_text(table: DataFrame) -> str:
    """The table as CSV without its index; texts are printable, and quoted if a spreadsheet would run them."""
    safe = table.rename(columns=cell)
    for at, kind in enumerate(table.dtypes):
        if kind.kind not in "biuf":
            safe.isetitem(at, table.iloc[:, at].map(cell))
    return str(safe.to_csv(index=False))


def cell(value: object) -> object:
    """A text as a cell that is only ever shown: \"'\" before what begins as a formula."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if FORMULA.match(text) else text
