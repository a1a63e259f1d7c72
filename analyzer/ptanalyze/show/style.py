"""Style of all plots: palette, figures with title and context, rows, legends, names, and figures as files."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from io import BytesIO
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import Any, Concatenate, Literal, ParamSpec

import matplotlib
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from pandas import DataFrame, Series

from ..core.columns import COLD, UNTRACED
from ..core.errors import UsageError, printable
from ..core.trace import threads_placed
from ..formats.atomic import atomic_write, must_be_writable
from ..policies import BOUND, label

# Okabe and Ito, Color Universal Design, 2008
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#666666"
SERIES = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK)
NODES = (BLUE, YELLOW, VERMILION, SKY, BLACK, ORANGE, GREEN, PURPLE)  # the first four differ in grey
MARKERS = "osD^vPX<>pdhH8*"
CLASSES = {  # vMitosis, Figure 2: colour and hatching of each class
    "Local-Local": (GREEN, ""),
    "Local-Remote": (SKY, "///"),
    "Remote-Local": (ORANGE, "\\\\\\"),
    "Remote-Remote": (VERMILION, "xxx"),
    "Local": (GREEN, ""),
    "Remote": (VERMILION, "xxx"),
}

WIDTH = 9.0  # inches, for a slide or a page
SIZE = 10  # points, of the smallest text
ROW, LINE = 0.36, 0.235  # inches: of a row of a plot, of a line of text
NAME, TITLE, CONTEXT = 32, 84, 116  # characters in a line of a row's name, of the title, of the context
LOOK: dict[Any, Any] = {
    **sns.axes_style("whitegrid"),
    "font.size": SIZE,
    "font.family": "DejaVu Sans",
    "text.parse_math": False,  # a "$" in a capture's name begins no formula
    "axes.labelsize": SIZE,
    "axes.titlesize": SIZE,
    "xtick.labelsize": SIZE,
    "ytick.labelsize": SIZE,
    "legend.fontsize": SIZE,
    "legend.title_fontsize": SIZE,
    "legend.frameon": False,
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "hatch.linewidth": 0.6,
    "grid.color": "#dddddd",
    "axes.edgecolor": "#999999",
}

P = ParamSpec("P")


def printable_texts(value: Any) -> Any:
    """The text, or the texts in a dict or list, printable; other values as they are."""
    if isinstance(value, dict):
        return {key: printable_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [printable_texts(item) for item in value]
    return printable(value) if isinstance(value, str) else value


def styled(draw: Callable[Concatenate[DataFrame, P], Figure]) -> Callable[Concatenate[DataFrame, P], Figure]:
    """The plot in the package's style, of printable texts, laid out; pyplot's settings stay as they are."""

    @wraps(draw)
    def inside(table: DataFrame, /, *args: P.args, **kwargs: P.kwargs) -> Figure:
        texts = [name for name, of in table.dtypes.items() if of.kind not in "biuf"]
        bare = DataFrame(table)  # pandas copies attrs with each slice: what plots need of them
        shown = bare.assign(**{name: bare[name].map(printable_texts) for name in texts})
        shown.attrs = printable_texts({key: of for key, of in table.attrs.items() if key != "units"})
        with matplotlib.rc_context(LOOK):
            figure = draw(shown, *args, **kwargs)
            FigureCanvasAgg(figure)
            if engine := figure.get_layout_engine():
                engine.execute(figure)
        return figure

    return inside


class Plot(Figure):
    """A Figure that a notebook shows with any backend; as text it is its title."""

    def __repr__(self) -> str:
        return " ".join(self.get_suptitle().split()) or super().__repr__()

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty Figure, `width` by `height` inches."""
    return Plot(figsize=(width, height), dpi=120, layout="constrained")


def must_have(there: object, what: str, way_out: str) -> None:
    """UsageError for a table that has nothing to draw."""
    if not there:
        raise UsageError(f"nothing to draw: {what}: {way_out}")


def finding(table: DataFrame, *codes: str) -> str:
    """Text of the first of a table's findings that has one of these codes; "" none."""
    return next((str(one["text"]) for one in table.attrs.get("findings", []) if one["code"] in codes), "")


def finish(figure: Figure, table: DataFrame, title: str, *more: str) -> Figure:
    """The Figure with its title and, below it in grey, the capture's name, the machine, the placement of
    threads (without a trace, what pages count by) and `more`."""
    text = re.sub(r" (%|[KMG]iB)", "\N{NO-BREAK SPACE}\\1", title)
    title_width, context_width = (int(n * figure.get_figwidth() / WIDTH) for n in (TITLE, CONTEXT))
    figure.suptitle(fill(text, title_width, break_on_hyphens=False), x=0.01, ha="left")
    provenance, untraced = table.attrs.get("provenance", {}), finding(table, *UNTRACED)
    threads = threads_placed(provenance["placement"]) if "placement" in provenance else ""
    parts = [
        provenance.get("capture", "").rstrip("/").rpartition("/")[2],
        provenance.get("machine", ""),
        untraced or threads,
        "as traced, caches empty at first" if finding(table, COLD) else "",
        *more,
    ]
    if below := "; ".join(filter(None, parts)):
        lines = fill(below, context_width, break_on_hyphens=False)
        figure.supxlabel(lines, x=0.01, ha="left", fontsize=SIZE, color=GREY)
        figure.set_figheight(figure.get_figheight() + LINE * lines.count("\n"))
    return figure


# Rows of a plot, from the top: names on the left, numbers on the right.


