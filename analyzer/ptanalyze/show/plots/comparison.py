"""Differences between two results, as the ratio of each quantity."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from .labels import WIDE, broken, rows_high
from .ratios import logarithmic
from .rows import numbers_beside
from .style import BLUE, GREY, context, must_have, new_figure, styled, title

MOST = 30  # quantities


@styled
def comparison(table: DataFrame, a: str = "", b: str = "") -> Figure:
    """B / A of each quantity on a logarithmic axis, the largest changes on top, at most 30.

    Words, and quantities that are 0 in A or B, have no ratio; the line below counts them.
    table    api.compare's; a, b: names of the results, "": from its attrs, else A and B
    columns  policy, quantity, ratio
    """
    must_have(bool(len(table)), "nothing differs", "compare results of different policies or captures")
    rows = table[(table["ratio"] > 0) & np.isfinite(table["ratio"])]
    must_have(bool(len(rows)), "no quantity that differs has a ratio", "see the table")
    order = np.log(rows["ratio"]).abs().sort_values(ascending=False, kind="stable").index
    rows = rows.loc[order]
    shown = rows.head(MOST).iloc[::-1]
    known_a, known_b = table.attrs.get("names", ("A", "B"))
    a, b = a or known_a, b or known_b
    names = names_of(shown, table["policy"].nunique() > 1)
    figure = new_figure(2.0 + rows_high(names, 0.27))
    axis = figure.subplots()
    draw(axis, shown, names)
    axis.set_xlabel(f"{broken(b, 40)} / {broken(a, 40)}")
    most = rows.iloc[0]
    title(
        figure,
        f"{len(table)} quantities differ, most of all {most['quantity']} (×{shown_ratio(most['ratio'])})",
    )
    rest = [
        f"{len(rows) - len(shown)} smaller changes" if len(rows) > MOST else "",
        f"{len(table) - len(rows)} without a ratio" if len(table) > len(rows) else "",
    ]
    left_out = " and ".join(part for part in rest if part)
    context(figure, table, f"not shown: {left_out}" if left_out else "")
    return figure


def names_of(shown: DataFrame, several: bool) -> list[str]:
    names = [f"{p}: {q}" if several else q for p, q in zip(shown["policy"], shown["quantity"], strict=True)]
    return [broken(name, WIDE + 12) for name in names]


def draw(axis: Axes, shown: DataFrame, names: list[str]) -> None:
    at = range(len(shown))
    axis.hlines(at, 1, shown["ratio"], color=BLUE, linewidth=2, alpha=0.5)
    axis.plot(shown["ratio"], at, "o", color=BLUE, markersize=7)
    axis.axvline(1, color=GREY, linewidth=1)
    logarithmic(axis, "x", shown["ratio"].tolist())
    axis.set_yticks(at, names)
    numbers_beside(axis, [shown_ratio(ratio) for ratio in shown["ratio"]])


def shown_ratio(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"
