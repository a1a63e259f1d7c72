"""Style of all plots: a palette, sizes for slides and print, a title and a line of context."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from io import BytesIO
from itertools import cycle, islice
from pathlib import Path
from textwrap import fill
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Self
from weakref import WeakKeyDictionary

import matplotlib
import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation
from pandas import DataFrame, Series

from ...core.columns import AS_TRACED, UNTRACED
from ...core.errors import UsageError, printable
from ...core.trace import threads_placed
from ...formats.atomic import atomic_write, must_be_writable
from ...policies import BOUND, label
from ...world.address_space import NO_VMA

WIDTH = 9.0  # inches, for a slide or a page

# Texts of a table as a plot may show them: printable, and what TeX would be a formula as it is.


class Shared:
    """A dict or list that deep copies share: pandas copies attrs with every row that is looked at."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class SharedDict(Shared, dict[Any, Any]):
    pass


class SharedList(Shared, list[Any]):
    pass


def literal(value: Any) -> Any:
    """A text, or the texts in a dict or list, printable and without formulas; other values as they are."""
    if isinstance(value, str):
        return printable(value).replace("$", r"\$")
    if isinstance(value, dict):
        return SharedDict({key: literal(item) for key, item in value.items()})
    return SharedList(literal(item) for item in value) if isinstance(value, list) else value


def literal_table(table: DataFrame) -> DataFrame:
    """The table with its texts, and those of its attrs, literal."""
    words = [at for at, kind in enumerate(table.dtypes) if kind.kind not in "biuf"]
    shown = table.copy() if words else table.copy(deep=False)
    for at in words:
        shown.isetitem(at, table.iloc[:, at].map(literal))
    shown.attrs = literal(table.attrs)
    return shown


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
    """An empty Figure, WIDTH by `height` inches."""
    return Plot(figsize=(WIDTH, height), dpi=120, layout="constrained")


def title(figure: Figure, text: str) -> None:
    text = re.sub(r" (%|[KMG]iB)", "\N{NO-BREAK SPACE}\\1", text)
    figure.suptitle(fill(text, TITLE_CHARACTERS, break_on_hyphens=False), x=0.01, ha="left")


def said(table: DataFrame, *codes: str) -> str:
    """Text of the first of a table's findings that has one of these codes; "" none."""
    findings = table.attrs.get("findings", [])
    return next((str(one["text"]) for one in findings if one["code"] in codes), "")


def context(figure: Figure, table: DataFrame, *more: str) -> None:
    """A grey line below: the capture's name, the machine, the placement of threads, and `more`.

    For results without a trace, what pages count by instead of the placement.
    """
    provenance, untraced = table.attrs.get("provenance", {}), said(table, *UNTRACED)
    parts = [provenance["capture"].rstrip("/").rpartition("/")[2]] if "capture" in provenance else []
    parts += [provenance["machine"]] if "machine" in provenance else []
    parts += (
        [untraced]
        if untraced
        else ([threads_placed(provenance["placement"])] if "placement" in provenance else [])
    )
    parts += ["as traced, caches empty at first"] * bool(said(table, AS_TRACED))
    text = "; ".join([*parts, *(part for part in more if part)])
    if text:
        lines = fill(text, CONTEXT_CHARACTERS, break_on_hyphens=False)
        figure.supxlabel(lines, x=0.01, ha="left", fontsize=SIZE, color=GREY)
        figure.set_figheight(figure.get_figheight() + max(lines.count("\n") + 1 - FREE_LINES, 0) * LINE)


def legend_beside(axis: Axes, handles: Any = None, labels: Any = None, heading: str | None = None) -> None:
    """A legend to the right of the axes, where it hides nothing; long legends are above. The figure grows."""
    if handles is None:
        handles, labels = axis.get_legend_handles_labels()
    figure = axis.figure
    beside = len(handles) <= MOST_BESIDE
    longest = max((len(line) for label in labels for line in label.split("\n")), default=0)
    columns = 1 if beside else 3 if longest <= SHORT else 2
    high = LINE * (bool(heading) + sum(1 + label.count("\n") for label in labels) / columns)
    how: dict[str, Any] = {"title": heading, "ncols": columns, "borderaxespad": 0, "alignment": "left"}
    if beside:
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


# Label of a policy in a plot, and how it is broken into lines.

WIDE = 32  # characters per line where a label has room


def policy_labels(table: DataFrame) -> Series:
    """A label per row: the policy, with settings that are not the defaults or that differ among its rows."""
    params = table["params"] if "params" in table else Series("", table.index)
    rows = list(zip(table["policy"].astype(str), params.fillna(""), strict=True))
    once = {row: dict(pair.split("=", 1) for pair in row[1].split()) for row in rows}
    found = {
        row: label(row[0], own, [other for (name, _), other in once.items() if name == row[0]])
        for row, own in once.items()
    }
    return Series([found[row] for row in rows], table.index, dtype=object)


