"""Estimated speed-ups of policies, with intervals by the assumptions."""

from collections.abc import Hashable
from itertools import takewhile

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series, isna, to_numeric

from ...core import interval
from ...core.columns import AS_TRACED, ASSUMED, CACHED
from ...core.errors import UsageError, size_as_read, size_in_words
from ...core.interval import Interval, as_read
from ...core.interval import shown as interval_shown
from ...core.trace import threads_placed
from ...policies import BOUND
from .style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    WIDE,
    binary_unit,
    broken,
    context,
    fitted,
    legend_beside,
    logarithmic,
    looks,
    must_have,
    name_rows,
    new_figure,
    note,
    numbers_beside,
    point_labels,
    policy_labels,
    rows_high,
    said,
    styled,
    title,
    usable,
    widened,
)

SHOWN = 0.1  # of a speed-up to either side of 1
FOLDED = 3  # this number of policies that change nothing share the baseline's row


@styled
def speedup(table: DataFrame) -> Figure:
    """One line per policy, fastest on top: middle of the assumptions as a dot, their extremes as a bar.

    Without a trace there is no run time: then walk cycles of the baseline over the policy's, without bars.
    table    ptanalyze.whatif's
    columns  policy, params, baseline, walks, speedup, speedup_low, speedup_high (ratios), walk_cycles,
             once_cycles, pt_bytes_peak, ept_bytes, aside_bytes, held_bytes
    """
    must_have(bool(len(table) and table["walks"].max()), "no walks", "lengthen the trace")
    base = str(table["baseline"].iloc[0])
    rows, as_base = folded(ranked(table), base)
    timed = "low" in rows
    names = [broken(label, WIDE) for label in rows["label"]]
    figure = new_figure(2.0 + rows_high(names))
    axis = figure.subplots()
    draw(axis, rows, names)
    what = "run time" if timed else "cycles of page walks"
    right = "right: faster" if timed else f"at most: {interval.FROM_DRAM}"
    scale = "; log scale" if axis.get_xscale() == "log" else ""
    axis.set_xlabel(f"{what} under {base} / {what} under the policy ({right}{scale})")
    cold, assumed = bool(said(table, AS_TRACED)), said(table, ASSUMED)
    title(figure, held(table) or headline(rows, base, timed) + " in the run as traced" * cold)
    steady = "steady state: one-time costs are not in it" if timed and not cold else ""
    alike = f"as {base}: {', '.join(as_base)}" if as_base else ""
    context(figure, table, steady, alike, f"bars: {assumed}" if assumed and timed else "")
    return figure


def held(table: DataFrame) -> str:
    """That the caches hold all leaf entries, of a table without a trace; else ""."""
    text = said(table, CACHED)
    return f"{text[:1].upper()}{text[1:]}"


def ranked(table: DataFrame) -> DataFrame:
    """label, value, bytes over the baseline's, with a run time also low and high; in the order of the advice
    (analysis.ranking.Standing)."""
    table = table.drop_duplicates(["policy", "params"])
    rows = DataFrame({"label": policy_labels(table), "value": table["speedup"], "bytes": more_bytes(table)})
    if table["speedup"].notna().any():
        rows = rows.assign(low=table["speedup_low"], high=table["speedup_high"])
    else:
        base = table.loc[table["policy"] == table["baseline"], "walk_cycles"].iloc[0]
        rows["value"] = base / table["walk_cycles"]
    rows["once"], rows["other"] = table["once_cycles"], table["policy"] != table["baseline"]
    rows = rows.dropna(subset="value")
    rows["lost"] = [-read(row) for row in rows.to_dict("records")]
    rows["as_read"] = rows["bytes"].map(size_as_read)
    rows = rows.sort_values(["lost", "other", "as_read", "once"], kind="stable", ignore_index=True)
    return rows.drop(columns=["once", "other", "lost", "as_read"])


def more_bytes(table: DataFrame) -> Series:
    """Bytes at their peak beyond the baseline's: of page tables, and of memory held unused."""
    total = table["pt_bytes_peak"] + table["ept_bytes"] + table["aside_bytes"] + table["held_bytes"]
    base = total[table["policy"] == table["baseline"]]
    return total - (base.iloc[0] if len(base) else 0)


