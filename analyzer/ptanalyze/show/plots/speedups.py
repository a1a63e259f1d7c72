"""Plots of policies: speed-ups with their intervals, over memory, over a swept key, over DRAM reads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series, isna, to_numeric

from ...core import interval
from ...core.columns import ASSUMED, CACHED, COLD, message
from ...core.errors import UsageError, size_as_read, size_in_words
from ...core.interval import Interval
from ...policies import BOUND
from .style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    NAME,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    binary_unit,
    broken,
    finding,
    finish,
    fitted,
    legend_beside,
    looks,
    must_have,
    name_rows,
    new_figure,
    policy_labels,
    row_figure,
    stacked_bars,
    styled,
    usable,
)


def gains(table: DataFrame) -> DataFrame:
    """A row per policy: label, value (the speed-up), its low and high, and bytes, of page tables and memory
    held unused, beyond the baseline's. Without run times value is walk cycles of the baseline over the
    policy's, and low and high are NaN."""
    must_have(len(table) and table["walks"].max(), "no walks", "lengthen the trace")
    table = table.drop_duplicates(["policy", "params"])
    base = table[table["policy"] == table["baseline"]].iloc[0]
    total = table["pt_bytes_peak"] + table["ept_bytes"] + table["aside_bytes"] + table["held_bytes"]
    rows = DataFrame({"policy": table["policy"], "label": policy_labels(table)})
    rows["bytes"] = total - total[base.name]
    if timed(table):
        return rows.assign(
            low=table["speedup_low"], value=table["speedup"], high=table["speedup_high"]
        ).dropna()
    return rows.assign(low=np.nan, value=base["walk_cycles"] / table["walk_cycles"], high=np.nan)


def timed(table: DataFrame) -> bool:
    """Whether run times could be estimated."""
    return bool(table["speedup"].notna().any())


def cached(table: DataFrame) -> str:
    """Line: the caches hold all leaf entries, of a table without a trace; else ""."""
    text = finding(table, CACHED)
    return f"{text[:1].upper()}{text[1:]}"


def written(row: Any) -> str:
    if isna(row["low"]):
        return interval.shown(row["value"])[0]
    return interval.interval(Interval(row["low"], row["value"], row["high"]))


@styled
def speedup(table: DataFrame) -> Figure:
    """One line per policy, fastest on top: middle of the assumptions as a dot, their extremes as a bar.

    Without a trace there is no run time: then walk cycles of the baseline over the policy's, without bars.
    table    ptanalyze.whatif's
    columns  policy, params, baseline, walks, speedup, speedup_low, speedup_high (ratios), walk_cycles,
             pt_bytes_peak, ept_bytes, aside_bytes, held_bytes
    """
    rows = gains(table)
    rows["read"] = [interval.as_read(*ratios) for ratios in rows[["value", "low", "high"]].fillna(1.0).values]
    rows = rows.sort_values(["read", "bytes"], ascending=[False, True], kind="stable", ignore_index=True)
    base, at = table["baseline"].iloc[0], range(len(rows))
    figure, axis = row_figure(rows["label"])
    axis.hlines(at, rows["low"], rows["high"], color=BLUE, linewidth=5, alpha=0.35)
    axis.plot(rows["value"], at, "o", color=BLUE, markersize=7)
    axis.axvline(1, color=GREY, linewidth=1)
    fitted(axis, "x", rows[["low", "value", "high"]].to_numpy().ravel(), 0.1)
    name_rows(axis, rows["label"], [written(row) for row in rows.to_dict("records")])
    what = "run time" if timed(table) else "cycles of page walks"
    right = "right: faster" if timed(table) else f"at most: {interval.FROM_DRAM}"
    scale = "; log scale" if axis.get_xscale() == "log" else ""
    axis.set_xlabel(f"{what} under {base} / {what} under the policy ({right}{scale})")
    cold, assumed = finding(table, COLD), finding(table, ASSUMED)
    return finish(
        figure,
        table,
        cached(table) or headline(rows, base) + " in the run as traced" * bool(cold),
        "steady state: one-time costs are not in it" if timed(table) and not cold else "",
        f"bars: {assumed}" if assumed and timed(table) else "",
    )


def headline(rows: DataFrame, base: str) -> str:
    best = next(row for row in rows.to_dict("records") if row["label"] in usable(rows["label"]))
    if not interval.faster(best["value"]):
        return str(message("asked", "stay", base=base, within="")).rstrip(".")
    if isna(best["low"]):
        less = message("asked", "fewer", fewer=1 - 1 / best["value"])
        return f"No trace, so no run time: with {best['label']} {less} than {base}"
    return f"{best['label']}: {written(best)} over {base}"


# Benefit against cost: estimated speed-up over a policy's extra memory, and the Pareto front.


