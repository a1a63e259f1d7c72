"""`ptanalyze info`: what a capture holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from .options import Output, capture_argument, open_or_default, output_options
from .replay_options import steps

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..capture.describe import Rows
    from ..core.columns import Section
    from ..formats.capture import Capture


@click.command("info")
@capture_argument
@output_options("map")
def command(capture: str | None, output: Output) -> None:
    """Describe CAPTURE: its program, machine, page tables, threads and events.

    Without CAPTURE: this directory, or the newest capture in it.

    \b
    Examples:
      ptanalyze info app.capture
      ptanalyze info postgres --csv
      ptanalyze info app.capture --plot map.png
    """
    from ..capture.describe import code, describe
    from ..core.columns import described, table_of

    opened = open_or_default(capture)
    sections, further = describe(opened), {"is it usable?": "check"}
    if opened.has_snapshot or opened.has_trace:
        side = opened.vm if opened.has_vm else opened.snapshot if opened.has_snapshot else None
        near = {} if side and len(side.topology) == 1 else {"local and remote walks": "classify"}
        further = {**near, "what would be faster": "advise"}

    named = {code(title): {code(fact): of for fact, of in rows.items()} for title, rows in sections.items()}

    def table() -> DataFrame:
        rows = [(title, fact, value) for title, facts in named.items() for fact, value in facts.items()]
        return described(table_of(rows, ["section", "fact", "value"]))

    output.emit(
        "info",
        table,
        lambda: named,
        lambda: view(sections, steps(capture, further, opened)),
        {"map": lambda: table_pages(opened)},
    )


def view(sections: dict[str, Rows], further: Section) -> Iterator[Section]:
    from ..capture.describe import PROCESS, TITLES, for_people, summary
    from ..core.columns import Section

    yield Section(lines=[summary(sections), ""])
    several = {title: rows for title, rows in sections.items() if title.startswith(PROCESS)}
    for title, rows in for_people(sections).items():
        if title not in several:
            yield Section(TITLES.get(title, title), rows)
    if several:
        each = [{"PID": title.removeprefix(PROCESS), **rows} for title, rows in several.items()]
        yield Section("processes", each)
    yield Section(lines=[""])
    yield further


def table_pages(opened: Capture) -> DataFrame:
    """The table pages of a process, a VM, or a VM's host side alone."""
    from ..analysis.frames import tables_frame

    side = opened.vm if opened.has_vm and not opened.has_snapshot else opened.snapshot
    return tables_frame(opened.trees, len(side.topology), opened.source)
