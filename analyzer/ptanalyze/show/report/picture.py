"""A plot as an image inside the page, wide and narrow, with a description and an alternative text."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from io import BytesIO
from math import isfinite
from typing import Any, NamedTuple
from urllib.parse import quote

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from pandas import DataFrame

from ...core.errors import size_in_words
from ...core.interval import shown
from ..plots.style import NO_DATE, SETTINGS, Spot, narrow, spots
from ..terminal import number

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
    return Cell(number(value), float(value))


def millions(value: float) -> Cell:
    return Cell(number(value / 1e6), float(value))


def percent(share: float) -> Cell:
    """Of a share between 0 and 1."""
    return Cell(f"{100 * share + 0:z.1f} %", float(share))


def ratio(value: float) -> Cell:
    return Cell(shown(value)[0], float(value))


def interval(ends: tuple[float, float]) -> Cell:
    low, high = shown(*ends)
    return Cell(f"{low}-{high}", ends[0])


def memory(size: float) -> Cell:
    """As on the terminal: 528 KiB, 13.5 MiB."""
    return Cell(f"{'-' if size < 0 else ''}{size_in_words(abs(int(size)))}", float(size))


# A figure as a small SVG image that needs no fonts and no scripts.

# an image finds the reader's fonts alone: each text has the width that it was laid out with
SIZE, FAMILY = "font-size: 10px; ", "font-family: 'DejaVu Sans'; "
STYLE = "text{font:10px DejaVu Sans,Verdana,sans-serif;fill:#262626}"
TEXT = re.compile(r"<text style=\"([^\"]*)\"([^>]*)>([^<]*)</text>")
LONG = re.compile(r"-?\d+\.\d\d+")


def svg(figure: Figure) -> str:
    """The SVG of a figure that is laid out; the same figure gives the same text."""
    file = BytesIO()
    figure.set_layout_engine(None)
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(file, format="svg", metadata=NO_DATE["svg"])
    return smaller(file.getvalue().decode())


def smaller(text: str) -> str:
    """The same picture without preamble, metadata, names of groups and digits below a tenth of a point."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = TEXT.sub(fixed, text)
    text = re.sub(r"<[^>]*>", lambda tag: LONG.sub(rounded, tag[0]), text)
    text = text.replace("</style>", f"{STYLE}</style>", 1)
    text = re.sub(r' id="(?:figure|axes|text|patch|line2d|xtick|ytick|matplotlib|legend)[\w.]*"', "", text)
    text = re.sub(r"\s*\n\s*", " ", text).replace("; stroke-linejoin: miter", "").replace("> <", "><")
    return ungrouped(re.sub(r"<g(?: [^>]*)?/>", "", text)).replace(' style=""', "").replace('"', "'")


def fixed(found: re.Match[str]) -> str:
    """A text element with its width."""
    style, where, text = found.groups()
    size = re.search(r"([\d.]+)px", style)
    weight = "bold" if "bold" in style or "700" in style else "normal"
    font = FontProperties(family="DejaVu Sans", size=float(size[1]) if size else 10.0, weight=weight)
    width, _, _ = text_to_path.get_text_width_height_descent(unescape(text), font, False)
    length = f' textLength="{width:.1f}" lengthAdjust="spacingAndGlyphs"' if len(text) > 3 else ""
    where = re.sub(r' transform="rotate\(-0 [^"]*"', "", where)
    return f'<text style="{shorter(style)}"{where}{length}>{text}</text>'


def shorter(style: str) -> str:
    """Without what STYLE says of all texts."""
    return (
        f"{style}; ".replace(SIZE, "").replace(FAMILY, "").replace("fill: #262626; ", "").removesuffix("; ")
    )


def rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]) + 0:z.1f}".removesuffix(".0")


def ungrouped(text: str) -> str:
    """Without groups that say nothing."""
    tags, kept = [], []
    for part in re.split(r"(<g>|<g [^>]*>|</g>)", text):
        if part.startswith("<g"):
            tags.append(part != "<g>")
        shown = tags.pop() if part == "</g>" else part != "<g>"
        kept += [part] if shown else []
    return "".join(kept)


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
    wide, slim  the image for a screen and for a phone
    spots   what the wide image answers to the pointer
    grid    its data as a table, None if the page has them elsewhere
    """

    key: str
    how: str
    here: str
    alt: str
    wide: Image
    slim: Image
    spots: Sequence[Spot] = ()
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
    with narrow():
        slim = image(draw(table))
    title = " ".join(figure.get_suptitle().split())
    answers = tuple(spots(figure))
    return Picture(key, how, here, f"{kind}: {title}", image(figure), slim, answers, grid)


def image(figure: Figure) -> Image:
    width, height = (round(CSS_PIXELS * inches) for inches in figure.get_size_inches())
    return Image(data_uri(svg(figure)), width, height)


def data_uri(text: str) -> Markup:
    """As it stands in an attribute: without double quotes and ampersands."""
    return Markup("data:image/svg+xml," + quote(text, safe=PLAIN))