@styled
def pareto(table: DataFrame) -> Figure:
    """A marker per policy: left is less memory, up is faster; filled, joined markers are the front.

    The front is all policies that no other beats in both; ideal is a bound and left out. Bytes are gPT at its
    peak, ePT, tables kept aside and memory held unused, over the baseline's. Without a trace: cycles, as in
    `speedup`.
    table    ptanalyze.whatif's or Advised.frame
    columns  policy, params, baseline, walks, speedup, speedup_low, speedup_high (ratios), walk_cycles,
             pt_bytes_peak, ept_bytes, aside_bytes, held_bytes
    """
    rows = gains(table)
    rows = rows[rows["policy"] != BOUND].sort_values("value", ascending=False, kind="stable")
    rows["front"] = on_front(
        rows["bytes"].map(size_as_read).to_numpy(), rows["value"].map(interval.as_read).to_numpy()
    )
    unit, name = binary_unit(float(rows["bytes"].abs().max()))
    figure, base = new_figure(4.6), table["baseline"].iloc[0]
    axis = figure.subplots()
    front = rows[rows["front"]].sort_values("bytes")
    axis.axhline(1, color=GREY, linewidth=1)
    axis.step(front["bytes"] / unit, front["value"], where="post", color=GREY, linestyle="--", linewidth=1.2)
    read = [interval.shown(value)[0] for value in rows["value"]]
    labels = [f"{label} {text}" for label, text in zip(rows["label"], read, strict=True)]
    markers(axis, labels, rows["bytes"] / unit, rows["value"], rows["front"])
    fitted(axis, "y", rows["value"])
    axis.set_xlabel(f"{name} more than under {base}: page tables, and memory held unused")
    axis.set_ylabel(
        f"speed-up over {base}" if timed(table) else f"walk cycles under {base} / under the policy, at most"
    )
    text = f"{len(front)} of {len(rows)} policies are on the front: {', '.join(front['label'])}"
    if len(front) == 1:
        text = f"{front['label'].iloc[0]} is best in both: nothing is faster, nothing takes less memory"
    bounds = "" if timed(table) else "No trace, so bounds: "
    return finish(figure, table, cached(table) or bounds + text, "filled: on the Pareto front")


