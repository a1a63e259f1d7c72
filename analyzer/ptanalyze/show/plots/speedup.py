"""Estimated speed-ups of policies, with intervals by the assumptions."""

from collections.abc import Hashable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series

from ...core import interval
from ...core.errors import size_as_read
from ...core.interval import Interval
from .labels import WIDE, broken, policy_labels, rows_high, usable
from .ratios import fitted, widened
from .rows import name_rows
from .spots import note
from .style import BLUE, GREY, context, must_have, new_figure, styled, title

SHOWN = 0.1  # of a speed-up to either side of 1
FOLDED = 3  # so many policies that change nothing share the baseline's row


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
    notes = table.attrs.get("notes", [])
    cold = any(note.startswith("as traced:") for note in notes)
    title(figure, held(table) or headline(rows, base, timed) + " in the run as traced" * cold)
    assumed = next((note for note in notes if "of walk cycles stall" in note), "")
    steady = "steady state: one-time costs are not in it" if timed and not cold else ""
    alike = f"as {base}: {', '.join(as_base)}" if as_base else ""
    context(figure, table, steady, alike, f"bars: {assumed}" if assumed and timed else "")
    return figure


def held(table: DataFrame) -> str:
    """That the caches hold all leaf entries, of a table without a trace; else ""."""
    said = next((note for note in table.attrs.get("notes", []) if interval.NOTHING in note), "")
    return f"{said[:1].upper()}{said[1:]}"


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
        return f"{best['label']} is estimated at {written(best)} times the speed of {base}"
    less = interval.fewer_walk_cycles(1 / best["value"])
    return f"No trace, so no run time: with {best['label']} {less} than {base}"
