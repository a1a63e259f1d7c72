"""`ptanalyze relocate`: the leaf page tables of a running process to the node of its threads."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

import ptanalyze as pt


@click.command("relocate")
@click.argument("pid", type=pt.options.pid)
@click.option(
    "--to",
    type=click.IntRange(0, 63),
    metavar="NODE",
    default=None,
    help="Node for the leaf tables. Default: the node on which most threads last ran.",
)
@click.option(
    "--dry-run/--yes", default=True, help="Only print the plan, or carry it out. Default: --dry-run."
)
@click.option(
    "--max-pause",
    "pause",
    type=click.FloatRange(0, 10_000),
    metavar="MS",
    default=2.0,
    show_default=True,
    help="Longest stop of all threads, in milliseconds; 0: the time that 1 GiB takes, about 10.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def command(pid: int, to: int | None, dry_run: bool, pause: float, as_json: bool) -> None:
    """Rebuild the leaf page tables of process PID near its threads, without a restart.

    Private anonymous memory in 4 KiB pages is moved away and back, which makes the kernel build new leaf
    tables; addresses, contents and VMAs do not change. All threads are stopped during each part of the move.
    Memory that cannot be moved is left alone and listed. Dumps before and after show the change. x86-64 only;
    needs root. Exit code 3: part of the memory was not moved.

    \b
    Examples:
      sudo ptanalyze relocate redis-server
      sudo ptanalyze relocate 1234 --yes
      sudo ptanalyze relocate 1234 --to 1 --max-pause 1 --yes
    """
    from . import relocate

    if {"--yes", "--dry-run"} <= set(click.get_current_context().meta["typed"]):
        raise pt.UsageError("relocate: give --yes or --dry-run, not both")
    if as_json and not dry_run:
        raise pt.UsageError("relocate: --json prints the plan; leave out --yes")
    pt.live.check_process(Path("/proc") / str(pid), pid)
    planned = relocate.plan(pid, to)
    if dry_run or to is None:
        tables = relocate.leaf_tables(pid)
        if as_json:
            pt.terminal.print_json("relocate", relocate.plan_record(planned, tables), {})
            return
        if not relocate.far(planned, tables):
            here = relocate.at_home(planned, tables)
            pt.options.echo(f"{pt.live.called(pid)}: nothing to relocate: {here}")
            return
    if dry_run:
        for line in relocate.described(planned, tables):
            pt.options.echo(line)
        where = "" if to is None else f" --to {to}"
        pt.options.echo(f"nothing was changed; next: {pt.errors.as_root()} relocate {pid}{where} --yes")
        return
    with ExitStack() as stack:
        pt.live.hold(stack, pid, "relocate --yes")
        done = relocate.relocate(pid, to, pause)
    for line in relocate.proof(done):
        pt.options.echo(line)
    for line in done.changed:
        pt.options.echo(line, err=True)
    if not done.whole:
        tally = done.tally
        changed = "areas are not as before: the program changed them meanwhile"
        why = tally["gave_up"] or (f"mremap: {tally['error']}" if tally["skipped"] else changed)
        raise pt.errors.PartialDataError(f"PID {pid}: not all as asked: {why}")
