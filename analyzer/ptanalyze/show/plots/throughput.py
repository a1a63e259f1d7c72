"""Throughput over time after a migration, published and predicted: vMitosis, Figure 6."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from .style import BLACK, BLUE, context, must_have, new_figure, styled, title

PUBLISHED, PREDICTED = "published", "predicted"
BEFORE = -100.0  # s: what is shown of the time before the move
ROW = 3.0  # inches


@styled
def throughput(table: DataFrame) -> Figure:
    """Throughput over that before the move, a panel per line of the paper's figure that has samples.

    Black: the paper's samples. Blue, with a band for the cost file's assumptions: ours.
    table    validate.vmitosis_moved.samples
    columns  variant, title, source (published or predicted), seconds (since the move), share, low, high
    """
    both = [name for name, of in table.groupby("variant", sort=False) if of["source"].nunique() == 2]
    must_have(bool(both), "no line is both published and predicted", "leave out --quick")
    rows = -(-len(both) // 2)
    figure = new_figure(ROW * rows + 1)
    panels = np.atleast_1d(figure.subplots(rows, 2, sharex=True, sharey=True)).ravel()
    lasts = table[table["variant"].isin(both)].groupby("source")["seconds"].max()
    for axis, name in zip(panels, both, strict=False):
        draw(axis, table[table["variant"] == name], name)
        axis.set_xlim(BEFORE, lasts.min())
        axis.set_ylim(0, 112)
    for axis in panels[len(both) :]:
        axis.set_visible(False)
    for axis in panels[-2:]:
        axis.set_xlabel("s since the move")
    for axis in panels[::2]:
        axis.set_ylabel("% of the throughput before")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower right", ncols=2)
    title(figure, headline(table, both))
    context(figure, table)
    return figure


def draw(axis: Axes, of: DataFrame, name: str) -> None:
    ours, paper = of[of["source"] == PREDICTED], of[of["source"] == PUBLISHED]
    axis.plot(paper["seconds"], 100 * paper["share"], color=BLACK, linewidth=1.0, label=PUBLISHED)
    axis.plot(
        ours["seconds"], 100 * ours["share"], color=BLUE, linewidth=1.8, linestyle="--", label=PREDICTED
    )
    axis.fill_between(
        ours["seconds"], 100 * ours["low"], 100 * ours["high"], color=BLUE, alpha=0.15, linewidth=0
    )
    axis.set_title(f"{name}: {of['title'].iloc[0]}", loc="left")


def headline(table: DataFrame, names: list[str]) -> str:
    """The largest distance of the lines, and where."""
    worst, at, name = max((*apart(table[table["variant"] == name]), name) for name in names)
    mean = np.mean([mean_distance(table[table["variant"] == name]) for name in names])
    return (
        f"Predicted throughput is {100 * mean:.0f} points of the throughput before the move off the "
        f"published samples on average, at most {100 * worst:.0f} ({name}, {at:.0f} s after it)"
    )


def distances(of: DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """(seconds of the published samples after the move that ours reaches, distance of the lines there)."""
    ours, paper = of[of["source"] == PREDICTED], of[of["source"] == PUBLISHED]
    paper = paper[(paper["seconds"] > 0) & (paper["seconds"] <= ours["seconds"].max())]
    at = paper["seconds"].to_numpy()
    there = ours["share"].to_numpy()[np.searchsorted(ours["seconds"], at)]
    return at, np.abs(there - paper["share"].to_numpy())


def apart(of: DataFrame) -> tuple[float, float]:
    at, distance = distances(of)
    worst = int(distance.argmax())
    return float(distance[worst]), float(at[worst])


def mean_distance(of: DataFrame) -> float:
    """Over time: samples of equal work take longer where they are slow."""
    at, distance = distances(of)
    return float(np.average(distance, weights=np.diff(at, prepend=0)))
