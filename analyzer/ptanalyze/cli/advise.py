"""`ptanalyze advise`: which placement policy to use for a capture, and why."""

from typing import Any

import click

from . import replay_options as replays
from .options import Output, capture_argument, full_option, output_options


@click.command("advise")
@capture_argument
@replays.question_options
@replays.option("weigh")
@replays.sizes_option
@full_option
@replays.replay_options
@output_options("speedup", "locality", "reads", "sizes")
def command(
    capture: str | None,
    names: tuple[str, ...],
    memory: str | None,
    horizon: float,
    sizes: str | None,
    full: bool,
    output: Output,
    **options: Any,
) -> None:
    """Rank policies, by default all that CAPTURE allows, by estimated run time within a budget, and explain
    why.

    Also says whether the workload is Thin (one node walks, its tables should follow it) or Wide (several
    nodes walk, each wants a copy), with the evidence: vMitosis, section 3.4.

    \b
    Example:
      ptanalyze advise app.capture --memory 1%
    """
    from ..analysis.advise import advise
    from ..analysis.setup import asked_of_processes
    from ..show.advise import as_record, view
    from ..show.terminal import progress_bar

    opened = replays.capture_of(capture)
    with progress_bar() as progress:
        setup = replays.setup_from(options, opened, progress)
        advised = advise(opened, setup, **replays.question(memory, horizon, names))
        curve = replays.sizes_of(sizes, opened, replays.configured(names), setup, advised.replayed)
    whose = asked_of_processes(opened, setup)
    steps = replays.following(capture, opened, advised.base, advised.verdict, ranked=True)
    output.emit(
        "advise",
        lambda: advised.frame,
        lambda: as_record(advised, curve),
        lambda: view(advised, None if full else steps, whose, curve),
        replays.plots_of(advised.replayed, curve),
        advised.refused,
    )
