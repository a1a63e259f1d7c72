"""`ptanalyze hugepages`: which mapping gains from huge pages, and the line to type for it."""

from __future__ import annotations

from typing import Any

import click

from .options import Output, capture_argument
from .replay_options import capture_of, replay_options, setup_from


@click.command("hugepages")
@capture_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all mappings.")
@replay_options
def command(capture: str | None, as_json: bool, **options: Any) -> None:
    """Rank CAPTURE's mappings by the page walks that huge pages would save per MiB.

    All mappings get huge pages together, like under the policy thp: anonymous memory, unless the program
    forbids it. For each mapping it prints the line that enables huge pages for it alone on mainline Linux.
    CAPTURE needs a trace.

    \b
    Example:
      ptanalyze hugepages app
    """
    from ..analysis.hugepages import huge_pages
    from ..show.advise import view_huge_pages
    from ..show.terminal import progress_bar

    opened = capture_of(capture)
    with progress_bar() as progress:
        table = huge_pages(opened, setup_from(options, progress))
    walks = {name: table.attrs[name] for name in ("walks", "walks_left")}
    Output("json" if as_json else "table").emit(
        "hugepages",
        lambda: table,
        lambda: {**walks, "mappings": table.to_dict("records")},
        lambda: view_huge_pages(table),
    )
