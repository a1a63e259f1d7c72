"""TOML as this package writes it: plain values, lists, and tables of them; None is left out."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


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
