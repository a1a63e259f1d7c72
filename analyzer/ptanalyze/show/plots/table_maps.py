"""Plots of page tables: pages by level and node, by address, changes, one walk, walked memory."""

from collections import Counter

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter
from pandas import DataFrame

from .style import (
    CLASSES,
    GREEN,
    GREY,
    NAME,
    ORANGE,
    SKY,
    VERMILION,
    broken,
    finish,
    legend_beside,
    must_have,
    new_figure,
    node_looks,
    node_named,
    row_figure,
    stacked_bars,
    styled,
    vma_names,
)


def levels_down(counts: DataFrame) -> DataFrame:
    """Counts by (dimension, level): the guest's or only tree first, each from its root down."""
    counts = counts.sort_index(level="level", ascending=False, sort_remaining=False)
    counts = counts.sort_index(level="dimension", key=lambda names: names == "ePT", sort_remaining=False)
    return counts.set_axis([f"{name} L{level}" for name, level in counts.index])


@styled
def table_pages(table: DataFrame) -> Figure:
    """A bar per tree and level, root on top: share of table pages on each node; their number to the right.

    Tables of the tracer are left out.
    table    ptanalyze.page_tables'
    columns  dimension, level, node, tracers
    """
    table = table[~table["tracers"]]
    must_have(len(table), "no table page", "dump page tables with `ptanalyze dump`")
    table = table.assign(dimension=table["dimension"].astype(str))
    counts = levels_down(table.groupby(["dimension", "level"])["node"].value_counts().unstack(fill_value=0))
    total = counts.sum(axis=1)
    looks = {node_named(node): look for node, look in node_looks(sorted(counts)).items()}
    figure, axis = row_figure(counts.index, 1.9 + 0.235 * (len(looks) // 8))
    parts = (100 * counts.div(total, axis=0)).rename(columns=node_named)
    stacked_bars(axis, parts, looks, [f"{count:,}" for count in total])
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=8, borderaxespad=0.2, columnspacing=1)
    axis.set_xlabel("% of the level's table pages; right: their number")
    texts = []
    for name, of in table.groupby("dimension", sort=False):
        shares = of["node"].value_counts(normalize=True)
        where = f"{100 * shares.iloc[0]:.0f} % on {node_named(shares.index[0])}"
        texts.append(f"{'page table' if name == 'PT' else name}: {len(of):,} pages, {where}")
    return finish(figure, table, "; ".join(texts))


# Changes of table pages between two captures of a series: kept, moved, created, gone.

CHANGES = {  # kind of change: name, colour and hatching
    "same": ("same", ("#dddddd", "")),
    "moved": ("another frame, same node", (SKY, "///")),
    "other node": ("moved to another node", (VERMILION, "xxx")),
    "created": ("created", (GREEN, "...")),
    "gone": ("gone", (ORANGE, "\\\\\\")),
}


@styled
def changes(table: DataFrame) -> Figure:
    """A bar per tree and level: share of its table pages that stayed, moved, were created or went.

    table    of ptanalyze_formats.diff.table_pages, as `ptanalyze diff` prints it
    columns  dimension, level, what, table_pages
    """
    must_have(len(table) and table["table_pages"].sum(), "no table page", "dump page tables")
    counts = table.groupby(["dimension", "level", "what"])["table_pages"].sum().unstack(fill_value=0)
    counts = levels_down(counts.reindex(columns=list(CHANGES), fill_value=0))
    total, changed = counts.sum(axis=1), counts.drop(columns="same").sum(axis=1)
    figure, axis = row_figure(counts.index, 1.9)
    parts = 100 * counts.div(total.where(total > 0, 1), axis=0)
    numbers = [f"{n:,} of {of:,}" for n, of in zip(changed, total, strict=True)]
    stacked_bars(axis, parts.rename(columns=lambda kind: CHANGES[kind][0]), dict(CHANGES.values()), numbers)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=5, borderaxespad=0.2)
    axis.set_xlabel("% of table pages of both captures; right: number changed")
    of_kind = counts.drop(columns="same").sum()
    text = f"{changed.sum():,} of {total.sum():,} table pages changed"
    if changed.sum():
        text += f"; most of them: {CHANGES[of_kind.idxmax()][0]} ({of_kind.max():,})"
    return finish(figure, table, text)


# A map of all table pages: address against level, coloured by NUMA node.

COLUMNS, ROWS, GAP_ROWS = 1400, 30, 6  # pixels: of the map, of a level, between two
THIN = 12  # pixels of a level that is on one node
TICKS, MOST_SEPARATORS, FAR = 3, 30, 1 << 30
MOST_NAMED = 5  # nodes in a heading


