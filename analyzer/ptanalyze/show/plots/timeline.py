"""Locality over time, a line per policy, over the walks in each window."""

from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from pandas import DataFrame

from ...core.errors import show_duration
from .style import (
    BLACK,
    BLUE,
    DASHES,
    GREY,
    VERMILION,
    WIDE,
    broken,
    by_policy,
    context,
    legend_beside,
    looks,
    must_have,
    new_figure,
    note,
    point_labels,
    policy_labels,
    styled,
    title,
    usable,
)


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


# Throughput over time after a migration, published and predicted: vMitosis, Figure 6.

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
    must_have(bool(both), "no line is both published and predicted", "keep the rows of both sources")
    rows = -(-len(both) // 2)
    figure = new_figure(ROW * rows + 1)
    panels = np.atleast_1d(figure.subplots(rows, 2, sharex=True, sharey=True)).ravel()
    lasts = table[table["variant"].isin(both)].groupby("source")["seconds"].max()
    for axis, name in zip(panels, both, strict=False):
        draw_throughput(axis, table[table["variant"] == name], name)
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
    title(figure, headline_throughput(table, both))
    context(figure, table)
    return figure


def draw_throughput(axis: Axes, of: DataFrame, name: str) -> None:
    ours, paper = of[of["source"] == PREDICTED], of[of["source"] == PUBLISHED]
    axis.plot(paper["seconds"], 100 * paper["share"], color=BLACK, linewidth=1.0, label=PUBLISHED)
    axis.plot(
        ours["seconds"], 100 * ours["share"], color=BLUE, linewidth=1.8, linestyle="--", label=PREDICTED
    )
    axis.fill_between(
        ours["seconds"], 100 * ours["low"], 100 * ours["high"], color=BLUE, alpha=0.15, linewidth=0
    )
    axis.set_title(f"{name}: {of['title'].iloc[0]}", loc="left")


def headline_throughput(table: DataFrame, names: list[str]) -> str:
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


# Roofline of a page walker: walks per second over DRAM reads per walk, below the machine's ceilings.

CEILINGS = {
    "local_ns": ("all local", BLACK, "-"),
    "remote_ns": ("all remote", VERMILION, "--"),
    "contended_ns": ("all remote, contended", GREY, ":"),
}


@styled
def roofline(table: DataFrame) -> Figure:
    """A marker per policy: DRAM reads per walk, and walks per second of a walker that does nothing else.

    After the roofline of Williams et al. (CACM 2009). A walk's reads wait for each other, so it takes
    (reads - DRAM reads) * cached + DRAM reads * latency. The ceilings are this for the baseline's reads per
    walk, with all DRAM reads local, remote, or remote under load of the interconnect, by the machine file. A
    policy with fewer reads per walk (shadow) may be above them; one that walks no more has no marker.
    table    ptanalyze.whatif's, with attrs["machine"]
    columns  policy, params, baseline, walks, dram_reads_per_walk, reads_per_walk, cycles_per_walk;
             attrs machine
    """
    machine: dict[str, Any] = table.attrs.get("machine", {})
    walked = table["policy"][table["walks"] > 0].isin(table["baseline"])
    must_have(bool(walked.any()), "the baseline does not walk", "lengthen the trace")
    must_have(bool(machine), "the table has no latencies of its machine", "use a table of ptanalyze.whatif")
    table = table.drop_duplicates(["policy", "params"])
    table = table[table["walks"] > 0]
    x = table["dram_reads_per_walk"].to_numpy()
    y = walks_per_second(table["cycles_per_walk"].to_numpy(), machine)
    figure = new_figure(5.0)
    axis = figure.subplots()
    base = table[table["policy"] == table["baseline"]].iloc[0]
    most = max(float(x.max()) * 1.15, 1e-3)
    ceilings(axis, float(base["reads_per_walk"]), machine, most)
    names = policy_labels(table).tolist()
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=3, borderaxespad=0)
    for name, a, b in zip(names, x, y, strict=True):
        axis.plot(
            a, b, "o", color=BLUE, markersize=9, markeredgewidth=1.6, markerfacecolor="none", label=name
        )
    axis.set_xlim(0, most)
    axis.set_ylim(0, None)
    point_labels(axis, names, x.tolist(), y.tolist())
    for name, a, b in zip(names, x, y, strict=True):
        note(axis, f"{name}: {b:.1f} million walks per second, {a:.2f} DRAM reads per walk", (a, a), (b, b))
    axis.set_xlabel("page-table reads from DRAM per walk")
    axis.set_ylabel("million walks per second and walker")
    title(figure, headline_roofline(base, machine))
    context(
        figure, table, f"ceilings: {base['reads_per_walk']:.2f} reads per walk, as under {base['policy']}"
    )
    return figure


def walks_per_second(cycles: Any, machine: dict[str, Any]) -> Any:
    """Millions, for cycles per walk."""
    return machine["ghz"] * 1e3 / cycles


def ceiling(reads: float, dram: Any, latency_ns: float, machine: dict[str, Any]) -> Any:
    """Millions of walks per second with `dram` of `reads` reads per walk from DRAM."""
    cached = np.maximum(reads - dram, 0) * machine["cached_cycles"]
    return walks_per_second(cached + dram * latency_ns * machine["ghz"], machine)


def ceilings(axis: Axes, reads: float, machine: dict[str, Any], most: float) -> None:
    dram = np.linspace(0, most, 200)
    for key, (name, colour, line) in CEILINGS.items():
        if machine[key] is not None:
            axis.plot(
                dram,
                ceiling(reads, dram, machine[key], machine),
                line,
                color=colour,
                linewidth=1.4,
                label=name,
            )


def headline_roofline(base: Any, machine: dict[str, Any]) -> str:
    now = walks_per_second(base["cycles_per_walk"], machine)
    best = ceiling(base["reads_per_walk"], base["dram_reads_per_walk"], machine["local_ns"], machine)
    return (
        f"A walker does at most {now:.1f} million walks per second under {base['policy']}, "
        f"{best:.1f} million if all its DRAM reads were local"
    )
