"""`ptanalyze diff`: what differs between two captures' page tables."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

import click

import ptanalyze as pt

REDACTED = "frames are renumbered there, so an unchanged page may count as moved or as in another frame"


@click.command("diff")
@click.argument("a", type=click.Path(readable=False), shell_complete=pt.options.captures)
@click.argument("b", type=click.Path(readable=False), shell_complete=pt.options.captures)
@pt.options.output_options()
def command(a: str, b: str, output: pt.options.Output) -> None:
    """Compare the page tables of two captures of the same process or VM.

    A before B: table pages moved, created and gone, leaf entries changed, by tree, level and node. A page
    moved when another frame holds the table of the same addresses.

    \b
    Example:
      ptanalyze diff host.0001 host.0010
    """
    from .diff import COLUMNS, by_level, by_node, diff, table_pages

    captures = pt.load(a), pt.load(b)
    changes = diff(*captures)
    levels, moves = by_level(changes), by_node(changes)

    def view() -> Iterator[pt.columns.Section]:
        pages = table_pages(changes).groupby("what")["table_pages"].sum()
        total, other = pages.sum(), pages.get("other node", 0)
        changed = total - pages["same"]
        conclusion = f"{changed:,} of {total:,} page-table pages changed; {other:,} moved to another node."
        none = f"No page-table page changed, of {total:,}."
        yield pt.columns.Section(lines=[conclusion if changed else none, ""])
        named = [{column.title or column.key: row[column.key] for column in COLUMNS} for row in levels]
        yield pt.columns.Section("Table pages, and leaf entries of those that are in both", named)
        if moves:
            yield pt.columns.Section("Table pages by node", moves, ["- : created or gone"])
        pids = [capture.manifest.provenance.get("pid") for capture in captures]
        if None not in pids and pids[0] != pids[1]:
            of = " and ".join(f"PID {pid}" for pid in pids)
            yield pt.columns.Section(
                lines=[f"These are two processes, {of}: what differs was not changed by one."]
            )
        for capture in captures:
            if capture.manifest.provenance.get("redacted"):
                yield pt.columns.Section(lines=[f"{capture.directory} is redacted: {REDACTED}"])
        if max(len((one.vm if one.has_vm else one.snapshot).topology) for one in captures) == 1:
            return  # all entries are local
        yield pt.columns.Section(lines=[""])
        then = f"{pt.errors.program()} classify {quote(b)}"
        yield pt.terminal.next_steps({"local and remote entries now": then})

    output.emit("diff", lambda: table_pages(changes), lambda: {"tables": levels, "moves": moves}, view)
