"""A map of all table pages: address against level, coloured by NUMA node."""

from collections import Counter
from itertools import pairwise
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, StrMethodFormatter
from pandas import DataFrame

from ...world.address_space import NO_VMA
from .style import (
    AROUND,
    CLASSES,
    GREY,
    context,
    ink,
    legend_beside,
    must_have,
    new_figure,
    node_looks,
    node_named,
    note,
    point_labels,
    styled,
    title,
    vma_names,
)

COLUMNS, ROWS, GAP_ROWS = 1400, 30, 6  # pixels: of the map, of a level, between two
THIN = 12  # pixels of a level that is on one node
TICKS, MOST_SEPARATORS, FAR = 3, 30, 1 << 30
MOST_NAMED = 5
LEAST_WRITTEN = 0.025  # of the map's width: smallest stretch of one node that is labelled
MOST_LISTED, MOST_TICKS = 8, 16  # nodes in a legend; beyond, names beside a scale of colours


@styled
def page_table_map(table: DataFrame) -> Figure:
    """A band per level, root on top; each table is as wide as its lowest tables, unmapped gaps closed.

    Where several tables share a pixel, the pixel's height is divided among their nodes; numbers repeat the
    colours. Tables of the tracer are left out. Grey: node unknown. Works for millions of tables: they are
    summed into pixels first.
    table    api.page_tables'
    columns  dimension, level, base (address), node, tracers; attrs nodes
    """
    table = table[~table["tracers"]]
    must_have(bool(len(table)), "no table page", "dump page tables with `ptanalyze dump`")
    sides = [(str(name), of) for name, of in table.groupby("dimension", sort=False, observed=True)]
    nodes = sorted(set(table["node"]))
    figure = new_figure(1.7 + 2.3 * len(sides))
    axes = figure.subplots(len(sides), 1, squeeze=False)[:, 0]
    for axis, (name, of) in zip(axes, sides, strict=True):
        draw(axis, name, of, nodes)
    if len(nodes) > MOST_LISTED:
        ticks = range(0, len(nodes), -(-len(nodes) // MOST_TICKS))
        scale = figure.colorbar(axes[0].images[0], ax=axes, ticks=list(ticks), aspect=30)
        scale.ax.set_yticklabels([node_named(nodes[tick]) for tick in ticks])
    else:
        patches = [Patch(color=c, label=node_named(n)) for c, n in zip(colours(nodes), nodes, strict=True)]
        legend_beside(axes[0], patches, [patch.get_label() for patch in patches])
    title(figure, headline(*sides[0], table.attrs.get("nodes", len(nodes))))
    context(figure, table, "gaps in the address space are closed; dotted lines: gaps over 1 GiB")
    return figure


def colours(nodes: list[int]) -> list[str]:
    return [colour for colour, _ in node_looks(nodes).values()]


def draw(axis: Axes, name: str, of: DataFrame, nodes: list[int]) -> None:
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
        write_nodes(axis, band, nodes, middles[-1], int(end.max()))
        bands += [band, np.full((GAP_ROWS, band.shape[1]), -1)]
        high += len(band) + GAP_ROWS
    image = np.ma.masked_less(np.concatenate(bands[:-1]), 0)
    cmap = ListedColormap(colours(nodes))
    extent = (0, int(end.max()), len(image), 0)
    axis.imshow(
        image,
        cmap=cmap,
        vmin=-0.5,
        vmax=len(nodes) - 0.5,
        aspect="auto",
        interpolation="nearest",
        extent=extent,
    )
    axis.grid(False)
    axis.set_yticks(middles, [f"L{number}" for number in levels])
    axis.set_ylabel(f"{name} level")
    heading = f"{name}: {len(of):,} tables; leaf tables on {shares_named(of)}"
    axis.set_title(fill(heading, 100), loc="left")
    axis.set_xlabel("guest-physical address" if name == "ePT" else "virtual address")
    addresses(axis, of["base"].to_numpy(), level, start)


def write_nodes(axis: Axes, band: np.ndarray, nodes: list[int], y: float, slots: int) -> None:
    """Write the node's number into every stretch of a single node that is wide enough."""
    same = np.where((band == band[0]).all(axis=0), band[0], -1)
    edges = np.flatnonzero(np.diff(same, prepend=-2, append=-2))
    for first, after in pairwise(edges.tolist()):
        if same[first] >= 0 and after - first >= LEAST_WRITTEN * len(same):
            node, x = nodes[same[first]], (first + after) / 2 * slots / len(same)
            colour = ink(colours(nodes)[same[first]])
            axis.text(x, y, "?" if node < 0 else str(node), color=colour, ha="center", va="center")


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


def leaf_shares(of: DataFrame) -> dict[int, float]:
    """{node: share of the lowest tables}, the largest first."""
    lowest = of[of["level"] == of["level"].min()]
    return {int(node): float(share) for node, share in lowest["node"].value_counts(normalize=True).items()}


def shares_named(of: DataFrame) -> str:
    shares = leaf_shares(of)
    texts = [f"{node_named(node)}: {100 * share:.0f} %" for node, share in list(shares.items())[:MOST_NAMED]]
    return ", ".join([*texts, "..."] if len(shares) > MOST_NAMED else texts)


def headline(name: str, of: DataFrame, nodes: int) -> str:
    shares = leaf_shares(of)
    node, share = next(iter(shares.items()))
    if len(shares) == 1:
        return f"All leaf tables ({name}) are on {node_named(node)}"
    even = 100 / nodes
    if 100 * share < 1.1 * even:
        return f"Leaf tables ({name}) are spread evenly over {nodes} nodes"
    there = f"{100 * share:.0f} % of the leaf tables ({name}) are on {node_named(node)}"
    return f"{there}; evenly spread: {even:.0f} %"


# A translation as the walker makes it, a cell per read; in two dimensions as in vMitosis, Figure 1.

CELL = 0.45  # inches, height


@styled
def walk(table: DataFrame) -> Figure:
    """A cell per read, numbered in the hardware's order and coloured by the node of the table that is read.

    Beside it: numbers of local and remote reads for a CPU on each node.

    Native: one row. In two dimensions (vMitosis, Figure 1) a column is one address that the host translates:
    the frames of the gPT from its root on, then the page; rows are the ePT's levels, the lowest is the gPT.
    table    api.walk's
    columns  dimension, level, node, present, leaf; attrs address, nodes, page
    """
    must_have(bool(len(table)), "no read", "is there a page table in the capture?")
    nodes = table.attrs["nodes"]
    cells = placed(table)
    rows = list(
        dict.fromkeys(sorted((cell[1] for cell in cells), key=lambda row: (row[0] != "ePT", -row[1])))
    )
    if any(dimension == "ePT" for dimension, _ in rows):
        rows = [*(row for row in rows if row[0] == "ePT"), ("gPT", 0)]
    columns = heads(table)
    figure = new_figure(max(2.2 + CELL * len(rows), 2.0 + 0.26 * len(nodes)))
    grid, sums = figure.subplots(1, 2, width_ratios=(len(columns) + 1, 2.4))
    draw_walk(grid, table, cells, rows, columns)
    draw_sums(sums, table, nodes)
    title(figure, headline_walk(table, nodes))
    page = table.attrs["page"]
    where = f"the page is on {node_named(page['node'])}" if page["frame"] is not None else page["stopped"]
    context(figure, table, "cells: order of the reads, and node of the table that is read", where)
    return figure


def placed(table: DataFrame) -> list[tuple[int, tuple[str, int]]]:
    """(column, (dimension, level)) of each read; the gPT's levels are 0, so that they share a row."""
    native = set(table["dimension"]) == {"PT"}
    cells, column = [], 0
    for dimension, level in zip(table["dimension"], table["level"], strict=True):
        if dimension == "ePT":
            cells.append((column, ("ePT", int(level))))
        else:
            cells.append((column, ("PT" if native else "gPT", 0)))
            column += 1
    return cells


def heads(table: DataFrame) -> list[str]:
    """Name of each column: the gPT's or page table's level, then the page if the host translates it."""
    guest = [f"L{level}" for level in table.loc[table["dimension"] != "ePT", "level"]]
    last = table.iloc[-1]
    if last["dimension"] != "ePT":
        return guest
    page = table.attrs["page"]["frame"] is not None or (len(guest) and bool(last_guest(table)["leaf"]))
    return [*guest, "page" if page else f"L{next_level(table)}"]


def last_guest(table: DataFrame) -> "dict[str, object]":
    rows = table[table["dimension"] != "ePT"].to_dict("records")
    return rows[-1] if rows else {"leaf": False, "level": int(table["level"].max()) + 1}


def next_level(table: DataFrame) -> int:
    return int(str(last_guest(table)["level"])) - 1


def draw_walk(
    axis: Axes,
    table: DataFrame,
    cells: list[tuple[int, tuple[str, int]]],
    rows: list[tuple[str, int]],
    columns: list[str],
) -> None:
    looks = node_looks(sorted(set(table["node"])))
    middles = [(column + 0.5, rows.index(row) + 0.5) for column, row in cells]
    for line in ordered(cells, middles):
        axis.plot(*zip(*line, strict=True), color=GREY, linewidth=1, zorder=1)
    for number, ((x, y), read) in enumerate(zip(middles, table.to_dict("records"), strict=True), 1):
        colour, hatch = looks[int(read["node"])]
        missing = not read["present"]
        axis.add_patch(
            Rectangle(
                (x - 0.45, y - 0.36), 0.9, 0.72, facecolor=colour, edgecolor="black" if missing else "white",
                hatch=hatch, linewidth=2.5 if missing else 1, linestyle=":" if missing else "-", zorder=2,
            )
        )  # fmt: skip
        text = axis.text(
            x, y, f"{number}: {node_named(int(read['node']))}", ha="center", va="center", zorder=3
        )
        text.set_color(ink(colour))
        if hatch:
            text.set_color("black")
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1})
    nested = rows[0][0] == "ePT"
    axis.set_xlim(0, len(columns))
    axis.set_ylim(len(rows), 0)
    axis.set_xticks([k + 0.5 for k in range(len(columns))], columns)
    axis.set_yticks(
        [k + 0.5 for k in range(len(rows))],
        [f"ePT L{level}" if name == "ePT" else name for name, level in rows],
    )
    axis.set_xlabel("translated by the host: gPT tables, page" if nested else "level")
    axis.tick_params(length=0)
    axis.grid(False)


