"""Plot of our results beside published figures, row by row."""

import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from pandas import DataFrame

import ptanalyze as pt

from .run import tally

KINDS = {  # ptanalyze_papers.row.KINDS: colour, whether it is evidence
    "law": (pt.style.GREEN, True),
    "page size": (pt.style.YELLOW, True),
    "replayed": (pt.style.BLUE, True),
    "modelled": (pt.style.ORANGE, True),
    "traced small": (pt.style.SKY, True),
    "fitted": (pt.style.PURPLE, False),
    "not reproducible": (pt.style.VERMILION, False),
}
BANDS = ((0.25, "#eeeeee", "within 25 %"), (0.05, "#cccccc", "within 5 %"))
MOST_NAMED = 40  # largest number of rows with a line each
LEAST, MOST = 0.25, 4.0  # ratios beyond are drawn at the edge
TICKS = (0.25, 0.33, 0.5, 0.67, 0.8, 1, 1.25, 1.5, 2, 3, 4)


@pt.style.styled
def validation(table: DataFrame) -> Figure:
    """Ours / published on a logarithmic axis, with bands of 5 and 25 %.

    Up to 40 rows have a line each, with bars for our intervals; more have a line per paper and kind of row.
    Rows without a ratio (bounds, published zeros, no number of ours) are counted below; ratios beyond a
    factor of 4 are at the edge.
    table    of ptanalyze_papers.run.validate, as `ptanalyze validate` prints it
    columns  paper, where, quantity, published, bound, low, ours, high, error (share), holds, kind
    """
    rows = table[(table["bound"] == "") & (table["published"] > 0) & (table["ours"] > 0)]
    pt.style.must_have(len(rows), "no row has a ratio", "see the table for bounds, and reasons of the others")
    several = len(rows) > MOST_NAMED
    parts = ["paper", "kind"] if several else ["where", "quantity"]
    names = rows[parts[0]].str.cat(rows[parts[1]], sep=": ")
    names = names if several else names + ["\N{ZERO WIDTH SPACE}" * k for k in range(len(rows))]
    figure = pt.style.row_figure(names.unique(), 2.2)
    axis = figure.subplots()
    for share, colour, label in BANDS:
        axis.axvspan(1 - share, 1 + share, color=colour, linewidth=0, zorder=0, label=label)
    axis.axvline(1, color=pt.style.BLACK, linewidth=1, zorder=1)
    ratio = rows[["low", "ours", "high"]].div(rows["published"], axis=0).clip(LEAST, MOST)
    if not several:
        axis.hlines(
            range(len(rows)), ratio["low"], ratio["high"], color=pt.style.GREY, linewidth=3, alpha=0.5
        )
    palette = {kind: KINDS[kind][0] for kind in rows["kind"].unique()}
    how = {"jitter": False, "size": 6, "alpha": 0.7, "zorder": 3, "clip_on": False}
    sns.stripplot(x=ratio["ours"], y=names, hue=rows["kind"], palette=palette, ax=axis, **how)
    axis.set(xscale="log", xlim=(LEAST, MOST), xlabel="ours / published (1: equal)", ylabel="")
    axis.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axis.xaxis.set_minor_formatter(NullFormatter())
    pt.style.name_rows(axis, names.unique())
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)
    bounds = table.loc[table["bound"] != "", "holds"]
    left_out = len(table) - len(rows) - len(bounds)
    held = f"{int(bounds.eq(True).sum())} of {len(bounds)} published bounds hold" if len(bounds) else ""
    counted = tally(table)
    of, off = pt.errors.plural(counted["judged"] - counted["small"], "prediction"), counted["median_error"]
    error = f"{of}: median error {100 * off:.0f} % of the effect" if off is not None else of
    beyond = int((rows["ours"].div(rows["published"]) != ratio["ours"]).sum())
    edge = f"{beyond} beyond the edge" if beyond else ""
    without = f"{left_out} without a ratio" if left_out else ""
    return pt.style.finish(figure, table, error, held, without, edge)