def read(row: dict[Hashable, float]) -> float:
    """The speed-up of a row of `ranked` as it is written."""
    beside = (row["low"], row["high"]) if "low" in row else ()
    return interval.as_read(row["value"], *beside)


def folded(rows: DataFrame, base: str) -> tuple[DataFrame, list[str]]:
    """(rows without those that are written as the baseline's, their labels), if there are FOLDED or more."""
    texts = [written(row) for row in rows.to_dict("records")]
    own = rows.index[rows["label"] == base].tolist()
    same = [k for k, text in enumerate(texts) if own and text == texts[own[0]] and k != own[0]]
    if len(same) < FOLDED or len(same) == len(rows) - 1:
        return rows, []
    labels = rows["label"].where(rows.index != own[0], f"{base} and {len(same)} more")
    return rows.assign(label=labels).drop(index=same).reset_index(drop=True), rows["label"][same].tolist()


def draw(axis: Axes, rows: DataFrame, names: list[str]) -> None:
    at = rows.index.to_numpy()
    if "low" in rows:
        axis.hlines(at, rows["low"], rows["high"], color=BLUE, linewidth=5, alpha=0.35)
    axis.plot(rows["value"], at, "o", color=BLUE, markersize=7)
    axis.axvline(1, color=GREY, linewidth=1)
    fitted(axis, "x", rows[[name for name in ("low", "value", "high") if name in rows]].to_numpy().ravel())
    widened(axis, "x", SHOWN)
    texts = [written(row) for row in rows.to_dict("records")]
    name_rows(axis, names, texts)
    what = "times as fast" if "low" in rows else "in walk cycles, at most"
    for k, text in enumerate(texts):
        note(axis, f"{rows['label'][k]}: {text} {what}", axis.get_xlim(), (k - 0.4, k + 0.4))


def written(row: dict[str, float]) -> str:
    if "low" not in row:
        return interval.shown(row["value"])[0]
    return interval.interval(Interval(row["low"], row["value"], row["high"]))


def headline(rows: DataFrame, base: str, timed: bool) -> str:
    best = next(row for row in rows.to_dict("records") if row["label"] in usable(rows["label"]))
    if len(rows) > 1 and len({written(row) for row in rows.to_dict("records")}) == 1:
        alike = "all are as fast as" if timed else "no trace, so no run time: walks take as long as under"
        return f"{alike[0].upper()}{alike[1:]} {base}"
    if not interval.faster(best["value"]):
        return interval.none_faster(base)
    if timed:
        return f"{best['label']}: {written(best)} over {base}"
    less = interval.fewer_walk_cycles(1 / best["value"])
    return f"No trace, so no run time: with {best['label']} {less} than {base}"


# Benefit against cost: estimated speed-up over a policy's extra memory, and the Pareto front.


@styled
def pareto(table: DataFrame) -> Figure:
    """A marker per policy: left is less memory, up is faster; filled, joined markers are the front.

    The front is all policies that no other beats in both; ideal is a bound and left out. Bytes are gPT at its
    peak, ePT, tables kept aside and memory held unused, over the baseline's. Without a trace: cycles, as in
    `speedup`.
    table    ptanalyze.whatif's or Advised.frame
    columns  policy, params, baseline, walks, speedup, speedup_low, speedup_high (ratios), walk_cycles,
             once_cycles, pt_bytes_peak, ept_bytes, aside_bytes, held_bytes
    """
    must_have(bool(len(table) and table["walks"].max()), "no walks", "lengthen the trace")
    rows = priced(table)
    unit, name = binary_unit(float(rows["bytes"].abs().max()))
    figure = new_figure(5.0)
    axis = figure.subplots()
    base, timed = str(table["baseline"].iloc[0]), bool(table["speedup"].notna().any())
    draw_pareto(axis, rows, unit, name, timed)
    axis.set_xlabel(f"{name} more than under {base}: page tables, and memory held unused")
    axis.set_ylabel(
        f"speed-up over {base}" if timed else f"walk cycles under {base} / under the policy, at most"
    )
    on = rows[rows["front"]].sort_values("bytes")
    bounds = "" if timed else "No trace, so bounds: "
    title(figure, held(table) or bounds + headline_pareto(on, len(rows), base))
    context(figure, table, "filled: on the Pareto front")
    return figure


