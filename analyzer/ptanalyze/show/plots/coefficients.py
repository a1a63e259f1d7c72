"""Coefficients of the run-time law from a program's counters, with their intervals."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from .labels import WIDE, broken
from .rows import name_rows
from .style import BLUE, context, must_have, new_figure, styled, title

AXES = {"share": "share", "stretch": "latency / latency of local memory"}


@styled
def coefficients(table: DataFrame) -> Figure:
    """A line per coefficient: middle as a dot, interval as a bar. Shares above, stretches k below.

    table    of answers.coefficients_frame, as `ptanalyze calibrate` prints it
    columns  coefficient, kind, low, middle, high
    """
    must_have(bool(len(table)), "no coefficient", "count walk cycles")
    parts = [(kind, of) for kind, of in table.groupby("kind", sort=False)]
    heights = [0.9 + 0.4 * len(of) for _, of in parts]
    figure = new_figure(0.9 + sum(heights))
    for axis, (kind, of) in zip(
        figure.subplots(len(parts), 1, height_ratios=heights, squeeze=False)[:, 0], parts, strict=True
    ):
        draw(axis, of)
        axis.set_xlabel(AXES[str(kind)])
        axis.set_xlim(0, max(1.03 * (kind == "share"), 1.05 * of["high"].max()))
    title(figure, headline(table))
    context(figure, table)
    return figure


def draw(axis: Axes, of: DataFrame) -> None:
    at = range(len(of))
    axis.hlines(at, of["low"], of["high"], color=BLUE, linewidth=5, alpha=0.35)
    axis.plot(of["middle"], at, "o", color=BLUE, markersize=7)
    names = [broken(name, WIDE) for name in of["coefficient"]]
    name_rows(axis, names, [written(row) for row in of.to_dict("records")])


def written(row: dict[str, float]) -> str:
    if row["low"] == row["high"]:
        return f"{row['middle']:.3g}"
    return f"{row['middle']:.3g} ({row['low']:.3g} to {row['high']:.3g})"


def headline(table: DataFrame) -> str:
    first = table.iloc[0]
    known = int((table["low"] == table["high"]).sum())
    text = (
        f"{known} of {len(table)} coefficients are known exactly"
        if known
        else "No coefficient is known exactly"
    )
    return f"{text}; {first['coefficient'].partition(':')[0]} is {written(first)}"
