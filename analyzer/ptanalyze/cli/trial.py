"""`ptanalyze trial`: the user's program with its page tables far from its threads, and near."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..core.errors import UsageError
from . import echo
from .options import DURATION
from .output import must_end_with

if TYPE_CHECKING:
    from ..capture.live.trial import Trial


@click.command("trial")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option(
    "--figure-of",
    "figure",
    metavar="CMD",
    help="Shell command that prints the work of COMMAND so far, a growing total; its increase per second "
    "is measured. Must be given. Default: none.",
)
@click.option(
    "--near", type=click.IntRange(0, 63), default=0, show_default=True, help="Node of threads and data."
)
@click.option("--far", type=click.IntRange(0, 63), default=1, show_default=True, help="Node of far tables.")
@click.option(
    "--warm-up",
    type=DURATION,
    default="10s",
    show_default=True,
    help="Time for COMMAND to allocate its memory: 10s, 5m.",
)
@click.option(
    "--for", "seconds", type=DURATION, default="10s", show_default=True, help="Length of each measurement."
)
@click.option(
    "--pairs", type=click.IntRange(1, 100), default=3, show_default=True, help="Pairs of measurements."
)
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(),
    callback=must_end_with("toml"),
    metavar="FILE.toml",
    help="Calibration to write, for predict and whatif --calibration. Default: none.",
)
def command(
    words: tuple[str, ...],
    figure: str | None,
    near: int,
    far: int,
    warm_up: float,
    seconds: float,
    pairs: int,
    file: str | None,
) -> None:
    """Run COMMAND with its leaf page tables alternately on a far and on the near node, and measure both.

    Threads and data are on the near node; a dump verifies the nodes of tables and data for each measurement.
    Needs root, two nodes and cgroup version 2. COMMAND is ended afterwards.

    \b
    Examples:
      sudo ptanalyze trial --figure-of 'cat done' -o app.toml -- ./app
      ptanalyze whatif app --calibration app.toml
    """
    from ..capture.live.trial import try_out, two_nodes

    if figure is None:
        two_nodes(near, far)
        raise UsageError(
            "trial: --figure-of is missing: a command that prints how much has been done, as 'cat done'"
        )
    done = try_out(
        words,
        figure,
        near=near,
        far=far,
        warm_up=warm_up,
        seconds=seconds,
        pairs=pairs,
        say=lambda line: echo(line, err=True),
    )
    each = sorted(done.slowdowns)
    echo(
        f"run time with tables far over near: {done.slowdown:.3f}x ({each[0]:.3f}-{each[-1]:.3f}, "
        f"{len(each)} pairs of {seconds:g} s)"
    )
    if file is not None:
        write(file, done)


def write(file: str, done: Trial) -> None:
    """The calibration that both placements give, by the leaf entries that were found far in each."""
    from ..analysis.run_time import calibrate
    from ..core.errors import PtanalyzeError
    from ..formats.measured.machine import write_calibration

    try:
        calibration = calibrate(
            placement=f"L:{1 - done.share(True):.4f},R:{done.share(True):.4f}",
            at=f"L:{1 - done.share(False):.4f},R:{done.share(False):.4f}",
            seconds=done.seconds,
            remote_seconds=done.seconds * done.slowdown,
            native=True,
        )
    except PtanalyzeError as error:
        echo(f"{file}: not written: {error}", err=True)
        return
    write_calibration(file, calibration)
    echo(f"{file}: written; next: ptanalyze predict {file}")
