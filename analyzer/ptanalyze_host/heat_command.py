"""`ptanalyze heat`: which pages of a running process are used, without a tracer."""

from __future__ import annotations

from pathlib import Path

import click

from ptanalyze.cli import echo, next_step
from ptanalyze.cli.options import DURATION, PID, free_name, new_capture_option
from ptanalyze.core.errors import is_whole


@click.command("heat")
@click.argument("pid", type=PID)
@click.option(
    "--for",
    "seconds",
    type=DURATION,
    default="30s",
    show_default=True,
    help="Time to sample: 30 or 30s, 5m. Ctrl-C ends it early and keeps the samples.",
)
@click.option(
    "--tree", is_flag=True, help="Sample all its descendants too, at the same time, each into OUTPUT/pid-PID."
)
@new_capture_option("PID.capture, or none with --add")
@click.option(
    "--add",
    type=click.Path(),
    metavar="CAPTURE",
    help="Add the samples to this dump of the process. Default: none.",
)
@click.option(
    "--samples",
    "lengths",
    metavar="MS,...",
    default="1,2,3,4,6,8,12,17,25,36,50,72,100,145,210,300",
    show_default=True,
    help="Delays after which each sample reads the tables, in milliseconds; up to 16.",
)
def command(pid: int, seconds: float, tree: bool, output: str | None, add: str | None, lengths: str) -> None:
    """Sample which pages process PID uses, by the accessed bits of its page tables, and dump the tables.

    The accessed bits are cleared repeatedly and read back after a delay; a set bit means that the page was
    walked in between. `classify`, `whatif` and `advise` weigh pages by it (--weight heat). The process keeps
    running. Needs root. Ctrl-C keeps the samples taken so far, with exit code 0.

    \b
    Examples:
      sudo ptanalyze heat 1234 --for 30s -o app
      sudo ptanalyze heat 1234 --add app
      sudo ptanalyze heat --tree 1234 -o postgres
    """
    from ptanalyze.capture.live.dump import seal_dump
    from ptanalyze.capture.live.process import called, check_process
    from ptanalyze.formats.record import must_be_new, new_capture

    from .heat import heat_process, heat_tree, provenance, sources

    if output is not None and add is not None:
        raise click.UsageError("give -o DIR for a new capture, or --add CAPTURE for one of this process")
    if tree and add is not None:
        raise click.UsageError("--tree makes a new capture: give -o DIR, not --add")
    asked, whole = milliseconds(lengths), max(round(seconds), 1)
    if add is None:
        output = output or free_name(str(pid))
        must_be_new(output)
    check_process(Path("/proc") / str(pid), pid)
    for source, state in sources().items():
        echo(f"{source}: {state}", err=True)
    who = f"{called(pid)} and its descendants" if tree else called(pid)
    echo(f"sampling {who} for {round(seconds)} s; Ctrl-C ends it and keeps the samples", err=True)
    if add is not None:
        from .heat import add_heat

        lines = add_heat(pid, add, whole, asked)
    elif tree:
        assert output is not None
        with new_capture(output) as inside:
            lines = heat_tree(pid, Path(inside), whole, asked)
    else:
        assert output is not None
        with new_capture(output) as inside:
            others = provenance()
            lines = heat_process(pid, Path(inside), whole, asked)
            seal_dump(Path(inside), others)
    for line in lines:
        echo(line, err=True)
    by = "process" if tree else "vma"
    echo(f"{output or add}: sampled; {next_step('classify', output or add, '--by', by)}")


def milliseconds(text: str) -> list[int]:
    """[1, 10] of "1,10"; UsageError for other text."""
    words = text.split(",")
    whole = all(is_whole(word) and 0 < int(word) <= 3_600_000 for word in words)
    if not 1 <= len(words) <= 16 or not whole or len({int(word) for word in words}) < len(words):
        raise click.UsageError(f"--samples {text}: write up to 16 different times in ms, as 1,10,100")
    return [int(word) for word in words]
