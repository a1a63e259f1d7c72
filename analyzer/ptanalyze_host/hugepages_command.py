"""`ptanalyze hugepages`: which mapping gains from huge pages, and the line to type for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

import ptanalyze as pt

if TYPE_CHECKING:
    from pandas import DataFrame

MAPPINGS, LINES = 8, 3  # of a first screen
WORTH_TYPING = 0.005  # of all walks saved: shown as 1 %


@click.command("hugepages")
@pt.options.capture_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all mappings.")
@pt.replay_options.replay_options
def command(capture: str | None, as_json: bool, **options: Any) -> None:
    """Rank CAPTURE's mappings by the page walks that huge pages would save per MiB.

    All mappings get huge pages together, like under the policy thp: anonymous memory, unless the program
    forbids it. For each mapping it prints the line that enables huge pages for it alone on mainline Linux.
    CAPTURE needs a trace.

    \b
    Example:
      ptanalyze hugepages app
    """
    from .hugepages import huge_pages

    opened = pt.replay_options.capture_of(capture)
    with pt.terminal.progress_bar() as progress:
        table = huge_pages(opened, pt.replay_options.setup_from(options, progress))
    walks = {name: table.attrs[name] for name in ("walks", "walks_left")}
    pt.options.Output("json" if as_json else "table").emit(
        "hugepages",
        lambda: table,
        lambda: {**walks, "mappings": table.to_dict("records")},
        lambda: view(table),
    )


def view(table: DataFrame) -> Iterator[pt.columns.Section]:
    """The mapping that saves most, the mappings (`huge_pages`), and what to type for the best of them."""
    from .hugepages import NO_LINE

    message, walks = pt.columns.message, max(table.attrs["walks"], 1)
    rows = [
        {
            "mapping": f"{row.start:x}",
            "name": (row.name.rpartition("/")[2] or "anonymous")[:20],
            "walks": f"{100 * row.walks / walks:.0f} %",
            "saved": f"{100 * row.saved_share:.0f} %",
            "huge pages": pt.errors.size_in_words(row.huge_bytes),
            "waste": pt.errors.size_in_words(row.waste_bytes),
            "saved/MiB": f"{row.saved_per_mib:,.0f}",
        }
        for row in table.head(MAPPINGS).itertuples(index=False)
    ]
    best = table[(table.huge_bytes > 0) & (table.walks_saved > 0)].nlargest(1, "walks_saved")
    gains = [
        message(
            "hugepages", "best", name=row.name or "anonymous memory", start=row.start, share=row.saved_share
        )
        for row in best.itertuples(index=False)
    ]
    findings = [pt.columns.Finding(**{**one, "policy": ""}) for one in table.attrs["findings"]]
    careful = [finding.sentence for finding in findings if finding.weight == pt.columns.CAREFUL]
    yield pt.columns.Section(lines=[str(gains[0] if gains else message("hugepages", "none")), *careful, ""])
    left = len(table) - MAPPINGS
    more = [str(message("hugepages", "more", rows=left))] if left > 0 else []
    yield pt.columns.Section("", rows, [*more, ""])
    worth = table[(table.saved_share >= WORTH_TYPING) & (table.walks_saved > 0)]
    lines = [
        line
        for row in worth[~worth["line"].isin([NO_LINE])].head(LINES).itertuples(index=False)
        for line in pt.terminal.typed(f"{row.start:x}", row.line)
    ]
    yield pt.columns.Section("Type" if lines else "", [], lines)
