"""Results of `ptanalyze check`: share of examined items that did not pass, check by check."""

from matplotlib.figure import Figure
from pandas import DataFrame

from .labels import WIDE, broken, rows_high
from .rows import name_rows
from .style import BLUE, GREEN, ORANGE, VERMILION, context, must_have, new_figure, styled, title

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
    title(figure, headline(table))
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


def headline(table: DataFrame) -> str:
    counts = table["verdict"].value_counts()
    counted = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if verdict in counts)
    return f"{len(table)} check{'s' if len(table) > 1 else ''}: {counted}"
