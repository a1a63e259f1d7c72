"""A sweep as a curve: speed-up over a parameter, e.g. Hydra's prefetch degree; other policies are lines."""

from itertools import takewhile

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series, isna, to_numeric

from ...core import interval
from ...core.errors import UsageError
from ...core.walks import threads_placed
from .labels import WIDE, broken
from .ratios import widened
from .speedup import held
from .style import context, legend_beside, looks, must_have, new_figure, styled, title


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
        draw(
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
    title(figure, held(table) or headline(data, key))
    banded = bool((data["high"] > data["low"]).any())
    assumed = next((note for note in table.attrs.get("notes", []) if "of walk cycles stall" in note), "")
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


def draw(
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


def headline(data: DataFrame, key: str) -> str:
    """The best point of the swept policy, by the numbers as they are read: of equal ones the first."""
    data = data.assign(read=data["y"].map(interval.as_read))
    swept = data[data["x"].notna()]
    if not len(swept):
        return f"No policy has {key}"
    best, base = swept.loc[swept["read"].idxmax()], data["baseline"].iloc[0]
    speed = f"{interval.shown(best['y'])[0]} times as fast as {base}"
    equal = swept[(swept["x"] == best["x"]) & (swept["read"] == best["read"])]
    named = list(dict.fromkeys(equal["label"]))
    if not timed(data):
        at = f"{', '.join(named)} at {key} = {shown(best[key])}"
        return f"No trace, so a bound: cycles of {base} / those of {at} are at most {interval.shown(best['y'])[0]}"
    who = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    who += " is" if len(named) == 1 else " are"
    if best["read"] == swept["read"].min():
        text = f"{key} makes no difference: {who} {speed}"
    else:
        text = f"{who} fastest at {key} = {shown(best[key])}: {speed}"
    rest = data[data["x"].isna() & (data["policy"] != data["baseline"])]
    if len(rest):
        other = rest.loc[rest["read"].idxmax()]
        text += f"; {other['label']}: {interval.shown(other['y'])[0]}"
    return text


def shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
