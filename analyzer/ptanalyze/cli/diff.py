"""`ptanalyze diff`: what differs between two captures' page tables, or between two results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import CaptureError, UsageError
from . import complete
from .output import Output, emit, output_options
from .replay_options import capture_of, pair_of, replay_options, setup_from

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from pandas import DataFrame

    from ..core.columns import Answer, Section

FILES = (".json", ".csv")
REDACTED = "frames are renumbered there, so an unchanged page may count as moved or as in another frame"


def captures_at(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """CAPTURE@POLICY, or a file of results."""
    if "@" in incomplete:
        from ..policies import names

        capture = incomplete.partition("@")[0]
        return complete.items((f"{capture}@{name}" for name in names()), incomplete)
    return complete.items((f"{name}@" for name in complete.samples()), incomplete, "file")


@click.command("diff")
@click.argument("a", type=click.Path(), shell_complete=captures_at)
@click.argument("b", type=click.Path(), shell_complete=captures_at)
@click.option("--exact", is_flag=True, help="Of results: exit with 1 if anything differs.")
@replay_options
@output_options("changes")
def command(a: str, b: str, exact: bool, output: Output, **options: Any) -> None:
    """Compare two captures of the same process or VM, or two results.

    Of two captures, A before B: table pages moved, created and gone, leaf entries changed, by tree, level and
    node. A page moved when another frame holds the table of the same addresses.

    Results are files that `whatif -o` wrote (FILE.json, FILE.csv), or captures to replay now, each with the
    policy after an @ and its parameters: app@hydra,prefetch=0. Counts are integers, so every difference is
    real.

    \b
    Examples:
      ptanalyze diff host.0001 host.0010
      ptanalyze diff app@mitosis app@hydra
      ptanalyze diff --exact eager.json lazy.json
    """
    if not any(source.endswith(FILES) or "@" in Path(source).name for source in (a, b)):
        if exact:
            raise UsageError("--exact: goes with results: FILE.json, FILE.csv or CAPTURE@POLICY")
        return emit(of_tables(a, b), output)
    from ..analysis.compare import compare_rows
    from ..core.columns import Answer
    from ..show.advise import comparison_record, view_compare

    comparison = compare_rows(rows_of(a, options), rows_of(b, options))

    def table() -> DataFrame:
        from ..analysis.frames import differences_frame

        differences = differences_frame(comparison)
        differences.attrs["names"] = [a, b]
        return differences

    plots = {"comparison": table}
    views = lambda: comparison_record(comparison), lambda: view_compare(comparison, a, b)
    emit(Answer("compare", table, *views, plots), output)
    if exact and not comparison.exact:
        raise CaptureError(b, "quantities that differ", len(comparison.differences), f"from {a}")


def rows_of(source: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a results file, or of a capture's replay under the policy named after the @."""
    from ..analysis.whatif import replay
    from ..formats.record import read_rows
    from ..show.terminal import progress_bar

    if source.endswith(FILES):
        return read_rows(source)
    directory, at, asked = source.partition("@")
    name, *settings = asked.split(",") if at else ("",)
    policies = [(name, dict(map(pair_of, settings)))] if name else []
    opened = capture_of(directory)
    with progress_bar() as progress:
        return [replay(opened, policies, setup_from(options, progress)).results[-1].row()]


def of_tables(before: str, after: str) -> Answer:
    """Table pages and leaf entries that changed between two captures."""
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

        frame = changes_frame(trees)
        frame.attrs["provenance"] = {"capture": f"from {Path(before).name} to {Path(after).name}"}
        return frame

    def view() -> Iterator[Section]:
        changed, pages = sum(tree.changed for tree in trees), sum(sum(tree.pages.values()) for tree in trees)
        other = sum(
            count for tree in trees for (_, kind), count in tree.pages.items() if kind == "other node"
        )
        conclusion = f"{changed:,} of {pages:,} page-table pages changed; {other:,} moved to another node."
        yield Section(lines=[conclusion if changed else f"No page-table page changed, of {pages:,}.", ""])
        named = [{column.title or column.key: row[column.key] for column in COLUMNS} for row in rows]
        yield Section("Table pages, and leaf entries of those that are in both", named)
        if moves:
            yield Section("Table pages by node", moves, ["- : created or gone"])
        for capture in captures:
            if capture.manifest.provenance.get("redacted"):
                yield Section(lines=[f"{capture.directory} is redacted: {REDACTED}"])
        yield Section(lines=[""])
        yield next_steps({"local and remote entries now": f"{program()} classify {quote(after)}"})

    return Answer("diff", table, lambda: {"tables": rows, "moves": moves}, view, {"changes": table})
