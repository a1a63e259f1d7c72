"""`ptanalyze info`: what a capture holds."""

import click

from .options import capture_argument, json_option, open_or_default


@click.command("info")
@capture_argument
@json_option
def command(capture, as_json):
    """Say what CAPTURE holds: its program, machine, tables, pages, threads and events.

    Without CAPTURE: the newest capture in this directory, else the bundled sample.
    """
    from ..info import describe
    from ..tables import print_json, print_sections

    sections = describe(open_or_default(capture))
    if as_json:
        print_json("info", sections)
    else:
        print_sections(sections)