def priced(table: DataFrame) -> DataFrame:
    """label, bytes over the baseline's, value (speed-up) and whether on the front, by the numbers as they are
    read; in the order of the advice."""
    rows = ranked(table[table["policy"] != BOUND])
    cost, value = rows["bytes"].map(size_as_read), rows["value"].map(as_read)
    rows["front"] = on_front(cost.to_numpy(), value.to_numpy())
    return rows.drop(columns=["low", "high"], errors="ignore")


def on_front(cost: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """bool[n]: no other is at least as good in both and better in either."""
    no_worse = (cost[None] <= cost[:, None]) & (gain[None] >= gain[:, None])
    better = (cost[None] < cost[:, None]) | (gain[None] > gain[:, None])
    unbeaten: np.ndarray = np.logical_not((no_worse & better).any(axis=1))
    return unbeaten


def draw_pareto(axis: Axes, rows: DataFrame, unit: float, name: str, timed: bool) -> None:
    on = rows[rows["front"]].sort_values("bytes")
    cost, value = rows["bytes"] / unit, rows["value"]
    axis.axhline(1, color=GREY, linewidth=1)
    axis.step(on["bytes"] / unit, on["value"], where="post", color=GREY, linestyle="--", linewidth=1.2)
    for x, y, front, label in zip(cost, value, rows["front"], rows["label"], strict=True):
        axis.plot(
            x, y, "o", color=BLUE, markersize=9, markeredgewidth=1.6, linestyle="none", alpha=0.9,
            markerfacecolor=BLUE if front else "none", label=label,
        )  # fmt: skip
    axis.margins(0.08)
    fitted(axis, "y", value)
    widened(axis, "y")
    values = [interval_shown(one)[0] for one in value]
    point_labels(axis, rows["label"].tolist(), cost.tolist(), value.tolist(), values)
    what = "times as fast" if timed else "in walk cycles, at most"
    for label, text, x, y in zip(rows["label"], values, cost, value, strict=True):
        note(axis, f"{label}: {text} {what}, {x:,.2f} {name} more", (x, x), (y, y))


def headline_pareto(on: DataFrame, policies: int, base: str) -> str:
    best = on.iloc[-1]
    if len(on) == 1:
        return f"{best['label']} is best in both: nothing is faster, nothing takes less memory"
    least, unit_name = on.iloc[0], binary_unit(float(on["bytes"].abs().max()))
    most = best["bytes"] / unit_name[0]
    return (
        f"{len(on)} of {policies} policies are on the front: from {least['label']} "
        f"({interval_shown(least['value'])[0]}) to {best['label']} ({interval_shown(best['value'])[0]} for "
        f"{most:.1f} {unit_name[1]})"
    )


# Memory of page tables under each policy: one copy, further copies, and tables kept aside.


@styled
def footprint(table: DataFrame) -> Figure:
    """Stacked bars of bytes, one per policy, in the table's order.

    table    ptanalyze.whatif's: pt_bytes and ept_bytes in the end, *_extra (beyond one copy), and aside_bytes
    columns  policy, params, pt_bytes, pt_bytes_extra, ept_bytes, ept_bytes_extra, aside_bytes
    """
    must_have(bool(len(table)), "no policy", "name a policy")
    table = table.drop_duplicates(["policy", "params"])
    parts = parts_of(table)
    total = parts.sum(axis=1)
    unit, name = binary_unit(float(total.max()))
    labels = policy_labels(table)
    names = [broken(label, WIDE) for label in labels]
    figure = new_figure(2.4 + rows_high(names))
    axis = figure.subplots()
    at, left = range(len(table)), [0.0] * len(table)
    for kind, (colour, hatch) in zip(parts, LOOKS.values(), strict=True):
        widths = (parts[kind] / unit).tolist()
        if any(widths):
            axis.barh(
                at, widths, left=left, color=colour, hatch=hatch, edgecolor="white", height=0.75,
                label=named(kind, bool(table["ept_bytes"].any())),
            )  # fmt: skip
        for row, (label, width, start) in enumerate(zip(labels, widths, left, strict=True)):
            if width:
                text = f"{label}: {width:,.2f} {name} {named(kind, bool(table['ept_bytes'].any()))}"
                note(axis, text, (start, start + width), (row - 0.375, row + 0.375))
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.set_xlim(0, 1.03 * total.max() / unit)
    axis.set_xlabel(f"{name} of page tables")
    name_rows(axis, names, [size_in_words(int(value)) for value in total])
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=3, borderaxespad=0)
    title(figure, headline_footprint(labels.tolist(), total.tolist()))
    context(figure, table)
    return figure


