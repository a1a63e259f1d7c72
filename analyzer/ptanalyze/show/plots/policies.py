"""Targets and needs of each policy: a matrix of dots."""

from matplotlib.figure import Figure
from pandas import DataFrame

from .labels import WIDE, broken, rows_high
from .style import BLUE, ORANGE, context, must_have, new_figure, styled, title

SIDES = {"acts_on": ("acts on", BLUE, "o"), "needs": ("needs", ORANGE, "s")}


@styled
def policies(table: DataFrame) -> Figure:
    """A row per policy; dots for its targets, squares for its needs besides page tables.

    Policies without a dot in the same column go together (A+B).
    table    api.policies'
    columns  policy, acts_on, needs
    """
    must_have(bool(len(table)), "no policy", "name a policy")
    columns = [(side, word) for side in SIDES for word in words(table, side)]
    names = [broken(name, WIDE) for name in table["policy"]]
    figure = new_figure(2.8 + rows_high(names))
    axis = figure.subplots()
    for x, (side, word) in enumerate(columns):
        _, colour, marker = SIDES[side]
        has = [y for y, listed in enumerate(table[side]) if word in listed.split(", ")]
        axis.plot([x] * len(has), has, marker, color=colour, markersize=10, label=SIDES[side][0])
    axis.set_xticks(range(len(columns)), [broken(word, 16) for _, word in columns], rotation=90)
    axis.set_xlim(-0.6, len(columns) - 0.4)
    axis.set_yticks(range(len(table)), names)
    axis.set_ylim(len(table) - 0.5, -0.5)
    axis.tick_params(length=0)
    handles, labels = axis.get_legend_handles_labels()
    shown = dict(zip(labels, handles, strict=True))
    axis.legend(shown.values(), shown, loc="lower left", bbox_to_anchor=(0, 1.005), ncols=2, borderaxespad=0)
    title(figure, headline(table))
    context(figure, table, "policies that act on different things go together: A+B")
    return figure


def words(table: DataFrame, side: str) -> list[str]:
    """Words in a column of the table, the most frequent first."""
    listed = table[side].str.split(", ").explode()
    return [word for word in listed[listed != ""].value_counts().index.tolist()]


def headline(table: DataFrame) -> str:
    needy = int((table["needs"] != "").sum())
    text = f"{len(table)} polic{'ies' if len(table) > 1 else 'y'}"
    return (
        f"{text}, {needy} of them need{'s' * (needy == 1)} more than page tables"
        if needy
        else f"{text}: page tables are enough"
    )
