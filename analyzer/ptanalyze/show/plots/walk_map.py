"""Heat map of walks: which memory is walked when."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, StrMethodFormatter
from pandas import DataFrame

from ...world.address_space import NO_VMA
from .pointed import AROUND, point_labels
from .spots import note
from .style import GREY, context, must_have, new_figure, styled, title
from .vma_names import vma_names

HIGH = 4.4  # inches
NAMED, LEAST_NAMED = 8, 0.02  # the most VMAs that are named, and their least share of the walks
TICKS = 6  # addresses of rows within VMAs
LINE = 0.22  # inches between two addresses
LONG = 10_000  # ms, from there seconds are shown
LOGARITHMIC = 30  # the most over the fewest walks: from there a logarithmic scale


@styled
def walk_map(table: DataFrame) -> Figure:
    """Walks in each window of time, a row per piece of memory; memory without walks is left out.

    The VMAs that walk most are named on the right.
    table    ptanalyze.walk_map's
    columns  start (address), vma, time_ns, walks
    """
    must_have(bool(len(table) and table["walks"].sum()), "no walks", "lengthen the trace")
    windows = int(table["start"].value_counts().iloc[0])
    walks = table["walks"].to_numpy().reshape(-1, windows)
    start, vma = table["start"].to_numpy()[::windows], table["vma"].to_numpy()[::windows]
    times = table["time_ns"].to_numpy()[:windows] / 1e6
    timed = bool(times.any())
    unit, times = ("s", times / 1e3) if times[-1] >= LONG else ("ms", times)
    edges = np.concatenate([[0.0], times]) if timed else np.arange(windows + 1.0)
    figure = new_figure(HIGH)
    axis = figure.subplots()
    names = vma_names(vma)
    draw(figure, axis, walks, edges)
    axis.set_xlabel(f"{unit} since the trace began" if timed else "time, in windows of equal walks")
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.set_ylabel("address (hexadecimal)")
    named = most_walked(vma, walks.sum(axis=1))
    name_vmas(axis, vma, named, names, float(edges[-1]))
    addresses(axis, start, vma, named)
    answers(axis, table, walks.sum(axis=1), names)
    title(figure, headline(vma, walks, names))
    context(figure, table, "memory that no walk leads to is left out")
    return figure


def draw(figure: Figure, axis: Axes, walks: np.ndarray, edges: np.ndarray) -> None:
    least, most = float(walks[walks > 0].min()), float(walks.max())
    norm = LogNorm(least, most) if most > LOGARITHMIC * least else Normalize(0, most)
    shown = np.ma.masked_equal(walks, 0)
    extent = (0.0, float(edges[-1]), float(len(walks)), 0.0)
    image = axis.imshow(
        shown, cmap="YlOrRd", norm=norm, aspect="auto", interpolation="nearest", extent=extent
    )
    axis.grid(False)
    what = "walks per row and window"
    bar = figure.colorbar(image, ax=axis, location="bottom", label=what, aspect=40, shrink=0.6)
    bar.formatter = FuncFormatter(lambda value, _: f"{value:,g}")
    bar.minorformatter = NullFormatter()


def most_walked(vma: np.ndarray, walks: np.ndarray) -> dict[str, float]:
    """{VMA: its share of the walks} of those with the largest, and of the largest in any case."""
    total = {one: float(walks[vma == one].sum() / walks.sum()) for one in dict.fromkeys(vma)}
    ranked = sorted(total, key=lambda one: -total[one])[:NAMED]
    return {one: total[one] for k, one in enumerate(ranked) if not k or total[one] >= LEAST_NAMED}


def name_vmas(
    axis: Axes, vma: np.ndarray, most: dict[str, float], names: dict[str, str], right: float
) -> None:
    """The VMAs of most walks, at the middles of their rows, each between two lines."""
    rows = {one: np.flatnonzero(vma == one) for one in most}
    edges = {edge for of in rows.values() for edge in (of.min(), of.max() + 1)} - {0, len(vma)}
    for edge in edges:
        axis.axhline(float(edge), color=GREY, linewidth=0.6, alpha=0.6)
    labels = [f"{share(of)} {names[one]}" for one, of in most.items()]
    middles = [float(np.median(of)) + 0.5 for of in rows.values()]
    point_labels(axis, labels, [right] * len(most), middles)


def addresses(axis: Axes, start: np.ndarray, vma: np.ndarray, most: dict[str, float]) -> None:
    """First addresses at the edges of rows: of VMAs that are named, then of others where there is room."""
    figure = axis.figure
    assert isinstance(figure, Figure)
    apart = len(start) * LINE / max(figure.get_figheight() - AROUND, LINE)
    first = [int(np.flatnonzero(vma == one)[0]) for one in most]
    others = [0, *np.flatnonzero(vma[1:] != vma[:-1]) + 1, *range(0, len(start), max(len(start) // TICKS, 1))]
    rows: list[int] = []
    for row in map(int, (*first, *others)):
        if all(abs(row - other) >= apart for other in rows):
            rows.append(row)
    axis.set_yticks(sorted(rows), [f"{int(start[k]):x}" for k in sorted(rows)])


def share(of: float) -> str:
    return f"{100 * of:.0f}\N{NO-BREAK SPACE}%" if of >= 0.005 else "<\N{NO-BREAK SPACE}1\N{NO-BREAK SPACE}%"


def answers(axis: Axes, table: DataFrame, walks: np.ndarray, names: dict[str, str]) -> None:
    rows = table.drop_duplicates("start")
    for k, (start, vma, count) in enumerate(zip(rows["start"], rows["vma"], walks, strict=True)):
        says = f"{names[vma]}, from {int(start):#x}: {count:,} walks, {100 * count / walks.sum():.2g} %"
        note(axis, says, axis.get_xlim(), (k, k + 1))


def headline(vma: np.ndarray, walks: np.ndarray, names: dict[str, str]) -> str:
    total = {one: int(walks[vma == one].sum()) for one in names}
    most = max(total, key=lambda one: total[one])
    if most == NO_VMA:
        return f"{100 * total[most] / walks.sum():.0f} % of walks go to {names[most]}"
    of = "the only VMA" if len(total) == 1 else f"one of {len(total)} VMAs"
    return f"{100 * total[most] / walks.sum():.0f} % of walks go to {of}: {names[most]}"
