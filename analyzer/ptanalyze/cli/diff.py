"""`ptanalyze diff`: what changed between two captures of a series."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import complete
from .output import Output, emit, output_options

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..analysis.answer import Section

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
    from ..analysis.answer import Answer, Section
    from ..capture.vm.diff import diff
    from ..formats.capture import load

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
        yield Section("Table pages and leaf entries", rows)
        if moves:
            yield Section("Table pages by node", moves, ["- : created or gone"])
        yield Section(lines=[f"{sum(tree.changed for tree in trees):,} table pages changed"])
        names = [str(one.directory) for one in captures if one.manifest.provenance.get("redacted")]
        if names:
            verb = "are" if len(names) > 1 else "is"
            yield Section(lines=[f"{' and '.join(names)} {verb} redacted: {REDACTED}"])

    emit(Answer("diff", table, lambda: {"tables": rows, "moves": moves}, view, {"changes": table}), output)
