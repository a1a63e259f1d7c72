"""Changes of table pages between two captures of a series: kept, moved, created, gone."""

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from ...core.errors import is_whole
from .rows import name_rows
from .style import GREEN, ORANGE, SKY, VERMILION, context, must_have, new_figure, node_named, styled, title

LOOKS = {  # as in vm.diff.KINDS
    "same": ("#dddddd", ""),
    "moved": (SKY, "///"),
    "other node": (VERMILION, "xxx"),
    "created": (GREEN, "..."),
    "gone": (ORANGE, "\\\\\\"),
}
NAMES = {"moved": "another frame, same node", "other node": "moved to another node"}
SIDES = ("from_node", "to_node")
MOST_WRITTEN = 10  # largest number of nodes with every number written
NOWHERE = "none"


@styled
def changes(table: DataFrame) -> Figure:
    """A bar per tree and level: share of its table pages that stayed, moved, were created or went; below, if
    any changed node, a matrix of nodes before and after, with "none" for pages created and gone.

    table    of answers.changes_frame, as `ptanalyze diff` prints it
    columns  dimension, level, what, from_node, to_node (NaN: none or the same), table_pages
    """
    must_have(bool(len(table) and table["table_pages"].sum()), "no table page", "dump page tables")
    order = {name: k for k, name in enumerate(dict.fromkeys(table["dimension"]))}
    counts = table.pivot_table(
        index=["dimension", "level"], columns="what", values="table_pages", aggfunc="sum", fill_value=0
    )
    counts = counts.loc[sorted(counts.index, key=lambda key: (order[key[0]], -key[1]))]
    moves = {name: moved(of) for name, of in table.groupby("dimension", sort=False)}
    moves = {name: of for name, of in moves.items() if len(of)}
    upper = 1.9 + 0.34 * len(counts)
    lower = max((1.1 + 0.36 * len(of) for of in moves.values()), default=0.0)
    figure = new_figure(upper + lower)
    heights = [upper, lower] if moves else [upper]
    places = figure.add_gridspec(len(heights), max(len(moves), 1), height_ratios=heights)
    bars(figure.add_subplot(places[0, :]), counts)
    for k, (name, of) in enumerate(moves.items()):
        heat(figure.add_subplot(places[1, k]), name, of)
    title(figure, headline(counts))
    context(figure, table, f"{NOWHERE}: created or gone" if moves else "")
    return figure


def moved(of: DataFrame) -> DataFrame:
    """Table pages by (node before, node after), words; empty if none changed node."""
    of = of[of["what"].isin(["other node", "created", "gone"])]
    where = {
        side: of[side].map(lambda node: NOWHERE if np.isnan(node) else node_named(int(node)))
        for side in SIDES
    }
    counts = of.assign(**where).pivot_table(
        index="from_node", columns="to_node", values="table_pages", aggfunc="sum", fill_value=0
    )
    return counts.reindex(index=sorted(counts.index, key=place), columns=sorted(counts.columns, key=place))


def place(name: str) -> tuple[int, int]:
    """Sort key: nodes by number, then names without a number."""
    number = name.rpartition(" ")[2]
    return (0, int(number)) if is_whole(number) else (1, len(name))


def bars(axis: Axes, counts: DataFrame) -> None:
    total = counts.sum(axis=1)
    at, left = range(len(counts)), [0.0] * len(counts)
    for kind, (colour, hatch) in LOOKS.items():
        if kind in counts and counts[kind].any():
            widths = (100 * counts[kind] / total.where(total > 0, 1)).tolist()
            axis.barh(
                at, widths, left=left, color=colour, hatch=hatch, edgecolor="white", height=0.8,
                label=NAMES.get(kind, kind),
            )  # fmt: skip
            left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.set_xlim(0, 100)
    axis.set_xlabel("% of table pages of both captures; right: number changed")
    rest = total - counts["same"] if "same" in counts else total
    names = [f"{name} L{level}" for name, level in counts.index]
    name_rows(axis, names, [f"{n:,} of {of:,}" for n, of in zip(rest, total, strict=True)], lines=False)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=5, borderaxespad=0)


def heat(axis: Axes, name: str, of: DataFrame) -> None:
    written = max(of.shape) <= MOST_WRITTEN
    numbers = of.map(lambda n: f"{n:,}" if n else "") if written else False
    sns.heatmap(
        of, ax=axis, cmap="Blues", annot=numbers, fmt="", cbar=False, linewidths=0.5, linecolor="white"
    )
    for edge in axis.spines.values():
        edge.set_visible(True)
    axis.set_title(f"{name}: table pages by node before and after")
    axis.set_xlabel("node after")
    axis.set_ylabel("node before")
    axis.tick_params(rotation=0)


def headline(counts: DataFrame) -> str:
    whole = counts.sum()
    total, same = int(whole.sum()), int(whole.get("same", 0))
    if total == same:
        return f"None of {total:,} table pages changed"
    most = max((kind for kind in LOOKS if kind != "same" and kind in whole), key=lambda kind: whole[kind])
    return (
        f"{total - same:,} of {total:,} table pages changed; most of them: "
        f"{NAMES.get(most, most)} ({int(whole[most]):,})"
    )
