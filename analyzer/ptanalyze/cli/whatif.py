"""`ptanalyze whatif`: what another page-table placement would change, and at what price."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import capture_argument, json_option
from .plotting import draw_results, plot_option
from .replaying import (
    baseline_option,
    capture_of,
    configured,
    csv_option,
    policy_option,
    replay_options,
    set_option,
    setup_from,
)

if TYPE_CHECKING:
    from ..cost.result import Result


@click.command("whatif")
@capture_argument
@policy_option
@set_option
@baseline_option
@replay_options
@csv_option
@click.option(
    "-o", "--output", type=click.Path(), help="Also write the results to FILE.parquet or FILE.json."
)
@plot_option("speedup", "locality", "reads", "pareto", "footprint", "roofline")
@json_option
def command(
    capture: str | None,
    names: tuple[str, ...],
    settings: tuple[str, ...],
    as_csv: bool,
    output: str | None,
    plot: str | None,
    plot_kind: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Replay CAPTURE's page walks under other placements of its page tables.

    Without CAPTURE: the newest capture in this directory, else the bundled sample. `ptanalyze policies` and
    `ptanalyze machines` list what there is.

    Examples: ptanalyze whatif app -p mitosis -p hydra --set prefetch=0;
    ptanalyze whatif vm -p ptemagnet+vmitosis-replicate
    """
    from ..analysis.whatif import replay
    from ..formats.result_file import must_be_writable
    from ..show.progress import progress_bar

    policies = configured(names, settings)
    if output:
        must_be_writable(output)
    opened = capture_of(capture)
    with progress_bar() as progress:
        found = replay(opened, policies, setup_from(options, progress))
    show(found.results, as_json, as_csv)
    if output:
        write(found.results, output)
    if plot:
        draw_results(plot, plot_kind, found)


def show(results: list[Result], as_json: bool, as_csv: bool) -> None:
    from ..cost.result import frame
    from ..show.terminal import print_json
    from ..show.whatif import print_results

    if as_json:
        print_json("whatif", [result.to_json() for result in results])
    elif as_csv:
        click.echo(frame(results).to_csv(index=False), nl=False)
    else:
        print_results(results)


def write(results: list[Result], output: str) -> None:
    from ..formats.result_file import write_results

    write_results(output, results)
    click.echo(f"ptanalyze: wrote {output}", err=True)
