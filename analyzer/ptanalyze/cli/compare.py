"""`ptanalyze compare`: what differs between two results, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..core.errors import CaptureError
from .options import json_option
from .plotting import plot_option, write_plot
from .replaying import capture_of, pair_of, replay_options, setup_from

if TYPE_CHECKING:
    from ..analysis.compare import Comparison


@click.command("compare")
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@click.option("--exact", is_flag=True, help="Exit with 1 if anything differs.")
@replay_options
@plot_option()
@json_option
def command(a: str, b: str, exact: bool, plot: str | None, as_json: bool, **options: Any) -> None:
    """Differences between results A and B.

    A and B are what `whatif -o FILE.json` or FILE.parquet wrote, or captures to replay now, each with the
    policy after an @ and its parameters: app@hydra,prefetch=0. Counts are integers: what differs, differs.

    Example: ptanalyze compare app@mitosis app@hydra
    """

    from ..analysis.compare import compare_rows

    found = compare_rows(rows_of(a, options), rows_of(b, options))
    show(found, a, b, as_json)
    if plot:
        from ..analysis import answers as frames
        from ..show import plots

        write_plot(plot, plots.comparison(frames.differences_frame(found), a, b))
    if exact and not found.exact:
        raise CaptureError(b, "quantities that differ", len(found.differences), f"from {a}")


def rows_of(source: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a results file, or of a capture's replay under the policy named after the @."""
    from ..analysis.whatif import replay
    from ..formats.result_file import read_rows
    from ..show.progress import progress_bar

    if source.endswith((".json", ".parquet")):
        return read_rows(source)
    directory, at, asked = source.partition("@")
    name, *settings = asked.split(",") if at else ("",)
    policies = [(name, dict(map(pair_of, settings)))] if name else []
    opened = capture_of(directory)
    with progress_bar() as progress:
        return [replay(opened, policies, setup_from(options, progress)).results[-1].row()]


def show(found: Comparison, a: str, b: str, as_json: bool) -> None:
    from ..show.terminal import console, print_json, print_rows

    if as_json:
        rows = [{**d._asdict(), "change": d.change, "ratio": d.ratio} for d in found.differences]
        print_json("compare", {**found._asdict(), "differences": rows, "exact": found.exact})
        return
    if found.differences:
        rows = [
            {
                "policy": d.policy,
                "quantity": d.quantity,
                "A": shown(d.a),
                "B": shown(d.b),
                "B - A": shown(d.change),
                "B / A": "-" if d.ratio is None else f"{d.ratio:.4g}",
            }
            for d in found.differences
        ]
        print_rows(f"What differs (A = {a}, B = {b})", rows)
    out = console()
    out.print(f"- equal in {found.alike} quantities, different in {len(found.differences)}")
    for label, only in (("A", found.only_a), ("B", found.only_b)):
        if only:
            out.print(f"- only in {label}: {'; '.join(only)}")


def shown(value: Any) -> str:
    from ..show.terminal import number

    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else number(value)
