"""Predicted run times of placements over the all-local run time, with intervals."""

from matplotlib.figure import Figure
from pandas import DataFrame

from .style import BLUE, GREY, ORANGE, context, legend_beside, must_have, new_figure, styled, title


@styled
def prediction(table: DataFrame) -> Figure:
    """One line per placement, in the table's order: dot and interval; squares are measured.

    table    api.predict's
    columns  placement, low, middle, high (ratios), measured
    """
    must_have(bool(len(table)), "no placement", "name a placement")
    figure = new_figure(2.0 + 0.32 * len(table))
    axis = figure.subplots()
    at = range(len(table))
    axis.hlines(at, table["low"], table["high"], color=BLUE, linewidth=5, alpha=0.35)
    for measured, colour, marker, name in ((False, BLUE, "o", "predicted"), (True, ORANGE, "s", "measured")):
        here = (table["measured"] == measured).to_numpy()
        if here.any():
            axis.plot(
                table["middle"][here], here.nonzero()[0], marker, color=colour, markersize=7, label=name
            )
    axis.axvline(1, color=GREY, linewidth=1)
    axis.set_yticks(at, table["placement"])
    axis.set_ylim(len(table) - 0.5, -0.5)
    axis.set_ylabel("placement")
    axis.set_xlabel("run time / run time with all tables local")
    axis.grid(False, axis="y")
    legend_beside(axis)
    worst = table.loc[table["middle"].idxmax()]
    times = f"{worst['middle']:.2f} ({worst['low']:.2f} to {worst['high']:.2f})"
    title(figure, f"{worst['placement']} takes {times} times as long as all tables local")
    context(
        figure, table, "placement: gPT then ePT, L local, R remote, I under load, then the repaired table"
    )
    return figure
