"""`ptanalyze diff`: what changed between two captures of a series."""

from pathlib import Path

import click

from .options import json_option
from .plotting import plot_option, write_plot


@click.command("diff")
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@plot_option()
@json_option
def command(before: str, after: str, plot: str | None, as_json: bool) -> None:
    """Compare two captures of the same process or VM: table pages moved, created and gone, leaves changed.

    By tree, level and node. A page moved when another frame holds the table of the same addresses.
    """
    from ..capture.vm.diff import diff
    from ..formats.capture import load
    from ..show.terminal import console, print_json, print_rows

    found = diff(load(before), load(after))
    rows = [row for tree in found for row in tree.rows()]
    moves = [row for tree in found for row in tree.move_rows()]
    if as_json:
        print_json("diff", {"tables": rows, "moves": moves})
    else:
        print_rows("Table pages and leaf entries", rows)
        if moves:
            print_rows("Table pages by node", moves, "- : created or gone")
        console().print(f"{sum(tree.changed for tree in found):,} table pages changed")
    if plot:
        from ..analysis import answers as frames
        from ..show import plots

        table = frames.changes_frame(found)
        table.attrs["provenance"] = {"capture": f"from {Path(before).name} to {Path(after).name}"}
        write_plot(plot, plots.changes(table))
