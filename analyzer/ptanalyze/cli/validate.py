"""`ptanalyze validate`: published figures beside ours, with the error."""

import click

from .options import json_option
from .replaying import csv_option


@click.command("validate")
@click.option("--paper", "papers", multiple=True, help="Only this paper; may be given again.")
@click.option("--row", "wanted", default="", help="Only rows with this text, as in 'Figure 2'.")
@click.option("--quick", is_flag=True, help="Smaller modelled workloads: a first look, not the table.")
@csv_option
@json_option
def command(papers, wanted, quick, as_csv, as_json):
    """Print what papers measured beside what this package says of it, one row a quantity.

    replayed: from published counts and sizes. modelled: a workload made by `ptanalyze synth` from its
    published description, scaled down. fitted (calibrated on this very number) and by definition (what the
    model takes for granted) are no evidence and never count as a success. not reproducible: a note says why.
    Error = (ours - published) / published.

    Example: ptanalyze validate --paper vmitosis --row "Figure 6"
    """
    from ..progress import progress_bar
    from ..tables import print_json
    from ..validate.run import validate
    from ..validate.show import flat, print_papers

    with progress_bar() as progress:
        found = validate(papers, wanted, quick, progress)
    if as_json:
        print_json("validate", summary(found))
    elif as_csv:
        import pandas

        rows = [flat(row) for _, rows in found for row in rows]
        click.echo(pandas.DataFrame(rows).to_csv(index=False), nl=False)
    else:
        print_papers(found)


def summary(found):
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
