"""A figure as a small SVG image that needs no fonts and no scripts."""

import re
from html import unescape
from io import BytesIO

import matplotlib
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from ..plots.files import NO_DATE, SETTINGS

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
