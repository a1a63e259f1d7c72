"""`ptanalyze validate`: published figures beside ours, with the error."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

import ptanalyze as pt

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def complete_papers(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: the papers whose figures are known."""
    files = (pt.errors.bundled("models") / "reference").glob("published-*.toml")
    names = sorted(path.stem.removeprefix("published-") for path in files)
    return [name for name in names if name.startswith(incomplete)]


@click.command("validate")
@click.option(
    "--paper",
    "papers",
    multiple=True,
    shell_complete=complete_papers,
    help="Paper to show; repeatable. Default: all.",
)
@click.option(
    "--row", "wanted", default="", help="Text that rows must contain, as in 'Figure 2'. Default: all rows."
)
@click.option("--quick", is_flag=True, help="Use smaller modelled workloads: a first look, not the table.")
@pt.options.output_options("validation")
def command(papers: tuple[str, ...], wanted: str, quick: bool, output: pt.options.Output) -> None:
    """Print published measurements beside this package's figures, one row per quantity.

    law: run times from published counters. page size: from runs with small and huge pages. replayed: from
    published counts and sizes. modelled: a workload made by `ptanalyze synth` from its published description,
    scaled down. traced small: the program itself, traced at a small size. fitted (calibrated on this very
    number) is no evidence and counts nowhere; what holds by definition is left out. not reproducible: a note
    says why. Error = (ours - published) / effect: of a ratio, or its inverse below 1, that less 1, at least
    5 %, else the published number. An interval of no width that misses is an error.

    \b
    Examples:
      ptanalyze validate --paper hydra
      ptanalyze validate --paper vmitosis --row "Figure 6"
    """
    from .run import sections, summary, validate

    with pt.terminal.progress_bar() as progress:
        table = validate(papers, wanted, quick, progress)
    chosen = "".join(f"--paper {name} " for name in papers)
    place = "".join(table["where"].iloc[0].partition(",")[:2])
    following = {
        "one figure": f"{pt.errors.program()} validate {chosen}--row {shlex.quote(place)}",
        "all columns, to sort": f"{pt.errors.program()} validate --csv",
    }

    def validation() -> Figure:
        from .validation_plots import validation

        return validation(table)

    output.emit(
        "validate",
        lambda: table,
        lambda: summary(table),
        lambda: sections(table, pt.terminal.next_steps(following)),
        {"validation": validation},
    )
