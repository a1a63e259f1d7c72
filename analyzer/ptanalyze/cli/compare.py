"""`ptanalyze compare`: what differs between two results, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..core.errors import CaptureError
from . import complete
from .options import capture_of, pair_of, replay_options, setup_from
from .output import Output, emit, output_options

if TYPE_CHECKING:
    from pandas import DataFrame

FILES = (".json", ".csv")


@click.command("compare")
@click.argument("a", type=click.Path(), shell_complete=complete.captures_at)
@click.argument("b", type=click.Path(), shell_complete=complete.captures_at)
@click.option("--exact", is_flag=True, help="Exit with 1 if anything differs.")
@replay_options
@output_options()
def command(a: str, b: str, exact: bool, output: Output, **options: Any) -> None:
    """List the differences between results A and B.

    A and B are files that `whatif -o` wrote (FILE.json, FILE.csv), or captures to replay now,
    each with the policy after an @ and its parameters: app@hydra,prefetch=0. Counts are integers, so every
    difference is real.

    \b
    Example:
      ptanalyze compare app@mitosis app@hydra
    """
    from ..analysis.compare import compare_rows
    from ..core.columns import Answer
    from ..show.advise import comparison_record as as_record
    from ..show.advise import view_compare as view

    comparison = compare_rows(rows_of(a, options), rows_of(b, options))

    def table() -> DataFrame:
        from ..analysis.frames import differences_frame

        differences = differences_frame(comparison)
        differences.attrs["names"] = [a, b]
        return differences

    emit(
        Answer(
            "compare",
            table,
            lambda: as_record(comparison),
            lambda: view(comparison, a, b),
            {"comparison": table},
        ),
        output,
    )
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
