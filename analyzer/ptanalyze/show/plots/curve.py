"""A sweep as a curve: speed-up over a parameter, e.g. Hydra's prefetch degree; other policies are lines."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series, isna, to_numeric

from ...core import gain
from ...core.errors import UsageError
from .labels import WIDE, broken
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
    if key not in table:
        raise UsageError(f"x = {key}: not swept; there are: {', '.join(swept) or 'none'}")
    others = [name for name in swept if name != key and table[name].nunique() > 1]
    data = table.drop_duplicates(["policy", "params", "nodes", *swept] if "nodes" in table else None)
    data = data.assign(label=labels(data, others), **relative(data))
    figure = new_figure(5.2)
    axis = figure.subplots()
    ticks = positions(data, key)
    lines, joined = list(data.groupby("label", sort=False)), numeric(data, key)
    for k, ((colour, marker), (name, of)) in enumerate(zip(looks(len(lines)), lines, strict=True)):
        draw(
            axis,
            of,
            broken(str(name), WIDE),
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
        "(up: faster)"
    )
    legend_beside(axis)
    title(figure, headline(data, key))
    context(figure, table)
    return figure


AXES = {
    "prefetch": "prefetch degree d (a fault copies up to 2^d entries)",
    "nodes": "NUMA nodes of the machine",
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
    point = [name for name in ("nodes", "placement", "contended") if name in table.attrs["swept"]]
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
    """The best point of the swept policy."""
    swept = data[data["x"].notna()]
    if not len(swept):
        return f"No policy has {key}"
    best, base = swept.loc[swept["y"].idxmax()], data["baseline"].iloc[0]
    speed = f"{gain.shown(best['y'])[0]} times as fast as {base}"
    if best["y"] - swept["y"].min() < gain.LEAST:
        text = f"{key} makes no difference: {best['label']} is {speed}"
    else:
        text = f"{best['label']} is fastest at {key} = {shown(best[key])}: {speed}"
    rest = data[data["x"].isna() & (data["policy"] != data["baseline"])]
    if len(rest):
        other = rest.loc[rest["y"].idxmax()]
        text += f"; {other['label']}: {gain.shown(other['y'])[0]}"
    return text


def shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
