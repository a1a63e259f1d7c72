"""A plot as an image inside the page, wide and narrow, with a description and an alternative text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup
from matplotlib.figure import Figure
from pandas import DataFrame

from ..plots.room import narrow
from ..plots.spots import Spot, spots
from .grid import Grid
from .svg import svg

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