LOOKS = {
    "gPT, one copy": (BLUE, ""),
    "gPT, copies": (SKY, "///"),
    "ePT, one copy": (GREEN, "--"),
    "ePT, copies": (ORANGE, "\\\\\\"),
    "kept aside, not walked": (PURPLE, "xxx"),
}


def parts_of(table: DataFrame) -> DataFrame:
    """Bytes by LOOKS' keys; savings below a single copy are not drawn."""
    columns = []
    for side in ("pt", "ept"):
        extra = table[f"{side}_bytes_extra"].clip(lower=0)
        columns += [table[f"{side}_bytes"] - extra, extra]
    return DataFrame(dict(zip(LOOKS, [*columns, table["aside_bytes"]], strict=True)))


def named(kind: str, nested: bool) -> str:
    return kind if nested else kind.replace("gPT", "page tables")


def headline_footprint(labels: list[str], total: list[float]) -> str:
    most = max(range(len(total)), key=total.__getitem__)
    text = f"Page tables take {size_in_words(int(total[0]))} with {labels[0]}"
    if total[most] > total[0]:
        text += f", at most {size_in_words(int(total[most]))} with {labels[most]}"
    return text


# A sweep as a curve: speed-up over a parameter, e.g. Hydra's prefetch degree; other policies are lines.


@styled
def curve(table: DataFrame, x: str | None = None) -> Figure:
    """Speed-up over the baseline by the swept key `x`, up is better; policies without it are lines.

    Bands are intervals by the assumptions. Without a trace: the baseline's cycles of walks and page-table
    upkeep over the policy's. Values that are words are not joined: nothing lies between them.
    table    ptanalyze.sweep's; x: a swept key, default the key with the most values
    columns  policy, params, baseline, walks, speedup, speedup_low, speedup_high (ratios), walk_cycles,
             management_cycles, and the keys in attrs["swept"]
    """
    must_have(bool(len(table) and table["walks"].max()), "no walks", "lengthen the trace")
    swept = table.attrs.get("swept", [])
    key = x or max(swept, key=lambda name: table[name].nunique(), default="")
    if not key:
        raise UsageError(
            "nothing to draw: no swept key: give the table that ptanalyze.sweep returns; of tables joined by "
            'pandas, name the columns that vary in table.attrs["swept"], such as ["nodes"]'
        )
    if key not in table:
        raise UsageError(f"x = {key}: no such column; swept are: {', '.join(swept) or 'none'}")
    others = [name for name in swept if name != key and table[name].nunique() > 1]
    data = table.drop_duplicates(["policy", "params", "nodes", *swept] if "nodes" in table else None)
    data = data.reset_index(drop=True)
    data = data.assign(label=labels(data, others), **relative(data))
    figure = new_figure(5.2)
    axis = figure.subplots()
    ticks = positions(data, key)
    lines, joined = (
        alike([(str(name), of) for name, of in data.groupby("label", sort=False)]),
        numeric(data, key),
    )
    for k, ((colour, marker), (name, of)) in enumerate(zip(looks(len(lines)), lines, strict=True)):
        draw_curve(
            axis,
            of,
            broken(name, WIDE),
            colour,
            marker,
            k,
            (min(ticks.values()), max(ticks.values())),
            joined,
        )
    axis.set_xticks(list(ticks.values()), list(ticks))
    axis.set_xlabel(AXES.get(key.rpartition(".")[2], key))
    axis.set_ylabel(
        f"{'run time' if timed(data) else 'cycles'} under {table['baseline'].iloc[0]} / under the policy "
        f"({'up: faster' if timed(data) else 'at most'})"
    )
    widened(axis, "y")
    legend_beside(axis)
    title(figure, held(table) or headline_curve(data, key))
    banded = bool((data["high"] > data["low"]).any())
    assumed = said(table, ASSUMED)
    what = "intervals" if not joined else "bands"
    context(figure, table, *swept_over(table), f"{what}: {assumed}" if banded and assumed else "")
    return figure


def alike(lines: list[tuple[str, DataFrame]]) -> list[tuple[str, DataFrame]]:
    """The lines, those that would lie on each other as one with all their names."""
    kept: list[tuple[list[str], DataFrame]] = []
    for name, of in lines:
        same = next((names for names, other in kept if covers(other, of)), None)
        if same is None:
            kept.append(([name], of))
        else:
            same.append(name)
    return [(", ".join(names), of) for names, of in kept]


