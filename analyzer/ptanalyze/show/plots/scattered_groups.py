"""Mean ePT cache lines per gPT cache line, a bar per VMA: PTEMagnet (ASPLOS '21), section 3.2."""

from matplotlib.figure import Figure
from pandas import DataFrame

from .labels import WIDE, broken, rows_high
from .rows import name_rows
from .style import BLUE, ORANGE, context, new_figure, title
from .vma_names import vma_names

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
        means = [mean(sums, group, state) for group in groups]
        at = [row + (k - (len(states) - 1) / 2) * thick for row in range(len(groups))]
        axis.barh(at, means, thick, color=COLOURS[state], label=state)
    axis.set_xlim(0, 8)
    axis.set_xlabel("mean ePT cache lines per gPT cache line (1: in one, 8: scattered)")
    name_rows(axis, names, [f"{before[group]:,}" for group in groups])
    if len(states) > 1:
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=2, borderaxespad=0)
    worst = max(groups, key=lambda group: mean(sums, group, "before"))
    title(figure, f"Most scattered: {named[worst]}, {mean(sums, worst, 'before'):.2f} lines")
    left = len(before) - len(groups)
    more = f"; {left:,} smaller groups are not shown" if left else ""
    context(figure, table, f"on the right: gPT cache lines{more}")
    return figure


def mean(sums: DataFrame, group: object, state: str) -> float:
    if (group, state) not in sums.index:
        return 0.0
    row = sums.loc[(group, state)]
    return float(row["weighted"] / row["count"])
