"""`ptanalyze sweep`: one question at many points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..core.errors import UsageError
from .options import capture_argument, json_option
from .plotting import plot_option, write_plot
from .replaying import (
    baseline_option,
    capture_of,
    csv_option,
    pair_of,
    policy_option,
    replay_options,
    setup_from,
)

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..cost.result import Result


@click.command("sweep")
@capture_argument
@policy_option
@click.option(
    "--set",
    "settings",
    multiple=True,
    required=True,
    metavar="KEY=VALUES",
    help="A policy's parameter, or nodes, placement, contended; 0:9 (both ends), 0:8:2, 2,4,8 or 0,1;2,3.",
)
@baseline_option
@replay_options
@csv_option
@click.option("-o", "--output", type=click.Path(), help="Also write the rows to FILE.parquet.")
@plot_option()
@json_option
def command(
    capture: str | None,
    names: tuple[str, ...],
    settings: tuple[str, ...],
    as_csv: bool,
    output: str | None,
    plot: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Replay CAPTURE under every combination of parameters, nodes and placements.

    Every --set names one axis; a policy takes part in the axes that are its own. `nodes` is the machine's
    number of nodes (mitosis.nodes is the policy's). The walks are filtered once a machine and placement.

    Example: ptanalyze sweep app -p hydra --set prefetch=0:9 --set nodes=2,4,8
    """
    from ..analysis.answers import sweep_frame
    from ..analysis.sweep import swept, values
    from ..show.progress import progress_bar
    from ..show.terminal import print_json

    grid = {}
    for key, text in map(pair_of, settings):
        if key in grid:
            raise UsageError(f"--set {key}={text}: given twice; give all values at once, {key}=A,B")
        grid[key] = values(text)
    if output and not output.endswith(".parquet"):
        raise UsageError(f"-o {output}: rows are written as Parquet; name it FILE.parquet")
    opened = capture_of(capture)
    with progress_bar() as progress:
        points = swept(opened, names, grid, setup_from(options, progress))
    if as_json:
        print_json("sweep", [{"point": point, **result.to_json()} for point, result in points])
    elif as_csv:
        click.echo(sweep_frame(points, list(grid)).to_csv(index=False), nl=False)
    else:
        show(points, list(grid))
    if output:
        write(sweep_frame(points, list(grid)), output)
    if plot:
        from ..show import plots

        write_plot(plot, plots.curve(sweep_frame(points, list(grid))))


def show(points: list[tuple[dict[str, Any], Result]], swept: list[str]) -> None:
    from ..show.terminal import print_rows

    rows = []
    for point, result in points:
        row, settings = result.row(), {**result.params, **point}
        rows.append(
            {
                "policy": row["policy"],
                **{key: str(settings.get(key, settings.get(key.rpartition(".")[2], "-"))) for key in swept},
                "leaf LL": f"{100 * row['leaf_LL_share']:.2f} %",
                "DRAM reads": row["dram_reads"],
                "remote": row["remote_dram_reads"],
                "cycles/walk": row["cycles_per_walk"],
                "management cycles": row["management_cycles"],
                "extra KiB": (row["pt_bytes_extra"] + row["ept_bytes_extra"] + row["aside_bytes"]) >> 10,
                "IPIs": row["ipis"],
                "speed-up": row["speedup"],
            }
        )
    print_rows(f"{len(rows)} points", rows)


def write(table: DataFrame, output: str) -> None:
    from ..formats.atomic import atomic_write

    with atomic_write(output) as file:
        table.to_parquet(file)
    click.echo(f"ptanalyze: wrote {output}", err=True)
