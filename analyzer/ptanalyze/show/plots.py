"""Plots of the API's tables: one function per plot, from a DataFrame to a matplotlib Figure, not shown.

`save(figure, "plot.svg")` writes a file. A Figure draws itself in a notebook. Every title is computed from
the table and states its main result; colours are Okabe's and Ito's, and nothing is shown by colour alone.
All functions raise errors.UsageError for a table with nothing to draw.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from pandas import DataFrame, Series, isna, to_numeric

from ..analysis.frames import peak_bytes
from ..core import interval
from ..core.columns import ASSUMED, CACHED, COLD, message
from ..core.errors import UsageError, plural, show_duration, size_as_read
from ..core.interval import Interval
from . import style
from .style import save, styled
from .whatif import more_memory

__all__ = (
    "curve",
    "fragmentation",
    "locality",
    "page_table_map",
    "reads",
    "save",
    "speedup",
    "timeline",
    "walk",
)

# Policies: what each gains and its price in memory, and what it gains over a swept key.


def timed(table: DataFrame) -> bool:
    """Whether run times could be estimated."""
    return bool(table["speedup"].notna().any())


def cached(table: DataFrame) -> str:
    """Line: the caches hold all leaf entries, of a table without a trace; else ""."""
    text = style.finding(table, CACHED)
    return f"{text[:1].upper()}{text[1:]}"


def written(row: Mapping[Any, Any]) -> str:
    if isna(row["low"]):
        return interval.shown(row["value"])[0]
    return interval.interval(Interval(row["low"], row["value"], row["high"]))


def gains(table: DataFrame) -> DataFrame:
    """Label, value (the speed-up), its low and high, and bytes beyond the baseline's, a row per policy; the
    fastest first, as the numbers are read. Without run times value is walk cycles of the baseline over the
    policy's, and low and high are NaN."""
    style.must_have(len(table) and table["walks"].max(), "no walks", "lengthen the trace")
    table = table.drop_duplicates(["policy", "params"])
    base = table[table["policy"] == table["baseline"]].iloc[0]
    total = peak_bytes(table)
    rows = DataFrame({"label": style.policy_labels(table), "bytes": total - total[base.name]})
    if timed(table):
        ends = {"low": table["speedup_low"], "value": table["speedup"], "high": table["speedup_high"]}
        rows = rows.assign(**ends).dropna()
    else:
        rows = rows.assign(low=np.nan, value=base["walk_cycles"] / table["walk_cycles"], high=np.nan)
    rows["read"] = [interval.as_read(*ratios) for ratios in rows[["value", "low", "high"]].fillna(1.0).values]
    return rows.sort_values(["read", "bytes"], ascending=[False, True], kind="stable", ignore_index=True)


@styled
def speedup(table: DataFrame, width: float = style.WIDTH) -> Figure:
    """Benefit and price, a row per policy, the fastest on top. Dot: middle of the assumptions, bar: their
    extremes; on the right, memory beyond the baseline's: page tables at their peak, and memory held unused.

    Without a trace there is no run time: then walk cycles of the baseline over the policy's, without bars.
    table    ptanalyze.whatif's or Advised.frame; width: of the figure, in inches
    columns  policy, params, baseline, walks, speedup, speedup_low, speedup_high (ratios), walk_cycles,
             pt_bytes_peak, ept_bytes, aside_bytes, held_bytes
    """
    rows, base = gains(table), table["baseline"].iloc[0]
    at, names = range(len(rows)), rows["label"].tolist()
    figure = style.row_figure(names, width=width)
    axis, memory = figure.subplots(1, 2, width_ratios=(5, 2))
    axis.hlines(at, rows["low"], rows["high"], color=style.BLUE, linewidth=5, alpha=0.35)
    axis.plot(rows["value"], at, "o", color=style.BLUE, markersize=7)
    axis.axvline(1, color=style.GREY, linewidth=1)
    style.fitted(axis, "x", rows[["low", "value", "high"]].to_numpy().ravel(), 0.1)
    style.name_rows(axis, names, [written(row) for row in rows.to_dict("records")])
    what = "run time" if timed(table) else "walk cycles"
    right = "right: faster" if timed(table) else "at most"
    axis.set_xlabel(f"{what} under {base} / under the policy ({right})")
    memory.barh(at, rows["bytes"].map(size_as_read), color=style.ORANGE, height=0.5)
    memory.axvline(0, color=style.GREY, linewidth=1)
    style.name_rows(memory, [""] * len(rows), [more_memory(int(size)) for size in rows["bytes"]])
    memory.set(xticks=[], xlabel=f"memory beyond {base}'s")
    memory.margins(x=0.1)
    cold, assumed = style.finding(table, COLD), style.finding(table, ASSUMED)
    return style.finish(
        figure,
        table,
        cached(table) or headline(rows, base) + " in the run as traced" * bool(cold),
        "" if timed(table) else interval.FROM_DRAM,
        "steady state: one-time costs are not in it" if timed(table) and not cold else "",
        f"bars: {assumed}" if assumed and timed(table) else "",
    )


