"""Our results over published figures, row by row or paper by paper."""

from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from pandas import DataFrame

from .style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    WIDE,
    broken,
    context,
    legend_beside,
    must_have,
    name_rows,
    new_figure,
    rows_high,
    styled,
    title,
)

KINDS = {  # ptanalyze_papers.row.KINDS: colour, marker, whether it is evidence
    "law": (GREEN, "P", True),
    "replayed": (BLUE, "o", True),
    "modelled": (ORANGE, "^", True),
    "traced small": (SKY, "v", True),
    "fitted": (PURPLE, "s", False),
    "by definition": (GREY, "D", False),
    "not reproducible": (VERMILION, "X", False),
}
BANDS = ((0.25, "#eeeeee", "within 25 %"), (0.05, "#cccccc", "within 5 %"))
NAME = 48  # characters per line of a row's name
MOST_NAMED = 40  # largest number of rows with a line each
WIDTH = 0.03  # of ln(ratio): smallest distance of markers
LEAST, MOST = 0.25, 4.0  # ratios beyond are drawn at the edge
TICKS = (0.25, 0.33, 0.5, 0.67, 0.8, 1, 1.25, 1.5, 2, 3, 4)


@styled
def validation(table: DataFrame) -> Figure:
    """Ours / published on a logarithmic axis, with bands of 5 and 25 %; bars are our intervals.

    Up to 40 rows have a line each; more are grouped by paper and kind of row, similar ratios side by side.
    Filled markers are evidence, open markers are not. Rows without a ratio (bounds, published zeros, no
    number of ours) are counted below; ratios beyond a factor of 4 are at the edge.
    table    of ptanalyze_papers.run.published_frame, as `ptanalyze validate` prints it
    columns  paper, where, quantity, published, bound, low, ours, high, error (share), holds, kind
    """
    rows = ratios(table)
    must_have(bool(len(rows)), "no row has a ratio", "see the table for bounds, and reasons of the others")
    named = len(rows) <= MOST_NAMED
    names, at, rows = listed(rows) if named else gathered(rows)
    figure = new_figure(2.4 + (0.19 if named else 0.34) * (at[-1] + 1))
    axis = figure.subplots()
    draw(axis, rows, named)
    axis.set_yticks(at, names)
    axis.set_ylim(at[-1] + 1, -1)
    axis.tick_params(axis="y", length=0)
    axis.grid(False, axis="y")
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=3, borderaxespad=0)
    title(figure, headline(table))
    context(figure, table, left_out(table, rows))
    return figure


def ratios(table: DataFrame) -> DataFrame:
    """Rows with a ratio, and low and high of ours over published; rows of a paper are together."""
    there = (table["bound"] == "") & table["ours"].notna() & (table["published"] > 0) & (table["ours"] > 0)
    rows = table[there]
    over = {name: rows[column] / rows["published"] for name, column in COLUMNS.items()}
    rows = rows.assign(**over)
    order = {paper: k for k, paper in enumerate(dict.fromkeys(rows["paper"]))}
    return rows.sort_values("paper", key=lambda papers: papers.map(order), kind="stable", ignore_index=True)


COLUMNS = {"ratio": "ours", "least": "low", "most": "high"}


def listed(rows: DataFrame) -> tuple[list[str], list[float], DataFrame]:
    """([name of each row], [its place, in lines of text], the rows with y)."""
    several = rows["paper"].nunique() > 1
    texts = [
        f"{paper + ', ' if several else ''}{where}: {quantity}".replace(" %", "\N{NO-BREAK SPACE}%")
        for paper, where, quantity in zip(rows["paper"], rows["where"], rows["quantity"], strict=True)
    ]
    names = [fill(text, NAME, break_on_hyphens=False) for text in texts]
    high = np.array([1.5 + name.count("\n") for name in names])
    at = (np.cumsum(high) - high / 2).tolist()
    return names, at, rows.assign(y=at)


def gathered(rows: DataFrame) -> tuple[list[str], list[float], DataFrame]:
    """(["paper: kind (rows)"], [0, 1, ...], the rows with y: side by side where ratios are alike)."""
    kinds = list(KINDS)
    papers = list(dict.fromkeys(rows["paper"]))
    lines = sorted(
        set(zip(rows["paper"], rows["kind"], strict=True)),
        key=lambda pair: (papers.index(pair[0]), kinds.index(pair[1])),
    )
    place = np.round(np.log(rows["ratio"].clip(LEAST, MOST)) / WIDTH)
    beside = rows.groupby(["paper", "kind", place]).cumcount()
    size = rows.groupby(["paper", "kind", place])["ratio"].transform("size")
    side = (beside - (size - 1) / 2) * np.minimum(0.12, 0.7 / size)
    at = [lines.index(pair) for pair in zip(rows["paper"], rows["kind"], strict=True)]
    counts = rows.groupby(["paper", "kind"]).size()
    names = [f"{paper}: {kind} ({counts[paper, kind]})" for paper, kind in lines]
    return names, [float(k) for k in range(len(names))], rows.assign(y=at + side)