def ordered(
    cells: list[tuple[int, tuple[str, int]]], middles: list[tuple[float, float]]
) -> list[list[tuple[float, float]]]:
    """Places of the cells to be joined: a column's from above, or the single row's."""
    if len({row for _, row in cells}) == 1:
        return [middles]
    return [
        [place for (at, _), place in zip(cells, middles, strict=True) if at == column]
        for column in {column for column, _ in cells}
    ]


def draw_sums(axis: Axes, table: DataFrame, nodes: list[int]) -> None:
    """Local and remote reads for a CPU on each node."""
    reads = Counter(table["node"].tolist())
    parts = {
        "local": [reads[node] for node in nodes],
        "remote": [len(table) - reads[-1] - reads[node] for node in nodes],
        "unknown": [reads[-1]] * len(nodes),
    }
    looks = {"local": CLASSES["Local"], "remote": CLASSES["Remote"], "unknown": (GREY, "...")}
    left = [0] * len(nodes)
    for name, widths in parts.items():
        if any(widths):
            colour, hatch = looks[name]
            axis.barh(
                range(len(nodes)), widths, left=left, color=colour, hatch=hatch, edgecolor="white", label=name
            )
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.set_yticks(range(len(nodes)), [node_named(node) for node in nodes])
    axis.set_ylim(len(nodes) - 0.5, -0.5)
    axis.set_xlim(0, len(table))
    axis.set_xlabel("reads")
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.set_title("for a CPU on")
    axis.grid(False, axis="y")
    axis.tick_params(axis="y", length=0)
    legend_beside(axis)


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