def headline(rows: DataFrame, base: str) -> str:
    best = next(row for row in rows.to_dict("records") if row["label"] in style.usable(rows["label"]))
    if not interval.faster(best["value"]):
        what = "policy" if "thp" in {*rows["label"]} else "placement"
        return str(message("asked", "stay", base=base, what=what, within="")).rstrip(".")
    if isna(best["low"]):
        less = message("asked", "fewer", fewer=1 - 1 / best["value"])
        return f"No trace, so no run time: with {style.titled(best['label'])} {less} than {base}"
    return f"{style.titled(best['label'])}: {written(best)} over {base}"


AXES = {  # of swept keys
    "prefetch": "prefetch degree d (a fault copies up to 2^d entries)",
    "nodes": "NUMA nodes of the machine",
    "latency_ratio": "remote over local DRAM latency",
    "stands_for": "size of the run, times the captured one",
}


@styled
def curve(table: DataFrame, x: str | None = None) -> Figure:
    """Speed-up over the baseline by the swept key `x`, up is better; policies without it are dashed lines.

    Bars are intervals by the assumptions. Without a trace: the baseline's cycles of walks and page-table
    upkeep over the policy's. Values that are words are not joined: nothing lies between them.
    table    ptanalyze.sweep's; x: a swept key, default the key with the most values
    columns  policy, params, baseline, walks, speedup, speedup_low, speedup_high (ratios), walk_cycles,
             management_cycles, and the keys in attrs["swept"]
    """
    style.must_have(len(table) and table["walks"].max(), "no walks", "lengthen the trace")
    swept = table.attrs.get("swept", [])
    key = x or max(swept, key=lambda name: table[name].nunique(), default="")
    if key not in table:
        raise UsageError(
            f"nothing to draw: x = {key!r}, swept are: {', '.join(swept) or 'none'}: give the table that "
            'ptanalyze.sweep returns; of joined tables, name what varies in table.attrs["swept"]'
        )
    data, base = points(table.drop_duplicates(["policy", "params", *swept]), key), table["baseline"].iloc[0]
    numeric = bool(to_numeric(data[key].dropna(), errors="coerce").notna().all())
    figure = style.new_figure(5.0)
    axis = figure.subplots()
    for label, colour, marker in style.looks(data["label"].unique().tolist()):
        of, name = data[data["label"] == label], style.broken(label, style.NAME)
        if of[key].isna().all():
            axis.axhline(of["y"].iloc[0], color=colour, linestyle="--", label=name)
            continue
        of = of.sort_values(key) if numeric else of
        at = to_numeric(of[key]) if numeric else of[key].astype(str)
        spread, line = [of["y"] - of["low"], of["high"] - of["y"]], "-" if numeric else "none"
        axis.errorbar(at, of["y"], spread, color=colour, marker=marker, linestyle=line, capsize=3, label=name)
    if numeric:
        values = sorted(to_numeric(data[key]).dropna().unique())
        axis.set_xscale("log" if values[0] > 0 and values[-1] > 20 * values[0] else "linear")
        axis.set_xticks(values, [f"{value:g}" for value in values])
        axis.set_xticks([], minor=True)
    style.fitted(axis, "y", data["y"])
    what, up = ("run time", "up: faster") if timed(table) else ("cycles", "at most")
    axis.set_xlabel(AXES.get(key.rpartition(".")[2], key))
    axis.set_ylabel(f"{what} under {base} / under the policy ({up})")
    style.legend_beside(axis)
    texts = [str(one["text"]) for one in table.attrs.get("findings", ()) if one["code"] == ASSUMED]
    of = -1 if key == "stands_for" else 0  # larger runs may load memory
    assumed = texts[of] if texts and timed(table) else ""
    text = cached(table) or headline_curve(data, key, base)
    return style.finish(figure, table, text, f"bars: {assumed}" if assumed else "")


