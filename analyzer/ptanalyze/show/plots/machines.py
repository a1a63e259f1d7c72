"""Memory latencies of each machine: local, remote, and remote under load."""

from matplotlib.figure import Figure
from pandas import DataFrame

from .labels import WIDE, broken
from .rows import name_rows
from .style import BLACK, GREY, VERMILION, context, must_have, new_figure, styled, title

LATENCIES = {  # name, colour, marker
    "local_ns": ("local", BLACK, "o"),
    "remote_ns": ("remote", VERMILION, "D"),
    "contended_ns": ("remote, contended", GREY, "^"),
}


@styled
def machines(table: DataFrame) -> Figure:
    """A line per machine, its latencies of a DRAM read as markers: local, remote, remote and contended.

    Remote is the mean of all pairs of nodes; contended, under load of the interconnect, if the file has it.

    table    api.machines'
    columns  machine, nodes, local_ns, remote_ns, contended_ns
    """
    must_have(bool(len(table)), "no machine", "name a machine")
    figure = new_figure(1.9 + 0.5 * len(table))
    axis = figure.subplots()
    at = range(len(table))
    axis.hlines(
        at, table["local_ns"], table[list(LATENCIES)].max(axis=1), color="#999999", linewidth=2, zorder=1
    )
    for column, (name, colour, marker) in LATENCIES.items():
        axis.plot(table[column], at, marker, color=colour, markersize=9, label=name)
    axis.set_xlim(0, None)
    axis.set_xlabel("ns per read from DRAM; right: remote / local")
    names = [
        f"{broken(name, WIDE)}\n{n} nodes" for name, n in zip(table["machine"], table["nodes"], strict=True)
    ]
    times = table["remote_ns"] / table["local_ns"]
    name_rows(axis, names, ["" if ratio != ratio else f"{ratio:.1f}×" for ratio in times])
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=3, borderaxespad=0)
    title(figure, headline(table))
    context(figure, table)
    return figure


def headline(table: DataFrame) -> str:
    times = table["remote_ns"] / table["local_ns"]
    if times.isna().all():
        return "Machines of one node: all memory is local"
    low, high = times.min(), times.max()
    span = f"{low:.1f} times" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f} times"
    return f"A read from a remote node takes {span} as long as a local one"
