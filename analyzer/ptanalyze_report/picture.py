"""A plot as an image inside the page, with a description and an alternative text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from math import isfinite
from typing import Any, NamedTuple
from urllib.parse import quote

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure
from pandas import DataFrame

import ptanalyze as pt

# A table of the page: cells with a text for people and a number to sort by.

NOTHING = "–"
LEAST = -1e300  # missing values sort below all numbers


class Cell(NamedTuple):
    """`order` is the key to sort by, None for words."""

    text: str
    order: float | None = None


class Column(NamedTuple):
    """`hint`, below the name, is the unit; `cell` makes the Cell of a value."""

    name: str
    hint: str
    cell: Callable[[Any], Cell]

    @property
    def words(self) -> bool:
        return self.cell is word


@dataclass(frozen=True)
class Grid:
    """`rows` of Cells, the first of each being its heading; `interactive`: can be sorted and filtered."""

    key: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    interactive: bool = False
    marked: Mapping[int, str] = field(default_factory=dict)


def grid(
    key: str, caption: str, columns: Mapping[str, Column], rows: Iterable[Mapping[str, Any]], **more: Any
) -> Grid:
    """Grid of dicts: their keys are those of `columns`; missing values are dashes."""
    cells = [[made(column, row.get(name)) for name, column in columns.items()] for row in rows]
    return Grid(key, caption, list(columns.values()), cells, **more)


def made(column: Column, value: Any) -> Cell:
    missing = value is None or (isinstance(value, float) and not isfinite(value))
    return Cell(NOTHING, None if column.words else LEAST) if missing else column.cell(value)


def word(value: Any) -> Cell:
    return Cell(str(value))


def count(value: Any) -> Cell:
    return Cell(f"{int(value):,}", int(value))


def plain(value: Any) -> Cell:
    """Any number, with a sensible number of digits."""
    return Cell(pt.terminal.number(value), float(value))


def millions(value: float) -> Cell:
    return Cell(pt.terminal.number(value / 1e6), float(value))


def percent(share: float) -> Cell:
    """Of a share between 0 and 1."""
    return Cell(f"{100 * share + 0:z.1f} %", float(share))


def ratio(value: float) -> Cell:
    return Cell(pt.interval.shown(value)[0], float(value))


def interval(ends: tuple[float, float]) -> Cell:
    low, high = pt.interval.shown(*ends)
    return Cell(f"{low}-{high}", ends[0])


def memory(size: float) -> Cell:
    """As on the terminal: 528 KiB, 13.5 MiB."""
    return Cell(f"{'-' if size < 0 else ''}{pt.errors.size_in_words(abs(int(size)))}", float(size))


# A figure as an SVG image that needs no fonts and no scripts.


def svg(figure: Figure) -> str:
    """The SVG of a figure that is laid out; texts are outlines, an image finds the reader's fonts alone."""
    file = BytesIO()
    figure.set_layout_engine(None)
    with matplotlib.rc_context({**pt.style.SETTINGS, "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", metadata=pt.style.NO_DATE["svg"])
    text = file.getvalue().decode()
    return text[text.index("<svg") :].replace('"', "'")


PLAIN = " ;,/?:@=+$!~*'()<>[]{}|`^"  # allowed unescaped in a double-quoted attribute
CSS_PIXELS = 96  # per inch


@dataclass(frozen=True)
class Image:
    """
    source  data: URI; width and height in CSS pixels
    """

    source: Markup
    width: int
    height: int


@dataclass(frozen=True)
class Picture:
    """
    key     unique within a chapter
    how     how to read it; here: its result for this capture, with numbers from the data
    alt     alternative text
    spots   what the image answers to the pointer
    grid    its data as a table, None if the page has them elsewhere
    """

    key: str
    how: str
    here: str
    alt: str
    image: Image
    spots: Sequence[pt.style.Spot] = ()
    grid: Grid | None = None


def picture(
    key: str,
    kind: str,
    draw: Callable[[DataFrame], Figure],
    table: DataFrame,
    how: str,
    here: str,
    grid: Grid | None = None,
) -> Picture:
    """The Picture of a table's plot; its title, from the data, is the alternative text, after `kind`."""
    figure = draw(table)
    title = " ".join(figure.get_suptitle().split())
    answers = tuple(pt.style.spots(figure))
    return Picture(key, how, here, f"{kind}: {title}", image(figure), answers, grid)


def image(figure: Figure) -> Image:
    width, height = (round(CSS_PIXELS * inches) for inches in figure.get_size_inches())
    return Image(data_uri(svg(figure)), width, height)


def data_uri(text: str) -> Markup:
    """As it stands in an attribute: without double quotes and ampersands."""
    return Markup("data:image/svg+xml," + quote(text, safe=PLAIN))
