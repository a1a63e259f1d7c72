"""What an answer is as JSON: plain values only, and the schema that says how they are arranged."""

from __future__ import annotations

import math
from typing import TypeAlias

Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | None"

SCHEMA = 1


def plain(value: object) -> Json:
    """`value` as JSON has it: dicts, lists, strings, finite numbers. TypeError for what has no such form."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form")


def record(what: str, value: object) -> dict[str, Json]:
    """The object that `--json` prints: {"schema": N, "what": ..., "result": value}."""
    return {"schema": SCHEMA, "what": what, "result": plain(value)}