def draw(axis: Axes, rows: DataFrame, named: bool) -> None:
    for share, colour, name in BANDS:
        axis.axvspan(1 - share, 1 + share, color=colour, linewidth=0, zorder=0, label=name)
    axis.axvline(1, color=BLACK, linewidth=1, zorder=1)
    ends = {name: rows[name].clip(LEAST, MOST) for name in COLUMNS}
    if named:
        axis.hlines(rows["y"], ends["least"], ends["most"], color=GREY, linewidth=3, alpha=0.5, zorder=2)
    for kind, (colour, marker, evidence) in KINDS.items():
        here = rows["kind"] == kind
        if here.any():
            axis.plot(
                ends["ratio"][here], rows["y"][here], marker, color=colour, markersize=7 if named else 5,
                markerfacecolor=colour if evidence else "none", markeredgewidth=1.2, linestyle="none",
                label=kind, clip_on=False, zorder=3,
            )  # fmt: skip
    axis.set_xscale("log")
    axis.set_xlim(LEAST, MOST)
    axis.set_xticks(TICKS)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel("ours / published (1: equal)")


def left_out(table: DataFrame, rows: DataFrame) -> str:
    bounds = table[table["bound"] != ""]["holds"]
    kept = f"{int((bounds == True).sum())} of {len(bounds)} published bounds hold" if len(bounds) else ""  # noqa: E712
    rest = len(table) - len(rows) - len(bounds)
    edge = int((~rows["ratio"].between(LEAST, MOST)).sum())
    texts = (kept, f"{rest} without a ratio" if rest else "", f"{edge} beyond the edge" if edge else "")
    return "; ".join(text for text in texts if text)


def headline(table: DataFrame) -> str:
    """Errors of the rows that are evidence, as ptanalyze_papers.row counts them."""
    evidence = table[table["kind"].map(lambda kind: KINDS[kind][2]) & (table["bound"] == "")]
    if not len(evidence):
        return f"{len(table)} rows, none of them evidence"
    errors = evidence["error"].abs()
    text = f"{len(evidence)} rows that can fail: median error {100 * errors.median():.1f} %"
    return f"{text}, {100 * (errors <= 0.25).mean():.0f} % of them within 25 %"


# Predicted run times of placements over the all-local run time, with intervals.


@styled
def prediction(table: DataFrame) -> Figure:
    """One line per placement, in the table's order: dot and interval; squares are measured.

    table    api.predict's
    columns  placement, low, middle, high (ratios), measured
    """
    must_have(bool(len(table)), "no placement", "name a placement")
    figure = new_figure(2.0 + 0.32 * len(table))
    axis = figure.subplots()
    at = range(len(table))
    axis.hlines(at, table["low"], table["high"], color=BLUE, linewidth=5, alpha=0.35)
    for measured, colour, marker, name in ((False, BLUE, "o", "predicted"), (True, ORANGE, "s", "measured")):
        here = (table["measured"] == measured).to_numpy()
        if here.any():
            axis.plot(
                table["middle"][here], here.nonzero()[0], marker, color=colour, markersize=7, label=name
            )
    axis.axvline(1, color=GREY, linewidth=1)
    axis.set_yticks(at, table["placement"])
    axis.set_ylim(len(table) - 0.5, -0.5)
    axis.set_ylabel("placement")
    axis.set_xlabel("run time / run time with all tables local")
    axis.grid(False, axis="y")
    legend_beside(axis)
    worst = table.loc[table["middle"].idxmax()]
    times = f"{worst['middle']:.2f} ({worst['low']:.2f} to {worst['high']:.2f})"
    title(figure, f"{worst['placement']} takes {times} times as long as all tables local")
    context(
        figure, table, "placement: gPT then ePT, L local, R remote, I under load, then the repaired table"
    )
    return figure


# Errors of predicted run times, workloads left out in turn, beside two baselines.

