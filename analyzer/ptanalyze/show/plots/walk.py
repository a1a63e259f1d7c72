"""A translation as the walker makes it, a cell per read; in two dimensions as in vMitosis, Figure 1."""

from collections import Counter

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from pandas import DataFrame

from .style import (
    CLASSES,
    GREY,
    context,
    ink,
    legend_beside,
    must_have,
    new_figure,
    node_looks,
    node_named,
    styled,
    title,
)

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
    draw(grid, table, cells, rows, columns)
    draw_sums(sums, table, nodes)
    title(figure, headline(table, nodes))
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


def draw(
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


def headline(table: DataFrame, nodes: list[int]) -> str:
    address, stopped = f"{table.attrs['address']:#x}", table.attrs["page"]["stopped"]
    reads = f"{len(table)} read{'s' if len(table) > 1 else ''}"
    if stopped:
        return f"{address} is not mapped: the walk stops after {reads}"
    local = Counter(table["node"].tolist())
    remote = {node: len(table) - local[-1] - local[node] for node in nodes}
    least, most = min(remote, key=remote.__getitem__), max(remote, key=remote.__getitem__)
    text = f"{reads} for {address}: {remote[least]} remote for a CPU on {node_named(least)}"
    return text if remote[least] == remote[most] else f"{text}, {remote[most]} on {node_named(most)}"
