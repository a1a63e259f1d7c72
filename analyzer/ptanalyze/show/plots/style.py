"""Style of all plots: a palette, sizes for slides and print, a title and a line of context."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from io import BytesIO
from itertools import cycle, islice
from textwrap import fill
from typing import Any, Concatenate, ParamSpec

import matplotlib
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from pandas import DataFrame

from ...analysis.leaf_classes import UNTRACED
from ...core.errors import UsageError
from ...core.walks import threads_placed
from .literal import literal_table
from .phone import fit, legend_below, panels_beside
from .room import is_narrow, scaled, width

P = ParamSpec("P")

# Okabe and Ito, Color Universal Design, 2008
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#666666"
SERIES = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK)
NODES = (BLUE, YELLOW, VERMILION, SKY, BLACK, ORANGE, GREEN, PURPLE)  # the first four differ in grey
HATCHES = ("", "///", "...", "xxx")
MARKERS = "osD^vPX<>pdhH8*"
DASHES = ((None, None), (4, 1.5), (1, 1.2), (5, 1.2, 1, 1.2), (2, 1))
CLASSES = {  # vMitosis, Figure 2: colour and hatching of each class
    "Local-Local": (GREEN, ""),
    "Local-Remote": (SKY, "///"),
    "Remote-Local": (ORANGE, "\\\\\\"),
    "Remote-Remote": (VERMILION, "xxx"),
    "Local": (GREEN, ""),
    "Remote": (VERMILION, "xxx"),
}

SIZE, TITLE_SIZE = 10, 12  # points, of the smallest text and of the title
MOST_BESIDE, SHORT, LINE = 22, 30, 0.235  # entries, characters and inches of a line, of legends
TITLE_CHARACTERS, CONTEXT_CHARACTERS = 84, 116
FREE_LINES = 2  # of a context; for each more the figure is a LINE higher
LOOK: dict[Any, Any] = {
    **sns.axes_style("whitegrid"),
    "font.size": SIZE,
    "font.family": "DejaVu Sans",
    "axes.labelsize": SIZE,
    "axes.titlesize": SIZE,
    "xtick.labelsize": SIZE,
    "ytick.labelsize": SIZE,
    "legend.fontsize": SIZE,
    "legend.title_fontsize": SIZE,
    "legend.frameon": False,
    "figure.titlesize": TITLE_SIZE,
    "figure.titleweight": "bold",
    "hatch.linewidth": 0.6,
    "grid.color": "#dddddd",
    "axes.edgecolor": "#999999",
}


def styled(draw: Callable[Concatenate[DataFrame, P], Figure]) -> Callable[Concatenate[DataFrame, P], Figure]:
    """The plot in the package's style, laid out; pyplot's settings elsewhere stay as they are."""

    @wraps(draw)
    def inside(table: DataFrame, /, *args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(LOOK):
            figure = draw(literal_table(table), *args, **kwargs)
            FigureCanvasAgg(figure)
            if is_narrow():
                fit(figure)
            if engine := figure.get_layout_engine():
                engine.execute(figure)
        return figure

    return inside


class Plot(Figure):
    """A Figure that a notebook shows with any backend; as text it is its title."""

    def __repr__(self) -> str:
        return " ".join(self.get_suptitle().split()) or super().__repr__()

    def _repr_png_(self) -> bytes:
        return png(self)


def png(figure: Figure) -> bytes:
    file = BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def new_figure(height: float) -> Figure:
    """An empty Figure, room.width() by `height` inches."""
    return Plot(figsize=(width(), height), dpi=120, layout="constrained")


def title(figure: Figure, text: str) -> None:
    text = re.sub(r" (%|[KMG]iB)", "\N{NO-BREAK SPACE}\\1", text)
    figure.suptitle(fill(text, scaled(TITLE_CHARACTERS), break_on_hyphens=False), x=0.01, ha="left")


def context(figure: Figure, table: DataFrame, *more: str) -> None:
    """A grey line below: the capture's name, the machine, the placement of threads, and `more`.

    For results without a trace, their note instead of the placement.
    """
    provenance, notes = table.attrs.get("provenance", {}), table.attrs.get("notes", [])
    untraced = [note for note in notes if note.startswith(UNTRACED)]
    parts = [provenance["capture"].rstrip("/").rpartition("/")[2]] if "capture" in provenance else []
    parts += [provenance["machine"]] if "machine" in provenance else []
    parts += untraced or ([threads_placed(provenance["placement"])] if "placement" in provenance else [])
    parts += ["as traced, caches empty at first"] * any(note.startswith("as traced:") for note in notes)
    text = "; ".join([*parts, *(part for part in more if part)])
    if text:
        lines = fill(text, scaled(CONTEXT_CHARACTERS), break_on_hyphens=False)
        figure.supxlabel(lines, x=0.01, ha="left", fontsize=SIZE, color=GREY)
        figure.set_figheight(figure.get_figheight() + max(lines.count("\n") + 1 - FREE_LINES, 0) * LINE)


def legend_beside(axis: Axes, handles: Any = None, labels: Any = None, heading: str | None = None) -> None:
    """A legend to the right of the axes, where it hides nothing; long legends are above. The figure grows.

    Of a narrow figure it is below everything.
    """
    if handles is None:
        handles, labels = axis.get_legend_handles_labels()
    figure = axis.figure
    beside = len(handles) <= MOST_BESIDE and not is_narrow()
    longest = max((len(line) for label in labels for line in label.split("\n")), default=0)
    columns = 1 if beside else 3 if longest <= SHORT else 2
    if is_narrow():
        columns = (
            2 if longest <= SHORT / 2 and isinstance(figure, Figure) and panels_beside(figure) == 1 else 1
        )
    high = LINE * (bool(heading) + sum(1 + label.count("\n") for label in labels) / columns)
    how: dict[str, Any] = {"title": heading, "ncols": columns, "borderaxespad": 0, "alignment": "left"}
    if is_narrow() and isinstance(figure, Figure):
        legend_below(figure, handles, labels, **how)
    elif beside:
        axis.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1.02), **how)
    else:
        axis.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1.005), **how)
    if isinstance(figure, Figure):
        now = figure.get_figheight()
        figure.set_figheight(max(now, 1.6 + high) if beside else now + high)


def must_have(there: bool, what: str, way_out: str) -> None:
    """UsageError for a table that has nothing to draw."""
    if not there:
        raise UsageError(f"nothing to draw: {what}: {way_out}")


def node_looks(nodes: Iterable[int]) -> dict[int, tuple[str, str]]:
    """{node: (colour, hatching)}, hatched only if there are more than four; unknown (-1) is grey.

    Beyond eight distinct colours: a colour scale, dark to light, that is even in grey, too.
    """
    known = list(nodes)
    many = max(known, default=0) + 1
    scale = matplotlib.colormaps["cividis"].resampled(max(many, 2))
    by_node = {}
    for node in known:
        colour = NODES[node % len(NODES)] if many <= len(NODES) else to_hex(scale(node))
        by_node[node] = (GREY, "...") if node < 0 else (colour, HATCHES[node // 4 % len(HATCHES)])
    return by_node


def node_named(node: int) -> str:
    return "unknown" if node < 0 else f"node {node}"


def ink(colour: str) -> str:
    """Black or white, whichever can be read on the colour."""
    red, green, blue = to_rgb(colour)
    return BLACK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.45 else "#ffffff"


def looks(count: int) -> Iterator[tuple[str, str]]:
    """(colour, marker) of each of `count` series; distinct up to 105."""
    return islice(zip(cycle(SERIES), cycle(MARKERS), strict=False), count)


def binary_unit(most: float) -> tuple[float, str]:
    """(bytes, name) of a binary unit that shows `most` bytes in few digits."""
    for power, name in ((3, "GiB"), (2, "MiB")):
        if most >= 2 * 1024**power:
            return float(1024**power), name
    return 1024.0, "KiB"
