"""Heat maps of latencies: DRAM from node to node, or a cache line from CPU to CPU."""

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pandas import DataFrame

from .style import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    VERMILION,
    WIDE,
    broken,
    context,
    must_have,
    name_rows,
    new_figure,
    rows_high,
    styled,
    title,
)

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


# Memory latencies of each machine: local, remote, and remote under load.

LATENCIES = {  # name, colour, marker
    "local_ns": ("local", BLACK, "o"),
    "remote_ns": ("remote", VERMILION, "D"),
    "contended_ns": ("remote, contended", GREY, "^"),
}


@styled
def machines(table: DataFrame) -> Figure:
    """A line per machine, its latencies of a DRAM read as markers: local, remote, remote and contended.

    Remote is the mean of all pairs of nodes; contended, under load of the interconnect, if the file has it.

    table    api.machines'
    columns  machine, nodes, local_ns, remote_ns, contended_ns
    """
    must_have(bool(len(table)), "no machine", "name a machine")
    figure = new_figure(1.9 + 0.5 * len(table))
    axis = figure.subplots()
    at = range(len(table))
    axis.hlines(
        at, table["local_ns"], table[list(LATENCIES)].max(axis=1), color="#999999", linewidth=2, zorder=1
    )
    for column, (name, colour, marker) in LATENCIES.items():
        axis.plot(table[column], at, marker, color=colour, markersize=9, label=name)
    axis.set_xlim(0, None)
    axis.set_xlabel("ns per read from DRAM; right: remote / local")
    names = [
        f"{broken(name, WIDE)}\n{n} nodes" for name, n in zip(table["machine"], table["nodes"], strict=True)
    ]
    times = table["remote_ns"] / table["local_ns"]
    name_rows(axis, names, ["" if ratio != ratio else f"{ratio:.1f}×" for ratio in times])
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=3, borderaxespad=0)
    title(figure, headline_machines(table))
    context(figure, table)
    return figure


def headline_machines(table: DataFrame) -> str:
    times = table["remote_ns"] / table["local_ns"]
    if times.isna().all():
        return "Machines of one node: all memory is local"
    low, high = times.min(), times.max()
    span = f"{low:.1f} times" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f} times"
    return f"A read from a remote node takes {span} as long as a local one"


# Targets and needs of each policy: a matrix of dots.

SIDES = {"acts_on": ("acts on", BLUE, "o"), "needs": ("needs", ORANGE, "s")}


@styled
def policies(table: DataFrame) -> Figure:
    """A row per policy; dots for its targets, squares for its needs besides page tables.

    Policies without a dot in the same column go together (A+B).
    table    api.policies'
    columns  policy, acts_on, needs
    """
    must_have(bool(len(table)), "no policy", "name a policy")
    columns = [(side, word) for side in SIDES for word in words(table, side)]
    names = [broken(name, WIDE) for name in table["policy"]]
    figure = new_figure(2.8 + rows_high(names))
    axis = figure.subplots()
    for x, (side, word) in enumerate(columns):
        _, colour, marker = SIDES[side]
        has = [y for y, listed in enumerate(table[side]) if word in listed.split(", ")]
        axis.plot([x] * len(has), has, marker, color=colour, markersize=10, label=SIDES[side][0])
    axis.set_xticks(range(len(columns)), [broken(word, 16) for _, word in columns], rotation=90)
    axis.set_xlim(-0.6, len(columns) - 0.4)
    axis.set_yticks(range(len(table)), names)
    axis.set_ylim(len(table) - 0.5, -0.5)
    axis.tick_params(length=0)
    handles, labels = axis.get_legend_handles_labels()
    shown = dict(zip(labels, handles, strict=True))
    axis.legend(shown.values(), shown, loc="lower left", bbox_to_anchor=(0, 1.005), ncols=2, borderaxespad=0)
    title(figure, headline_policies(table))
    context(figure, table, "policies that act on different things go together: A+B")
    return figure


def words(table: DataFrame, side: str) -> list[str]:
    """Words in a column of the table, the most frequent first."""
    listed = table[side].str.split(", ").explode()
    return [word for word in listed[listed != ""].value_counts().index.tolist()]


def headline_policies(table: DataFrame) -> str:
    needy = int((table["needs"] != "").sum())
    text = f"{len(table)} polic{'ies' if len(table) > 1 else 'y'}"
    return (
        f"{text}, {needy} of them need{'s' * (needy == 1)} more than page tables"
        if needy
        else f"{text}: page tables are enough"
    )
