"""`ptanalyze whatif`: what another page-table placement would change, and at what price."""

from __future__ import annotations

from typing import Any

import click

from .options import capture_argument, set_option
from .output import Output, emit, output_options
from .replaying import (
    BRIEF,
    baseline_option,
    capture_of,
    configured,
    full_option,
    plots_of,
    policy_option,
    replay_options,
    setup_from,
    weight_option,
)


@click.command("whatif")
@capture_argument
@policy_option
@set_option
@baseline_option
@weight_option
@full_option
@replay_options
@output_options("speedup", "locality", "reads", "pareto", "footprint", "roofline")
def command(
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

    Examples: ptanalyze whatif app -p mitosis -p hydra --set prefetch=0;
    ptanalyze whatif vm -p ptemagnet+vmitosis-replicate
    """
    from ..analysis.answer import Answer
    from ..analysis.whatif import replay
    from ..show.first_screen import further
    from ..show.progress import progress_bar
    from ..show.whatif import view

    policies = configured(names, settings)
    with progress_bar() as progress:
        setup = setup_from(options, progress)
        replayed = replay(capture_of(capture), policies, setup)
    results = replayed.results
    steps = further(capture, names, options["calibration"] is not None)
    emit(
        Answer(
            "whatif",
            lambda: replayed.frame,
            lambda: [result.to_json() for result in results],
            lambda: view(results, None if full else steps, replayed.refused),
            plots_of(replayed),
            replayed.refused,
            BRIEF,
        ),
        output,
    )
