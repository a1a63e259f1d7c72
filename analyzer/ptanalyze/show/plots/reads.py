"""Heat map of reads of page-table entries: by reader's node and serving node, per policy."""

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pandas import DataFrame

from .labels import broken, by_policy, step_of, usable
from .room import beside, is_narrow
from .spots import note
from .style import BLACK, context, must_have, new_figure, styled, title

COLUMNS = 4
PANELS, HIGH = 6.5, 1.8  # inches: width of all panels, height of each
MOST_SEPARATE = 16  # largest number of nodes with white lines between them
MOST_WRITTEN = 6  # largest number of nodes with every share written


@styled
def reads(table: DataFrame, source: str = "DRAM") -> Figure:
    """Share of all reads by [reader's node, serving node], a panel per policy; the diagonal is local.

    table    api.reads' or Replayed.reads; source: "DRAM", "cache" or "all"
    columns  policy, params, reader, server, from, count
    """
    chosen = table if source == "all" else table[table["from"] == source]
    must_have(
        bool(len(chosen) and chosen["count"].sum()),
        f"no page-table entry was read from {source}",
        "choose another kind of plot, or record a longer trace",
    )
    panels = [(name, shares(of)) for name, of in by_policy(chosen) if of["count"].sum()]
    columns = min(len(panels), 2 if is_narrow() else COLUMNS)
    rows = -(-len(panels) // columns)
    figure = new_figure(1.5 + 2.5 * rows)
    axes = figure.subplots(rows, columns, squeeze=False)
    most = max(float(of.to_numpy().max()) for _, of in panels)
    step = step_of([str(node) for node in panels[0][1].index], min(beside(PANELS) / columns, HIGH))
    for axis, (name, of) in zip(axes.flat, panels, strict=False):
        draw(axis, name, of, most, step, square=columns > 1)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis in axes[:, 0]:
        axis.set_ylabel("reader's node")
    scale = ScalarMappable(Normalize(0, 100 * most), "Blues")
    figure.colorbar(
        scale, ax=axes, label="% of the policy's reads", aspect=20, shrink=min(1.0, 1.6 / rows), anchor=(0, 1)
    )
    title(figure, headline(panels, source))
    context(figure, table, "boxes: local")
    return figure


def shares(table: DataFrame) -> DataFrame:
    counts = table.pivot_table(index="reader", columns="server", values="count", aggfunc="sum")
    return counts / counts.to_numpy().sum()


def remote(share: DataFrame) -> float:
    return max(1 - sum(float(share.loc[n, n]) for n in share.index if n in share.columns), 0.0)


def draw(axis: Axes, name: str, share: DataFrame, most: float, step: int, square: bool) -> None:
    written, few = len(share) <= MOST_WRITTEN, len(share) <= MOST_SEPARATE
    sns.heatmap(
        100 * share, ax=axis, vmin=0, vmax=100 * most, cmap="Blues", annot=written, fmt=".0f", cbar=False,
        square=square, linewidths=0.5 if few else 0, linecolor="white",
        xticklabels=False, yticklabels=False,
    )  # fmt: skip
    ticks = np.arange(0, len(share), step)
    axis.set_xticks(ticks + 0.5, [str(node) for node in share.columns[ticks]])
    axis.set_yticks(ticks + 0.5, [str(node) for node in share.index[ticks]])
    width = 1.2 if few else 0.3
    for n in range(len(share)):
        axis.add_patch(Rectangle((n, n), 1, 1, fill=False, edgecolor=BLACK, linewidth=width, clip_on=False))
    for (row, column), value in np.ndenumerate(share.fillna(0.0)):
        says = f"{name}: node {share.columns[column]} serves {100 * value:.1f} % to node {share.index[row]}"
        note(axis, says, (column, column + 1), (row, row + 1))
    axis.set_title(f"{broken(name)}\n{100 * remote(share):.0f} % remote")
    axis.set_xlabel("serving node")
    axis.set_ylabel("")
    axis.tick_params(rotation=0)


def headline(panels: list[tuple[str, DataFrame]], source: str) -> str:
    what = {"all": "page-table reads", "cache": "page-table reads from caches"}
    of = what.get(source, "page-table reads from DRAM")
    first, *_ = panels
    text = f"{100 * remote(first[1]):.0f} % of {of} are remote with {first[0]}"
    shares_of = dict(panels)
    best = min(usable(shares_of), key=lambda name: remote(shares_of[name]))
    if remote(shares_of[best]) < remote(first[1]) - 0.005:
        text += f", {100 * remote(shares_of[best]):.0f} % with {best}"
    return text
