"""An answer for the command line: a tidy table, its JSON, its view for people, and tables for plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.text import Text

Cell: TypeAlias = str | float | None
Rows: TypeAlias = Sequence[Mapping[str, Cell]]


@dataclass(frozen=True)
class Section:
    """Part of an answer for people: a title, a table of rows or a listing {what: value}, lines below it."""

    title: str = ""
    rows: Rows | Mapping[str, Cell] = ()
    lines: Sequence[str | Text] = ()


@dataclass(frozen=True)
class Quantity:
    """A row of a Matrix: a value per column, None where there is none.

    form  how to show numbers: "count", "share" (0 to 1, as percent), "ratio" or "mean"
    """

    name: str
    values: Sequence[float | None]
    form: str = "count"


@dataclass(frozen=True)
class Matrix:
    """Part of an answer for people: quantities down, in groups with headings; policies or captures across."""

    columns: Sequence[str]
    groups: Mapping[str, Sequence[Quantity]]


@dataclass(frozen=True)
class Answer:
    """An answer in all its forms, each made when first asked for.

    what        the name of the answer in JSON
    make_table  its tidy table, with units, findings and provenance in attrs (core.columns.described)
    make_json   its "result" in JSON: plain values, or NumPy's
    make_view   its view for people; None: the table itself
    plots       {kind of plot: its table}, the default kind first
    refused     {policy: why the capture does not allow it}; a view says it by itself
    brief       columns of the table that are worth a page's width, () all
    """

    what: str
    make_table: Callable[[], DataFrame]
    make_json: Callable[[], object]
    make_view: Callable[[], Iterable[Section | Matrix]] | None = None
    plots: Mapping[str, Callable[[], DataFrame]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    brief: Sequence[str] = ()

    @cached_property
    def table(self) -> DataFrame:
        return self.make_table()

    def json(self) -> object:
        return self.make_json()

    def view(self) -> Iterable[Section | Matrix]:
        if self.make_view is not None:
            return self.make_view()
        return [Section(rows=self.table.to_dict("records"))]
