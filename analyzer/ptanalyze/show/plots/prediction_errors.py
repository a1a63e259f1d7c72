"""Errors of predicted run times, workloads left out in turn, beside two baselines."""

from matplotlib.figure import Figure
from pandas import DataFrame

from .labels import rows_high
from .rows import name_rows
from .style import BLUE, ORANGE, context, must_have, new_figure, styled, title

APART = (", repaired", ", contradicted")  # suffixes of lines that are not in the headline
BASELINE = "baseline"  # prefix of methods that are not predictions


@styled
def prediction_errors(table: DataFrame) -> Figure:
    """A line per family of runs, method and second run: up to the largest error, median and mean as markers.

    An error is |predicted / measured - 1|. To the right: number of predictions.
    table    of validate.leave_one_out.summary, as `ptanalyze predict --statistics` prints it
    columns  family, method, second, points, mean, median, max (shares)
    """
    must_have(bool(len(table)), "no prediction", "name a family of reference runs")
    names = [
        f"{family}: {method}" + (f", {second}" if second != "any" else "")
        for family, method, second in zip(table["family"], table["method"], table["second"], strict=True)
    ]
    figure = new_figure(1.9 + rows_high(names, 0.27))
    axis = figure.subplots()
    at = range(len(table))
    axis.hlines(at, 0, 100 * table["max"], color=BLUE, linewidth=3, alpha=0.35)
    for column, colour, marker in (("median", BLUE, "o"), ("mean", ORANGE, "D")):
        axis.plot(100 * table[column], at, marker, color=colour, markersize=6, label=column)
    axis.set_xlim(0, None)
    axis.set_xlabel("% error of run time; bars end at the largest; right: predictions")
    name_rows(axis, names, [f"{points:,}" for points in table["points"]])
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=2, borderaxespad=0)
    title(figure, headline(table))
    context(figure, table)
    return figure


def headline(table: DataFrame) -> str:
    """Of the first family: mean errors of the methods, and of the better baseline."""
    family = table["family"].iloc[0]
    of = table[(table["family"] == family) & (table["second"] == "any")]
    of = of[~of["method"].str.endswith(APART)]
    is_baseline = of["method"].str.startswith(BASELINE)
    means = of[~is_baseline].set_index("method")["mean"]
    text = ", ".join(f"{100 * mean:.1f} % with {method}" for method, mean in means.items())
    best = 100 * of[is_baseline]["mean"].min()
    return f"{family}, mean error: {text}" + ("" if best != best else f"; best baseline: {best:.1f} %")
