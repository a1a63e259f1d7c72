"""`ptanalyze validate`: published figures beside ours, with the error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .options import json_option
from .plotting import plot_option, write_plot
from .replaying import csv_option

if TYPE_CHECKING:
    from ..validate.published import Paper
    from ..validate.row import Row


@click.command("validate")
@click.option("--paper", "papers", multiple=True, help="Only this paper; may be given again.")
@click.option("--row", "wanted", default="", help="Only rows with this text, as in 'Figure 2'.")
@click.option("--quick", is_flag=True, help="Smaller modelled workloads: a first look, not the table.")
@csv_option
@plot_option()
@json_option
def command(
    papers: tuple[str, ...], wanted: str, quick: bool, as_csv: bool, plot: str | None, as_json: bool
) -> None:
    """Print what papers measured beside what this package says of it, one row a quantity.

    replayed: from published counts and sizes. modelled: a workload made by `ptanalyze synth` from its
    published description, scaled down. fitted (calibrated on this very number) and by definition (what the
    model takes for granted) are no evidence and never count as a success. not reproducible: a note says why.
    Error = (ours - published) / published.

    Example: ptanalyze validate --paper vmitosis --row "Figure 6"
    """
    from ..show.progress import progress_bar
    from ..show.terminal import console, print_json, print_rows
    from ..validate.run import validate
    from ..validate.show import sections

    with progress_bar() as progress:
        found = validate(papers, wanted, quick, progress)
    if as_json:
        print_json("validate", summary(found))
    elif as_csv:
        import pandas

        click.echo(pandas.DataFrame(every(found)).to_csv(index=False), nl=False)
    else:
        for title, rows, lines in sections(found):
            print_rows(title, rows)
            for line in lines:
                console().print(line)
    if plot:
        from ..analysis import answers as frames
        from ..show import plots

        write_plot(plot, plots.validation(frames.published_frame(every(found))))


def every(found: Sequence[tuple[Paper, Sequence[Row]]]) -> list[dict[str, str | float | None]]:
    from ..validate.show import flat

    return [flat(row) for _, rows in found for row in rows]


def summary(found: Sequence[tuple[Paper, Sequence[Row]]]) -> dict[str, object]:
    from ..validate.show import flat
    from ..validate.tally import baselines, ratios, tally

    every = [row for _, rows in found for row in rows]
    papers = [
        {"paper": paper.paper, "citation": paper.citation, "rows": [flat(row) for row in rows]}
        | {"summary": tally(rows), "ratios": tally(ratios(rows)), "baselines": baselines(rows)}
        for paper, rows in found
    ]
    overall = {"summary": tally(every), "ratios": tally(ratios(every)), "baselines": baselines(every)}
    return {"papers": papers, **overall}
