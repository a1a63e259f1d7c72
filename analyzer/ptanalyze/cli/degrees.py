"""`ptanalyze degrees`: degree of prefetching and sharing tier, VMA by VMA."""

from __future__ import annotations

from typing import Any

import click

from .options import capture_argument, capture_of, replay_options, setup_from, steps
from .output import Output, emit, output_options


@click.command("degrees")
@capture_argument
@click.option(
    "--prefetch-on",
    type=click.Choice(["first", "every"]),
    default="first",
    show_default=True,
    help="Prefetch with the first copy of a table page (Hydra, 4.1), or with every copied entry (3.4).",
)
@click.option(
    "--repeat",
    type=click.FloatRange(0, 1e15),
    default=0,
    show_default=True,
    help="Let the steady part of the trace run N more times: replicas are made once.",
)
@replay_options
@output_options()
@click.pass_context
def command(
    context: click.Context,
    /,
    capture: str | None,
    prefetch_on: str,
    repeat: float,
    output: Output,
    **options: Any,
) -> None:
    """Choose Hydra's prefetch degree (0 to 9) and the sharing of replicas for each VMA of CAPTURE.

    Replays every degree with a replica per node and, where sockets have several nodes, a replica per socket,
    and no replicas. Costs are the exposed share of the guest's walk cycles, and faults, copied
    entries, tables, updates and shootdowns, from the trace's cold start on: --cold and --calibration change
    nothing. The bound is prefetching with knowledge of all future walks. The settings are for existing
    kernels: Hydra's repl_order and tlbflush_opt, WASP's steering, and numactl; they have one degree for all
    VMAs.

    \b
    Example:
      ptanalyze degrees app --repeat 100
    """
    from ..analysis.degrees import BRIEF, as_record, chosen, frame
    from ..core.columns import Answer
    from ..show.advise import view_degrees as view
    from ..show.terminal import progress_bar

    opened = capture_of(capture)
    with progress_bar() as progress:
        found = chosen(opened, setup_from(options, progress), prefetch_on, repeat)
    emit(
        Answer(
            "degrees",
            lambda: frame(found),
            lambda: as_record(found),
            lambda: view(found, steps(context, capture, {"Hydra beside other policies": "advise"})),
            {"degrees": lambda: frame(found)},
            brief=BRIEF,
        ),
        output,
    )
