"""Roofline of a page walker: walks per second over DRAM reads per walk, below the machine's ceilings."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from .labels import policy_labels
from .pointed import point_labels
from .room import is_narrow
from .spots import note
from .style import BLACK, BLUE, GREY, VERMILION, context, must_have, new_figure, styled, title

CEILINGS = {
    "local_ns": ("all local", BLACK, "-"),
    "remote_ns": ("all remote", VERMILION, "--"),
    "contended_ns": ("all remote, contended", GREY, ":"),
}


@styled
def roofline(table: DataFrame) -> Figure:
    """A marker per policy: DRAM reads per walk, and walks per second of a walker that does nothing else.

    After the roofline of Williams et al. (CACM 2009). A walk's reads wait for each other, so it takes
    (reads - DRAM reads) * cached + DRAM reads * latency. The ceilings are this for the baseline's reads per
    walk, with all DRAM reads local, remote, or remote under load of the interconnect, by the machine file. A
    policy with fewer reads per walk (shadow) may be above them; one that walks no more has no marker.
    table    ptanalyze.whatif's, with attrs["machine"]
    columns  policy, params, baseline, walks, dram_reads_per_walk, reads_per_walk, cycles_per_walk;
             attrs machine
    """
    machine: dict[str, Any] = table.attrs.get("machine", {})
    walked = table["policy"][table["walks"] > 0].isin(table["baseline"])
    must_have(bool(walked.any()), "the baseline does not walk", "lengthen the trace")
    must_have(bool(machine), "the table has no latencies of its machine", "use a table of ptanalyze.whatif")
    table = table.drop_duplicates(["policy", "params"])
    table = table[table["walks"] > 0]
    x = table["dram_reads_per_walk"].to_numpy()
    y = walks_per_second(table["cycles_per_walk"].to_numpy(), machine)
    figure = new_figure(5.0)
    axis = figure.subplots()
    base = table[table["policy"] == table["baseline"]].iloc[0]
    most = max(float(x.max()) * 1.15, 1e-3)
    ceilings(axis, float(base["reads_per_walk"]), machine, most)
    names = policy_labels(table).tolist()
    columns = 1 if is_narrow() else 3
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=columns, borderaxespad=0)
    for name, a, b in zip(names, x, y, strict=True):
        axis.plot(
            a, b, "o", color=BLUE, markersize=9, markeredgewidth=1.6, markerfacecolor="none", label=name
        )
    axis.set_xlim(0, most)
    axis.set_ylim(0, None)
    point_labels(axis, names, x.tolist(), y.tolist())
    for name, a, b in zip(names, x, y, strict=True):
        note(axis, f"{name}: {b:.1f} million walks per second, {a:.2f} DRAM reads per walk", (a, a), (b, b))
    axis.set_xlabel("page-table reads from DRAM per walk")
    axis.set_ylabel("million walks per second and walker")
    title(figure, headline(base, machine))
    context(
        figure, table, f"ceilings: {base['reads_per_walk']:.2f} reads per walk, as under {base['policy']}"
    )
    return figure


def walks_per_second(cycles: Any, machine: dict[str, Any]) -> Any:
    """Millions, for cycles per walk."""
    return machine["ghz"] * 1e3 / cycles


def ceiling(reads: float, dram: Any, latency_ns: float, machine: dict[str, Any]) -> Any:
    """Millions of walks per second with `dram` of `reads` reads per walk from DRAM."""
    cached = np.maximum(reads - dram, 0) * machine["cached_cycles"]
    return walks_per_second(cached + dram * latency_ns * machine["ghz"], machine)


def ceilings(axis: Axes, reads: float, machine: dict[str, Any], most: float) -> None:
    dram = np.linspace(0, most, 200)
    for key, (name, colour, line) in CEILINGS.items():
        if machine[key] is not None:
            axis.plot(
                dram,
                ceiling(reads, dram, machine[key], machine),
                line,
                color=colour,
                linewidth=1.4,
                label=name,
            )


def headline(base: Any, machine: dict[str, Any]) -> str:
    now = walks_per_second(base["cycles_per_walk"], machine)
    best = ceiling(base["reads_per_walk"], base["dram_reads_per_walk"], machine["local_ns"], machine)
    return (
        f"A walker does at most {now:.1f} million walks per second under {base['policy']}, "
        f"{best:.1f} million if all its DRAM reads were local"
    )