def on_front(cost: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """bool[n]: no other is at least as good in both and better in either."""
    no_worse = (cost[None] <= cost[:, None]) & (gain[None] >= gain[:, None])
    better = (cost[None] < cost[:, None]) | (gain[None] > gain[:, None])
    unbeaten: np.ndarray = np.logical_not((no_worse & better).any(axis=1))
    return unbeaten


def markers(axis: Axes, labels: Sequence[str], x: Series, y: Series, filled: Series) -> None:
    """A marker of its own for each policy, named in a legend."""
    for (label, colour, marker), a, b, whole in zip(looks(labels), x, y, filled, strict=True):
        face = colour if whole else "none"
        axis.plot(a, b, marker, color=colour, markersize=9, markerfacecolor=face, label=broken(label, NAME))
    axis.margins(0.08)
    legend_beside(axis)


# Memory of page tables under each policy: one copy, further copies, and tables kept aside.

FOOTPRINT = {
    "gPT, one copy": (BLUE, ""),
    "gPT, copies": (SKY, "///"),
    "ePT, one copy": (GREEN, "--"),
    "ePT, copies": (ORANGE, "\\\\\\"),
    "kept aside, not walked": (PURPLE, "xxx"),
}


@styled
def footprint(table: DataFrame) -> Figure:
    """Stacked bars of bytes, one per policy, in the table's order.

    table    ptanalyze.whatif's: pt_bytes and ept_bytes in the end, *_extra (beyond one copy), and aside_bytes
    columns  policy, params, pt_bytes, pt_bytes_extra, ept_bytes, ept_bytes_extra, aside_bytes
    """
    must_have(len(table), "no policy", "name a policy")
    table = table.drop_duplicates(["policy", "params"])
    columns = []
    for side in ("pt", "ept"):
        extra = table[f"{side}_bytes_extra"].clip(lower=0)  # savings below a single copy are not drawn
        columns += [table[f"{side}_bytes"] - extra, extra]
    parts = DataFrame(dict(zip(FOOTPRINT, [*columns, table["aside_bytes"]], strict=True)))
    parts.index = policy_labels(table)
    total = parts.sum(axis=1)
    unit, name = binary_unit(float(total.max()))
    figure, axis = row_figure(parts.index, 2.2)
    sizes = [size_in_words(int(size)) for size in total]
    stacked_bars(axis, parts / unit, FOOTPRINT, sizes)
    axis.set_xlabel(f"{name} of page tables")
    text, most = f"Page tables take {sizes[0]} with {total.index[0]}", int(total.argmax())
    if total.iloc[most] > total.iloc[0]:
        text += f", at most {sizes[most]} with {total.index[most]}"
    return finish(figure, table, text)


# A sweep as a curve: speed-up over a parameter, e.g. Hydra's prefetch degree; other policies are lines.

AXES = {
    "prefetch": "prefetch degree d (a fault copies up to 2^d entries)",
    "nodes": "NUMA nodes of the machine",
    "latency_ratio": "remote over local DRAM latency",
    "stands_for": "size of the run, times the captured one",
}


@styled
def curve(table: DataFrame, x: str | None = None) -> Figure:
    """Speed-up over the baseline by the swept key `x`, up is better; policies without it are lines.

    Bands are intervals by the assumptions. Without a trace: the baseline's cycles of walks and page-table
    upkeep over the policy's. Values that are words are not joined: nothing lies between them.
    table    ptanalyze.sweep's; x: a swept key, default the key with the most values
    columns  policy, params, baseline, walks, speedup, speedup_low, speedup_high (ratios), walk_cycles,
             management_cycles, and the keys in attrs["swept"]
    """
    must_have(len(table) and table["walks"].max(), "no walks", "lengthen the trace")
    swept = table.attrs.get("swept", [])
    key = x or max(swept, key=lambda name: table[name].nunique(), default="")
    if key not in table:
        raise UsageError(
            f"nothing to draw: x = {key!r}, swept are: {', '.join(swept) or 'none'}: give the table that "
            'ptanalyze.sweep returns; of joined tables, name what varies in table.attrs["swept"]'
        )
    data = points(table.drop_duplicates(["policy", "params", *swept]), key)
    joined = bool(to_numeric(data[key].dropna(), errors="coerce").notna().all())
    data["x"] = to_numeric(data[key], errors="coerce") if joined else data[key]
    figure = new_figure(5.0)
    axis = figure.subplots()
    for label, colour, marker in looks(data["label"].unique().tolist()):
        draw_curve(axis, data[data["label"] == label], joined, color=colour, marker=marker)
    if joined:
        axis.set_xticks(data["x"].dropna().unique())
    fitted(axis, "y", data["y"])
    base = table["baseline"].iloc[0]
    what, up = ("run time", "up: faster") if timed(table) else ("cycles", "at most")
    axis.set_xlabel(AXES.get(key.rpartition(".")[2], key))
    axis.set_ylabel(f"{what} under {base} / under the policy ({up})")
    legend_beside(axis)
    assumed = finding(table, ASSUMED) if timed(table) else ""
    bands = f"{'bands' if joined else 'intervals'}: {assumed}" if assumed else ""
    return finish(figure, table, cached(table) or headline_curve(data, key), bands)


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


def draw_curve(axis: Axes, of: DataFrame, joined: bool, **look: Any) -> None:
    there, label = of[of["x"].notna()], broken(of["label"].iloc[0], NAME)
    if not len(there):
        first = of.iloc[0]
        axis.axhline(first["y"], color=look["color"], linestyle="--", linewidth=1.8, label=label)
        axis.axhspan(first["low"], first["high"], color=look["color"], alpha=0.15, linewidth=0)
    elif joined:
        there = there.sort_values("x")
        axis.plot(there["x"], there["y"], linewidth=1.8, markersize=7, label=label, **look)
        axis.fill_between(there["x"], there["low"], there["high"], color=look["color"], alpha=0.15)
    else:
        spread = [there["y"] - there["low"], there["high"] - there["y"]]
        axis.errorbar(there["x"].astype(str), there["y"], spread, linestyle="none", label=label, **look)


def headline_curve(data: DataFrame, key: str) -> str:
    """The best point of the swept policies, by the numbers as they are read; equals are named together."""
    data, base = data.assign(read=data["y"].map(interval.as_read)), data["baseline"].iloc[0]
    swept = data[data["x"].notna() & (data["policy"] != base)]
    if not len(swept):
        return f"No policy but {base} has {key}"
    best = swept.loc[swept["read"].idxmax()]
    names = swept.loc[(swept["x"] == best["x"]) & (swept["read"] == best["read"]), "label"].unique()
    who, speed = " and ".join(names), interval.shown(best["y"])[0]
    where = f"{best[key]:g} times the size" if key == "stands_for" else f"{key} = {best[key]}"
    if not timed(data):
        return f"No trace, so a bound: cycles of {base} / those of {who} at {where}: {speed} at most"
    if best["read"] == swept["read"].min():
        return f"{key} makes no difference: {who}: {speed}x over {base}"
    return f"Best at {where}: {who}, {speed}x over {base}"


# Differences between two results, as the ratio of each quantity.

MOST = 30  # quantities


@styled
def comparison(table: DataFrame, a: str = "", b: str = "") -> Figure:
    """B / A of each quantity, the largest changes on top, at most 30.

    Words, and quantities that are 0 in A or B, have no ratio; the line below counts them.
    table    ptanalyze_formats.compare.compare's; a, b: names of the results, "": from its attrs, else A and B
    columns  policy, quantity, ratio
    """
    must_have(len(table), "nothing differs", "compare results of different policies or captures")
    rows = table[(table["ratio"] > 0) & np.isfinite(table["ratio"])]
    must_have(len(rows), "no quantity that differs has a ratio", "see the table")
    rows = rows.sort_values("ratio", key=lambda ratio: -np.log(ratio).abs(), kind="stable").head(MOST)
    several, first = table["policy"].nunique() > 1, rows.iloc[0]
    names = [f"{p}: {q}" if several else q for p, q in zip(rows["policy"], rows["quantity"], strict=True)]
    figure, axis = row_figure(names)
    axis.hlines(range(len(rows)), 1, rows["ratio"], color=BLUE, linewidth=2, alpha=0.5)
    axis.plot(rows["ratio"], range(len(rows)), "o", color=BLUE, markersize=7)
    axis.axvline(1, color=GREY, linewidth=1)
    fitted(axis, "x", rows["ratio"])
    texts = [f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}" for ratio in rows["ratio"]]
    name_rows(axis, names, texts)
    known_a, known_b = table.attrs.get("names", ("A", "B"))
    axis.set_xlabel(f"{broken(b or known_b, 40)} / {broken(a or known_a, 40)}")
    text = f"{len(table)} quantities differ, most of all {first['quantity']} (×{texts[0]})"
    left_out = len(table) - len(rows)
    return finish(figure, table, text, f"{left_out} smaller or without a ratio" if left_out else "")


# Roofline of a page walker: walks per second over DRAM reads per walk, below the machine's ceilings.

CEILINGS = {
    "local_ns": ("all local", BLACK, "-"),
    "remote_ns": ("all remote", VERMILION, "--"),
    "contended_ns": ("all remote, contended", GREY, ":"),
}


@styled
def roofline(table: DataFrame) -> Figure:
    """A marker per policy: DRAM reads per walk, and walks per second of a walker that does nothing else.

    After the roofline of Williams et al. (CACM 2009). A walk's reads wait for each other, so it takes
    (reads - DRAM reads) * cached + DRAM reads * latency. The ceilings are this for the baseline's reads per
    walk, with all DRAM reads local, remote, or remote under load of the interconnect, by the machine file. A
    policy with fewer reads per walk (shadow) may be above them; one that walks no more has no marker.
    table    ptanalyze.whatif's, with attrs["machine"]
    columns  policy, params, baseline, walks, dram_reads_per_walk, reads_per_walk, cycles_per_walk;
             attrs machine
    """
    machine: dict[str, Any] = table.attrs.get("machine", {})
    must_have(machine, "the table has no latencies of its machine", "use a table of ptanalyze.whatif")
    table = table[table["walks"] > 0].drop_duplicates(["policy", "params"])
    base = table[table["policy"] == table["baseline"]]
    must_have(len(base), "the baseline does not walk", "lengthen the trace")
    (base,) = base.to_dict("records")
    figure, per_second = new_figure(4.6), machine["ghz"] * 1e3  # millions of walks, over cycles per walk
    axis = figure.subplots()
    dram = np.linspace(0, max(1.15 * table["dram_reads_per_walk"].max(), 1e-3), 200)
    cached_cycles = np.maximum(base["reads_per_walk"] - dram, 0) * machine["cached_cycles"]
    for key, (name, colour, line) in CEILINGS.items():
        if machine[key] is not None:
            ceiling = per_second / (cached_cycles + dram * machine[key] * machine["ghz"])
            axis.plot(dram, ceiling, line, color=colour, linewidth=1.4, label=name)
    walks, hollow = per_second / table["cycles_per_walk"], Series(False, table.index)
    markers(axis, policy_labels(table), table["dram_reads_per_walk"], walks, hollow)
    axis.set_ylim(0, None)
    axis.set_xlabel("page-table reads from DRAM per walk")
    axis.set_ylabel("million walks per second and walker")
    local = base["dram_reads_per_walk"] * machine["local_ns"] * machine["ghz"]
    rest = (base["reads_per_walk"] - base["dram_reads_per_walk"]) * machine["cached_cycles"]
    text = (
        f"A walker does at most {per_second / base['cycles_per_walk']:.1f} million walks per second under "
        f"{base['policy']}, {per_second / (rest + local):.1f} million if all its DRAM reads were local"
    )
    more = f"ceilings: {base['reads_per_walk']:.2f} reads per walk, as under {base['policy']}"
    return finish(figure, table, text, more)