def by_policy(table: DataFrame) -> list[tuple[str, DataFrame]]:
    """[(label, rows)] of each policy in the table's order; a repeated policy comes once."""
    once = table.drop_duplicates()
    return [(str(name), of) for name, of in once.groupby(policy_labels(once), sort=False)]


def usable(names: Iterable[str]) -> list[str]:
    """Names without bounds, or all if only bounds are left."""
    all_names = list(names)
    return [name for name in all_names if name != BOUND] or all_names


def broken(label: str, width: int = 18) -> str:
    """The label on lines of at most `width` characters, broken after "+" or ":", at spaces, or anywhere."""
    parts = label.replace("+", "+ ").replace(":", ": ")
    return fill(parts, width).replace("+ ", "+").replace(": ", ":")


def rows_high(labels: Sequence[str], least: float = 0.32) -> float:
    """Inches that rows with these labels take, each as high as the label of most lines, at least `least`."""
    lines = max((1 + label.count("\n") for label in labels), default=1)
    return len(labels) * max(least, 0.19 * lines)


def step_of(names: Sequence[str], inches: float) -> int:
    """Tick stride at which labels do not overlap within `inches`."""
    width = 0.12 + 0.09 * max((len(name) for name in names), default=0)
    return max(-int(-len(names) * width // inches), 1)


# Rows of a plot: names on the left, numbers on the right.


def name_rows(axis: Axes, names: Sequence[str], numbers: Sequence[str], lines: bool = True) -> None:
    """Names and numbers of rows 0, 1, ... from the top; lines: vertical grid lines stay."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    numbers_beside(axis, numbers, lines)


def numbers_beside(axis: Axes, numbers: Sequence[str], lines: bool = True) -> None:
    """Numbers at the right of rows 0, 1, ... of an axis whose limits are set."""
    right = axis.twinx()
    right.set_ylim(axis.get_ylim())
    right.set_yticks(range(len(numbers)), numbers)
    for side in (axis, right):
        side.tick_params(axis="y", length=0)
        side.grid(False, axis="y" if lines else "both")


# A figure as a file: PNG, SVG or PDF by its name, the same bytes for the same figure.

ENDINGS = ("png", "svg", "pdf")
SETTINGS: dict[Any, Any] = {"svg.hashsalt": "ptanalyze", "svg.fonttype": "none", "pdf.fonttype": 42}
NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
DPI = 160


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write FILE.png, FILE.svg or FILE.pdf: whole, 0600."""
    must_be_writable(path, *ENDINGS)
    ending = Path(path).suffix.removeprefix(".").lower()
    with matplotlib.rc_context(SETTINGS), atomic_write(Path(path), given=True) as file:
        figure.savefig(file, format=ending, dpi=DPI, metadata=NO_DATE[ending])


# Axes of ratios: logarithmic where they span too much for a linear axis, with ticks in plain numbers.

MOST_LINEAR = 5.0  # the largest over the smallest
SHOWN = 0.01  # of a speed-up to either side of 1


def fitted(axes: Axes, side: Literal["x", "y"], ratios: Iterable[float]) -> None:
    """Make the x or y axis logarithmic if the ratios, all above 0, span more than MOST_LINEAR."""
    known = [ratio for ratio in ratios if np.isfinite(ratio)]
    if max([*known, 1.0]) / min([*known, 1.0]) > MOST_LINEAR:
        logarithmic(axes, side, known)


def widened(axes: Axes, side: Literal["x", "y"], by: float = SHOWN) -> None:
    """Have the axis show at least 1 - by to 1 + by: what is less is not drawn as a difference."""
    low, high = axes.get_xlim() if side == "x" else axes.get_ylim()
    axes.set(**{f"{side}lim": (min(low, 1 - by), max(high, 1 + by))})


def logarithmic(axes: Axes, side: Literal["x", "y"], ratios: list[float]) -> None:
    axes.set(**{f"{side}scale": "log"})
    axis = axes.xaxis if side == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=subdivisions(ratios), numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if value < 1e5 else f"{value:.0e}"))
    axis.set_minor_formatter(NullFormatter())


def subdivisions(ratios: list[float]) -> list[float]:
    """Ticks within a decade: fewer for more decades."""
    decades = np.log10(max([*ratios, 1.0])) - np.log10(min([*ratios, 1.0]))
    if decades > 3:
        return [1.0]
    return [1.0, 2.0, 5.0] if decades > 0.6 else [1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0, 8.5]


# What a figure answers where the pointer is: a text for places of its axes.

LEAST = 12.0  # points: smallest side of a spot


