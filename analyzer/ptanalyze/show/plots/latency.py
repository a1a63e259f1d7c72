"""Heat maps of latencies: DRAM from node to node, or a cache line from CPU to CPU."""

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pandas import DataFrame

from .style import BLACK, context, must_have, new_figure, styled, title

MOST_WRITTEN, MOST_LABELS = (
    16,
    24,
)  # largest number of nodes or CPUs with numbers, and with all names, written
MOST_FLAT = 16  # names below each other beyond that


@styled
def latency(table: DataFrame) -> Figure:
    """A panel per state (idle, contended): ns by reader and serving node; of CPUs, ns per cache line.

    CPUs are in the order of their groups, which are boxed (vMitosis, section 3.3.4); of nodes, local
    reads are boxed. White cells were not measured.
    table    of answers.latency_frame, as `ptanalyze topology` and `ptanalyze machines NAME` print it
    columns  state, reader, server, latency_ns; attrs of, groups
    """
    must_have(bool(len(table) and table["latency_ns"].notna().any()), "no latency", "measure some")
    cpus = table.attrs["of"] == "CPU"
    groups = table.attrs["groups"]
    order = [number for group in groups for number in group] or list(dict.fromkeys(table["reader"]))
    states = list(dict.fromkeys(table["state"]))
    figure = new_figure(5.4 if len(states) == 1 else 4.6)
    axes = figure.subplots(1, len(states), squeeze=False)[0]
    low, high = table["latency_ns"].min(), table["latency_ns"].max()
    low = 0.0 if not cpus else min(low, 0.5 * high)
    for axis, state in zip(axes, states, strict=True):
        of = table[table["state"] == state].pivot(index="reader", columns="server", values="latency_ns")
        draw(axis, of.loc[order, order], low, high, len(states))
        boxes(axis, groups or ([] if cpus else [[node] for node in order]))
        axis.set_title(state if len(states) > 1 else "")
        axis.set_xlabel("CPU" if cpus else "serving node")
        axis.set_ylabel("CPU" if cpus else "reader's node")
    scale = ScalarMappable(Normalize(low, high), "Blues")
    what = "ns to hand a cache line over" if cpus else "ns per read from DRAM"
    figure.colorbar(scale, ax=axes, label=what, shrink=0.9)
    title(figure, headline(table, groups))
    note = "" if cpus and not groups else "boxes: groups of CPUs" if cpus else "boxes: local"
    context(figure, table, note)
    return figure


def draw(axis: Axes, of: DataFrame, low: float, high: float, panels: int) -> None:
    written = len(of) * panels <= MOST_WRITTEN
    sns.heatmap(
        of, ax=axis, vmin=low, vmax=high, cmap="Blues", annot=written, fmt=".0f", cbar=False,
        square=panels > 1, linewidths=0.5 if len(of) <= MOST_LABELS else 0, linecolor="white",
        xticklabels=False, yticklabels=False,
    )  # fmt: skip
    step = -(-len(of) * panels // MOST_LABELS)
    ticks = np.arange(0, len(of), step)
    axis.set_xticks(ticks + 0.5, [str(number) for number in of.columns[ticks]])
    axis.set_yticks(ticks + 0.5, [str(number) for number in of.index[ticks]])
    axis.grid(False)
    axis.tick_params(rotation=0)
    if len(ticks) > MOST_FLAT:
        axis.tick_params(axis="x", rotation=90)


def boxes(axis: Axes, groups: list[list[int]]) -> None:
    first, width = 0, 1.5 if len(groups) <= MOST_LABELS else 0.3
    for group in groups:
        size = len(group)
        box = Rectangle(
            (first, first), size, size, fill=False, edgecolor=BLACK, linewidth=width, clip_on=False
        )
        axis.add_patch(box)
        first += size


def headline(table: DataFrame, groups: list[list[int]]) -> str:
    """Mean latencies near and far: within and across groups, or local and remote."""
    cpus = table.attrs["of"] == "CPU"
    if cpus and not groups:
        low, high = (f"{ns:.0f}" for ns in (table["latency_ns"].min(), table["latency_ns"].max()))
        span = low if low == high else f"{low} to {high}"
        return f"A cache line takes {span} ns between CPUs, which form no groups"
    of = {cpu: k for k, group in enumerate(groups) for cpu in group}
    texts = []
    for state, rows in table.groupby("state", sort=False):
        near = rows["reader"].map(of) == rows["server"].map(of) if cpus else rows["reader"] == rows["server"]
        means = [rows.loc[here, "latency_ns"].mean() for here in (near, ~near)]
        name = f" ({state})" if table["state"].nunique() > 1 else ""
        texts.append(f"{' and '.join(f'{mean:.0f}' for mean in means if mean == mean)} ns{name}")
    if cpus:
        return f"{len(groups)} groups of CPUs: within and across, a cache line takes {texts[0]}"
    where = "Local memory takes" if table["reader"].nunique() == 1 else "Local and remote memory take"
    return f"{where} {', '.join(texts)}"
