"""`ptanalyze trial`: the user's program with its page tables far from its threads, and near."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

import ptanalyze as pt

if TYPE_CHECKING:
    from .trial import Trial


@click.command("trial")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option(
    "-p",
    "--pid",
    type=pt.options.pid,
    metavar="PID",
    help="Measure a running process in place of COMMAND: its tables alone are moved, and left on the --near "
    "node, that of its threads. Default: none.",
)
@click.option(
    "--figure-of",
    "figure",
    metavar="CMD",
    help="Shell command that prints the work done so far, a growing total; its increase per second is "
    "measured. Default: none, COMMAND is run to its end each time.",
)
@click.option(
    "--near", type=click.IntRange(0, 63), default=0, show_default=True, help="Node of threads and data."
)
@click.option("--far", type=click.IntRange(0, 63), default=1, show_default=True, help="Node of far tables.")
@click.option(
    "--warm-up",
    type=pt.options.duration,
    default="10s",
    show_default=True,
    help="Time for COMMAND to allocate its memory: 10s, 5m.",
)
@click.option(
    "--for",
    "seconds",
    type=pt.options.duration,
    default="10s",
    show_default=True,
    help="Length of each measurement.",
)
@click.option(
    "--pairs", type=click.IntRange(1, 100), default=3, show_default=True, help="Pairs of measurements."
)
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(),
    callback=pt.options.must_end_with("toml"),
    metavar="FILE.toml",
    help="Calibration to write, for calibrate and whatif --calibration. Default: none.",
)
def command(
    words: tuple[str, ...],
    pid: int | None,
    figure: str | None,
    near: int,
    far: int,
    warm_up: float,
    seconds: float,
    pairs: int,
    file: str | None,
) -> None:
    """Measure a program with its leaf page tables alternately on a far and on the near node.

    Threads and data are on the near node; a dump verifies the nodes of tables and data for each measurement.
    Cycles of page walks are counted, too, where the CPU counts them. Needs root, two nodes and, for COMMAND,
    cgroup version 2. COMMAND is ended afterwards.

    \b
    Examples:
      sudo ptanalyze trial -o app.toml -- ./app
      sudo ptanalyze trial --figure-of 'cat done' -o app.toml -- ./app
      sudo ptanalyze trial --figure-of 'cat done' -p 1234
      ptanalyze whatif app --calibration app.toml
    """
    from .trial import try_live, try_out, two_nodes

    if (pid is None) == (not words):
        raise pt.UsageError("trial: give a command after --, or a process with -p PID")
    two_nodes(near, far)
    if pid is not None and figure is None:
        raise pt.UsageError(
            "trial: --figure-of is missing: a process that goes on has no run time; give a command that "
            "prints how much it has done so far, as 'cat done'"
        )

    def say(line: str) -> None:
        pt.options.echo(line, err=True)

    if pid is not None and figure is not None:
        done = try_live(pid, figure, near=near, far=far, seconds=seconds, pairs=pairs, say=say)
    else:
        done = try_out(
            words, figure, near=near, far=far, warm_up=warm_up, seconds=seconds, pairs=pairs, say=say
        )
    each = sorted(done.slowdowns)
    pt.options.echo(
        f"run time with tables far over near: {done.slowdown:.3f}x ({each[0]:.3f}-{each[-1]:.3f}, "
        f"{len(each)} pairs of {f'{seconds:g} s' if done.seconds else 'whole runs'})"
    )
    if file is not None:
        write(file, done)


def write(file: str, done: Trial) -> None:
    """The calibration that both placements give, by the leaf entries that were found far in each."""
    from ptanalyze_law.run_time import calibrate

    counted = {
        name: counters(Path(file).with_suffix(f".{name}.csv"), done.counts(name == "far"))
        for name in ("near", "far")
    }
    try:
        calibration = calibrate(
            counted["near"],
            counted["far"],
            placement=f"L:{1 - done.share(True):.4f},R:{done.share(True):.4f}",
            at=f"L:{1 - done.share(False):.4f},R:{done.share(False):.4f}",
            seconds=done.near_seconds,
            remote_seconds=done.near_seconds * done.slowdown,
            native=True,
        )
    except pt.errors.PtanalyzeError as error:
        pt.options.echo(f"{file}: not written: {error}", err=True)
        return
    pt.measured.write_calibration(file, calibration)
    pt.options.echo(f"{file}: written; {pt.options.next_step('calibrate', file)}")


def counters(file: Path, counts: Mapping[str, float]) -> Path | None:
    """Counts as `perf stat -x,` writes them, for `calibrate`; None without counts."""
    if not counts:
        return None

    with pt.formats.atomic_write(file, "w", given=True) as out:
        out.writelines(f"{count:.0f},,{event},1,100.00,,\n" for event, count in counts.items())
    return file
