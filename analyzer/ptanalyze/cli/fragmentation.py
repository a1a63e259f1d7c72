"""`ptanalyze fragmentation`: over how many ePT cache lines neighbouring pages are scattered."""

from functools import partial

import click

from ..core.errors import DEFAULT_MACHINE, UsageError, pair_of
from .options import Output, capture_argument, open_or_default, output_options
from .replay_options import machine_for, option, steps


@click.command("fragmentation")
@capture_argument
@click.option(
    "--by",
    type=click.Choice(["all", "vma"]),
    default="all",
    show_default=True,
    help="Groups to count: all together, or each VMA.",
)
@click.option("--after", is_flag=True, help="Measure again with PTEMagnet's allocator in the guest.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Parameter of --after: group or reserve_limit; repeatable. Default: as `ptanalyze policies` lists.",
)
@option("machine")
@output_options("fragmentation")
def command(
    capture: str | None, by: str, after: bool, settings: tuple[str, ...], machine: str | None, output: Output
) -> None:
    """Measure over how many ePT cache lines, 1 to 8, the neighbours of each gPT cache line are scattered.

    The metric of the PTEMagnet paper (section 3.2). CAPTURE must be of a VM. --after also measures
    reservations of aligned groups of guest frames (section 4), in the order of the trace's page faults.

    \b
    Example:
      ptanalyze fragmentation vm --after --set reserve_limit=4096
    """
    from ..analysis.classify import fragmented
    from ..analysis.frames import fragmentation_frame
    from ..analysis.setup import Setup
    from ..show.classify import fragmentation_record as as_record
    from ..show.classify import view_fragmentation as view
    from ..show.terminal import progress_bar

    if settings and not after:
        raise UsageError(f"--set {settings[0]}: parameters are for --after")
    opened = open_or_default(capture)
    chosen = dict(map(pair_of, settings)) if after else None
    with progress_bar() as progress:
        asks = after and not opened.snapshot.native  # else no machine has a part in it
        named = machine_for(opened, machine) if asks else machine or DEFAULT_MACHINE
        states, shaped = fragmented(opened, by, chosen, Setup.of(machine=named, progress=progress))
    table = partial(fragmentation_frame, states, opened.source)
    more = {} if after else {"with PTEMagnet's reservations": "fragmentation --after"}
    further = steps(capture, {**more, "what they gain": "whatif -p ptemagnet"}, opened)
    output.emit(
        "fragmentation",
        table,
        lambda: as_record(states, shaped),
        lambda: view(states, shaped, further),
        {"fragmentation": table},
    )
