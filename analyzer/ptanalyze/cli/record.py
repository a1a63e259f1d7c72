"""`ptanalyze record`: a program's memory trace and its page tables, in one run."""

from __future__ import annotations

from typing import Any

import click


@click.command("record", context_settings={"ignore_unknown_options": True})
@click.option("-o", "--output", required=True, type=click.Path(), help="Capture directory to make.")
@click.option(
    "--tracer",
    type=click.Choice(["qemu", "pin"]),
    default="qemu",
    show_default=True,
    help="Tracer to run the program under.",
)
@click.option("--no-dump", is_flag=True, help="Record the trace alone: no page tables, no root needed.")
@click.option(
    "--roi-start-symbol", "start_symbol", default="", help="Function from which to trace. Default: the start."
)
@click.option(
    "--roi-end-symbol",
    "end_symbol",
    default="",
    help="Function at whose entry tracing ends. Default: the end.",
)
@click.option("--roi-marker", "marker", is_flag=True, help="Trace between the marks of pintool/roi.h.")
@click.option(
    "--roi-start-access",
    "start_access",
    type=int,
    default=0,
    show_default=True,
    help="Skip the first N accesses.",
)
@click.option(
    "--roi-accesses",
    "accesses",
    type=int,
    default=0,
    show_default=True,
    help="Number of accesses to trace; 0: all.",
)
@click.option("--follow-fork", is_flag=True, help="Trace forked children too, each to a file of its own.")
@click.option(
    "--max-bytes", type=int, default=0, show_default=True, help="Size limit of the trace in bytes; 0: none."
)
@click.option(
    "--strip",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    help="Leave out touches that surely hit in the first-level TLB and change nothing there.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    output: str, tracer: str, no_dump: bool, strip: str, command: tuple[str, ...], **region: Any
) -> None:
    """Run COMMAND, trace its threads' memory accesses, and dump its page tables at the end of the region.

    Without a region the whole run is traced. Write -- before COMMAND. Dumping needs root.

    Example: ptanalyze record -o app.capture -- ./app --threads 4
    """
    from ..capture.live.record import record
    from ..capture.live.tracers import Options

    recording = record(
        command, output, tracer=tracer, options=Options(strip=strip == "on", **region), dump=not no_dump
    )
    tables = "with its page tables" if recording.snapshot else "without page tables"
    click.echo(f"{output}: recorded {tables}; next: ptanalyze check {output}")
    if recording.exit_status:
        click.echo(f"ptanalyze: the program ended with status {recording.exit_status}", err=True)