HIGH = 4.4  # inches
NAMED, LEAST_NAMED = 8, 0.02  # the most VMAs that are named, and their least share of the walks
WALK_MAP_TICKS = 6  # addresses of rows within VMAs
LINE = 0.22  # inches between two addresses
LONG = 10_000  # ms, from there seconds are shown
LOGARITHMIC = 30  # the most over the fewest walks: from there a logarithmic scale


@styled
def walk_map(table: DataFrame) -> Figure:
    """Walks in each window of time, a row per piece of memory; memory without walks is left out.

    The VMAs that walk most are named on the right.
    table    ptanalyze.walk_map's
    columns  start (address), vma, time_ns, walks
    """
    must_have(bool(len(table) and table["walks"].sum()), "no walks", "lengthen the trace")
    windows = int(table["start"].value_counts().iloc[0])
    walks = table["walks"].to_numpy().reshape(-1, windows)
    start, vma = table["start"].to_numpy()[::windows], table["vma"].to_numpy()[::windows]
    times = table["time_ns"].to_numpy()[:windows] / 1e6
    timed = bool(times.any())
    unit, times = ("s", times / 1e3) if times[-1] >= LONG else ("ms", times)
    edges = np.concatenate([[0.0], times]) if timed else np.arange(windows + 1.0)
    figure = new_figure(HIGH)
    axis = figure.subplots()
    names = vma_names(vma)
    draw_walk_map(figure, axis, walks, edges)
    axis.set_xlabel(f"{unit} since the trace began" if timed else "time, in windows of equal walks")
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.set_ylabel("address (hexadecimal)")
    named = most_walked(vma, walks.sum(axis=1))
    name_vmas(axis, vma, named, names, float(edges[-1]))
    walk_map_addresses(axis, start, vma, named)
    answers(axis, table, walks.sum(axis=1), names)
    title(figure, headline_walk_map(vma, walks, names))
    context(figure, table, "memory that no walk leads to is left out")
    return figure


