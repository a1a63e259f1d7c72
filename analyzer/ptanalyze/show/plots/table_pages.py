"""Number of table pages at each level, by NUMA node."""

from matplotlib.figure import Figure
from pandas import DataFrame

from .rows import name_rows
from .style import context, must_have, new_figure, node_looks, node_named, styled, title

COLUMNS = 6  # of the legend
LEAST_WRITTEN = 6  # per cent, smallest share written into its bar


@styled
def table_pages(table: DataFrame) -> Figure:
    """A bar per tree and level, root on top: share of table pages on each node; their number to the right.

    Tables of the tracer are left out.
    table    api.page_tables'
    columns  dimension, level, node, tracers
    """
    table = table[~table["tracers"]]
    must_have(bool(len(table)), "no table page", "dump page tables with `ptanalyze dump`")
    counts = (
        table.groupby(["dimension", "level", "node"], sort=False, observed=True).size().unstack(fill_value=0)
    )
    order = {name: k for k, name in enumerate(dict.fromkeys(table["dimension"]))}
    counts = counts.loc[
        sorted(counts.index, key=lambda key: (order[key[0]], -key[1])), sorted(counts.columns)
    ]
    total = counts.sum(axis=1)
    figure = new_figure(1.8 + 0.36 * len(counts) + 0.235 * (len(counts.columns) // COLUMNS))
    axis = figure.subplots()
    at, left = range(len(counts)), [0.0] * len(counts)
    for node, (colour, hatch) in node_looks(counts.columns).items():
        widths = (100 * counts[node] / total).tolist()
        bars = axis.barh(
            at,
            widths,
            left=left,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            height=0.8,
            label=node_named(node),
        )
        written = [f"{width:.0f}" if width >= LEAST_WRITTEN else "" for width in widths]
        for text in axis.bar_label(bars, written, label_type="center"):
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1})
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.set_xlim(0, 100)
    axis.set_xlabel("% of the level's table pages; right: their number")
    names = [f"{name} L{level}" for name, level in counts.index]
    name_rows(axis, names, [f"{n:,}" for n in total], lines=False)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=COLUMNS, borderaxespad=0)
    title(figure, headline(counts.groupby(level=0, sort=False).sum()))
    context(figure, table)
    return figure


def headline(counts: DataFrame) -> str:
    """Number of pages of each tree, and the node with the most."""
    texts = []
    for name, of in counts.iterrows():
        most = int(of.idxmax())
        what = "page table" if name == "PT" else name
        texts.append(f"{what}: {of.sum():,} pages, {100 * of[most] / of.sum():.0f} % on {node_named(most)}")
    return "; ".join(texts)
