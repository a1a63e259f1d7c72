"""Heat map of walks: which memory is walked when."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from pandas import DataFrame

from .pointed import point_labels
from .spots import note
from .style import context, must_have, new_figure, styled, title
from .vma_names import vma_names

HIGH = 4.4  # inches
NAMED, TICKS = 8, 5  # the most VMAs that are named, and addresses
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
    edges = np.concatenate([[0.0], times]) if timed else np.arange(windows + 1.0)
    figure = new_figure(HIGH)
    axis = figure.subplots()
    names = vma_names(vma)
    draw(figure, axis, walks, edges)
    axis.set_xlabel("ms since the trace began" if timed else "time, in windows of equal walks")
    ticks = np.unique(np.linspace(0, len(start) - 1, min(TICKS, len(start))).astype(int))
    axis.set_yticks(ticks + 0.5, [f"{int(start[k]):#x}" for k in ticks])
    name_vmas(axis, vma, walks.sum(axis=1), names, float(edges[-1]))
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
    bar = figure.colorbar(image, ax=axis, location="bottom", label="walks", aspect=40, shrink=0.6)
    bar.formatter = FuncFormatter(lambda value, _: f"{value:,g}")
    bar.minorformatter = NullFormatter()


def name_vmas(axis: Axes, vma: np.ndarray, walks: np.ndarray, names: dict[str, str], right: float) -> None:
    """The VMAs of most walks, at the middles of their rows."""
    total = {one: walks[vma == one].sum() for one in names}
    most = sorted(names, key=lambda one: -total[one])[:NAMED]
    middles = [float(np.flatnonzero(vma == one).mean()) + 0.5 for one in most]
    labels = [f"{share(total[one] / walks.sum())} {names[one]}" for one in most]
    point_labels(axis, labels, [right] * len(most), middles)


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
    of = "the only VMA" if len(total) == 1 else f"one of {len(total)} VMAs"
    return f"{100 * total[most] / walks.sum():.0f} % of walks go to {of}: {names[most]}"
