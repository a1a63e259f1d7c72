"""`ptanalyze diff`: what changed between two captures of a series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from . import complete
from .output import Output, emit, output_options

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..capture.vm.diff import TreeDiff
    from ..core.columns import Section

REDACTED = "frames are renumbered there, so an unchanged page may count as moved or as in another frame"


@click.command("diff")
@click.argument("before", type=click.Path(), shell_complete=complete.captures)
@click.argument("after", type=click.Path(), shell_complete=complete.captures)
@output_options()
def command(before: str, after: str, output: Output) -> None:
    """Compare two captures of the same process or VM: table pages moved, created and gone, leaves changed.

    By tree, level and node. A page moved when another frame holds the table of the same addresses.

    \b
    Examples:
      ptanalyze diff host.0001 host.0010
    """
    from ..capture.vm.diff import COLUMNS, diff
    from ..core.columns import Answer, Section
    from ..core.errors import program
    from ..formats.capture import load
    from ..show.terminal import next_steps

    captures = load(before), load(after)
    trees = diff(*captures)
    rows = [row for tree in trees for row in tree.rows()]
    moves = [row for tree in trees for row in tree.move_rows()]

    def table() -> DataFrame:
        from ..analysis.frames import changes_frame

        found = changes_frame(trees)
        found.attrs["provenance"] = {"capture": f"from {Path(before).name} to {Path(after).name}"}
        return found

    def view() -> Iterator[Section]:
        yield Section(lines=[sentence(trees), ""])
        named = [{one.title or one.key: row[one.key] for one in COLUMNS} for row in rows]
        yield Section("Table pages, and leaf entries of those that are in both", named)
        if moves:
            yield Section("Table pages by node", moves, ["- : created or gone"])
        names = [str(one.directory) for one in captures if one.manifest.provenance.get("redacted")]
        if names:
            verb = "are" if len(names) > 1 else "is"
            yield Section(lines=[f"{' and '.join(names)} {verb} redacted: {REDACTED}"])
        yield Section(lines=[""])
        yield next_steps({"local and remote entries now": f"{program()} classify {quote(after)}"})

    emit(Answer("diff", table, lambda: {"tables": rows, "moves": moves}, view, {"changes": table}), output)


def sentence(trees: Sequence[TreeDiff]) -> str:
    """How many table pages are not as they were, and how many of these are on another node."""
    changed, pages = sum(tree.changed for tree in trees), sum(sum(tree.pages.values()) for tree in trees)
    moved = sum(count for tree in trees for (_, kind), count in tree.pages.items() if kind == "other node")
    if not changed:
        return f"No page-table page changed, of {pages:,}."
    return f"{changed:,} of {pages:,} page-table pages changed; {moved:,} moved to another node."