def draw_walk_map(figure: Figure, axis: Axes, walks: np.ndarray, edges: np.ndarray) -> None:
    least, most = float(walks[walks > 0].min()), float(walks.max())
    norm = LogNorm(least, most) if most > LOGARITHMIC * least else Normalize(0, most)
    shown = np.ma.masked_equal(walks, 0)
    extent = (0.0, float(edges[-1]), float(len(walks)), 0.0)
    image = axis.imshow(
        shown, cmap="YlOrRd", norm=norm, aspect="auto", interpolation="nearest", extent=extent
    )
    axis.grid(False)
    what = "walks per row and window"
    bar = figure.colorbar(image, ax=axis, location="bottom", label=what, aspect=40, shrink=0.6)
    bar.formatter = FuncFormatter(lambda value, _: f"{value:,g}")
    bar.minorformatter = NullFormatter()


def most_walked(vma: np.ndarray, walks: np.ndarray) -> dict[str, float]:
    """{VMA: its share of the walks} of those with the largest, and of the largest in any case."""
    total = {one: float(walks[vma == one].sum() / walks.sum()) for one in dict.fromkeys(vma)}
    ranked = sorted(total, key=lambda one: -total[one])[:NAMED]
    return {one: total[one] for k, one in enumerate(ranked) if not k or total[one] >= LEAST_NAMED}


def name_vmas(
    axis: Axes, vma: np.ndarray, most: dict[str, float], names: dict[str, str], right: float
) -> None:
    """The VMAs of most walks, at the middles of their rows, each between two lines."""
    rows = {one: np.flatnonzero(vma == one) for one in most}
    edges = {edge for of in rows.values() for edge in (of.min(), of.max() + 1)} - {0, len(vma)}
    for edge in edges:
        axis.axhline(float(edge), color=GREY, linewidth=0.6, alpha=0.6)
    labels = [f"{share(of)} {names[one]}" for one, of in most.items()]
    middles = [float(np.median(of)) + 0.5 for of in rows.values()]
    point_labels(axis, labels, [right] * len(most), middles)


def walk_map_addresses(axis: Axes, start: np.ndarray, vma: np.ndarray, most: dict[str, float]) -> None:
    """First addresses at the edges of rows: of VMAs that are named, then of others where there is room."""
    figure = axis.figure
    assert isinstance(figure, Figure)
    apart = len(start) * LINE / max(figure.get_figheight() - AROUND, LINE)
    first = [int(np.flatnonzero(vma == one)[0]) for one in most]
    others = [
        0,
        *np.flatnonzero(vma[1:] != vma[:-1]) + 1,
        *range(0, len(start), max(len(start) // WALK_MAP_TICKS, 1)),
    ]
    rows: list[int] = []
    for row in map(int, (*first, *others)):
        if all(abs(row - other) >= apart for other in rows):
            rows.append(row)
    axis.set_yticks(sorted(rows), [f"{int(start[k]):x}" for k in sorted(rows)])


def share(of: float) -> str:
    return f"{100 * of:.0f}\N{NO-BREAK SPACE}%" if of >= 0.005 else "<\N{NO-BREAK SPACE}1\N{NO-BREAK SPACE}%"


def answers(axis: Axes, table: DataFrame, walks: np.ndarray, names: dict[str, str]) -> None:
    rows = table.drop_duplicates("start")
    for k, (start, vma, count) in enumerate(zip(rows["start"], rows["vma"], walks, strict=True)):
        says = f"{names[vma]}, from {int(start):#x}: {count:,} walks, {100 * count / walks.sum():.2g} %"
        note(axis, says, axis.get_xlim(), (k, k + 1))


def headline_walk_map(vma: np.ndarray, walks: np.ndarray, names: dict[str, str]) -> str:
    total = {one: int(walks[vma == one].sum()) for one in names}
    most = max(total, key=lambda one: total[one])
    if most == NO_VMA:
        return f"{100 * total[most] / walks.sum():.0f} % of walks go to {names[most]}"
    of = "the only VMA" if len(total) == 1 else f"one of {len(total)} VMAs"
    return f"{100 * total[most] / walks.sum():.0f} % of walks go to {of}: {names[most]}"
