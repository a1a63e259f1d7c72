"""`ptanalyze info`: what a capture holds."""

import click

from .options import capture_argument, json_option, open_or_default
from .plotting import draw_tables, plot_option


@click.command("info")
@capture_argument
@plot_option("tables", "map")
@json_option
def command(capture: str | None, plot: str | None, plot_kind: str, as_json: bool) -> None:
    """Say what CAPTURE holds: its program, machine, tables, pages, threads and events.

    Without CAPTURE: the newest capture in this directory, else the bundled sample.
    """
    from ..capture.describe import describe, for_people
    from ..show.terminal import print_json, print_sections

    opened = open_or_default(capture)
    sections = describe(opened)
    if as_json:
        print_json("info", sections)
    else:
        print_sections(for_people(sections))
    if plot:
        draw_tables(plot, plot_kind, opened)
