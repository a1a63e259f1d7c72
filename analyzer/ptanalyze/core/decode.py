"""JSON and TOML to plain values and msgspec structs; errors are one line."""

import re
import tomllib
from typing import Any, TypeVar

import msgspec

from .errors import NO_VALUE, CaptureError, said

Struct = TypeVar("Struct")

LEAST, MOST = -(1 << 63), (1 << 64) - 1  # range of signed and unsigned 64-bit integers
LONG = re.compile(rb"\d{19}")  # may be beyond that range
SHOWN = 80  # characters of a value
DEEPEST = 100  # tables within tables
WRONG = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)  # ValueErrors: TOML's, Unicode's
NAMED = (("unknown field `", "no such field"), ("missing required field `", "missing"))

BOUND = re.compile(r"Expected `(?:int|float)` ([<>]=?) (\S+)")  # of msgspec.Meta
BOUNDS = {">=": "at least", ">": "above", "<=": "at most", "<": "below"}


class Undecodable(ValueError):
    """An error in a text: the `field`, its `value` (NO_VALUE: it has none) and `why`, on one line."""

    def __init__(self, field: str, value: object, why: str) -> None:
        self.field, self.value, self.why = _on_one_line(field), value, _on_one_line(why)
        super().__init__(said(self.field, value, self.why))

    def of(self, file: object, kind: type[CaptureError] = CaptureError) -> CaptureError:
        return kind(file, self.field, self.value, self.why)


def plain_json(text: bytes, form: str = "JSON") -> Any:
    """Plain values of a JSON text; Undecodable for other text, or an integer of more than 64 bits."""
    try:
        plain = msgspec.json.decode(text)
    except WRONG as error:
        raise _not_a(form, text, error) from None
    if LONG.search(text):
        _must_fit(plain)
    return plain


def plain_toml(text: bytes) -> dict[str, Any]:
    """Plain values of a TOML text; Undecodable for other text, or an integer of more than 64 bits."""
    try:
        plain = tomllib.loads(text.decode("utf-8"))
    except WRONG as error:
        raise _not_a("TOML", text, error) from None
    _must_fit(plain)
    return plain


def json_struct(text: bytes, kind: type[Struct], form: str = "JSON") -> Struct:
    """A struct from a JSON text; Undecodable names field and value, or says it is not a `form` file."""
    try:
        struct = msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise _wrong_field(plain_json(text, form), error, text, form) from None
    except WRONG as error:
        raise _not_a(form, text, error) from None
    if LONG.search(text):
        plain_json(text, form)
    return struct


def struct_of(plain: dict[str, Any], kind: type[Struct]) -> Struct:
    """A struct from plain values; Undecodable names the field and its value."""
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise _wrong_field(plain, error, b"", "TOML") from None
    except WRONG as error:
        raise _not_a("TOML", b"", error) from None


def _not_a(form: str, text: bytes, error: Exception) -> Undecodable:
    why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return Undecodable("contents", text[:30], f"not a {form} file: {why}")


def field_and_why(error: msgspec.ValidationError) -> tuple[str, str]:
    """What msgspec says of a value: its field, "" for all of it, and what is wrong with it."""
    why, _, where = str(error).rpartition(" - at `")
    if not why:
        return "", where
    if bound := BOUND.fullmatch(why):
        why = f"must be {BOUNDS[bound[1]]} {float(bound[2]):,.13g}"
    return where.rstrip("`").removeprefix("$").lstrip("."), why


def _wrong_field(plain: object, error: msgspec.ValidationError, text: bytes, form: str) -> Undecodable:
    field, why = field_and_why(error)
    for words, instead in NAMED:
        if words in why:
            key = why.partition(words)[2].rstrip("`")
            return Undecodable(f"{field}.{key}" if field else key, NO_VALUE, instead)
    if not field:
        return Undecodable("contents", text[:30], f"not a {form} file: {why}")
    return Undecodable(field, _value_at(plain, field), why)


def _value_at(plain: object, field: str) -> object:
    """The value of "a.b[0]" as a text that fits on a line, NO_VALUE where there is no such place."""
    value: Any = plain
    for step in field.replace("[", ".").replace("]", "").split("."):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, ValueError, IndexError, TypeError):
            return NO_VALUE
    return _shown(value)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _must_fit(plain: object, field: str = "", depth: int = 0) -> None:
    """Undecodable for the first integer of more than 64 bits, and for tables more than DEEPEST deep."""
    if depth > DEEPEST:
        raise Undecodable("contents", NO_VALUE, "nested too deeply")
    if isinstance(plain, dict):
        for key, value in plain.items():
            _must_fit(value, f"{field}.{key}" if field else key, depth + 1)
    elif isinstance(plain, list):
        for k, value in enumerate(plain):
            _must_fit(value, f"{field}[{k}]", depth + 1)
    elif isinstance(plain, int) and not LEAST <= plain <= MOST:
        raise Undecodable(field or "contents", _shown(plain), "an integer of more than 64 bits")


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
