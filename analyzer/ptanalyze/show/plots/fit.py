"""Share of a guest's tables and pages that its host maps: whether two dumps belong together."""

from matplotlib.figure import Figure
from pandas import DataFrame

from .rows import name_rows
from .style import GREEN, ORANGE, VERMILION, context, must_have, new_figure, styled, title

LOOKS = {
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
        ["tables", "pages"], list(LOOKS)
    ]
    total = counts.sum(axis=1)
    figure = new_figure(2.6)
    axis = figure.subplots()
    left = [0.0] * len(counts)
    for outcome, (colour, hatch) in LOOKS.items():
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
