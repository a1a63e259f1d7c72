"""Histogram of ePT cache lines per gPT cache line: PTEMagnet (ASPLOS '21), section 3.2."""

import seaborn as sns
from matplotlib.figure import Figure
from pandas import DataFrame

from .room import is_narrow
from .scattered_groups import scattered_groups
from .style import BLUE, ORANGE, context, legend_beside, must_have, new_figure, styled, title

LINES = {"all": "all gPT cache lines", "full": "lines with all eight pages"}
LOOKS = {"before": (BLUE, ""), "after": (ORANGE, "///")}


@styled
def fragmentation(table: DataFrame) -> Figure:
    """Share of gPT cache lines with 1 to 8 ePT cache lines, before and after, of all and of full lines.

    Of several groups (VMAs) a bar of the mean for each. The metric of PTEMagnet (ASPLOS '21), section 3.2.
    table    api.fragmentation's
    columns  lines, ept_lines, count, state, group
    """
    if table["group"].nunique() > 1 and table["count"].sum():
        return scattered_groups(table)
    counts = table.groupby(["lines", "state", "ept_lines"], sort=False, as_index=False)["count"].sum()
    total = counts.groupby(["lines", "state"])["count"].transform("sum")
    shares = counts.assign(percent=100 * counts["count"] / total.where(total > 0))
    shown = [lines for lines in LINES if counts.loc[counts["lines"] == lines, "count"].sum()]
    must_have(bool(shown), "no 4 KiB page that the host maps", "dump a VM that has some")
    down, across = (len(shown), 1) if is_narrow() else (1, len(shown))
    figure = new_figure(1.4 + 3.2 * down)
    axes = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    states = [state for state in LOOKS if state in set(table["state"])]
    for axis, lines in zip(axes, shown, strict=True):
        of = shares[shares["lines"] == lines]
        sns.barplot(
            of, x="ept_lines", y="percent", hue="state", hue_order=states, ax=axis, legend=False,
            saturation=1, palette=[LOOKS[state][0] for state in states], edgecolor="white",
        )  # fmt: skip
        for bars, state in zip(axis.containers, states, strict=True):
            bars.set_label(state)
            for bar in bars:
                bar.set_hatch(LOOKS[state][1])
            axis.bar_label(bars, [f"{bar.get_height():.0f}" if bar.get_height() >= 1 else "" for bar in bars])
        axis.set_title(f"{LINES[lines]}\n{means(of, states)}")
        axis.set_xlabel("ePT cache lines (1: in one, 8: scattered)")
        axis.set_ylabel("% of gPT cache lines")
        axis.set_ylim(0, 1.1 * shares["percent"].max())
    if len(states) > 1:
        legend_beside(axes[-1], axes[0].containers, states, "PTEMagnet")
    title(figure, headline(shares[shares["lines"] == shown[0]], states))
    context(figure, table)
    return figure


def mean(of: DataFrame, state: str) -> float:
    rows = of[of["state"] == state]
    return float((rows["ept_lines"] * rows["count"]).sum() / max(rows["count"].sum(), 1))


def means(of: DataFrame, states: list[str]) -> str:
    return "mean " + ", then ".join(f"{mean(of, state):.2f}" for state in states)


def headline(of: DataFrame, states: list[str]) -> str:
    text = f"Neighbouring pages lead to {mean(of, states[0]):.2f} ePT cache lines on average"
    return text + (f", to {mean(of, states[-1]):.2f} with PTEMagnet" if len(states) > 1 else "")
