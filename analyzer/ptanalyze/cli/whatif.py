"""`ptanalyze whatif`: what another page-table placement would change, and at what price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..core.errors import is_whole
from .options import (
    BRIEF,
    baseline_option,
    capture_argument,
    capture_of,
    configured,
    full_option,
    plots_of,
    policy_option,
    replay_options,
    set_option,
    setup_from,
    steps_from,
    usual,
    weight_option,
)
from .output import Output, emit, output_options


@click.command("whatif")
@capture_argument
@policy_option
@set_option
@baseline_option
@weight_option
@full_option
@replay_options
@output_options("speedup", "locality", "reads", "pareto", "footprint", "roofline")
@click.pass_context
def command(
    context: click.Context,
    /,
    capture: str | None,
    names: tuple[str, ...],
    settings: tuple[str, ...],
    full: bool,
    output: Output,
    **options: Any,
) -> None:
    """Replay CAPTURE's page walks under other placements of its page tables.

    Without CAPTURE: the newest capture in this directory, else the bundled sample. `ptanalyze policies` and
    `ptanalyze machines` list what there is. `ptanalyze compare` reads the files that -o writes.

    \b
    Examples:
      ptanalyze whatif app -p mitosis,hydra --set prefetch=0
      ptanalyze whatif vm -p ptemagnet+vmitosis-replicate
    """
    from ..analysis.answer import Answer
    from ..analysis.setup import asked_of_processes
    from ..analysis.whatif import replay
    from ..show.progress import progress_bar
    from ..show.whatif import view

    policies = configured(names, settings)
    with progress_bar() as progress:
        setup = setup_from(options, progress)
        opened = capture_of(capture)
        asked = usual(names, opened)
        policies = policies or configured(asked, settings)
        replayed = replay(opened, policies, setup)
    nodes = numbers_of_nodes(policies)
    results, whose = replayed.results, asked_of_processes(opened, setup)
    steps = steps_from(context, capture, asked, results)
    emit(
        Answer(
            "whatif",
            lambda: replayed.frame,
            lambda: [result.to_json() for result in results],
            lambda: view(results, None if full else steps, replayed.refused, whose, nodes),
            plots_of(replayed),
            replayed.refused,
            BRIEF,
        ),
        output,
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