def covers(one: DataFrame, other: DataFrame) -> bool:
    """Whether the same points of both lie within a tenth of what a title can tell apart."""
    if len(one) != len(other):
        return False
    columns = ["x", "y", "low", "high"]
    a, b = (of.sort_values("x")[columns].to_numpy(float) for of in (one, other))
    return bool(np.allclose(a, b, rtol=0, atol=interval.LEAST / 10, equal_nan=True))


def swept_over(table: DataFrame) -> list[str]:
    """The machine and the placement of threads where they differ between points, without what differs."""
    known = table.attrs.get("provenance", {})
    both = (("machine", str), ("placement", threads_placed))
    texts = [(key, words) for key, words in both if key in table and key not in known]
    found = [(words, common_words(table[key].astype(str).unique().tolist())) for key, words in texts]
    return [words(same) for words, same in found if same]


def common_words(texts: list[str]) -> str:
    """The words that all texts begin with, without what leads to the first that differs."""
    places = zip(*map(str.split, texts), strict=False)
    words = takewhile(lambda at: len({word.rstrip(",") for word in at}) == 1, places)
    return " ".join(at[0] for at in words).rstrip(",").removesuffix(" over")


AXES = {
    "prefetch": "prefetch degree d (a fault copies up to 2^d entries)",
    "nodes": "NUMA nodes of the machine",
    "latency_ratio": "remote over local DRAM latency",
    "stands_for": "size of the run, times the captured one",
}


def timed(data: DataFrame) -> bool:
    return bool(data["speedup"].notna().any())


def labels(table: DataFrame, others: list[str]) -> Series:
    names = table["policy"].astype(str)
    for name in others:
        names = names + ["" if isna(value) else f" {name}={shown(value)}" for value in table[name]]
    return names


def relative(table: DataFrame) -> dict[str, Series]:
    """y, low and high: more is faster. The baseline of each point comes first."""
    if timed(table):
        return {"y": table["speedup"], "low": table["speedup_low"], "high": table["speedup_high"]}
    cycles = table["walk_cycles"] + table["management_cycles"]
    swept = table.attrs.get("swept", [])
    point = [name for name in ("nodes", "placement", "contended", "latency_ratio") if name in swept]
    y = (
        cycles.groupby([table[name] for name in point]).transform("first") if point else cycles.iloc[0]
    ) / cycles
    return {"y": y, "low": y, "high": y}


def numeric(data: DataFrame, key: str) -> bool:
    """Whether the swept values are numbers, with values between them."""
    return bool(to_numeric(data[key].dropna(), errors="coerce").notna().all())


def positions(data: DataFrame, key: str) -> dict[str, float]:
    """{value as text: place on the axis}; adds column x to `data`: numbers by value, words in order."""
    values = data[key].dropna()
    if numeric(data, key):
        numbers = to_numeric(values)
        data["x"] = to_numeric(data[key], errors="coerce")
        return {f"{value:g}": float(value) for value in sorted(numbers.unique())}
    places = {str(value): float(k) for k, value in enumerate(dict.fromkeys(values.astype(str)))}
    data["x"] = [places.get(str(value), np.nan) for value in data[key]]
    return places


def draw_curve(
    axis: Axes,
    of: DataFrame,
    name: str,
    colour: str,
    marker: str,
    k: int,
    ends: tuple[float, float],
    joined: bool,
) -> None:
    points = of[of["x"].notna()].sort_values("x")
    if not len(points):
        row = of.iloc[0]
        points = DataFrame([{**row, "x": end} for end in ends])
        axis.plot(
            points["x"],
            points["y"],
            color=colour,
            linewidth=1.8,
            linestyle=("--", ":", "-.")[k % 3],
            label=name,
        )
    else:
        how = {"linewidth": 1.8} if joined else {"linestyle": "none"}
        axis.plot(points["x"], points["y"], color=colour, marker=marker, markersize=7, label=name, **how)
    if not joined and points["x"].nunique() == len(points):
        spread = [points["y"] - points["low"], points["high"] - points["y"]]
        axis.errorbar(points["x"], points["y"], spread, color=colour, linestyle="none", alpha=0.5)
    elif (points["high"] > points["low"]).any():
        axis.fill_between(points["x"], points["low"], points["high"], color=colour, alpha=0.15, linewidth=0)


