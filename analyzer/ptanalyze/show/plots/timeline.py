"""Locality over time, a line per policy, over the walks in each window."""

from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from pandas import DataFrame

from ...core.errors import show_duration
from .labels import WIDE, broken, by_policy, usable
from .spots import note
from .style import DASHES, GREY, context, legend_beside, looks, must_have, new_figure, styled, title


@styled
def timeline(table: DataFrame) -> Figure:
    """Share of walks whose leaf entries are all local in each window; below, number of walks.

    A window without walks leaves a gap. After vMitosis (ASPLOS '21), Figure 6.
    table    api.timeline's or Replayed.timeline
    columns  policy, params, time_ns, walks, leaf_LL_share; attrs nested
    """
    walked = bool(len(table) and table["walks"].sum() and table["time_ns"].max())
    must_have(walked, "no walks over time", "ask for windows of a longer trace")
    lines = by_policy(table)
    figure = new_figure(5.0)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    what = "Local-Local" if nested(table) else "Local"
    for k, ((colour, marker), (name, of)) in enumerate(zip(looks(len(lines)), lines, strict=True)):
        dashes = DASHES[k // 7 % len(DASHES)]
        draw(upper, of, broken(name, WIDE), colour, marker, dashes)
    upper.set_ylim(-3, 103)
    upper.set_ylabel(f"% of walks {what}")
    times, walks = edges(lines[0][1]), lines[0][1]["walks"]
    lower.stairs(walks, times, fill=True, color=GREY, alpha=0.5)
    lower.set_ylabel("walks")
    lower.set_xlabel("ms since the trace began")
    lower.set_xlim(0, times[-1])
    lower.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    for k, (start, end) in enumerate(pairwise(times.tolist())):
        shares = ", ".join(f"{name} {100 * of['leaf_LL_share'].iloc[k]:.0f} %" for name, of in lines)
        when = f"{show_duration(start / 1e3) if start else 0} to {show_duration(end / 1e3)}"
        says = f"{when}, {walks.iloc[k]:,} walks; {what}: {shares}"
        note(upper, says, (start, end), (0, 100))
    figure.align_ylabels()
    legend_beside(upper)
    title(figure, headline(lines, what))
    context(figure, table, f"windows of {show_duration(times[1] / 1e3)}")
    return figure


def nested(table: DataFrame) -> bool:
    if "nested" in table.attrs:
        return bool(table.attrs["nested"])
    return bool(table["leaf_LR_share"].any() or table["leaf_RR_share"].any())


def edges(of: DataFrame) -> np.ndarray:
    """Limits of the windows, ms."""
    limits: np.ndarray = np.concatenate([[0.0], of["time_ns"].to_numpy() / 1e6])
    return limits


def draw(
    axis: Axes, of: DataFrame, name: str, colour: str, marker: str, dashes: tuple[float | None, ...]
) -> None:
    times = edges(of)
    middle = (times[1:] + times[:-1]) / 2
    (line,) = axis.plot(
        middle,
        100 * of["leaf_LL_share"],
        color=colour,
        marker=marker,
        markersize=5,
        linewidth=1.6,
        label=name,
    )
    if dashes[0] is not None:
        line.set_dashes([dash for dash in dashes if dash is not None])


def headline(lines: list[tuple[str, DataFrame]], what: str) -> str:
    """Local share of walks under the first policy, with its range, and under the most local policy."""
    name, of = lines[0]
    low, high = 100 * of["leaf_LL_share"].min(), 100 * of["leaf_LL_share"].max()
    text = f"{name}: {mean(of):.0f} % of walks are {what} ({low:.0f} to {high:.0f} % in single windows)"
    if len(lines) > 1:
        means = {label: mean(rows) for label, rows in lines[1:]}
        best = max(usable(means), key=lambda label: means[label])
        text += f"; {best}: {means[best]:.0f} %"
    return text


def mean(of: DataFrame) -> float:
    """Per cent of all walks."""
    return float(100 * (of["leaf_LL_share"] * of["walks"]).sum() / max(of["walks"].sum(), 1))
