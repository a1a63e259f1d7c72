"""A table of the page: cells with a text for people and a number to sort by."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple

from ...core.errors import size_in_words
from ...core.interval import shown
from ..terminal import number

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
    return Cell(f"{low} to {high}", ends[0])


def memory(size: float) -> Cell:
    """As on the terminal: 528 KiB, 13.5 MiB."""
    return Cell(f"{'-' if size < 0 else ''}{size_in_words(abs(int(size)))}", float(size))
