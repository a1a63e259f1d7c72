"""Answers as JSON: plain values only, and the version of their schema."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | None"

SCHEMA = 2


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
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form")


def record(what: str, value: object, refused: Mapping[str, str]) -> dict[str, Json]:
    """The object that `--json` prints: {"schema": N, "what": ..., "result": value}.

    refused  {policy: why the capture does not allow it}: a field of its own if there is any
    """
    said: dict[str, Json] = {"refused": plain(dict(refused))} if refused else {}
    return {"schema": SCHEMA, "what": what, **said, "result": plain(value)}
