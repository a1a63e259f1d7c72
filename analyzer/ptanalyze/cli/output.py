"""How every command that prints a table gives it away: the options, and `emit`, which does what they say."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from . import echo

if TYPE_CHECKING:
    from ..core.columns import Answer

Command: TypeAlias = Callable[..., Any]

TABLES = ("json", "csv")
PLOTS = ("png", "svg", "pdf")
KINDS = {  # of --plot-kind: what they show
    "locality": "Local-Local ... Remote-Remote by socket",
    "map": "page tables by address, level and node",
    "speedup": "estimated speed-ups with intervals, and memory",
    "reads": "reads by reader's and serving node",
    "sizes": "speed-ups by the size of the run",
    "validation": "ours over published",
    "throughput": "published and predicted throughput around a migration (vMitosis, Figure 6)",
}
FUNCTIONS = {"map": "page_table_map", "sizes": "curve"}  # of show.plots, where they differ from the kind


@dataclass(frozen=True)
class Output:
    """Values of `output_options`. form: "table", "json" or "csv"; kind: of plot, None: the default."""

    form: str
    file: str | None
    plot: str | None
    kind: str | None


def output_options(*kinds: str, file: bool = True) -> Callable[[Command], Command]:
    """--json, --csv, -o and, of an answer that is drawn, --plot, as `output`.

    kinds  of plots, the default first; of several, --plot-kind chooses one
    file   whether -o is for the table; not where -o is for something that the command makes
    """

    def add(command: Command) -> Command:
        @wraps(command)
        def collected(
            *arguments: Any,
            form: str | None,
            sheet: str | None,
            plot: str | None = None,
            table_file: str | None = None,
            plot_kind: str | None = None,
            **options: Any,
        ) -> Any:
            if form and sheet:
                raise click.UsageError("--json and --csv: print one of them; -o FILE writes another")
            output = Output(form or sheet or "table", table_file, plot, plot_kind)
            return command(*arguments, output=output, **options)

        added: Command = collected
        for option in reversed(declared(kinds, file)):
            added = option(added)
        return added

    return add


def declared(kinds: tuple[str, ...], file: bool) -> list[Callable[[Command], Command]]:
    """The options, in the order of the help."""
    options: list[Callable[[Command], Command]] = [
        click.option("--json", "form", flag_value="json", help="Print JSON instead of tables for people."),
        click.option("--csv", "sheet", flag_value="csv", help="Print the tidy table as CSV instead."),
    ]
    if file:
        options.append(
            click.option(
                "-o",
                "--output",
                "table_file",
                type=click.Path(),
                callback=must_end_with(*TABLES),
                metavar="FILE.{json,csv}",
                help="Also write the table to a file; JSON holds what --json prints.",
            )
        )
    if kinds:
        options.append(
            click.option(
                "--plot",
                type=click.Path(),
                callback=must_end_with(*PLOTS),
                metavar="FILE.{png,svg,pdf}",
                help="Also draw the table as a plot file.",
            )
        )
    if len(kinds) > 1:
        meanings = "; ".join(f"{kind}: {KINDS[kind]}" for kind in kinds)
        options.append(
            click.option(
                "--plot-kind",
                type=click.Choice(kinds),
                default=kinds[0],
                show_default=True,
                help=f"Kind of plot: {meanings}.",
            )
        )
    return options


def must_end_with(*endings: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A click callback: UsageError, before anything is computed, for a file that cannot be written."""

    def checked(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
        if path is not None:
            from ..formats.atomic import must_be_writable

            must_be_writable(path, *endings, option=parameter.opts[0])
        return path

    return checked


def emit(answer: Answer, output: Output, line: bool = False) -> None:
    """Write and draw what is asked for, and print the Answer even if that fails.

    line  whether it is one of many: JSON is then a line, with the time
    """
    try:
        if output.file is not None:
            from ..formats.record import write_result

            write_result(output.file, answer.what, answer.json, lambda: answer.table, answer.refused)
            echo(f"ptanalyze: wrote {output.file}", err=True)
        if output.plot is not None:
            draw(answer, output.plot, output.kind)
    finally:
        show(answer, output.form, line)


def show(answer: Answer, form: str, line: bool = False) -> None:
    from ..formats.text_output import csv_text
    from ..show.terminal import print_json, print_json_line, print_view

    if form == "json":
        (print_json_line if line else print_json)(answer.what, answer.json(), answer.refused)
        return
    if form != "table" or answer.make_view is None:
        for policy, why in answer.refused.items():
            echo(f"ptanalyze: policy {policy}: {why}", err=True)
    if form == "csv":
        sys.stdout.write(csv_text(answer.table))
    else:
        print_view(answer.view())


def draw(answer: Answer, path: str, kind: str | None) -> None:
    """Write FILE.png, FILE.svg or FILE.pdf; `kind` of answer.plots, None: its first."""
    from matplotlib.figure import Figure

    from ..core.errors import UsageError

    plots = import_module("..show.plots", __package__)  # by name: it names policies, so it reaches them all
    if not answer.plots:
        raise UsageError("--plot: this answer has no plot: --csv or --json write its numbers")
    kind = next(iter(answer.plots)) if kind is None else kind
    drawn = answer.plots[kind]()
    plots.save(drawn if isinstance(drawn, Figure) else getattr(plots, FUNCTIONS.get(kind, kind))(drawn), path)
    echo(f"ptanalyze: wrote {path}", err=True)
