"""`ptanalyze timeline`: locality over time, while threads and data move to other nodes."""

from __future__ import annotations

from typing import Any

import click

from .options import capture_argument, set_option
from .output import Output, emit, output_options
from .replaying import arguments, baseline_option, configured, policy_option, replay_options


@click.command("timeline")
@capture_argument
@policy_option
@set_option
@click.option(
    "--windows",
    type=click.IntRange(1, 10000),
    default=20,
    show_default=True,
    help="Number of equal-length time windows.",
)
@baseline_option
@replay_options
@output_options()
def command(
    capture: str | None,
    names: tuple[str, ...],
    settings: tuple[str, ...],
    windows: int,
    baseline: str,
    output: Output,
    **options: Any,
) -> None:
    """Replay CAPTURE's walks and show where they went in each window of its time.

    Example (vMitosis, Figure 6): ptanalyze timeline vm -p linux -p vmitosis-migrate -p vmitosis-replicate
    --move-threads 0:1@30% --autonuma
    """
    from ..analysis.answer import Answer
    from ..analysis.replays import replay
    from ..show.progress import progress_bar
    from ..show.timeline import rows, view

    policies = configured(names, settings)
    opened, how = arguments(capture, **options)
    opened.trace  # noqa: B018 - UsageError without one
    with progress_bar() as progress:
        replayed = replay(opened, policies, baseline=baseline, windows=windows, progress=progress, **how)
    results = replayed.results
    emit(
        Answer(
            "timeline",
            lambda: replayed.timeline,
            lambda: rows(results),
            lambda: view(results),
            {"timeline": lambda: replayed.timeline},
        ),
        output,
    )
