"""Plots of who reads whose memory: classes of walks, reads and latencies by node, over time."""

from collections.abc import Sequence

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pandas import DataFrame, Series

from ...core.errors import show_duration
from .style import (
    BLACK,
    BLUE,
    CLASSES,
    GREY,
    NAME,
    ORANGE,
    WEIGHTS,
    broken,
    by_policy,
    finish,
    legend_above,
    legend_beside,
    looks,
    must_have,
    name_rows,
    new_figure,
    row_figure,
    styled,
    usable,
    vma_names,
)

PANELS, COLUMNS = 12, 4  # the most panels, and in a row
MOST_WRITTEN = 18  # bars beside each other with shares written into them
LEAST_WRITTEN = 9  # per cent, smallest share that is written
LOCAL = ("Local", "Local-Local")


def local_share(table: DataFrame) -> float:
    """Per cent of a table of classes."""
    return float(100 * table.loc[table["class"].isin(LOCAL), "count"].sum() / max(table["count"].sum(), 1))


@styled
def locality(table: DataFrame) -> Figure:
    """Shares of each class seen from each socket; a panel for each policy, or group and weight: the most
    entries first, at most 12.

    vMitosis (ASPLOS '21), Figure 2.

    table    ptanalyze.classify's (several concatenated, if you like), or Replayed.leaves
    columns  socket, class, count, share; policy, params or weight, group
    """
    must_have(len(table) and table["count"].sum(), "nothing has a class", "has the capture mapped pages?")
    panels = by_policy(table) if "policy" in table else by_group(table)
    shown = [(name, of) for name, of in panels.items() if of["count"].sum()][:PANELS]
    rows = -(-len(shown) // COLUMNS)
    columns = -(-len(shown) // rows)
    figure = new_figure(1.4 + 2.3 * rows)
    axes = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axis, (name, of) in zip(axes.flat, shown, strict=False):
        shares = of.pivot_table(index="socket", columns="class", values="share", aggfunc="sum", sort=False)
        draw_classes(axis, 100 * shares.fillna(0.0), len(shares) * columns <= MOST_WRITTEN)
        axis.set(title=broken(name) if len(panels) > 1 else "", xlabel="seen from socket")
    for axis in axes.flat[len(shown) :]:
        axis.set_axis_off()
    for axis in axes[:, 0]:
        axis.set_ylabel(f"% of {counted(table)}")
    bars = {of.get_label(): of for axis in axes.flat for of in axis.containers}
    there = [name for name in CLASSES if name in bars]
    legend_beside(axes[0, -1], handles=[bars[name] for name in there], labels=there, title="leaf entry is")
    left = len(panels) - len(shown)
    return finish(figure, table, headline(table, panels), f"{left:,} more are not shown" if left else "")


def by_group(table: DataFrame) -> dict[str, DataFrame]:
    """{name: rows} of each group and weight, the most entries first."""
    names, several = vma_names(table["group"].unique()), table["weight"].nunique() > 1
    panels = {}
    for (weight, group), of in table.groupby(["weight", "group"], sort=False):
        parts = [names[group] if len(names) > 1 else "", WEIGHTS[weight] if several else ""]
        panels[": ".join(filter(None, parts))] = of
    return dict(sorted(panels.items(), key=lambda panel: -panel[1]["count"].sum()))


def counted(table: DataFrame) -> str:
    """What the bars are shares of."""
    if "policy" in table:
        return WEIGHTS.get(table.attrs.get("run"), "walks")
    return WEIGHTS[table["weight"].iloc[0]] if table["weight"].nunique() == 1 else "each kind"


def draw_classes(axis: Axes, shares: DataFrame, written: bool) -> None:
    """Stacked bars of `shares` (per cent), a bar per socket."""
    below = np.zeros(len(shares))
    for kind in (kind for kind in CLASSES if kind in shares):
        colour, hatch = CLASSES[kind]
        bars = axis.bar(
            range(len(shares)), shares[kind], bottom=below, color=colour, hatch=hatch, edgecolor="white",
            width=0.85, label=kind,
        )  # fmt: skip
        if written:
            texts = [f"{share:.0f}" if share >= LEAST_WRITTEN else "" for share in shares[kind]]
            for text in axis.bar_label(bars, texts, label_type="center"):
                text.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1})
        below = below + shares[kind].to_numpy()
    if written:
        axis.set_xticks(range(len(shares)), [str(socket) for socket in shares.index])
    axis.set_ylim(0, 100)
    axis.grid(False)


