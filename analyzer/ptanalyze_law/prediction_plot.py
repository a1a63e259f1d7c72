"""Plot of predicted run times of placements over the all-local run time, with intervals."""

from matplotlib.figure import Figure
from pandas import DataFrame

import ptanalyze as pt


@pt.style.styled
def prediction_plot(table: DataFrame) -> Figure:
    """One line per placement, in the table's order: dot and interval; squares are measured.

    table    api.predict's
    columns  placement, low, middle, high (ratios), measured
    """
    pt.style.must_have(len(table), "no placement", "name a placement")
    figure = pt.style.row_figure(table["placement"])
    axis = figure.subplots()
    at = table.reset_index(drop=True).index
    axis.hlines(at, table["low"], table["high"], color=pt.style.BLUE, linewidth=5, alpha=0.35)
    for measured, look, name in ((False, "o", "predicted"), (True, "s", "measured")):
        here = (table["measured"] == measured).to_numpy()
        axis.plot(table["middle"][here], at[here], look, markersize=7, label=name)
    axis.axvline(1, color=pt.style.GREY, linewidth=1)
    pt.style.name_rows(axis, table["placement"])
    axis.set(ylabel="placement", xlabel="run time / run time with all tables local")
    pt.style.legend_beside(axis)
    worst = table.loc[table["middle"].idxmax()]
    times = f"{worst['middle']:.2f} ({worst['low']:.2f}-{worst['high']:.2f})"
    title = f"{worst['placement']} takes {times} times as long as all tables local"
    letters = "placement: gPT then ePT, L local, R remote, I under load, then the repaired table"
    return pt.style.finish(figure, table, title, letters)