def row_figure(names: Sequence[str], height: float = 1.8, width: float = WIDTH) -> Figure:
    """An empty Figure for a row for each name, with `height` inches for all that is above and below them."""
    lines = [1 + broken(name, NAME).count("\n") for name in names]
    return new_figure(height + sum(max(ROW, 0.2 * count) for count in lines), width)


def name_rows(axis: Axes, names: Sequence[str], numbers: Sequence[str] = ()) -> None:
    """Names, and numbers, of rows 0, 1, ... from the top."""
    beside = [(axis, [broken(name, NAME) for name in names])]
    beside += [(axis.twinx(), list(numbers))] if len(numbers) else []
    for side, texts in beside:
        side.set_yticks(range(len(texts)), texts)
        side.set_ylim(len(texts) - 0.5, -0.5)
        side.tick_params(axis="y", length=0)
        side.grid(False, axis="y")


def legend_beside(axis: Axes, **more: Any) -> None:
    """A legend to the right of the axes, where it hides nothing; the figure is as high as it needs."""
    legend = axis.legend(loc="upper left", bbox_to_anchor=(1, 1.02), alignment="left", **more)
    figure, lines = axis.figure, sum(1 + text.get_text().count("\n") for text in legend.get_texts())
    if isinstance(figure, Figure):
        figure.set_figheight(max(figure.get_figheight(), 1.6 + LINE * lines))


# Axes of ratios: logarithmic where they span too much for a linear axis.

MOST_LINEAR = 5.0  # the largest over the smallest


def fitted(axes: Axes, side: Literal["x", "y"], ratios: Iterable[float], beside: float = 0.01) -> None:
    """Make the x or y axis logarithmic if the ratios, all above 0, span more than MOST_LINEAR; it shows at
    least 1 - `beside` to 1 + `beside`: what is less is not drawn as a difference."""
    known = [1.0, *(ratio for ratio in ratios if np.isfinite(ratio))]
    if max(known) / min(known) > MOST_LINEAR:
        axes.set(**{f"{side}scale": "log"})
        axis = axes.xaxis if side == "x" else axes.yaxis
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axis.set_minor_formatter(NullFormatter())
    low, high = axes.get_xlim() if side == "x" else axes.get_ylim()
    axes.set(**{f"{side}lim": (min(low, 1 - beside), max(high, 1 + beside))})


# Looks of series, colours of nodes.


def looks(labels: Sequence[str]) -> list[tuple[str, str, str]]:
    """[(label, colour, marker)]; distinct up to 105."""
    return list(zip(labels, cycle(SERIES), cycle(MARKERS), strict=False))


def node_colours(nodes: Iterable[int]) -> dict[int, str]:
    """{node: colour}; unknown (-1) is grey. Beyond eight nodes a scale, dark to light, even in grey, too."""
    every = list(nodes)
    count = max(every, default=0) + 1
    scale = matplotlib.colormaps["cividis"].resampled(max(count, 2))
    colours = NODES if count <= len(NODES) else [to_hex(scale(node)) for node in range(count)]
    return {node: GREY if node < 0 else colours[node] for node in every}


def node_named(node: int) -> str:
    return "unknown" if node < 0 else f"node {node}"


# Names of policies for people.


def policy_labels(table: DataFrame) -> Series:
    """A label per row: the policy, with settings that are not the defaults or that differ among its rows."""
    params = table["params"] if "params" in table else Series("", table.index)
    rows = list(zip(table["policy"].astype(str), params.fillna(""), strict=True))
    settings = {row: dict(pair.split("=", 1) for pair in row[1].split()) for row in rows}
    named = {
        row: label(row[0], own, [other for (name, _), other in settings.items() if name == row[0]])
        for row, own in settings.items()
    }
    return Series([named[row] for row in rows], table.index, dtype=object)


def by_policy(table: DataFrame) -> dict[str, DataFrame]:
    """{label: rows} of each policy in the table's order."""
    return {str(name): of for name, of in table.groupby(policy_labels(table), sort=False)}


def usable(names: Iterable[str]) -> list[str]:
    """Names without bounds, or all if only bounds are left."""
    every = list(names)
    return [name for name in every if name != BOUND] or every


def titled(label: str) -> str:
    """A policy as titles name it."""
    return "huge pages" if label == "thp" else label


def broken(label: str, width: int = 18) -> str:
    """The label on lines of at most `width` characters, broken after "+" or ":", at spaces, or anywhere."""
    return fill(label.replace("+", "+ ").replace(":", ": "), width).replace("+ ", "+").replace(": ", ":")


WEIGHTS = {  # what pages count by
    "leaf": "leaf entries",
    "walks": "walks",
    "warm": "walks in steady state",
    "as traced": "walks as traced",
    "samples": "samples",
    "heat": "estimated walks",
}


# A figure as a file: PNG, SVG or PDF by its name, the same bytes for the same figure.

ENDINGS = ("png", "svg", "pdf")
SETTINGS: dict[Any, Any] = {"svg.hashsalt": "ptanalyze", "svg.fonttype": "none", "pdf.fonttype": 42}
NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write FILE.png, FILE.svg or FILE.pdf: whole, 0600."""
    must_be_writable(path, *ENDINGS)
    ending = Path(path).suffix.removeprefix(".").lower()
    with matplotlib.rc_context(SETTINGS), atomic_write(Path(path), given=True) as file:
        figure.savefig(file, format=ending, dpi=160, metadata=NO_DATE[ending])