def points(table: DataFrame, key: str) -> DataFrame:
    """The table with label, and y, low and high: more is faster. The baseline of each point comes first."""
    swept = table.attrs.get("swept", [])
    labels = table["policy"].astype(str)
    for name in (name for name in swept if name != key and table[name].nunique() > 1):
        labels = labels + ["" if isna(value) else f" {name}={value}" for value in table[name]]
    if timed(table):
        y, low, high = table["speedup"], table["speedup_low"], table["speedup_high"]
    else:
        cycles = table["walk_cycles"] + table["management_cycles"]
        point = [name for name in ("nodes", "placement", "contended", "latency_ratio") if name in swept]
        base = cycles.groupby([table[name] for name in point]).transform("first") if point else cycles.iloc[0]
        y = low = high = base / cycles
    return table.assign(label=labels, y=y, low=low, high=high)


def headline_curve(data: DataFrame, key: str, base: str) -> str:
    """The best point of the swept policies, by the numbers as they are read; equals are named together."""
    swept = data[data[key].notna() & (data["policy"] != base)]
    if not len(swept):
        return f"No policy but {base} has {key}"
    speeds = swept["y"].map(interval.as_read)
    best = swept.loc[speeds.idxmax()]
    equal = swept.loc[(swept[key] == best[key]) & (speeds == speeds.max()), "label"]
    who = " and ".join(map(style.titled, equal.unique()))
    at = f"{best[key]:g}" if isinstance(best[key], float) else best[key]  # 9.0 where others have no such key
    where = f"{at} times the size" if key == "stands_for" else f"{key} = {at}"
    ratio = interval.shown(best["y"])[0]
    if not timed(data):
        return f"No trace, so a bound: cycles of {base} / those of {who} at {where}: {ratio} at most"
    if speeds.max() == speeds.min():
        return f"{key} makes no difference: {who}: {ratio}x over {base}"
    return f"{who} {'are' if ' and ' in who else 'is'} best at {where}: {ratio}x over {base}"


# Who reads whose memory: classes of walks, reads by node, locality over time.

PANELS, COLUMNS = 12, 4  # the most panels, and in a row
NUMBERS = 2.2  # that can be read in an inch, beside each other in cells
LOCAL = ("Local", "Local-Local")


def local_share(table: DataFrame) -> float:
    """Per cent of a table of classes."""
    return float(100 * table.loc[table["class"].isin(LOCAL), "count"].sum() / max(table["count"].sum(), 1))


def first_and_best(shares: Mapping[str, float]) -> str:
    """ "48 % with linux, 100 % with mitosis": of the first policy, and of the best if it has more."""
    first, *rest = shares
    best = max(style.usable(rest), key=lambda name: shares[name]) if rest else first
    more = f", {shares[best]:.0f} % with {style.titled(best)}" if shares[best] >= shares[first] + 0.5 else ""
    return f"{shares[first]:.0f} % with {style.titled(first)}{more}"


