"""A plot as an image inside the page, with a description and an alternative text."""

import re
from dataclasses import dataclass
from io import BytesIO
from urllib.parse import quote

import matplotlib
from matplotlib.figure import Figure

from ..plots.files import NO_DATE, SETTINGS
from .grid import Grid

# glyphs as outlines: an image cannot use the page's fonts, and widths must stay as laid out
OUTLINES = {**SETTINGS, "svg.fonttype": "path"}
PLAIN = " ;,/?:@&=+$!~*'()<>[]{}|`^"  # allowed unescaped in a double-quoted attribute
CSS_PIXELS = 96  # per inch


@dataclass(frozen=True)
class Picture:
    """
    key     unique within a chapter
    how     how to read it; here: its result for this capture, with numbers from the data
    alt     alternative text
    source  data: URI; width and height in CSS pixels
    grid    its data as a table, None if the page has them elsewhere
    """

    key: str
    how: str
    here: str
    alt: str
    source: str
    width: int
    height: int
    grid: Grid | None = None


def picture(key: str, kind: str, figure: Figure, how: str, here: str, grid: Grid | None = None) -> Picture:
    """The Picture of a plot; its title, computed from the data, becomes the alternative text after `kind`."""
    width, height = (round(CSS_PIXELS * inches) for inches in figure.get_size_inches())
    title = " ".join(figure.get_suptitle().split())
    return Picture(key, how, here, f"{kind}: {title}", data_uri(figure), width, height, grid)


def data_uri(figure: Figure) -> str:
    file = BytesIO()
    figure.set_layout_engine(None)  # it is laid out already
    with matplotlib.rc_context(OUTLINES):
        figure.savefig(file, format="svg", metadata=NO_DATE["svg"])
    return "data:image/svg+xml," + quote(smaller(file.getvalue().decode()), safe=PLAIN.replace('"', ""))


def smaller(svg: str) -> str:
    """The same picture without its preamble, comments, metadata and indentation."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return re.sub(r"\s*\n\s*", " ", svg).replace('"', "'")
