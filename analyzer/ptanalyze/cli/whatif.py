"""`ptanalyze whatif`: what another page-table placement would change, and at what price."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..core.errors import is_whole
from . import replay_options as replays
from .options import Output, capture_argument, full_option, output_options


@click.command("whatif")
@capture_argument
@replays.policy_option
@replays.set_option
@replays.option("baseline")
@replays.option("weigh")
@replays.sizes_option
@full_option
@replays.replay_options
@output_options("speedup", "locality", "reads", "sizes")
def command(
    capture: str | None,
    names: tuple[str, ...],
    settings: tuple[str, ...],
    sizes: str | None,
    full: bool,
    output: Output,
    **options: Any,
) -> None:
    """Replay CAPTURE's page walks under other placements of its page tables.

    Without CAPTURE: this directory, the newest capture in it, or the bundled sample. `ptanalyze policies` and
    `ptanalyze machines` list the choices.

    \b
    Examples:
      ptanalyze whatif app.capture -p mitosis,hydra --set prefetch=0
      ptanalyze whatif vm -p ptemagnet+vmitosis-replicate
      ptanalyze whatif app.capture --stands-for 200G
    """
    opened = replays.capture_of(capture)  # unpacked while the rest is imported
    from ..analysis.setup import asked_of_processes
    from ..analysis.whatif import replay
    from ..show.terminal import progress_bar
    from ..show.whatif import labels, view

    with progress_bar() as progress:
        setup = replays.setup_from(options, opened, progress)
        policies = replays.configured(names, settings, opened)
        replayed = replay(opened, policies, setup, judged=output.form == "table")
        curve = replays.sizes_of(sizes, opened, policies, setup, replayed)
    results, notes = replayed.results, [asked_of_processes(opened, setup), numbers_of_nodes(policies)]
    steps = replays.following(capture, opened, results[0], replayed.verdict)
    output.emit(
        "whatif",
        lambda: replayed.frame,
        lambda: [
            result.to_json() | ({"sizes": curve.of(label)} if curve else {})
            for result, label in zip(results, labels(results), strict=True)
        ],
        lambda: view(results, None if full else steps, replayed.refused, notes, curve, replayed.verdict),
        replays.plots_of(replayed, curve),
        replayed.refused,
    )


def numbers_of_nodes(policies: Sequence[tuple[str, Mapping[str, str]]]) -> str:
    """What a plain number as a policy's `nodes` is, and what it is not; "" where none is given."""
    for name, settings in policies:
        for key, value in settings.items():
            if key.rpartition(".")[2] == "nodes" and is_whole(value):
                return (
                    f"nodes={value} is a node's number: {name} has replicas on node {value} alone. The "
                    "machine's number of nodes is an axis of sweep: `ptanalyze sweep --set nodes=2,4`"
                )
    return ""
