"""`ptanalyze diff`: what changed between two captures of a series."""

import click

from .options import json_option


@click.command("diff")
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@json_option
def command(before, after, as_json):
    """Compare two captures of the same process or VM: table pages moved, created and gone, leaves changed.

    By tree, level and node. A page moved when another frame holds the table of the same addresses.
    """
    from ..capture import open_capture
    from ..tables import console, print_json, print_rows
    from ..vm.diff import diff

    found = diff(open_capture(before), open_capture(after))
    rows = [row for tree in found for row in tree.rows()]
    moves = [row for tree in found for row in tree.move_rows()]
    if as_json:
        return print_json("diff", {"tables": rows, "moves": moves})
    print_rows("Table pages and leaf entries", rows)
    if moves:
        print_rows("Table pages by node", moves, "- : created or gone")
    console().print(f"{sum(tree.changed for tree in found):,} table pages changed")
