"""`ptanalyze info`: what a capture holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .options import capture_argument, open_or_default
from .output import Output, emit, output_options

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..formats.capture import Capture


@click.command("info")
@capture_argument
@output_options("tables", "map")
def command(capture: str | None, output: Output) -> None:
    """Describe CAPTURE: its program, machine, page tables, threads and events.

    Without CAPTURE: the newest capture in this directory, else the bundled sample.

    \b
    Examples:
      ptanalyze info app
      ptanalyze info app --plot map.png --plot-kind map
    """
    from ..analysis.answer import Answer, Section
    from ..analysis.answers import facts_frame
    from ..capture.describe import describe, for_people

    opened = open_or_default(capture)
    sections = describe(opened)
    emit(
        Answer(
            "info",
            lambda: facts_frame(sections),
            lambda: sections,
            lambda: [Section(title, rows) for title, rows in for_people(sections).items()],
            dict.fromkeys(("tables", "map"), lambda: table_pages(opened)),
        ),
        output,
    )


def table_pages(opened: Capture) -> DataFrame:
    """The table pages of a process, a VM, or a VM's host side alone."""
    from ..analysis.answers import tables_frame
    from ..capture.vm.diff import trees

    side = opened.vm if opened.has_vm and not opened.has_snapshot else opened.snapshot
    table = tables_frame(trees(opened), len(side.topology))
    table.attrs["provenance"] = {"capture": str(opened.directory)}
    return table
