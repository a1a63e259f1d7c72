"""`ptanalyze sweep`: one question at many points."""

from functools import partial
from typing import Any

import click

from ..core.errors import UsageError, pair_of, plural
from .options import Output, capture_argument, output_options
from .replay_options import capture_of, option, policy_option, replay_options, setup_from


@click.command("sweep")
@capture_argument
@policy_option
@click.option(
    "--set",
    "settings",
    multiple=True,
    required=True,
    metavar="KEY=VALUES",
    help="Axis: a policy's parameter, or nodes, placement, contended, latency_ratio, with values 0:9 (both "
    "ends), 0:8:2, 2,4,8 or 0,1;2,3; repeatable.",
)
@option("baseline")
@replay_options
@output_options("curve")
def command(
    capture: str | None, names: tuple[str, ...], settings: tuple[str, ...], output: Output, **options: Any
) -> None:
    """Replay CAPTURE under every combination of parameters, nodes, placements and latencies.

    Each --set is an axis; a policy varies along the axes that are its own parameters. `nodes` is the
    machine's number of nodes (mitosis.nodes is the policy's), `latency_ratio` remote over local DRAM
    latency, 1.5,2,3. Walks are filtered once per machine and placement.

    \b
    Example:
      ptanalyze sweep app.capture -p hydra --set prefetch=0:9 --set nodes=2,4,8
    """
    from ..analysis.counting import silent_points
    from ..analysis.frames import sweep_frame
    from ..analysis.replay import refusal_lines
    from ..analysis.sweep import swept
    from ..core.columns import Section
    from ..show.advise import LL
    from ..show.terminal import progress_bar
    from ..show.whatif import rows

    grid = grid_of(settings)
    opened = capture_of(capture)
    refused: dict[str, str] = {}
    with progress_bar() as progress:
        points = swept(opened, names, grid, setup_from(options, opened, progress), refused)
    table = partial(sweep_frame, points, list(grid), refused)

    def below() -> list[str]:
        copied = any(result.row()["replica_faults"] for _, result in points)
        copies = ["- a walk that copied an entry counts as local: it read the owner's copy once"]
        return [*copies * copied, *silent_points(points, list(grid)), *refusal_lines(refused)]

    output.emit(
        "sweep",
        table,
        lambda: [{"point": point, **result.to_json()} for point, result in points],
        lambda: [Section(plural(len(points), "point"), rows(points, list(grid)), [LL, *below()])],
        {"curve": table},
        refused,
    )


def grid_of(settings: tuple[str, ...]) -> dict[str, list[str]]:
    """{axis: [value]} of --set."""
    from ..analysis.sweep import values

    grid: dict[str, list[str]] = {}
    for key, text in map(pair_of, settings):
        if key in grid:
            raise UsageError(f"--set {key}={text}: given twice; give all values at once, {key}=A,B")
        grid[key] = values(text)
    return grid
