"""`ptanalyze diff`: what differs between two captures' page tables, or between two results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

import ptanalyze as pt

if TYPE_CHECKING:
    from .compare import Comparison

FILES = (".json", ".csv")
REDACTED = "frames are renumbered there, so an unchanged page may count as moved or as in another frame"


@click.command("diff")
@click.argument("a", type=click.Path(), shell_complete=pt.options.captures)
@click.argument("b", type=click.Path(), shell_complete=pt.options.captures)
@click.option("--exact", is_flag=True, help="Of results: exit with 1 if anything differs.")
@pt.replay_options.replay_options
@pt.options.output_options()
def command(a: str, b: str, exact: bool, output: pt.options.Output, **options: Any) -> None:
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
    files = [source.endswith(FILES) for source in (a, b)]
    of_results = any(files) or any("@" in Path(source).name for source in (a, b))
    if all(files) or not of_results:
        refuse_typed(options)
    if not of_results:
        if exact:
            raise pt.UsageError("--exact: goes with results: FILE.json, FILE.csv or CAPTURE@POLICY")
        return of_tables(a, b, output)
    from .compare import compare_rows

    comparison = compare_rows(rows_of(a, options), rows_of(b, options))
    views = comparison.record, lambda: view_results(comparison, a, b)
    output.emit("compare", comparison.frame, *views)
    if exact and not comparison.exact:
        wrong = len(comparison.differences)
        raise pt.errors.CaptureError(b, "quantities that differ", wrong, f"from {a}")


def refuse_typed(options: dict[str, Any]) -> None:
    """UsageError for an option of a replay that was typed where nothing is replayed."""
    context = click.get_current_context()
    for option in context.command.params:
        name = option.name or ""
        if name in options and context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            raise pt.UsageError(f"{option.opts[-1]}: goes with CAPTURE@POLICY, which is replayed")


def rows_of(source: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a results file, or of a capture's replay under the policy named after the @."""
    if source.endswith(FILES):
        return pt.formats.read_rows(source)
    directory, at, asked = source.partition("@")
    name, *settings = asked.split(",") if at else ("",)
    own = dict(pt.replay_options.pair_of(setting, f"{directory}@{name},") for setting in settings)
    policies = [(name, own)] if name else []
    opened = pt.replay_options.capture_of(directory)
    with pt.terminal.progress_bar() as progress:
        setup = pt.replay_options.setup_from(options, progress)
        return [pt.replay(opened, policies, setup).results[-1].row()]


def view_results(comparison: Comparison, a: str, b: str) -> Iterator[pt.columns.Section]:
    """Differences between results, then counts."""
    if comparison.note:
        yield pt.columns.Section(lines=[f"Note: {comparison.note}.", ""])
    if comparison.differences:
        rows = [
            {
                "policy": difference.policy,
                "quantity": difference.quantity,
                "A": shown(difference.a),
                "B": shown(difference.b),
                "B - A": shown(difference.change),
                "B / A": "-" if difference.ratio is None else f"{difference.ratio:.4g}",
            }
            for difference in comparison.differences
        ]
        yield pt.columns.Section(f"Differences (A = {a}, B = {b})", rows)
    counts = f"- equal in {comparison.alike} quantities, different in {len(comparison.differences)}"
    sides = (("A", comparison.only_a), ("B", comparison.only_b))
    only = [f"- only in {side}: {'; '.join(labels)}" for side, labels in sides if labels]
    yield pt.columns.Section(lines=[counts, *only])


def shown(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else pt.terminal.number(value)


def of_tables(before: str, after: str, output: pt.options.Output) -> None:
    """Table pages and leaf entries that changed between two captures."""
    from .diff import COLUMNS, by_level, by_node, diff, table_pages

    captures = pt.load(before), pt.load(after)
    changes = diff(*captures)
    levels, moves = by_level(changes), by_node(changes)

    def view() -> Iterator[pt.columns.Section]:
        pages = table_pages(changes).groupby("what")["table_pages"].sum()
        total, other = pages.sum(), pages.get("other node", 0)
        changed = total - pages["same"]
        conclusion = f"{changed:,} of {total:,} page-table pages changed; {other:,} moved to another node."
        none = f"No page-table page changed, of {total:,}."
        yield pt.columns.Section(lines=[conclusion if changed else none, ""])
        named = [{column.title or column.key: row[column.key] for column in COLUMNS} for row in levels]
        yield pt.columns.Section("Table pages, and leaf entries of those that are in both", named)
        if moves:
            yield pt.columns.Section("Table pages by node", moves, ["- : created or gone"])
        for capture in captures:
            if capture.manifest.provenance.get("redacted"):
                yield pt.columns.Section(lines=[f"{capture.directory} is redacted: {REDACTED}"])
        yield pt.columns.Section(lines=[""])
        then = f"{pt.errors.program()} classify {quote(after)}"
        yield pt.terminal.next_steps({"local and remote entries now": then})

    output.emit("diff", lambda: table_pages(changes), lambda: {"tables": levels, "moves": moves}, view)