def headline(table: DataFrame, panels: dict[str, DataFrame]) -> str:
    """Local shares: by weight, or under the first policy and the best."""
    what = "Local" if set(table["class"]) <= {"Local", "Remote"} else "Local-Local"
    if "policy" not in table:
        texts = [f"{local_share(of):.0f} % of {WEIGHTS[w]}" for w, of in table.groupby("weight", sort=False)]
        return f"{what} from the sockets' view: {', '.join(texts)}"
    shares = {name: local_share(of) for name, of in panels.items()}
    return f"Walks with {what} leaf entries: {first_and_best(shares)}"


def first_and_best(shares: dict[str, float]) -> str:
    """ "48 % with linux, 100 % with mitosis": of the first policy, and of the best if it has more."""
    first, *rest = shares
    best = max(usable(rest), key=lambda name: shares[name]) if rest else first
    more = f", {shares[best]:.0f} % with {best}" if shares[best] >= shares[first] + 0.5 else ""
    return f"{shares[first]:.0f} % with {first}{more}"


# Heat maps by node: reads of page-table entries per policy, and latencies.

MOST_NUMBERS, MOST_LABELS = 16, 12  # nodes or CPUs of all panels beside each other: numbers, names written


def heat_map(axis: Axes, of: DataFrame, most: float, panels: int, boxes: Sequence[Sequence[int]]) -> None:
    """`of` by reader and server, 0 to `most`; boxes, of rows that are beside each other: what is local."""
    written, step = len(of) * panels <= MOST_NUMBERS, -(-len(of) * panels // MOST_LABELS)
    sns.heatmap(
        of, ax=axis, vmin=0, vmax=most, cmap="Blues", annot=written, fmt=".0f", cbar=False, square=True,
        linewidths=0.5 if written else 0, xticklabels=step, yticklabels=step,
    )  # fmt: skip
    first = 0
    for box in boxes:
        corner, size, first = (first, first), len(box), first + len(box)
        axis.add_patch(Rectangle(corner, size, size, fill=False, edgecolor=BLACK, clip_on=False))
    axis.tick_params(rotation=0)


@styled
def reads(table: DataFrame, source: str = "DRAM") -> Figure:
    """Share of all reads by [reader's node, serving node], a panel per policy; the diagonal is local.

    table    ptanalyze.reads' or Replayed.reads; source: "DRAM", "cache" or "all"
    columns  policy, params, reader, server, from, count
    """
    chosen = table if source == "all" else table[table["from"] == source]
    must_have(
        len(chosen) and chosen["count"].sum(),
        f"no page-table entry was read from {source}",
        "choose another kind of plot, or record a longer trace",
    )
    panels = {name: shares_of(of) for name, of in by_policy(chosen).items() if of["count"].sum()}
    columns = min(len(panels), COLUMNS)
    rows = -(-len(panels) // columns)
    figure = new_figure(1.5 + 2.5 * rows)
    axes = figure.subplots(rows, columns, squeeze=False)
    most = max(float(of.to_numpy().max()) for of in panels.values())
    for axis, (name, of) in zip(axes.flat, panels.items(), strict=False):
        heat_map(axis, of, most, columns, [[node] for node in of.index])
        axis.set_title(f"{broken(name)}\n{100 - near(of):.0f} % remote")
        axis.set(xlabel="serving node", ylabel="reader's node" if axis in axes[:, 0] else "")
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    figure.colorbar(axes[0, 0].collections[0], ax=axes, label="% of the policy's reads", aspect=40)
    local = {name: near(of) for name, of in panels.items()}
    what = {"all": "Page-table reads", "cache": "Page-table reads from caches"}
    text = f"{what.get(source, 'Page-table reads from DRAM')} that are local: {first_and_best(local)}"
    return finish(figure, table, text, "boxes: local")


def shares_of(table: DataFrame) -> DataFrame:
    """Per cent of all reads, by reader and server."""
    counts = table.pivot_table(index="reader", columns="server", values="count", aggfunc="sum")
    return 100 * counts / counts.to_numpy().sum()


def near(share: DataFrame) -> float:
    """Per cent that the reader's own node serves."""
    return sum(float(share.loc[node, node]) for node in share.index if node in share.columns)


@styled
def latency(table: DataFrame) -> Figure:
    """A panel per state (idle, contended): ns by reader and serving node; of CPUs, ns per cache line.

    CPUs are in the order of their groups, which are boxed (vMitosis, section 3.3.4); of nodes, local
    reads are boxed. White cells were not measured.
    table    of frames.latency_frame, as `ptanalyze topology` and `ptanalyze machines NAME` print it
    columns  state, reader, server, latency_ns; attrs of, groups
    """
    must_have(len(table) and table["latency_ns"].notna().any(), "no latency", "measure some")
    cpus, groups = table.attrs["of"] == "CPU", table.attrs["groups"]
    nodes = list(dict.fromkeys(table["reader"]))
    order = [number for group in groups for number in group] or nodes
    states = dict(list(table.groupby("state", sort=False)))
    figure = new_figure(5.4 if len(states) == 1 else 4.4)
    axes = figure.subplots(1, len(states), squeeze=False)[0]
    boxes = groups or ([] if cpus else [[node] for node in nodes])
    for axis, (state, of) in zip(axes, states.items(), strict=True):
        matrix = of.pivot(index="reader", columns="server", values="latency_ns").loc[order, order]
        heat_map(axis, matrix, table["latency_ns"].max(), len(states), boxes)
        axis.set(title=state if len(states) > 1 else "", xlabel="CPU" if cpus else "serving node")
        axis.set_ylabel("CPU" if cpus else "reader's node")
    what = "ns to hand a cache line over" if cpus else "ns per read from DRAM"
    figure.colorbar(axes[0].collections[0], ax=axes, label=what, aspect=40)
    home = {cpu: k for k, group in enumerate(groups) for cpu in group} if cpus else {n: n for n in nodes}
    local = table["reader"].map(home) == table["server"].map(home)
    means = [
        f"{of.groupby(local)['latency_ns'].mean().get(True, np.nan):.0f} and "
        f"{of.groupby(local)['latency_ns'].mean().get(False, np.nan):.0f} ns ({state})"
        for state, of in states.items()
    ]
    text = f"Local and remote memory take {', '.join(means)}"
    if cpus:
        text = f"{len(groups)} groups of CPUs: within and across, a cache line takes {means[0]}"
        text = text if groups else "CPUs form no groups: a cache line takes about as long between any two"
    note = "" if not boxes else "boxes: groups of CPUs" if cpus else "boxes: local"
    return finish(figure, table, text, note)


# Locality over time, a line per policy, over the walks in each window.


@styled
def timeline(table: DataFrame) -> Figure:
    """Share of walks whose leaf entries are all local in each window; below, number of walks.

    A window without walks leaves a gap. After vMitosis (ASPLOS '21), Figure 6.
    table    ptanalyze.timeline's or Replayed.timeline
    columns  policy, params, time_ns, walks, leaf_LL_share; attrs nested
    """
    walked = len(table) and table["walks"].sum() and table["time_ns"].max()
    must_have(walked, "no walks over time", "ask for windows of a longer trace")
    lines = by_policy(table)
    first, what = next(iter(lines.values())), "Local-Local" if table.attrs.get("nested") else "Local"
    figure = new_figure(5.0)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    edges = np.concatenate([[0.0], first["time_ns"].to_numpy() / 1e6])
    for (name, of), (_, colour, marker) in zip(lines.items(), looks(list(lines)), strict=True):
        look = {"color": colour, "marker": marker, "markersize": 5, "alpha": 0.8}
        share = 100 * of["leaf_LL_share"]
        upper.plot((edges[1:] + edges[:-1]) / 2, share, label=broken(name, NAME), **look)
    upper.set(ylim=(-3, 103), ylabel=f"% of walks {what}")
    lower.stairs(first["walks"], edges, fill=True, color=GREY, alpha=0.5)
    lower.set(ylabel="walks", xlabel="ms since the trace began", xlim=(0, edges[-1]))
    figure.align_ylabels()
    legend_beside(upper)
    means = {name: mean_share(of) for name, of in lines.items()}
    low, high = 100 * first["leaf_LL_share"].min(), 100 * first["leaf_LL_share"].max()
    text = f"{what} walks: {first_and_best(means)}; {low:.0f}-{high:.0f} % in windows of the first"
    return finish(figure, table, text, f"windows of {show_duration(edges[1] / 1e3)}")


def mean_share(of: DataFrame) -> float:
    """Per cent of all walks."""
    return float(100 * (of["leaf_LL_share"] * of["walks"]).sum() / max(of["walks"].sum(), 1))


# Histogram of ePT cache lines per gPT cache line: PTEMagnet (ASPLOS '21), section 3.2.

MOST = 15  # groups
STATES = {"before": BLUE, "after": ORANGE}
LINES = {"all": "all gPT cache lines", "full": "lines with all eight pages"}


@styled
def fragmentation(table: DataFrame) -> Figure:
    """Share of gPT cache lines with 1 to 8 ePT cache lines, before and after, of all and of full lines.

    Of several groups (VMAs) a bar of the mean for each. The metric of PTEMagnet (ASPLOS '21), section 3.2.
    table    ptanalyze.fragmentation's
    columns  lines, ept_lines, count, state, group
    """
    must_have(
        len(table) and table["count"].sum(), "no 4 KiB page that the host maps", "dump a VM that has some"
    )
    if table["group"].nunique() > 1:
        return by_vma(table)
    shown = [lines for lines in LINES if table.loc[table["lines"] == lines, "count"].sum()]
    figure = new_figure(4.2)
    axes = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axis, lines in zip(axes, shown, strict=True):
        of = table[table["lines"] == lines]
        total = of.groupby("state")["count"].transform("sum")
        of = of.assign(percent=100 * of["count"] / total.where(total > 0))
        sns.barplot(of, x="ept_lines", y="percent", hue="state", palette=STATES, saturation=1, ax=axis)
        for bars in axis.containers:
            axis.bar_label(bars, fmt=lambda share: f"{share:.0f}" if share >= 1 else "")
        sns.move_legend(axis, "upper right", title="PTEMagnet")
        axis.set(title=LINES[lines], xlabel="ePT cache lines (1: in one, 8: scattered)")
        axis.set_ylabel("% of gPT cache lines")
    means = [f"{mean:.2f}" for mean in mean_lines(table[table["lines"] == shown[0]], ["state"])]
    text = f"Neighbouring pages lead to {means[0]} ePT cache lines on average"
    return finish(figure, table, text + (f", to {means[1]} with PTEMagnet" if len(means) > 1 else ""))


def mean_lines(of: DataFrame, by: list[str]) -> Series:
    """ePT cache lines per gPT cache line, of each group of rows."""
    of = of.assign(weighted=of["ept_lines"] * of["count"])
    sums = of.groupby(by, sort=False)[["weighted", "count"]].sum()
    return sums["weighted"] / sums["count"].where(sums["count"] > 0)


def by_vma(table: DataFrame) -> Figure:
    """The groups with the most gPT cache lines; bars of all lines, before and, if there is one, after."""
    of = table[table["lines"] == "all"]
    counts = of[of["state"] == "before"].groupby("group")["count"].sum().sort_values(ascending=False)
    groups = counts[counts > 0].index[:MOST].tolist()
    names = vma_names(groups)
    means = mean_lines(of[of["group"].isin(groups)], ["group", "state"]).rename("mean").reset_index()
    figure, axis = row_figure(list(names.values()))
    sns.barplot(means, y="group", x="mean", hue="state", order=groups, palette=STATES, saturation=1, ax=axis)
    name_rows(axis, list(names.values()), [f"{counts[group]:,}" for group in groups])
    legend_above(axis)
    axis.set(xlim=(0, 8), ylabel="")
    axis.set_xlabel("mean ePT cache lines per gPT cache line (1: in one, 8: scattered)")
    worst = means.loc[means.loc[means["state"] == "before", "mean"].idxmax()]
    text = f"Most scattered: {names[worst['group']]}, {worst['mean']:.2f} lines"
    return finish(figure, table, text, f"right: gPT cache lines, of the {len(groups)} largest")