@styled
def page_table_map(table: DataFrame) -> Figure:
    """A band per level, root on top; each table is as wide as its lowest tables, unmapped gaps closed.

    Where several tables share a pixel, the pixel's height is divided among their nodes. Tables of the tracer
    are left out. Grey: node unknown. Works for millions of tables: they are summed into pixels first.
    table    ptanalyze.page_tables'
    columns  dimension, level, base (address), node, tracers; attrs nodes
    """
    table = table[~table["tracers"]]
    must_have(len(table), "no table page", "dump page tables with `ptanalyze dump`")
    sides = [(str(name), of) for name, of in table.groupby("dimension", sort=False, observed=True)]
    looks = node_looks(sorted(set(table["node"])))
    colours = [colour for colour, _ in looks.values()]
    figure = new_figure(1.7 + 2.3 * len(sides))
    axes = figure.subplots(len(sides), 1, squeeze=False)[:, 0]
    for axis, (name, of) in zip(axes, sides, strict=True):
        draw_tree(axis, name, of, list(looks), ListedColormap(colours))
    patches = [Patch(color=colour, label=node_named(node)) for node, (colour, _) in looks.items()]
    legend_beside(axes[0], handles=patches, ncols=1 + len(patches) // 20)
    name, of = sides[0]
    shares, even = leaf_shares(of), 100 / table.attrs.get("nodes", len(looks))
    node, share = next(iter(shares.items()))
    there = f"{100 * share:.0f} % of the leaf tables ({name}) are on {node_named(node)}"
    text = f"{there}; evenly spread: {even:.0f} %"
    return finish(figure, table, text, "gaps in the address space are closed; dotted lines: gaps over 1 GiB")


def leaf_shares(of: DataFrame) -> dict[int, float]:
    """{node: share of the lowest tables}, the largest first."""
    lowest = of[of["level"] == of["level"].min()]
    return {int(node): float(share) for node, share in lowest["node"].value_counts(normalize=True).items()}


def draw_tree(axis: Axes, name: str, of: DataFrame, nodes: list[int], colours: ListedColormap) -> None:
    level = of["level"].to_numpy().astype(np.int64)
    node = np.searchsorted(nodes, of["node"].to_numpy())
    start, end = extents(level)
    levels = range(int(level.max()), 0, -1)
    bands, middles, high = [], [], 0
    for number in levels:
        here = level == number
        band = pixels(start[here], end[here], node[here], len(nodes), int(end.max()))
        band = band if len(set(node[here])) > 1 else band[:THIN]
        middles.append(high + len(band) / 2)
        bands += [band, np.full((GAP_ROWS, band.shape[1]), -1)]
        high += len(band) + GAP_ROWS
    image = np.ma.masked_less(np.concatenate(bands[:-1]), 0)
    axis.imshow(
        image, cmap=colours, vmin=-0.5, vmax=len(nodes) - 0.5, aspect="auto", interpolation="nearest",
        extent=(0, int(end.max()), len(image), 0),
    )  # fmt: skip
    axis.grid(False)
    axis.set_yticks(middles, [f"L{number}" for number in levels])
    axis.set_ylabel(f"{name} level")
    axis.set_xlabel("guest-physical address" if name == "ePT" else "virtual address")
    shares = [f"{node_named(node)}: {100 * share:.0f} %" for node, share in leaf_shares(of).items()]
    more = ", ..." if len(shares) > MOST_NAMED else ""
    heading = f"{name}: {len(of):,} tables; leaf tables on {', '.join(shares[:MOST_NAMED])}{more}"
    axis.set_title(heading, loc="left")
    addresses(axis, of["base"].to_numpy(), level, start)


def extents(level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(start, end) of each table in slots, one slot per childless table. Depth-first order."""
    childless = np.append(level[1:] >= level[:-1], True)
    slot = np.append(np.cumsum(childless) - childless, childless.sum())
    end = np.zeros(len(level), np.int64)
    for number in np.unique(level):
        mine = np.flatnonzero(level == number)
        next_up = np.append(np.flatnonzero(level >= number), len(level))
        end[mine] = slot[next_up[np.searchsorted(next_up, mine, side="right")]]
    return slot[:-1], end


def pixels(start: np.ndarray, end: np.ndarray, node: np.ndarray, nodes: int, slots: int) -> np.ndarray:
    """int[ROWS, columns]: node of each pixel of a band, -1 where there is no table."""
    edges = np.linspace(0, slots, min(slots, COLUMNS) + 1)
    at = np.column_stack([start, end]).ravel()
    share = np.zeros((nodes, len(edges) - 1))
    for number in np.unique(node):
        covered = np.cumsum(np.column_stack([np.zeros(len(node)), (end - start) * (node == number)]).ravel())
        share[number] = np.diff(np.interp(edges, at, covered)) / np.diff(edges)
    filled = np.cumsum(share, axis=0)
    height = (np.arange(ROWS)[:, None, None] + 0.5) / ROWS
    shown: np.ndarray = (height >= filled[None]).sum(axis=1)
    return np.where(shown == nodes, -1, shown)[::-1]


def addresses(axis: Axes, base: np.ndarray, level: np.ndarray, start: np.ndarray) -> None:
    """Ticks at addresses, and dotted lines at gaps of more than 1 GiB."""
    childless = np.append(level[1:] >= level[:-1], True)
    first, slot = base[childless].astype(np.float64), start[childless]
    ticks = np.unique(np.linspace(0, len(slot) - 1, TICKS).astype(np.int64))
    axis.set_xticks(slot[ticks], [f"{int(base[childless][tick]):#x}" for tick in ticks])
    labels = axis.get_xticklabels()
    labels[0].set_horizontalalignment("left")
    if len(labels) > 1:
        labels[-1].set_horizontalalignment("right")
    far = slot[1:][np.diff(first) > FAR]
    if len(far) <= MOST_SEPARATORS:
        for place in far.tolist():
            axis.axvline(place, color="black", linestyle=":", linewidth=1)


# A translation as the walker makes it, a cell per read; in two dimensions as in vMitosis, Figure 1.


@styled
def walk(table: DataFrame) -> Figure:
    """A cell per read, numbered in the hardware's order and coloured by the node of the table that is read.

    Beside it: numbers of local and remote reads for a CPU on each node.

    Native: one row. In two dimensions (vMitosis, Figure 1) a column is one address that the host translates:
    the frames of the gPT from its root on, then the page; rows are the ePT's levels, the lowest is the gPT.
    table    ptanalyze.walk's
    columns  dimension, level, node, present, leaf; attrs address, nodes, page
    """
    must_have(len(table), "no read", "is there a page table in the capture?")
    nodes, page = table.attrs["nodes"], table.attrs["page"]
    guest = table["dimension"] != "ePT"
    cells = DataFrame(
        {
            "row": np.where(guest, table["dimension"], "ePT L" + table["level"].astype(str)),
            "column": guest.shift(fill_value=False).cumsum(),
            "node": table["node"],
            "text": [f"{k}: {node_named(node)}" for k, node in enumerate(table["node"], 1)],
        }
    )
    rows = [*sorted(cells.loc[~guest, "row"].unique(), reverse=True), *cells.loc[guest, "row"].unique()]
    by_place = cells.pivot(index="row", columns="column").reindex(index=rows)
    figure = new_figure(max(2.2 + 0.45 * len(rows), 2.0 + 0.26 * len(nodes)))
    grid, sums = figure.subplots(1, 2, width_ratios=(by_place["node"].shape[1] + 1, 2.4))
    looks = node_looks(sorted(set(table["node"])))
    code = by_place["node"].replace(dict(zip(looks, range(len(looks)), strict=True)))
    sns.heatmap(
        code, ax=grid, cmap=ListedColormap([colour for colour, _ in looks.values()]), vmin=0,
        vmax=max(len(looks) - 1, 1), annot=by_place["text"].fillna(""), fmt="", cbar=False, linewidths=4,
    )  # fmt: skip
    levels = [f"L{level}" for level in table.loc[guest, "level"]]
    after = "page" if page["frame"] is not None or table["leaf"][guest].any() else "next"
    grid.set_xticklabels([*levels, after][: code.shape[1]])
    nested = "PT" not in rows
    grid.set(ylabel="", xlabel="translated by the host: gPT tables, page" if nested else "level")
    grid.tick_params(axis="y", rotation=0)
    draw_sums(sums, table, nodes)
    where = f"the page is on {node_named(page['node'])}" if page["frame"] is not None else page["stopped"]
    cell = "cells: order of the reads, and node of the table that is read"
    return finish(figure, table, headline_walk(table, nodes), cell, where)


def draw_sums(axis: Axes, table: DataFrame, nodes: list[int]) -> None:
    """Local and remote reads for a CPU on each node."""
    reads = Counter(table["node"].tolist())
    local = np.array([reads[node] for node in nodes])
    parts = {"local": local, "remote": len(table) - reads[-1] - local, "unknown": reads[-1]}
    looks = {"local": CLASSES["Local"], "remote": CLASSES["Remote"], "unknown": (GREY, "...")}
    stacked_bars(axis, DataFrame(parts, index=[node_named(node) for node in nodes]), looks)
    axis.set(xlabel="reads, for a CPU on", xlim=(0, len(table)))


def headline_walk(table: DataFrame, nodes: list[int]) -> str:
    address, stopped = f"{table.attrs['address']:#x}", table.attrs["page"]["stopped"]
    reads = f"{len(table)} read{'s' if len(table) > 1 else ''}"
    if stopped:
        return f"{address} is not mapped: the walk stops after {reads}"
    local = Counter(table["node"].tolist())
    remote = {node: len(table) - local[-1] - local[node] for node in nodes}
    least, most = min(remote, key=remote.__getitem__), max(remote, key=remote.__getitem__)
    text = f"{reads} for {address}: {remote[least]} remote for a CPU on {node_named(least)}"
    return text if remote[least] == remote[most] else f"{text}, {remote[most]} on {node_named(most)}"


# Heat map of walks: which memory is walked when.

MOST_VMAS, LEAST_WALKED = 5, 0.02  # with a panel of their own: at most, and their least share of the walks
LONG = 10_000  # ms, from there seconds are shown
LOGARITHMIC = 30  # the most over the fewest walks: from there a logarithmic scale
OTHERS = "all other memory"


@styled
def walk_map(table: DataFrame) -> Figure:
    """Walks in each window of time, a row per piece of memory; memory without walks is left out.

    The VMAs that walk most have panels of their own, addresses downward.
    table    ptanalyze.walk_map's
    columns  start (address), vma, time_ns, walks
    """
    must_have(len(table) and table["walks"].sum(), "no walks", "lengthen the trace")
    windows = int(table["start"].value_counts().iloc[0])
    walks = table["walks"].to_numpy().reshape(-1, windows)
    rows = DataFrame({"start": table["start"][::windows], "vma": table["vma"][::windows]}).astype(
        {"vma": str}
    )
    rows = rows.assign(walks=walks.sum(axis=1)).reset_index(drop=True)
    times = table["time_ns"].to_numpy()[:windows] / 1e6
    unit, times = ("s", times / 1e3) if times[-1] >= LONG else ("ms", times)
    edges = np.concatenate([[0.0], times]) if times.any() else np.arange(windows + 1.0)
    by_vma = rows.groupby("vma")["walks"].sum().sort_values(ascending=False)
    names = vma_names(by_vma.index)
    own = by_vma[by_vma >= min(LEAST_WALKED * by_vma.sum(), by_vma.iloc[0])].index[:MOST_VMAS]
    rows["panel"] = rows["vma"].where(rows["vma"].isin(own), OTHERS)
    panels = rows.groupby("panel", sort=False)
    heights = np.maximum(4.0 * panels.size() / len(rows), 0.6)
    figure = new_figure(1.8 + heights.sum())
    axes = figure.subplots(len(panels), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    least, most = walks[walks > 0].min(), walks.max()
    norm = LogNorm(least, most) if most > LOGARITHMIC * least else Normalize(0, most)
    for axis, (vma, of) in zip(axes, panels, strict=True):
        shown = np.ma.masked_equal(walks[of.index], 0)
        image = axis.imshow(
            shown, cmap="YlOrRd", norm=norm, aspect="auto", interpolation="nearest",
            extent=(0.0, edges[-1], len(of), 0.0),
        )  # fmt: skip
        share = 100 * of["walks"].sum() / rows["walks"].sum()
        label = f"{share:.1f} %: {broken(names.get(vma, vma), NAME)}"
        axis.set_yticks([len(of) / 2], [label + f"\nfrom {int(of['start'].iloc[0]):#x}" * (vma != OTHERS)])
        axis.grid(False)
    axes[-1].set_xlabel(f"{unit} since the trace began" if times.any() else "time, in windows of equal walks")
    axes[-1].xaxis.set_major_formatter("{x:,g}")
    bar = figure.colorbar(image, ax=axes, location="bottom", aspect=60, label="walks per row and window")
    bar.ax.xaxis.set_major_formatter("{x:,g}")
    bar.ax.xaxis.set_minor_formatter(NullFormatter())
    first = f"{100 * by_vma.iloc[0] / by_vma.sum():.0f} % of walks go to {names[by_vma.index[0]]}"
    of = f", one of {len(by_vma)} VMAs" if len(by_vma) > 1 else ""
    return finish(figure, table, f"{first}{of}", "memory that no walk leads to is left out")
