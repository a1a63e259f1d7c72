"""What commands are made of: arguments, options, types, completion; Output, which gives answers away."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import click

from ..core.errors import UsageError, bundled, is_whole, parse_size, printable, program

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from ..core.columns import Section
    from ..formats.capture import Capture

C = TypeVar("C", bound=Callable[..., Any])
Offer: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]"


def echo(line: str, err: bool = False) -> None:
    """Print one line, what it names being printable; standard error that is gone ends no work."""
    with suppress(OSError, ValueError) if err else nullcontext():
        click.echo(printable(line), err=err)


def next_step(*words: object) -> str:
    """What to type next, as the shell takes it: "next: ptanalyze check app"."""
    return f"next: {program()} {shlex.join(map(str, words))}"


# What shells offer.


def items(names: Iterable[str], incomplete: str, others: str = "") -> list[CompletionItem]:
    """Names that begin so; `others`: "file" or "dir" are offered too."""
    from click.shell_completion import CompletionItem

    begun = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return [*begun, CompletionItem(incomplete, type=others)] if others else begun


def captures(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Bundled samples and directories."""
    place = bundled("samples")
    samples = sorted(path.name for path in place.iterdir() if path.is_dir()) if place.is_dir() else []
    return items(samples, incomplete, "dir")


def machines(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names, or files where none begins that way."""
    from ..core.machine import machine_names

    return items(machine_names(), incomplete) or items((), incomplete, "file")


# Captures: those that are read, and those that are made.


capture_argument = click.argument(
    "capture", required=False, type=click.Path(readable=False), shell_complete=captures
)
full_option = click.option(
    "--full", is_flag=True, help="Show all counts and assumptions, not only the first screen."
)


def new_capture_option(default: str, name: str = "output") -> Callable[[C], C]:
    """-o as the parameter `name`: the capture directory to make. `default` tells what free_name makes."""
    words = f"Capture directory to make. Default: {default}."
    return click.option("-o", "--output", name, type=click.Path(), help=words)


def free_name(name: str) -> str:
    """ "app.capture" of a path with this name, in this directory; if taken "app.2.capture" and so on."""
    stem = Path(name).name.removesuffix(".capture") or "new"
    names = (f"{stem}.{n}.capture" if n > 1 else f"{stem}.capture" for n in count(1))
    return next(one for one in names if not Path(one).exists())


def as_policy(word: str) -> str:
    """How a policy is asked for, of words that name one; else ""."""
    names = import_module("..policies", __package__).names()  # by name: it reaches all of them
    return f"{word} is a policy: -p {word}" if re.split("[+,:]", word)[0] in names else ""


ON_THE_SAMPLE = frozenset({"whatif", "advise", "classify", "report"})  # commands that show what they do


def open_or_default(directory: str | None) -> Capture:
    """The named capture, or this directory's, or the newest here, which is said on stderr; else the bundled
    sample, before the answer, of commands that may take it."""
    from ..formats.capture import default_capture, open_capture

    if directory is not None:
        try:
            return open_capture(directory)
        except UsageError:
            if said := as_policy(directory):
                raise UsageError(f"{directory}: no such capture; {said}") from None
            raise
    capture, which = default_capture()
    if which:
        echo(f"ptanalyze: {which}", err=True)
        return capture
    asked, sample = click.get_current_context(), capture.directory.name
    if (name := asked.command.name) not in ON_THE_SAMPLE:
        raise UsageError(f"no capture here; `{program()} {name} {sample}` is about the bundled sample")
    for_programs = asked.params.get("form") is not None
    echo(f"SAMPLE {sample}, not your program: there is no capture in this directory", err=for_programs)
    return capture


# Types of parameters, as people write them: 10M, 1.5T; 500ms, 30s, 5m, 1h.

MOST_SECONDS = 10**9
UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600}


def size(text: str) -> int:
    """Bytes."""
    if (parsed := parse_size(text)) is None:
        raise click.BadParameter(f"{text!r} is not a size; write it like 64M, 4G or 1.5T")
    return int(parsed)


def duration(text: str) -> float:
    """Seconds, more than 0."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|[smh]?)", text)
    if not parts:
        raise click.BadParameter(f"{text!r} is not a duration; write it like 500ms, 30s or 30, 5m or 1h")
    seconds: float = float(parts[1]) * UNITS[parts[2]]
    if not 0 < seconds <= MOST_SECONDS:
        raise click.BadParameter(f"{text!r}: give more than 0, and at most {MOST_SECONDS // 86_400:,} days")
    return seconds


def pid(text: str) -> int:
    """PID of a process, by its number, above 0, or a name that no process has but it and its only child."""
    from ..capture import live

    words = text.split()
    if not words:
        raise click.BadParameter("no PID given: is the program running?")
    found = [int(word) for word in words] if all(map(is_whole, words)) else live.heads(live.named(text))
    if len(found) == 1 and found[0]:
        return found[0]
    if len(found) > 1:
        each = ", ".join(f"{one} ({live.used(one)})" for one in found)
        raise click.BadParameter(f"{text!r}: these are {len(found)} processes; give one PID of {each}")
    raise click.BadParameter(live.not_running(text))


# How an answer is given away.

