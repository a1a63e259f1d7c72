"""Benefit against cost: estimated speed-up over a policy's extra memory, and the Pareto front."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from ...core.errors import size_as_read
from ...core.interval import as_read, shown
from ...policies import BOUND
from .pointed import point_labels
from .ratios import fitted, widened
from .speedup import held, ranked
from .spots import note
from .style import BLUE, GREY, binary_unit, context, must_have, new_figure, styled, title


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
    draw(axis, rows, unit, name, timed)
    axis.set_xlabel(f"{name} more than under {base}: page tables, and memory held unused")
    axis.set_ylabel(
        f"speed-up over {base}" if timed else f"walk cycles under {base} / under the policy, at most"
    )
    on = rows[rows["front"]].sort_values("bytes")
    bounds = "" if timed else "No trace, so bounds: "
    title(figure, held(table) or bounds + headline(on, len(rows), base))
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


def draw(axis: Axes, rows: DataFrame, unit: float, name: str, timed: bool) -> None:
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
    values = [shown(one)[0] for one in value]
    point_labels(axis, rows["label"].tolist(), cost.tolist(), value.tolist(), values)
    what = "times as fast" if timed else "in walk cycles, at most"
    for label, text, x, y in zip(rows["label"], values, cost, value, strict=True):
        note(axis, f"{label}: {text} {what}, {x:,.2f} {name} more", (x, x), (y, y))


def headline(on: DataFrame, policies: int, base: str) -> str:
    best = on.iloc[-1]
    if len(on) == 1:
        return f"{best['label']} is best in both: nothing is faster, nothing takes less memory"
    least, unit_name = on.iloc[0], binary_unit(float(on["bytes"].abs().max()))
    most = best["bytes"] / unit_name[0]
    return (
        f"{len(on)} of {policies} policies are on the front: from {least['label']} "
        f"({shown(least['value'])[0]}) to {best['label']} ({shown(best['value'])[0]} for {most:.1f} "
        f"{unit_name[1]})"
    )
