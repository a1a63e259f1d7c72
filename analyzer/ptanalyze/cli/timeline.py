"""`ptanalyze timeline`: locality over time, while threads and data move to other nodes."""

from typing import Any

import click

from . import replay_options as replays
from .options import Output, capture_argument, output_options


@click.command("timeline")
@capture_argument
@replays.policy_option
@replays.set_option
@replays.option("windows")
@replays.option("baseline")
@replays.replay_options
@output_options("timeline")
def command(
    capture: str | None, names: tuple[str, ...], settings: tuple[str, ...], output: Output, **options: Any
) -> None:
    """Replay CAPTURE's walks and show where they went in each window of its time.

    Walks and data accesses per second follow from the machine and cost file: cycles of a window are its
    instructions at the cost file's cycles per instruction, plus the exposed share of the waits of walks and
    data, plus faults and system calls. Walks take their reads at the machine's latencies. Each walk is
    assumed to read its data from DRAM, too: a page on another node costs the difference in latency (local
    data are in the cycles per instruction). All CPUs that appear in a window are assumed busy, less the time
    taken by NUMA balancing; --calibration does not change these numbers.

    \b
    Example (vMitosis, Figure 6):
      ptanalyze timeline vm -p linux,vmitosis-migrate,vmitosis-replicate \\
          --move-threads 0:1@30% --autonuma
    """
    from ..analysis.whatif import replayed_over_time
    from ..show.terminal import progress_bar
    from ..show.whatif import timeline_rows as rows
    from ..show.whatif import view_timeline as view

    with progress_bar() as progress:
        opened = replays.capture_of(capture)
        setup = replays.setup_from(options, opened, progress)
        replayed = replayed_over_time(opened, replays.configured(names, settings, opened), setup)
    results = replayed.results
    output.emit(
        "timeline",
        lambda: replayed.timeline,
        lambda: rows(results),
        lambda: view(results),
        {"timeline": lambda: replayed.timeline},
        replayed.refused,
    )
