"""Page tables of the processes of a host, by node."""

from matplotlib.figure import Figure
from pandas import DataFrame

from .rows import name_rows
from .style import binary_unit, must_have, new_figure, node_looks, node_named, styled, title

MOST = 20  # processes
COLUMNS = 6  # of the legend
PAGE = 4096


@styled
def survey(table: DataFrame) -> Figure:
    """A bar per process, the worst on top: its leaf tables on each node; right: the expected remote share.

    table    that of `ptanalyze survey`, of which the first 20 rows are drawn
    columns  pid, name, leaf_tables ("node:pages ..."), remote_share
    """
    table = table[table["leaf_tables"] != ""].head(MOST)
    must_have(bool(len(table)), "no process with leaf tables", "run it as root")
    counts = DataFrame([pages_of(text) for text in table["leaf_tables"]]).fillna(0)
    counts = counts[sorted(counts.columns)] * PAGE
    unit, name = binary_unit(float(counts.sum(axis=1).max()))
    figure = new_figure(1.8 + 0.36 * len(counts))
    axis = figure.subplots()
    at, left = range(len(counts)), [0.0] * len(counts)
    for node, (colour, hatch) in node_looks(counts.columns).items():
        widths = (counts[node] / unit).tolist()
        axis.barh(
            at, widths, left=left, color=colour, hatch=hatch, edgecolor="white", height=0.8,
            label=node_named(node),
        )  # fmt: skip
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.set_xlim(0, 1.03 * max(left))
    axis.set_xlabel(f"{name} of leaf tables; right: share of walks expected to be remote")
    shares = [
        "" if share != share else f"{100 * share:.0f} %" for share in table["remote_share"].astype(float)
    ]
    names = [f"{comm} {pid}" for comm, pid in zip(table["name"], table["pid"], strict=True)]
    name_rows(axis, names, shares, lines=False)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=COLUMNS, borderaxespad=0)
    title(figure, headline(table))
    return figure


def pages_of(text: str) -> dict[int, int]:
    return {int(node): int(count) for node, count in (part.split(":") for part in text.split())}


def headline(table: DataFrame) -> str:
    worst = table.iloc[0]
    if not worst["remote_share"] > 0:
        return "No leaf table is expected to be remote to the threads that walk it"
    share = f"{100 * worst['remote_share']:.0f} %"
    return f"Of the walks of {worst['name']}, {share} are expected to read remote leaf tables"
