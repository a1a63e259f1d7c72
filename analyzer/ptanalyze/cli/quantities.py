"""Sizes, durations and addresses as people write them: 10M, 1.5T; 500ms, 30s, 5m, 1h; 0x7f00deadb000."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import is_whole

if TYPE_CHECKING:
    Bytes = click.ParamType[int]
    Seconds = click.ParamType[float]
    Number = click.ParamType[int]
else:
    Bytes = Seconds = Number = click.ParamType

MOST_SECONDS = 10**9
UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600}


class Size(Bytes):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        from ..core.errors import parse_size

        size = parse_size(str(value))
        if size is None:
            self.fail(f"{value!r} is no size; write it like 64M, 4G or 1.5T", param, ctx)
        return int(size)


class Duration(Seconds):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds, a float above 0."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|[smh]?)", str(value))
        if not found:
            self.fail(f"{value!r} is no duration; write it like 500ms, 30s or 30, 5m or 1h", param, ctx)
        seconds: float = float(found[1]) * UNITS[found[2]]
        if not 0 < seconds <= MOST_SECONDS:
            self.fail(f"{value!r}: give more than 0, and at most {MOST_SECONDS // 86_400:,} days", param, ctx)
        return seconds


class Hexadecimal(Bytes):
    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """A whole number below 2**64."""
        if isinstance(value, int):
            return value
        if not re.fullmatch(r"(0x)?[0-9a-fA-F]{1,16}", value):
            self.fail(f"{value!r} is no address; write it as 0x1a2b3000", param, ctx)
        return int(value, 16)


class ProcessId(Number):
    name = "pid"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Of a process: an int above 0."""
        text = str(value)
        if not is_whole(text) or not int(text):
            self.fail(f"{text!r} is no PID; give its number, which pgrep or pidof prints", param, ctx)
        return int(text)


HEXADECIMAL = Hexadecimal()
SIZE = Size()
PID = ProcessId()
DURATION = Duration()
