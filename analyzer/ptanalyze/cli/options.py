"""Arguments and options that several subcommands share."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.errors import NO_LIMIT, UsageError, is_whole, program
from ..core.options import EVERYWHERE, Option, as_options
from . import complete, echo

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..analysis.advise import Question
    from ..analysis.frames import Replayed
    from ..analysis.setup import Policies, Setup
    from ..analysis.size import SizeCurve
    from ..core.columns import Section
    from ..core.process import Progress
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


class Renamed(click.Option):
    """An option that is also taken under its former name, which neither help nor completion shows."""

    def __init__(self, *arguments: Any, formerly: str, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.formerly = formerly

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        parser.add_option(obj=self, opts=[self.formerly], dest=self.name, action="store", nargs=1)


def parameter(one: Option) -> Callable[[C], C]:
    """The click option of an Option."""
    how: dict[str, Any] = {"help": one.help, "multiple": one.multiple}
    if one.default is not None:
        how["default"] = one.default
    if one.default is False:
        how["is_flag"] = True
    elif one.default or one.shown:
        how["show_default"] = one.shown or True
    if one.formerly:
        how |= {"cls": Renamed, "formerly": one.formerly}
    if one.kind == "path":
        how["type"] = click.Path()
    elif one.kind:
        words = isinstance(one.kind[0], str)
        how["type"] = click.Choice(one.kind) if words else click.IntRange(*one.kind)
    if isinstance(one.complete, str):
        how["shell_complete"] = getattr(complete, one.complete) if one.complete else None
    else:
        how["shell_complete"] = complete.words(*one.complete)
    return click.option(*one.flags.split(), one.parameter, metavar=one.metavar, **how)


def option(*names: str) -> Callable[[C], C]:
    """Decorator: what core.options.Options says of these fields, in their order."""

    def decorate(command: C) -> C:
        for one in reversed([one for name in names for one in as_options(name)]):
            command = parameter(one)(command)
        return command

    return decorate


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete.settings,
    help="Policy parameter, or POLICY.KEY=VALUE for one policy; repeatable. Default: as `ptanalyze policies` "
    "lists them.",
)


def pair_of(setting: str) -> tuple[str, str]:
    """(key, value) of KEY=VALUE or POLICY.KEY=VALUE."""
    key, equals, value = setting.partition("=")
    if not equals:
        raise UsageError(f"--set {setting}: write KEY=VALUE or POLICY.KEY=VALUE")
    return key, value


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


# What the commands that replay policies share: their options, and the capture and machine they name.

replay_options = option(*EVERYWHERE)


def split_names(words: Sequence[str]) -> tuple[str, ...]:
    """Names of -p, each once: A,B as two, "all" as all that there are."""
    from ..policies import names

    split = [part for word in words for part in re.split(r",(?=[A-Za-z])", word) if part]
    every = [name for part in split for name in (names() if part == "all" else [part])]
    return tuple(dict.fromkeys(every))


def usual(names: Sequence[str], capture: Capture) -> Sequence[str]:
    """The names; where none were given those of the API's default, as `configured` reads them."""
    from ..analysis.setup import asked_or_usual, open_replay_capture

    taken = () if names else asked_or_usual((), open_replay_capture(capture).snapshot)
    return names or [":".join([str(name), *map("=".join, own.items())]) for name, own in taken]


policy_option = click.option(
    "-p",
    "--policy",
    "names",
    multiple=True,
    callback=lambda context, parameter, names: split_names(names),
    shell_complete=complete.policies,
    help="Policy to replay: NAME, NAME:KEY=VALUE with parameters, A+B for policies that combine, A,B for "
    "several, or all; repeatable. Default: mitosis and hydra; in a guest without visible NUMA nodes "
    "vmitosis-migrate and vmitosis-replicate:mode=no-p.",
)
ranked_option = click.option(
    "-p",
    "--policy",
    "names",
    multiple=True,
    callback=lambda context, parameter, names: split_names(names),
    shell_complete=complete.policies,
    help="Policy to rank, written like -p of `ptanalyze whatif`: NAME, NAME:KEY=VALUE, A+B or A,B; "
    "repeatable. Default: all that CAPTURE allows.",
)
horizon_option = click.option(
    "--horizon",
    type=DURATION,
    default="1h",
    show_default=True,
    help="Compare policies over a run of this length at the region's rate, one-time costs included: 10s, "
    "5m, 24h.",
)
sizes_option = click.option(
    "--sizes",
    metavar="N,...",
    help="Also answer for runs N times as large as CAPTURE; 1: none. Default: 4,16,64,256 if CAPTURE's "
    "leaf entries fit the caches, else none.",
)
full_option = click.option(
    "--full", is_flag=True, help="Show all counts and assumptions, not only the first screen."
)
BUDGET = (
    click.option(
        "--memory",
        metavar="SIZE",
        help="Limit on extra page tables and unused memory: 64M, 2G, or 1% of the mapped memory. Default: no "
        "limit.",
    ),
    click.option(
        "--updates",
        metavar="PERCENT",
        help="Limit on extra page-table updates, in percent of the run: 2%. Default: no limit.",
    ),
)


