"""A Matrix as lines that fit a terminal: numbers in full where there is room, else short, else in parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isinf
from textwrap import wrap
from typing import TYPE_CHECKING, TypeAlias

from ..analysis.answer import Matrix, Quantity

if TYPE_CHECKING:
    from rich.text import Text

Cells: TypeAlias = Callable[[float | None, str], str]

INDENT = "  "  # of quantities under their heading
PIECE = re.compile(r"[^-+ ]*[-+ ]|[^-+ ]+$")  # of a column's name, which may be broken behind it
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Layout:
    """How a Matrix is drawn: the longest line of a quantity's name, blanks left of columns, its numbers."""

    matrix: Matrix
    longest: int
    gap: int
    cells: Cells

    @cached_property
    def quantities(self) -> list[Quantity]:
        return [one for group in self.matrix.groups.values() for one in group]

    @cached_property
    def label(self) -> int:
        lines = (line for one in self.quantities for line in wrap(one.name, self.longest))
        return len(INDENT) + max(map(len, lines), default=0)

    @cached_property
    def widths(self) -> list[int]:
        """Of the columns, without the blanks."""
        return [
            max([*(len(self.cells(one.values[k], one.form)) for one in self.quantities), *map(len, pieces)])
            for k, name in enumerate(self.matrix.columns)
            for pieces in [[piece.rstrip() for piece in PIECE.findall(name)]]
        ]

    def fits(self, width: int) -> bool:
        return self.label + sum(self.gap + one for one in self.widths) <= width


def drawn(matrix: Matrix, width: int) -> Iterator[Text]:
    """The lines of a Matrix, at most `width` wide unless one column alone is wider."""
    roomy, plain, tight = (
        Layout(matrix, 27, 2, full),
        Layout(matrix, 27, 2, short),
        Layout(matrix, 19, 1, short),
    )
    layout = next((one for one in (roomy, plain, tight) if one.fits(width)), plain)
    for part in parts(layout, width):
        yield from lines(layout, part)


def parts(layout: Layout, width: int) -> list[list[int]]:
    """Positions of columns in as few parts as fit, of about as many columns each."""
    widths, room = [layout.gap + one for one in layout.widths], width - layout.label
    even = -(-len(widths) // len(filled_matrix(widths, room, len(widths))))
    return filled_matrix(widths, room, even)


def filled_matrix(widths: Sequence[int], room: int, most: int) -> list[list[int]]:
    found: list[list[int]] = [[]]
    left = room
    for k, wide in enumerate(widths):
        if found[-1] and (left < wide or len(found[-1]) == most):
            found.append([])
            left = room
        found[-1].append(k)
        left -= wide
    return found


def lines(layout: Layout, part: Sequence[int]) -> Iterator[Text]:
    """Some columns of a Matrix: their names, then a heading per group with what these columns have of it."""
    from rich.text import Text

    if part[0]:
        yield Text()
    widths = layout.widths
    heads = [broken(layout.matrix.columns[k], widths[k]) for k in part]
    high = max(map(len, heads))
    for row in zip(*([""] * (high - len(head)) + head for head in heads), strict=True):
        yield Text(aligned(layout, "", row, part), "bold cyan")
    for heading, group in layout.matrix.groups.items():
        there = [one for one in group if any(one.values[k] is not None for k in part)]
        if there:
            yield Text(heading, "bold")
        for quantity in there:
            *above, last = wrap(quantity.name, layout.longest)
            yield from (Text(INDENT + line) for line in above)
            texts = [layout.cells(quantity.values[k], quantity.form) for k in part]
            yield Text(aligned(layout, INDENT + last, texts, part))


def aligned(layout: Layout, name: str, texts: Sequence[str], part: Sequence[int]) -> str:
    cells = (text.rjust(layout.gap + layout.widths[k]) for text, k in zip(texts, part, strict=True))
    return (name.ljust(layout.label) + "".join(cells)).rstrip()


def broken(name: str, width: int) -> list[str]:
    """A column's name in lines: broken behind hyphens, pluses and blanks."""
    found: list[str] = []
    for piece in PIECE.findall(name):
        if found and len(found[-1]) + len(piece.rstrip()) <= width:
            found[-1] += piece
        else:
            found.append(piece)
    return [line.rstrip() for line in found] or [""]


def full(value: float | None, form: str) -> str:
    if value is None or isinf(value):
        return "-" if value is None else "never"
    if form == "count":
        return f"{value:,.0f}"
    if form == "share":
        return f"{100 * value:.2f}"
    return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"


def short(value: float | None, form: str) -> str:
    """The same in at most six characters."""
    if value is None or isinf(value):
        return "-" if value is None else "never"
    if form == "share":
        return f"{100 * value:.1f}"
    for size, unit in UNITS if abs(value) >= 9999.5 else ():
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g}{unit}" if abs(value) < 999.5 * size else f"{value / size:.0f}{unit}"
    if form == "count" or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
