"""Arguments and options about captures, and types of parameters: sizes, durations, addresses, PIDs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.errors import UsageError, is_whole, program
from . import complete, echo

if TYPE_CHECKING:
    from ..core.columns import Section
    from ..formats.capture import Capture


C = TypeVar("C", bound=Callable[..., Any])


capture_argument = click.argument(
    "capture", required=False, type=click.Path(), shell_complete=complete.captures
)


def new_capture_option(default: str, name: str = "output") -> Callable[[C], C]:
    """-o as the parameter `name`: the capture directory that a command makes. `default` tells what free_name
    is asked for without it."""
    words = f"Capture directory to make. Default: {default}."
    return click.option("-o", "--output", name, type=click.Path(), help=words)


def free_name(name: str) -> str:
    """ "app.capture" of a path with this name, in this directory; if taken "app.2.capture" and so on."""
    stem = Path(name).name.removesuffix(".capture") or "new"
    names = (f"{stem}.{n}.capture" if n > 1 else f"{stem}.capture" for n in count(1))
    return next(one for one in names if not Path(one).exists())


ON_THE_SAMPLE = frozenset({"whatif", "advise", "classify", "report"})  # commands that show what they do


def open_or_default(directory: str | None) -> Capture:
    """The named capture, or this directory's, or the newest here, which is said on stderr; else the bundled
    sample, before the answer, of commands that may take it."""
    from ..formats.capture import default_capture, open_capture

    if directory is not None:
        return open_capture(directory)
    capture, which = default_capture()
    if which:
        echo(f"ptanalyze: {which}", err=True)
        return capture
    asked, sample = click.get_current_context(), capture.directory.name
    if (name := asked.command.name) not in ON_THE_SAMPLE:
        raise UsageError(f"no capture here; `{program()} {name} {sample}` is about the bundled sample")
    for_programs = bool(asked.params.get("form") or asked.params.get("sheet"))
    echo(
        f"SAMPLE {sample}, not your program: there is no capture in this directory",
        err=for_programs,
    )
    return capture


# Sizes, durations and addresses as people write them: 10M, 1.5T; 500ms, 30s, 5m, 1h; 0x7f00deadb000.

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
        """Return the PID of a process: an int above 0."""
        text = str(value)
        if not is_whole(text) or not int(text):
            self.fail(f"{text!r} is no PID; give its number, which pgrep or pidof prints", param, ctx)
        return int(text)


HEXADECIMAL = Hexadecimal()
SIZE = Size()
PID = ProcessId()
DURATION = Duration()


full_option = click.option(
    "--full", is_flag=True, help="Show all counts and assumptions, not only the first screen."
)


def steps(capture: str | None, commands: Mapping[str, str]) -> Section:
    """What to type next, of {why: command and its words}, about the same capture."""
    from ..show.terminal import next_steps

    found = {}
    for why, asked in commands.items():
        name, *more = asked.split()
        found[why] = f"{program()} {shlex.join([name, *filter(None, [capture]), *more])}"
    return next_steps(found)