TABLES = ("json", "csv")
PLOTS = ("png", "svg", "pdf")
KINDS = {  # of --plot-kind: what they show
    "locality": "Local-Local ... Remote-Remote by socket",
    "map": "page tables by address, level and node",
    "speedup": "estimated speed-ups with intervals, and memory",
    "reads": "reads by reader's and serving node",
    "sizes": "speed-ups by the size of the run",
    "validation": "ours over published",
}
FUNCTIONS = {"map": "page_table_map", "sizes": "curve"}  # of show.plots, where they differ from the kind


@dataclass(frozen=True)
class Output:
    """Values of `output_options`. form: "table", "json" or "csv"; plot_kind: None: the default."""

    form: str
    table_file: str | None = None
    plot: str | None = None
    plot_kind: str | None = None

    def emit(
        self,
        what: str,
        make_table: Callable[[], DataFrame],
        make_json: Callable[[], object],
        make_view: Callable[[], Iterable[Section]],
        plots: Mapping[str, Callable[[], DataFrame | Figure]] = {},
        refused: Mapping[str, str] = {},
    ) -> None:
        """Write and draw what is asked for, and print the answer even if that fails.

        what        the name of the answer in JSON
        make_table  its tidy table, with units, findings and provenance in attrs (core.columns.described)
        make_json   its "result" in JSON: plain values, or NumPy's
        make_view   its view for people
        plots       {kind of plot: its table, or a Figure, the default first}
        refused     {policy: why the capture does not allow it}; a view says it by itself
        """
        table = cache(make_table)
        try:
            if self.table_file is not None:
                from ..formats.record import write_result

                write_result(self.table_file, what, make_json, table, refused)
                echo(f"ptanalyze: wrote {self.table_file}", err=True)
            if self.plot is not None:
                draw(plots, self.plot, self.plot_kind)
        finally:
            from ..show.terminal import print_json, print_view

            if self.form == "json":
                print_json(what, make_json(), refused)
            elif self.form == "table":
                print_view(make_view())
            else:
                from ..formats.text_output import csv_text

                replays = import_module("..analysis.replay", __package__)  # by name, as above
                for line in replays.refusal_lines(refused):
                    echo(f"ptanalyze: {line}", err=True)
                sys.stdout.write(csv_text(table()))


def draw(plots: Mapping[str, Callable[[], DataFrame | Figure]], path: str, kind: str | None) -> None:
    """Write FILE.png, FILE.svg or FILE.pdf. kind: of `plots`, None: the first."""
    from matplotlib.figure import Figure

    functions = import_module("..show.plots", __package__)  # by name: it reaches all policies
    if not plots:
        raise UsageError("--plot: this answer has no plot: --csv or --json write its numbers")
    kind = next(iter(plots)) if kind is None else kind
    drawn = plots[kind]()
    figure = drawn if isinstance(drawn, Figure) else getattr(functions, FUNCTIONS.get(kind, kind))(drawn)
    functions.save(figure, path)
    echo(f"ptanalyze: wrote {path}", err=True)


def output_options(*kinds: str, file: bool = True) -> Callable[[C], C]:
    """--json, --csv, -o and, of an answer that is drawn, --plot, as `output`.

    kinds  of plots, the default first; of several, --plot-kind chooses one
    file   whether -o is for the table; not where -o is for something that the command makes
    """
    options = [
        click.option("--json", "form", flag_value="json", help="Print JSON instead of tables for people."),
        click.option("--csv", "form", flag_value="csv", help="Print the tidy table as CSV instead."),
    ]
    if file:
        words = "Also write the table to a file; JSON holds what --json prints."
        options.append(file_option("-o", "--output", "table_file", endings=TABLES, help=words))
    if kinds:
        options.append(file_option("--plot", endings=PLOTS, help="Also draw the table as a plot file."))
    if len(kinds) > 1:
        words = f"Kind of plot: {'; '.join(f'{kind}: {KINDS[kind]}' for kind in kinds)}."
        how: Any = {"type": click.Choice(kinds), "default": kinds[0], "show_default": True}
        options.append(click.option("--plot-kind", help=words, **how))

    def add(command: C) -> C:
        @wraps(command)
        def collected(*arguments: Any, **given: Any) -> Any:
            if {"--json", "--csv"} <= set(click.get_current_context().meta["typed"]):
                raise UsageError("give --json or --csv, not both; -o FILE.csv writes the other one beside")
            form = given.pop("form") or "table"
            asked = {name: given.pop(name) for name in ("table_file", "plot", "plot_kind") if name in given}
            if asked.get("plot"):
                import_module("seaborn")  # before anything is computed, if it is not there
            return command(*arguments, output=Output(form, **asked), **given)

        added: Any = collected
        for option in reversed(options):
            added = option(added)
        return cast("C", added)

    return add


def file_option(*names: str, endings: tuple[str, ...], help: str) -> Callable[[C], C]:
    metavar = f"FILE.{{{','.join(endings)}}}"
    how: Any = {"type": click.Path(), "callback": must_end_with(*endings), "metavar": metavar}
    return click.option(*names, help=help, **how)


def must_end_with(*endings: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A click callback: UsageError, before anything is computed, for a file that cannot be written."""

    def checked(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
        if path is not None:
            from ..formats.atomic import must_be_writable

            must_be_writable(path, *endings, option=parameter.opts[0])
        return path

    return checked
