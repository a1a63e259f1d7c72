"""A map of all table pages: address against level, coloured by NUMA node."""

from itertools import pairwise
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from pandas import DataFrame

from .room import is_narrow, scaled
from .style import context, ink, legend_beside, must_have, new_figure, node_looks, node_named, styled, title

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
    axis.set_title(fill(heading, scaled(100)), loc="left")
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
    ticks = np.unique(np.linspace(0, len(slot) - 1, 2 if is_narrow() else TICKS).astype(np.int64))
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
