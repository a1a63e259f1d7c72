"""Histogram of ePT cache lines per gPT cache line: PTEMagnet (ASPLOS '21), section 3.2."""

import seaborn as sns
from matplotlib.figure import Figure
from pandas import DataFrame

from .style import (
    BLUE,
    GREEN,
    ORANGE,
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
    vma_names,
)

# Mean ePT cache lines per gPT cache line, a bar per VMA: PTEMagnet (ASPLOS '21), section 3.2.

MOST = 15
COLOURS = {"before": BLUE, "after": ORANGE}


def scattered_groups(table: DataFrame) -> Figure:
    """The groups with the most gPT cache lines; bars of all lines, before and, if there is one, after."""
    of = table[table["lines"] == "all"]
    of = of.assign(weighted=of["ept_lines"] * of["count"])
    sums = of.groupby(["group", "state"], sort=False)[["count", "weighted"]].sum()
    sums = sums[sums["count"] > 0]
    before = sums.xs("before", level="state")["count"].sort_values(ascending=False)
    groups = before.index[:MOST].tolist()
    states = [state for state in COLOURS if state in set(table["state"])]
    named = vma_names(map(str, groups))
    names = [broken(named[group], WIDE) for group in groups]
    figure = new_figure(2.2 + rows_high(names))
    axis = figure.subplots()
    thick = 0.8 / len(states)
    for k, state in enumerate(states):
        means = [mean_scattered_groups(sums, group, state) for group in groups]
        at = [row + (k - (len(states) - 1) / 2) * thick for row in range(len(groups))]
        axis.barh(at, means, thick, color=COLOURS[state], label=state)
    axis.set_xlim(0, 8)
    axis.set_xlabel("mean ePT cache lines per gPT cache line (1: in one, 8: scattered)")
    name_rows(axis, names, [f"{before[group]:,}" for group in groups])
    if len(states) > 1:
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=2, borderaxespad=0)
    worst = max(groups, key=lambda group: mean_scattered_groups(sums, group, "before"))
    title(figure, f"Most scattered: {named[worst]}, {mean_scattered_groups(sums, worst, 'before'):.2f} lines")
    left = len(before) - len(groups)
    more = f"; {left:,} smaller groups are not shown" if left else ""
    context(figure, table, f"on the right: gPT cache lines{more}")
    return figure


def mean_scattered_groups(sums: DataFrame, group: object, state: str) -> float:
    if (group, state) not in sums.index:
        return 0.0
    row = sums.loc[(group, state)]
    return float(row["weighted"] / row["count"])


LINES = {"all": "all gPT cache lines", "full": "lines with all eight pages"}
LOOKS = {"before": (BLUE, ""), "after": (ORANGE, "///")}


@styled
def fragmentation(table: DataFrame) -> Figure:
    """Share of gPT cache lines with 1 to 8 ePT cache lines, before and after, of all and of full lines.

    Of several groups (VMAs) a bar of the mean for each. The metric of PTEMagnet (ASPLOS '21), section 3.2.
    table    api.fragmentation's
    columns  lines, ept_lines, count, state, group
    """
    if table["group"].nunique() > 1 and table["count"].sum():
        return scattered_groups(table)
    counts = table.groupby(["lines", "state", "ept_lines"], sort=False, as_index=False)["count"].sum()
    total = counts.groupby(["lines", "state"])["count"].transform("sum")
    shares = counts.assign(percent=100 * counts["count"] / total.where(total > 0))
    shown = [lines for lines in LINES if counts.loc[counts["lines"] == lines, "count"].sum()]
    must_have(bool(shown), "no 4 KiB page that the host maps", "dump a VM that has some")
    figure = new_figure(4.6)
    axes = figure.subplots(1, len(shown), sharey=True, squeeze=False).ravel()
    states = [state for state in LOOKS if state in set(table["state"])]
    for axis, lines in zip(axes, shown, strict=True):
        of = shares[shares["lines"] == lines]
        sns.barplot(
            of, x="ept_lines", y="percent", hue="state", hue_order=states, ax=axis, legend=False,
            saturation=1, palette=[LOOKS[state][0] for state in states], edgecolor="white",
        )  # fmt: skip
        for bars, state in zip(axis.containers, states, strict=True):
            bars.set_label(state)
            for bar in bars:
                bar.set_hatch(LOOKS[state][1])
            axis.bar_label(bars, [f"{bar.get_height():.0f}" if bar.get_height() >= 1 else "" for bar in bars])
        axis.set_title(f"{LINES[lines]}\n{means(of, states)}")
        axis.set_xlabel("ePT cache lines (1: in one, 8: scattered)")
        axis.set_ylabel("% of gPT cache lines")
        axis.set_ylim(0, 1.1 * shares["percent"].max())
    if len(states) > 1:
        legend_beside(axes[-1], axes[0].containers, states, "PTEMagnet")
    title(figure, headline(shares[shares["lines"] == shown[0]], states))
    context(figure, table)
    return figure