def panels(count: int, height: float, width: float = style.WIDTH) -> tuple[Figure, np.ndarray]:
    """A Figure and its Axes[rows, columns], `count` of them in use, in rows `height` inches high."""
    rows = -(-count // COLUMNS)
    figure = style.new_figure(1.4 + height * rows, width)
    axes: np.ndarray = figure.subplots(rows, -(-count // rows), sharey=True, squeeze=False)
    for axis in axes.flat[count:]:
        axis.set_axis_off()
    return figure, axes


@styled
def locality(table: DataFrame) -> Figure:
    """Shares of each class seen from each socket; a panel per policy, or group and weight: the largest 12.

    vMitosis (ASPLOS '21), Figure 2.

    table    ptanalyze.classify's (several concatenated, if you like), or Replayed.leaves
    columns  socket, class, count, share; policy, params or weight, group
    """
    placed = len(table) and table["count"].sum()
    style.must_have(placed, "nothing has a class", "has the capture mapped pages?")
    parts = style.by_policy(table) if "policy" in table else by_group(table)
    shown = [(name, of) for name, of in parts.items() if of["count"].sum()][:PANELS]
    figure, axes = panels(len(shown), 2.3)
    for axis, (name, of) in zip(axes.flat, shown, strict=False):
        shares = of.pivot_table(index="socket", columns="class", values="share", aggfunc="sum", sort=False)
        draw_classes(axis, 100 * shares[[kind for kind in style.CLASSES if kind in shares]])
        axis.set(title=style.broken(name) if len(parts) > 1 else "", xlabel="seen from socket")
    for axis in axes[:, 0]:
        axis.set_ylabel(f"% of {counted(table)}")
    bars = {of.get_label(): of for axis in axes.flat for of in axis.containers}
    there = [name for name in style.CLASSES if name in bars]
    title = "leaf entries are\n(guest-host)" if any("-" in name for name in there) else "leaf entry is"
    style.legend_beside(axes[0, -1], handles=[bars[name] for name in there], labels=there, title=title)
    left = len(parts) - len(shown)
    more = f"{left:,} more not shown" if left else ""
    return style.finish(figure, table, headline_classes(table, parts), more)


def by_group(table: DataFrame) -> dict[str, DataFrame]:
    """{name: rows} of each group and weight, the most entries first."""
    several, weights = table["group"].nunique() > 1, table["weight"].nunique() > 1
    parts = {}
    for (weight, group), of in table.groupby(["weight", "group"], sort=False):
        names = [vma_name(group) if several else "", style.WEIGHTS[weight] if weights else ""]
        parts[": ".join(filter(None, names))] = of
    return dict(sorted(parts.items(), key=lambda part: -part[1]["count"].sum()))


def vma_name(group: str) -> str:
    """A VMA by its file and first address: "libc.so.6 at 7f12000"; other groups as they are."""
    match = re.fullmatch(r"([0-9a-f]+)-[0-9a-f]+ ?(.*)", group)
    return f"{match[2].rpartition('/')[2] or 'anonymous'} at {match[1]}" if match else group


def counted(table: DataFrame) -> str:
    """What the bars are shares of."""
    if "policy" in table:
        return style.WEIGHTS.get(table.attrs.get("run"), "walks")
    return style.WEIGHTS[table["weight"].iloc[0]] if table["weight"].nunique() == 1 else "each kind"


def draw_classes(axis: Axes, shares: DataFrame) -> None:
    """Stacked bars of `shares` (per cent), a bar per socket."""
    below = np.zeros(len(shares))
    for kind in shares:
        colour, hatch = style.CLASSES[kind]
        how = {"color": colour, "hatch": hatch, "edgecolor": "white", "label": kind}
        axis.bar(shares.index.astype(str), shares[kind], bottom=below, width=0.85, **how)
        below = below + shares[kind].fillna(0).to_numpy()
    axis.set_ylim(0, 100)
    axis.grid(False, axis="x")


def headline_classes(table: DataFrame, parts: Mapping[str, DataFrame]) -> str:
    """Local shares: by weight, or under the first policy and the best."""
    what = "Local" if set(table["class"]) <= {"Local", "Remote"} else "Local-Local"
    if "policy" in table:
        shares = {name: local_share(of) for name, of in parts.items()}
        return f"Walks with {what} leaf entries: {first_and_best(shares)}"
    weights = table.groupby("weight", sort=False)
    texts = [f"{local_share(of):.0f} % of {style.WEIGHTS[weight]}" for weight, of in weights]
    return f"{what} from the sockets' view: {', '.join(texts)}"


@styled
def reads(table: DataFrame, width: float = style.WIDTH) -> Figure:
    """Share of reads from DRAM by reader's and serving node, a panel per policy; the diagonal is local.

    table    ptanalyze.reads' or Replayed.reads; width: of the figure, in inches
    columns  policy, params, reader, server, from, count
    """
    chosen = table[table["from"] == "DRAM"]
    what, remedy = "no page-table entry was read from DRAM", "choose another plot, or record a longer trace"
    style.must_have(len(chosen) and chosen["count"].sum(), what, remedy)
    shares = {}  # per cent of all reads
    for name, of in style.by_policy(chosen).items():
        counts = of.pivot_table(index="reader", columns="server", values="count", aggfunc="sum", fill_value=0)
        nodes = sorted({*counts.index, *counts.columns})
        if all_reads := counts.to_numpy().sum():
            shares[name] = 100 * counts.reindex(index=nodes, columns=nodes, fill_value=0) / all_reads
    local = {name: float(np.trace(share)) for name, share in shares.items()}
    figure, axes = panels(len(shares), 2.5, width)
    most = max(float(share.to_numpy().max()) for share in shares.values())
    for axis, (name, share) in zip(axes.flat, shares.items(), strict=False):
        few = len(share) * axes.shape[1] <= NUMBERS * width
        look = {"vmin": 0, "vmax": most, "cmap": "Blues", "square": True}
        sns.heatmap(share, ax=axis, annot=few, fmt=".0f", cbar=False, **look)
        axis.set_title(f"{style.broken(name)}\n{100 - local[name]:.0f} % remote")
        axis.set(xlabel="serving node", ylabel="reader's node" if axis in axes[:, 0] else "")
        axis.tick_params(rotation=0)
    figure.colorbar(axes[0, 0].collections[0], ax=axes, label="% of the policy's reads", aspect=40)
    text = f"Page-table reads from DRAM that are local: {first_and_best(local)}"
    return style.finish(figure, table, text, "diagonal: local")


@styled
def timeline(table: DataFrame) -> Figure:
    """Share of walks whose leaf entries are all local in each window; below, number of walks.

    A window without walks leaves a gap; lines that coincide are one. After vMitosis (ASPLOS '21), Figure 6.
    table    ptanalyze.timeline's or Replayed.timeline
    columns  policy, params, time_ns, walks, leaf_LL_share; attrs nested
    """
    walked = len(table) and table["walks"].sum() and table["time_ns"].max()
    style.must_have(walked, "no walks over time", "ask for windows of a longer trace")
    lines = style.by_policy(table)
    first, what = next(iter(lines.values())), "Local-Local" if table.attrs.get("nested") else "Local"
    figure = style.new_figure(5.0)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    edges = np.concatenate([[0.0], first["time_ns"].to_numpy() / 1e6])
    shares = {name: 100 * of["leaf_LL_share"].to_numpy() for name, of in lines.items()}
    for names, (_, colour, marker) in zip(coinciding(shares), style.looks(list(lines)), strict=False):
        look = {"color": colour, "marker": marker, "markersize": 5, "alpha": 0.8}
        look["label"] = style.broken(", ".join(names), style.NAME)
        upper.plot((edges[1:] + edges[:-1]) / 2, shares[names[0]], **look)
    upper.set(ylim=(-3, 103), ylabel=f"% of walks {what}")
    lower.stairs(first["walks"], edges, fill=True, color=style.GREY, alpha=0.5)
    lower.set(ylabel="walks", xlabel="ms since the trace began", xlim=(0, edges[-1]))
    figure.align_ylabels()
    style.legend_beside(upper)
    met = {name: (of["leaf_LL_share"] * of["walks"]).sum() / of["walks"].sum() for name, of in lines.items()}
    text = f"{what} walks: {first_and_best({name: 100 * float(share) for name, share in met.items()})}"
    return style.finish(figure, table, text, f"windows of {show_duration(edges[1] / 1e3)}")


def coinciding(shares: Mapping[str, np.ndarray]) -> list[list[str]]:
    """Names of lines that hide each other: the same in whole per cent, of {name: float[windows]}."""
    together: dict[bytes, list[str]] = {}
    for name, share in shares.items():
        together.setdefault(np.nan_to_num(share, nan=-1).round().tobytes(), []).append(name)
    return list(together.values())


# ePT cache lines per gPT cache line: PTEMagnet (ASPLOS '21), section 3.2.

STATES = {"before": style.BLUE, "after": style.ORANGE}
LINES = {"all": "all gPT cache lines", "full": "lines with all eight pages"}


@styled
def fragmentation(table: DataFrame) -> Figure:
    """Share of gPT cache lines with 1 to 8 ePT cache lines, before and after PTEMagnet, of all and of full
    lines; groups (VMAs) together. The metric of PTEMagnet (ASPLOS '21), section 3.2.

    table    ptanalyze.fragmentation's
    columns  lines, ept_lines, count, state, group
    """
    there = len(table) and table["count"].sum()
    style.must_have(there, "no 4 KiB page that the host maps", "dump a VM that has some")
    counts = table.groupby(["lines", "state", "ept_lines"], sort=False)["count"].sum().unstack(fill_value=0)
    counts = counts[counts.sum(axis=1) > 0]
    shown = [lines for lines in LINES if lines in counts.index]
    figure = style.new_figure(4.2)
    for axis, lines in zip(figure.subplots(1, len(shown), sharey=True, squeeze=False)[0], shown, strict=True):
        percent = 100 * counts.loc[lines].div(counts.loc[lines].sum(axis=1), axis=0)
        long = percent.stack().rename("percent").reset_index()
        sns.barplot(long, x="ept_lines", y="percent", hue="state", palette=STATES, saturation=1, ax=axis)
        for bars in axis.containers:
            axis.bar_label(bars, fmt=lambda share: f"{share:.0f}" if share >= 1 else "")
        sns.move_legend(axis, "upper right", title="PTEMagnet")
        axis.set(title=LINES[lines], xlabel="ePT cache lines (1: in one, 8: scattered)")
        axis.set_ylabel("% of gPT cache lines")
    of = counts.loc[shown[0]]
    means = (of * of.columns).sum(axis=1) / of.sum(axis=1)
    text = f"Neighbouring pages lead to {means.iloc[0]:.2f} ePT cache lines on average"
    after = f", to {means.iloc[1]:.2f} with PTEMagnet" if len(means) > 1 else ""
    return style.finish(figure, table, f"{text}{after}")


# A map of all table pages: address against level, coloured by NUMA node.

PIXELS, ROWS, GAP_ROWS = 1400, 30, 6  # columns of the map, rows of a level, and between two


@styled
def page_table_map(table: DataFrame) -> Figure:
    """A band per level, root on top; each table is as wide as its lowest tables, unmapped gaps closed.

    Where several tables share a pixel, the pixel's height is divided among their nodes. Tables of the tracer
    are left out. Grey: node unknown. Works for millions of tables: they are summed into pixels first.
    table    ptanalyze.page_tables'
    columns  dimension, level, base (address), node, tracers; attrs nodes
    """
    table = table[~table["tracers"]]
    style.must_have(len(table), "no table page", "dump page tables with `ptanalyze dump`")
    sides = [(str(name), of) for name, of in table.groupby("dimension", sort=False, observed=True)]
    colours = style.node_colours(sorted(set(table["node"])))
    figure = style.new_figure(1.7 + 2.3 * len(sides))
    axes = figure.subplots(len(sides), 1, squeeze=False)[:, 0]
    texts = []
    for axis, (name, of) in zip(axes, sides, strict=True):
        draw_tree(axis, name, of, colours)
        shares = of.loc[of["level"] == of["level"].min(), "node"].value_counts(normalize=True)
        texts.append(f"{100 * shares.iloc[0]:.0f} % ({name}) on {style.node_named(shares.index[0])}")
    patches = [Patch(color=colour, label=style.node_named(node)) for node, colour in colours.items()]
    style.legend_beside(axes[0], handles=patches, ncols=1 + len(patches) // 20)
    nodes = table.attrs["nodes"]
    spread = f"; evenly spread: {100 / nodes:.0f} %" if nodes > 1 else ""
    text = f"Leaf tables: {', '.join(texts)}{spread}"
    return style.finish(figure, table, text, "gaps in the address space are closed")


def draw_tree(axis: Axes, name: str, of: DataFrame, colours: Mapping[int, str]) -> None:
    level = of["level"].to_numpy().astype(np.int64)
    node = np.searchsorted(list(colours), of["node"].to_numpy())
    start, end = extents(level)
    levels, slots, bands = range(int(level.max()), 0, -1), int(end.max()), []
    for number in levels:
        here = level == number
        band = pixels(start[here], end[here], node[here], len(colours), slots)
        bands += [band, np.full((GAP_ROWS, band.shape[1]), -1)]
    image = np.ma.masked_less(np.concatenate(bands[:-1]), 0)
    axis.imshow(
        image, cmap=ListedColormap([*colours.values()]), vmin=-0.5, vmax=len(colours) - 0.5, aspect="auto",
        interpolation="nearest", extent=(0, slots, len(image), 0),
    )  # fmt: skip
    axis.grid(False)
    middles = ROWS / 2 + (ROWS + GAP_ROWS) * np.arange(len(levels))
    axis.set_yticks(middles, [f"L{number}" for number in levels])
    lowest = of["base"].to_numpy()[level == level.min()]
    axis.set_xticks([0, slots], [f"{int(lowest[0]):#x}", f"{int(lowest[-1]):#x}"])
    first, last = axis.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    axis.set(ylabel=f"{name} level", xlabel="guest-physical address" if name == "ePT" else "virtual address")
    axis.set_title(f"{name}: {plural(len(of), 'table')}", loc="left")


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
    edges = np.linspace(0, slots, min(slots, PIXELS) + 1)
    at = np.column_stack([start, end]).ravel()
    share = np.zeros((nodes, len(edges) - 1))
    for number in np.unique(node):
        covered = np.cumsum(np.column_stack([np.zeros(len(node)), (end - start) * (node == number)]).ravel())
        share[number] = np.diff(np.interp(edges, at, covered)) / np.diff(edges)
    filled = np.cumsum(share, axis=0)
    shown: np.ndarray = (((np.arange(ROWS)[:, None, None] + 0.5) / ROWS) >= filled[None]).sum(axis=1)
    return np.where(shown == nodes, -1, shown)[::-1]


# A translation as the walker makes it, a cell per read; in two dimensions as in vMitosis, Figure 1.


@styled
def walk(table: DataFrame) -> Figure:
    """A cell per read, numbered in the hardware's order and coloured by the node of the table that is read.

    Native: one row. In two dimensions (vMitosis, Figure 1) a column is one address that the host translates:
    the frames of the gPT from its root on, then the page; rows are the ePT's levels, the lowest is the gPT.
    table    ptanalyze.walk's
    columns  dimension, level, node, present, leaf; attrs address, nodes, page
    """
    style.must_have(len(table), "no read", "is there a page table in the capture?")
    page, guest = table.attrs["page"], table["dimension"] != "ePT"
    cells = DataFrame(
        {
            "row": np.where(guest, table["dimension"], "ePT L" + table["level"].astype(str)),
            "column": guest.shift(fill_value=False).cumsum(),
            "node": table["node"],
            "text": [f"{k}: {style.node_named(node)}" for k, node in enumerate(table["node"], 1)],
        }
    )
    rows = [*sorted(cells.loc[~guest, "row"].unique(), reverse=True), *cells.loc[guest, "row"].unique()]
    by_place = cells.pivot(index="row", columns="column").reindex(index=rows)
    figure = style.new_figure(2.2 + 0.45 * len(rows))
    axis = figure.subplots()
    colours = style.node_colours(sorted(set(table["node"])))
    code = by_place["node"].replace(dict(zip(colours, range(len(colours)), strict=True)))
    sns.heatmap(
        code, ax=axis, cmap=ListedColormap([*colours.values()]), vmin=0, vmax=max(len(colours) - 1, 1),
        annot=by_place["text"].fillna(""), fmt="", cbar=False, linewidths=4,
    )  # fmt: skip
    levels = [f"L{level}" for level in table.loc[guest, "level"]]
    mapped = page["frame"] is not None
    after = "page" if mapped or table["leaf"][guest].any() else "next"
    axis.set_xticklabels([*levels, after][: code.shape[1]])
    axis.set(ylabel="", xlabel="level" if "PT" in rows else "translated by the host: gPT tables, page")
    axis.tick_params(axis="y", rotation=0)
    where = f"the page is on {style.node_named(page['node'])}" if mapped else page["stopped"]
    cell = "cells: order of the reads, and node of the table that is read"
    return style.finish(figure, table, headline_walk(table), cell, where)


def headline_walk(table: DataFrame) -> str:
    address = f"{table.attrs['address']:#x}"
    count = f"{len(table)} read{'s' if len(table) > 1 else ''}"
    if table.attrs["page"]["stopped"]:
        return f"{address} is not mapped: the walk stops after {count}"
    located = table["node"][table["node"] >= 0]
    remote = Series({node: int((located != node).sum()) for node in table.attrs["nodes"]})
    least, most = remote.idxmin(), remote.idxmax()
    text = f"{count} for {address}: {remote[least]} remote for a CPU on {style.node_named(least)}"
    return text if least == most else f"{text}, {remote[most]} on {style.node_named(most)}"
