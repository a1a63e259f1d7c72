"""Columns of the API's tables: what each is, its unit, and where people see it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from pandas import DataFrame

from .finding import Finding, plain


@dataclass(frozen=True)
class Column:
    """A column of an answer, known in this one place: JSON, frames, the terminal and the manual follow.

    key      its name in JSON, CSV and frames; meaning: for the manual
    of       its value, of what the answer makes a row from; None where it is not known
    group    heading of the full table on the terminal, "" not shown there; title: its line there;
             native: where walks have one dimension, None: the same, "" not shown
    form     of its numbers: answer.Quantity.form, or "ms", "millions"; scale: they are shown times that
    rank     place below the heading, those of a rank as they come
    brief    place in Markdown and LaTeX, 0: not there
    unit     "" as its name ends (unit_of), else a count
    optional  whether it can be unknown: NaN in frames
    """

    key: str
    meaning: str
    of: Callable[[Any], Any]
    group: str = ""
    title: str = ""
    native: str | None = None
    _: KW_ONLY
    form: str = "count"
    scale: float = 1
    rank: int = 9
    brief: int = 0
    unit: str = ""
    optional: bool = False

    def titled(self, nested: bool) -> str:
        return self.title if nested or self.native is None else self.native


def brief(columns: Sequence[Column]) -> tuple[str, ...]:
    """Columns that are worth a page's width."""
    return tuple(one.key for one in sorted(columns, key=lambda one: one.brief) if one.brief)


def numbers(table: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The table with NaN for None in columns of numbers."""
    return table.astype({one.key: float for one in columns if one.optional and one.key in table})


ENDS = (
    ("_share", "share"),  # 0 to 1
    ("_ns", "ns"),
    ("_cycles", "cycles"),
    ("_bytes", "bytes"),
    ("_per_walk", "reads/walk"),
    ("_reads", "reads"),
)
UNITS = {  # of columns that several tables have
    "share": "share",
    "walks": "walks",
    "ratio": "ratio",
    "slowdown": "ratio",
    "ns": "ns/call",
    "stolen_ns": "ns/call",
    "base": "address",
    "start": "address",
    "end": "address",
    "bytes": "bytes",
    "level": "level",
    "node": "node",
    "from_node": "node",
    "to_node": "node",
    "table_pages": "pages",
    "frames": "pages",
    "reader": "node",
    "server": "node",
    "socket": "node",
    "ept_lines": "cache lines",
    "ghz": "GHz",
    "low": "ratio",
    "middle": "ratio",
    "high": "ratio",
    "cycles": "cycles",
    "pays_back_runs": "runs",
    "degree": "degree",
    "seconds": "s",
}


def unit_of(column: str) -> str:
    """Unit of a column of numbers; "count" for counts, which have none."""
    if column in UNITS:
        return UNITS[column]
    return next((unit for end, unit in ENDS if column.endswith(end)), "count")


def units_of(table: DataFrame, columns: Sequence[Column] = ()) -> dict[str, str]:
    """{column of numbers: unit}."""
    own = {one.key: one.unit for one in columns if one.unit}
    names = [str(name) for name in table.columns if table[name].dtype.kind in "iuf"]
    return {name: own.get(name) or unit_of(name) for name in names}


def described(
    table: DataFrame,
    findings: Iterable[Finding] = (),
    provenance: Mapping[str, str] | None = None,
    columns: Sequence[Column] = (),
    **more: Any,
) -> DataFrame:
    """The table with attrs: units {column of numbers: unit}, findings (finding.plain), provenance
    {what: text}, `more`. columns: those of its own.

    Plain values only, so that attrs can be copied, compared and written as JSON.
    """
    table.attrs = {
        "units": units_of(table, columns),
        "findings": plain(findings),
        "provenance": dict(provenance or {}),
        **more,
    }
    return table
