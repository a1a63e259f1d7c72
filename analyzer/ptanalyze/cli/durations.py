"""Durations as people write them: 30s, 5m, 1h."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


if TYPE_CHECKING:
    ParamType = click.ParamType[float]
else:
    ParamType = click.ParamType


class Duration(ParamType):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds, a float above 0."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(value))
        if not found or not float(found[1]):
            self.fail(f"{value!r} is no duration; write it like 30s, 5m or 1h", param, ctx)
        return float(found[1]) * SECONDS[found[2]]


DURATION = Duration()