def headline_curve(data: DataFrame, key: str) -> str:
    """The best point of the swept policy, by the numbers as they are read: of equal ones the first."""
    data = data.assign(read=data["y"].map(interval.as_read))
    swept = data[data["x"].notna()]
    if not len(swept):
        return f"No policy has {key}"
    best, base = swept.loc[swept["read"].idxmax()], data["baseline"].iloc[0]
    speed = f"{interval.shown(best['y'])[0]}x over {base}"
    equal = swept[(swept["x"] == best["x"]) & (swept["read"] == best["read"])]
    named = list(dict.fromkeys(equal["label"]))
    if not timed(data):
        at = f"{', '.join(named)} at {key} = {shown(best[key])}"
        most = interval.shown(best["y"])[0]
        return f"No trace, so a bound: cycles of {base} / those of {at} are at most {most}"
    who = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    who += " is" if len(named) == 1 else " are"
    if best["read"] == swept["read"].min():
        text = f"{key} makes no difference: {who} {speed}"
    else:
        text = f"{who} fastest at {at_point(key, best[key])}: {speed}"
    rest = data[data["x"].isna() & (data["policy"] != data["baseline"])]
    if len(rest):
        other = rest.loc[rest["read"].idxmax()]
        text += f"; {other['label']}: {interval.shown(other['y'])[0]}"
    return text


def at_point(key: str, value: object) -> str:
    return f"{shown(value)} times the size" if key == "stands_for" else f"{key} = {shown(value)}"


def shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# Differences between two results, as the ratio of each quantity.

MOST = 30  # quantities


@styled
def comparison(table: DataFrame, a: str = "", b: str = "") -> Figure:
    """B / A of each quantity on a logarithmic axis, the largest changes on top, at most 30.

    Words, and quantities that are 0 in A or B, have no ratio; the line below counts them.
    table    api.compare's; a, b: names of the results, "": from its attrs, else A and B
    columns  policy, quantity, ratio
    """
    must_have(bool(len(table)), "nothing differs", "compare results of different policies or captures")
    rows = table[(table["ratio"] > 0) & np.isfinite(table["ratio"])]
    must_have(bool(len(rows)), "no quantity that differs has a ratio", "see the table")
    order = np.log(rows["ratio"]).abs().sort_values(ascending=False, kind="stable").index
    rows = rows.loc[order]
    shown = rows.head(MOST).iloc[::-1]
    known_a, known_b = table.attrs.get("names", ("A", "B"))
    a, b = a or known_a, b or known_b
    names = names_of(shown, table["policy"].nunique() > 1)
    figure = new_figure(2.0 + rows_high(names, 0.27))
    axis = figure.subplots()
    draw_comparison(axis, shown, names)
    axis.set_xlabel(f"{broken(b, 40)} / {broken(a, 40)}")
    most = rows.iloc[0]
    title(
        figure,
        f"{len(table)} quantities differ, most of all {most['quantity']} (×{shown_ratio(most['ratio'])})",
    )
    rest = [
        f"{len(rows) - len(shown)} smaller changes" if len(rows) > MOST else "",
        f"{len(table) - len(rows)} without a ratio" if len(table) > len(rows) else "",
    ]
    left_out = " and ".join(part for part in rest if part)
    context(figure, table, f"not shown: {left_out}" if left_out else "")
    return figure


def names_of(shown: DataFrame, several: bool) -> list[str]:
    names = [f"{p}: {q}" if several else q for p, q in zip(shown["policy"], shown["quantity"], strict=True)]
    return [broken(name, WIDE + 12) for name in names]


def draw_comparison(axis: Axes, shown: DataFrame, names: list[str]) -> None:
    at = range(len(shown))
    axis.hlines(at, 1, shown["ratio"], color=BLUE, linewidth=2, alpha=0.5)
    axis.plot(shown["ratio"], at, "o", color=BLUE, markersize=7)
    axis.axvline(1, color=GREY, linewidth=1)
    logarithmic(axis, "x", shown["ratio"].tolist())
    axis.set_yticks(at, names)
    numbers_beside(axis, [shown_ratio(ratio) for ratio in shown["ratio"]])


def shown_ratio(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"