class Spot(NamedTuple):
    """A place of a figure, in per cent of its width and height from the top left, and what it says."""

    left: float
    top: float
    width: float
    height: float
    says: str


_noted: WeakKeyDictionary[Figure, list[tuple[Axes, np.ndarray, str]]] = WeakKeyDictionary()


def note(axis: Axes, says: str, x: tuple[float, float], y: tuple[float, float]) -> None:
    """The figure says this of a box, in the axes' data; a box without extent is a point."""
    figure = axis.figure
    if isinstance(figure, Figure):
        _noted.setdefault(figure, []).append((axis, np.column_stack([x, y]).astype(float), says))


def spots(figure: Figure) -> Iterator[Spot]:
    """Spots of a figure that is laid out, in the order of their notes."""
    whole = np.array([figure.bbox.width, figure.bbox.height])
    least = LEAST * figure.dpi / 72
    for axis, box, says in _noted.get(figure, ()):
        limits = np.sort(np.column_stack([axis.get_xlim(), axis.get_ylim()]), axis=0)
        corners = axis.transData.transform(np.clip(np.sort(box, axis=0), *limits))
        low, high = corners.min(axis=0), corners.max(axis=0)
        grown = np.maximum(least - (high - low), 0) / 2
        (left, bottom), (right, top) = 100 * (low - grown) / whole, 100 * (high + grown) / whole
        yield Spot(left, 100 - top, right - left, top - bottom, says)


# Labels of points: a column to the right of the axes, each with a line to its point.

LABEL_LINE, AROUND = 0.2, 2.4  # inches: of a line of a label; of the figure above and below the axes
LEAD = 14.0  # points between the axes and the labels


def point_labels(
    axis: Axes, names: Sequence[str], x: Sequence[float], y: Sequence[float], values: Sequence[str] = ()
) -> None:
    """Label points of an axis, drawn before, with their values, evenly from the top; the figure grows."""
    figure = axis.figure
    assert isinstance(figure, Figure)
    axis.autoscale_view()  # limits that are still to come
    down = -axis.transData.transform(np.column_stack([x, y]).astype(float))[:, 1]
    order = np.lexsort((np.asarray(x), down)).tolist()
    labels = [broken(" ".join([names[k], *values[k : k + 1]]), WIDE) for k in order]
    lines = np.array([1.2 + label.count("\n") for label in labels])
    figure.set_figheight(max(figure.get_figheight(), LABEL_LINE * float(lines.sum()) + AROUND))
    at = 1 - (np.cumsum(lines) - lines / 2) / lines.sum()
    right = axis.twinx()
    right.set_ylim(0, 1)
    right.set_yticks(at, labels)
    right.tick_params(axis="y", length=0, pad=LEAD)
    right.grid(False)
    beside = axis.transAxes + ScaledTranslation((LEAD - 2) / 72, 0, figure.dpi_scale_trans)
    for k, place in zip(order, at.tolist(), strict=True):
        ends = (x[k], y[k]), (1, place)
        line = ConnectionPatch(*ends, axis.transData, beside, color=GREY, linewidth=0.7, alpha=0.7)
        line.set_in_layout(False)
        axis.add_artist(line)


# Names of VMAs for people: their file or kind and size, with the address where that is not enough.

UNITS = ("KiB", "MiB", "GiB", "TiB")
SPAN = re.compile(r"([0-9a-f]+)-([0-9a-f]+)(?: (.+))?")


def vma_names(groups: Iterable[str]) -> dict[str, str]:
    """{group of a table: its name}: "libc.so.6", "[heap]", "anonymous 61.3 MiB"; other groups as they are.

    Names that several VMAs share get the VMA's first address.
    """
    distinct = list(dict.fromkeys(groups))
    names = {group: named(group) for group in distinct}
    shared = Counter(names.values())
    return {
        group: name if shared[name] == 1 else f"{name} at {group.partition('-')[0]}"
        for group, name in names.items()
    }


def named(group: str) -> str:
    if group == NO_VMA:
        return "memory not mapped at the dump"
    found = SPAN.fullmatch(group)
    if found is None:
        return group
    start, end, file = found.groups()
    if file:
        return str(file).rpartition("/")[2] or str(file)
    size = int(end, 16) - int(start, 16)
    power = min(max(size.bit_length() - 1, 10) // 10, len(UNITS))
    count = size / 1024**power
    digits = f"{count:.3g}" if count < 1000 else f"{count:.0f}"
    return f"anonymous {digits}\N{NO-BREAK SPACE}{UNITS[power - 1]}"


# What pages count by, in words.

WEIGHTS = {
    "leaf": "leaf entries",
    "4k": "4 KiB pages",
    "walks": "walks",
    "warm": "walks in steady state",
    "as traced": "walks as traced",
    "samples": "samples",
    "heat": "estimated walks",
}