def mean(of: DataFrame, state: str) -> float:
    rows = of[of["state"] == state]
    return float((rows["ept_lines"] * rows["count"]).sum() / max(rows["count"].sum(), 1))


def means(of: DataFrame, states: list[str]) -> str:
    return "mean " + ", then ".join(f"{mean(of, state):.2f}" for state in states)


def headline(of: DataFrame, states: list[str]) -> str:
    text = f"Neighbouring pages lead to {mean(of, states[0]):.2f} ePT cache lines on average"
    return text + (f", to {mean(of, states[-1]):.2f} with PTEMagnet" if len(states) > 1 else "")


# Share of a guest's tables and pages that its host maps: whether two dumps belong together.

FIT_LOOKS = {
    "mapped by the host": (GREEN, ""),
    "not faulted in": (ORANGE, "///"),
    "outside every slot": (VERMILION, "xxx"),
}


@styled
def fit(table: DataFrame) -> Figure:
    """A bar for the guest's tables and another for its pages: share of frames that the host maps, and reasons
    for the others; to the right the number of frames.

    table    of answers.fit_frame, as `ptanalyze join` prints it
    columns  what, outcome, frames
    """
    must_have(bool(len(table) and table["frames"].sum()), "no guest frame", "dump the guest again")
    counts = table.pivot(index="what", columns="outcome", values="frames").loc[
        ["tables", "pages"], list(FIT_LOOKS)
    ]
    total = counts.sum(axis=1)
    figure = new_figure(2.6)
    axis = figure.subplots()
    left = [0.0] * len(counts)
    for outcome, (colour, hatch) in FIT_LOOKS.items():
        widths = (100 * counts[outcome] / total.where(total > 0, 1)).tolist()
        if any(widths):
            axis.barh(
                range(len(counts)),
                widths,
                left=left,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                label=outcome,
            )
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.set_xlim(0, 100)
    axis.set_xlabel("% of guest frames; right: their number")
    name_rows(axis, [f"guest {what}" for what in counts.index], [f"{n:,}" for n in total])
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=3, borderaxespad=0)
    shares = 100 * counts["mapped by the host"] / total.where(total > 0, 1)
    title(
        figure,
        f"The host maps {shares['tables']:.4g} % of the guest's tables, {shares['pages']:.4g} % of its pages",
    )
    context(figure, table)
    return figure


# Results of `ptanalyze check`: share of examined items that did not pass, check by check.

VERDICTS = {  # colour and marker
    "ok": (GREEN, "o"),
    "note": (BLUE, "s"),
    "partial": (ORANGE, "^"),
    "failed": (VERMILION, "X"),
}


@styled
def checks(table: DataFrame) -> Figure:
    """A line per check that was not ok: share of examined items that did not pass, by verdict.

    To the right the counts. Checks of a subject that are all ok share a line.

    table    of answers.findings_frame, as `ptanalyze check` prints it
    columns  check, verdict, examined, wrong, share
    """
    must_have(bool(len(table)), "nothing was checked", "give a capture")
    rows = gathered(table)
    names = [broken(name, WIDE) for name in rows["check"]]
    figure = new_figure(1.8 + rows_high(names))
    axis = figure.subplots()
    at = range(len(rows))
    percent = 100 * rows["share"].to_numpy()
    axis.hlines(at, 0, percent, color="#999999", linewidth=2)
    for verdict, (colour, marker) in VERDICTS.items():
        here = (rows["verdict"] == verdict).to_numpy()
        if here.any():
            axis.plot(
                percent[here],
                here.nonzero()[0],
                marker,
                color=colour,
                markersize=8,
                label=verdict,
                clip_on=False,
            )
    axis.set_xlim(0, 100)
    axis.set_xlabel("% of examined items that did not pass; right: their number")
    counts = [f"{w:,} of {of:,}" for w, of in zip(rows["wrong"], rows["examined"], strict=True)]
    name_rows(axis, names, counts)
    axis.tick_params(axis="y", pad=8)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=4, borderaxespad=0)
    title(figure, headline_checks(table))
    context(figure, table)
    return figure


def gathered(table: DataFrame) -> DataFrame:
    """The rows; rows that are ok are summed by the part of their names before ":"."""
    subject = table["check"].str.partition(":")[0]
    same = subject.where(table["verdict"] == "ok", table["check"])
    rows = table.groupby(same, sort=False).agg(
        check=("check", "first"), number=("check", "size"), verdict=("verdict", "first"),
        examined=("examined", "sum"), wrong=("wrong", "sum"), share=("share", "first"),
    )  # fmt: skip
    several = rows["number"] > 1
    rows.loc[several, "check"] = [f"{name}: {n} checks" for name, n in rows.loc[several, "number"].items()]
    return rows


def headline_checks(table: DataFrame) -> str:
    counts = table["verdict"].value_counts()
    counted = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if verdict in counts)
    return f"{len(table)} check{'s' if len(table) > 1 else ''}: {counted}"
