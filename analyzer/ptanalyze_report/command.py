"""`ptanalyze report`: a page to read about captures."""

import shlex
from pathlib import Path
from typing import Any

import click

import ptanalyze as pt


@click.command("report")
@click.argument(
    "captures",
    nargs=-1,
    type=click.Path(readable=False),
    metavar="[CAPTURE]...",
    shell_complete=pt.options.captures,
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    callback=pt.options.must_end_with("html", "htm"),
    default="report.html",
    show_default=True,
    help="HTML file to write; an existing file is replaced.",
)
@pt.replay_options.question_options
@pt.replay_options.option("weigh")
@pt.replay_options.replay_options
@click.pass_context
def command(
    context: click.Context,
    /,
    captures: tuple[str, ...],
    names: tuple[str, ...],
    output: str,
    memory: str | None,
    horizon: float,
    **options: Any,
) -> int:
    """Write one HTML page about CAPTURE, or several side by side: advice, evidence, plots, tables to sort.

    The page says how sure it is, explains its words, and is self-contained: mail it, print it, keep it.
    Options are explained by `ptanalyze advise --help`. Without CAPTURE: this directory, the newest
    capture in it, or the bundled sample.

    Exit codes are those of `ptanalyze check`: 1 if a capture failed a check, 3 if it is partial. The page is
    still written and says so, unless files of a capture are damaged.

    \b
    Examples:
      ptanalyze report before after -o report.html --memory 1%
      ptanalyze report app.capture -p mitosis,hydra:prefetch=0
    """
    from .page import html, write
    from .study import studies

    asked = [pt.replay_options.capture_of(capture) for capture in captures or (None,)]
    with pt.terminal.progress_bar() as progress:
        setup = pt.replay_options.setup_from(options, asked[0], progress)
        found = studies(asked, setup, pt.replay_options.question(memory, horizon, names))
        page = html(found, f"{pt.errors.program()} {shlex.join(context.meta['typed'])}", progress)
    done = "replaced" if Path(output).exists() else "wrote"
    write(output, page)
    pt.options.echo(f"ptanalyze: {done} {output}", err=True)
    return pt.check.exit_code([finding for study in found for finding in study.checks])