def question_options(command: C) -> C:
    """-p, the budget and --horizon, for `question`."""
    for option in reversed((ranked_option, *BUDGET, horizon_option)):
        command = option(command)
    return command


def question(memory: str | None, updates: str | None, horizon: float, names: Sequence[str]) -> Question:
    """What the options that `advise` and `report` alone have stand for."""
    return {
        "memory": memory or NO_LIMIT,
        "updates": updates or NO_LIMIT,
        "horizon": horizon,
        "policies": configured(names),
    }


def capture_of(directory: str | None) -> Capture:
    """The named capture or the default; says on stderr what a bare trace is taken for."""
    opened = open_or_default(directory)
    if not opened.has_snapshot and not opened.has_vm:
        from ..world.traced_program import ASSUMED

        echo(f"ptanalyze: {opened.directory}: {ASSUMED}", err=True)
    return opened


def setup_from(options: Mapping[str, Any], progress: Progress = None) -> Setup:
    """The Setup that core.options stand for, by their names."""
    from ..analysis.setup import Setup

    plain = dict(options)
    balancing = plain.pop("balancing")
    moving = dict(map(pair_of, balancing)) if balancing else plain.pop("autonuma")
    return Setup.of(**(plain | {"autonuma": moving, "progress": progress}))


def steps(capture: str | None, commands: Mapping[str, str]) -> Section:
    """What to type next, of {why: command and its words}, about the same capture."""
    from ..show.terminal import next_steps

    found = {}
    for why, asked in commands.items():
        name, *more = asked.split()
        found[why] = f"{program()} {shlex.join([name, *filter(None, [capture]), *more])}"
    return next_steps(found)


def configured(names: Sequence[str], settings: Sequence[str] = ()) -> list[tuple[str, dict[str, str]]]:
    """[(name, {key: value})] from --policy, as NAME or NAME:KEY=VALUE:KEY=VALUE, and from --set."""
    from ..policies import share_settings

    pairs = [pair_of(setting) for setting in settings]
    if not names:
        return []
    names, own = zip(*((name, parts) for name, *parts in (one.split(":") for one in names)), strict=True)
    shared = share_settings(names, pairs)
    return [
        (name, {**values, **dict(map(pair_of, parts))})
        for name, values, parts in zip(names, shared, own, strict=True)
    ]


def sizes_of(
    asked: str | None, capture: Capture, policies: Policies, setup: Setup, replayed: Replayed
) -> SizeCurve | None:
    """The SizeCurve that --sizes asks for, or that a capture needs whose leaf entries the caches hold."""
    if asked == "1" or (asked is None and not replayed.fits_caches):
        return None
    from ..analysis.size import needed_curve, size_curve

    if asked is None:
        return needed_curve(capture, policies, setup, replayed)
    times = [float(one) for one in asked.split(",") if re.fullmatch(r"\d{1,7}(\.\d+)?", one)]
    if len(times) != asked.count(",") + 1:
        raise UsageError(f"--sizes {asked}: write factors as 4,16,64, or 1 for none")
    return size_curve(capture, policies, setup, times)


def plots_of(replayed: Replayed, curve: SizeCurve | None = None) -> dict[str, Callable[[], DataFrame]]:
    """{kind of plot: its table} of what was replayed."""

    def sizes() -> DataFrame:
        if curve is None:
            raise UsageError("--plot-kind sizes: name them, --sizes 4,16,64,256")
        return curve.frame

    tables: dict[str, Callable[[], DataFrame]] = dict.fromkeys(
        ("speedup", "pareto", "footprint", "roofline"), lambda: replayed.frame
    )
    return tables | {"locality": lambda: replayed.leaves, "reads": lambda: replayed.reads, "sizes": sizes}
