"""Cost of each degree of prefetching and each sharing tier, all VMAs together."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from .style import BLACK, DASHES, context, legend_beside, looks, must_have, new_figure, styled, title

ONE = "one"
NAMES = {"socket": "a copy per socket", "node": "a copy per node"}


@styled
def degrees(table: DataFrame) -> Figure:
    """Cycles of walks and upkeep over those with one copy, by degree; a line per tier.

    Dashed: the best tier and degree of each VMA. Dotted: the bound, prefetching that knows the walks to come.
    table    ptanalyze.degrees's
    columns  vma, tier, degree, cycles, bound_cycles, chosen
    """
    one = float(table.loc[table["tier"] == ONE, "cycles"].sum())
    must_have(one > 0, "no walks that cost anything", "lengthen the trace")
    total = 100 * table.groupby(["tier", "degree"], sort=False)["cycles"].sum() / one
    best = 100 * float(table.loc[table["chosen"], "cycles"].sum()) / one
    least = 100 * float(table.drop_duplicates("vma")["bound_cycles"].sum()) / one
    figure = new_figure(5.0)
    axis = figure.subplots()
    tiers = [tier for tier in NAMES if tier in total.index.get_level_values("tier")]
    for (colour, marker), tier in zip(looks(len(tiers)), tiers, strict=True):
        line = total[tier]
        axis.plot(line.index.astype(int), line, color=colour, marker=marker, linewidth=1.8, label=NAMES[tier])
    level(axis, 100.0, "one copy", 0)
    level(axis, best, "best of each VMA", 1)
    level(axis, least, "bound", 2)
    if total.max() > 5 * least > 0:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("{x:g}")
    axis.set_xticks(range(10))
    axis.set_xlabel("prefetch degree d (a fault copies up to 2^d entries)")
    axis.set_ylabel("% of one copy's cycles")
    legend_beside(axis)
    title(figure, table.attrs.get("sentence", "").partition(". ")[0] or "Cost of each degree")
    context(figure, table)
    return figure


def level(axis: Axes, at: float, name: str, k: int) -> None:
    (line,) = axis.plot([0, 9], [at, at], color=BLACK, linewidth=1.2, label=name)
    if k:
        line.set_dashes([dash for dash in DASHES[k] if dash is not None])