APART = (
    ", repaired",
    ", contradicted",
    ", machine left out",
    ", many threads",
)  # suffixes of lines that are not in the headline
RIVAL = "rival"
BASELINE = "baseline"  # prefix of methods that are not predictions


@styled
def prediction_errors(table: DataFrame) -> Figure:
    """A line per family of runs, method and second run: up to the largest error, median and mean as markers.

    An error is |predicted / measured - 1|. To the right: number of predictions.
    table    of ptanalyze_law.leave_one_out.summary, as `ptanalyze predict --statistics` prints it
    columns  family, method, second, points, mean, median, max (shares)
    """
    must_have(bool(len(table)), "no prediction", "name a family of reference runs")
    names = [
        f"{family}: {method}" + (f", {second}" if second != "any" else "")
        for family, method, second in zip(table["family"], table["method"], table["second"], strict=True)
    ]
    figure = new_figure(2.1 + rows_high(names, 0.27))
    axis = figure.subplots()
    at = range(len(table))
    axis.hlines(at, 0, 100 * table["max"], color=BLUE, linewidth=3, alpha=0.35)
    for column, colour, marker in (("median", BLUE, "o"), ("mean", ORANGE, "D")):
        axis.plot(100 * table[column], at, marker, color=colour, markersize=6, label=column)
    axis.set_xlim(0, None)
    axis.set_xlabel("% error of run time; bars end at the largest\nright: predictions")
    name_rows(axis, names, [f"{points:,}" for points in table["points"]])
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=2, borderaxespad=0)
    title(figure, headline_prediction_errors(table))
    context(figure, table)
    return figure


def headline_prediction_errors(table: DataFrame) -> str:
    """Of the first family: mean errors of the methods, and of the better baseline."""
    family = table["family"].iloc[0]
    of = table[(table["family"] == family) & (table["second"] == "any")]
    of = of[~of["method"].str.endswith(APART) & ~of["method"].str.startswith(RIVAL)]
    is_baseline = of["method"].str.startswith(BASELINE)
    means = of[~is_baseline].set_index("method")["mean"]
    text = ", ".join(f"{100 * mean:.1f} % with {method}" for method, mean in means.items())
    best = 100 * of[is_baseline]["mean"].min()
    return f"{family}, mean error: {text}" + ("" if best != best else f"; best baseline: {best:.1f} %")


# Coefficients of the run-time law from a program's counters, with their intervals.

AXES = {"share": "share", "stretch": "latency / latency of local memory"}


@styled
def coefficients(table: DataFrame) -> Figure:
    """A line per coefficient: middle as a dot, interval as a bar. Shares above, stretches k below.

    table    of ptanalyze_law.run_time.coefficients_frame, as `ptanalyze calibrate` prints it
    columns  coefficient, kind, low, middle, high
    """
    must_have(bool(len(table)), "no coefficient", "count walk cycles")
    parts = [(kind, of) for kind, of in table.groupby("kind", sort=False)]
    heights = [0.9 + 0.4 * len(of) for _, of in parts]
    figure = new_figure(0.9 + sum(heights))
    for axis, (kind, of) in zip(
        figure.subplots(len(parts), 1, height_ratios=heights, squeeze=False)[:, 0], parts, strict=True
    ):
        draw_coefficients(axis, of)
        axis.set_xlabel(AXES[str(kind)])
        axis.set_xlim(0, max(1.03 * (kind == "share"), 1.05 * of["high"].max()))
    title(figure, headline_coefficients(table))
    context(figure, table)
    return figure


def draw_coefficients(axis: Axes, of: DataFrame) -> None:
    at = range(len(of))
    axis.hlines(at, of["low"], of["high"], color=BLUE, linewidth=5, alpha=0.35)
    axis.plot(of["middle"], at, "o", color=BLUE, markersize=7)
    names = [broken(name, WIDE) for name in of["coefficient"]]
    name_rows(axis, names, [written(row) for row in of.to_dict("records")])


def written(row: dict[str, float]) -> str:
    if row["low"] == row["high"]:
        return f"{row['middle']:.3g}"
    return f"{row['middle']:.3g} ({row['low']:.3g} to {row['high']:.3g})"


def headline_coefficients(table: DataFrame) -> str:
    first = table.iloc[0]
    known = int((table["low"] == table["high"]).sum())
    text = (
        f"{known} of {len(table)} coefficients are known exactly"
        if known
        else "No coefficient is known exactly"
    )
    return f"{text}; {first['coefficient'].partition(':')[0]} is {written(first)}"
