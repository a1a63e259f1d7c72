"""Differences between two sets of results: counts are integers, so a difference is never noise."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from pandas import DataFrame

import ptanalyze as pt

COLUMNS = ("policy", "quantity", "a", "b", "change", "ratio")
PROSE = ("policy", "params", "machine", "placement", "baseline")


class Difference(NamedTuple):
    """A quantity of a policy in results A and B; None where either lacks it."""

    policy: str
    quantity: str
    a: Any
    b: Any

    @property
    def change(self) -> float | None:
        """The difference b - a, None for words."""
        return self.b - self.a if _number(self.a) and _number(self.b) else None

    @property
    def ratio(self) -> float | None:
        """The quotient b / a, None for words and where a is 0."""
        return self.b / self.a if self.change is not None and self.a else None


class Comparison(NamedTuple):
    """Differences of policies in both results; the number of equal quantities; labels of the other policies;
    a line for people on what makes A and B hard to compare, else ""."""

    differences: tuple[Difference, ...]
    alike: int
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    note: str = ""

    @property
    def exact(self) -> bool:
        """Whether A and B are equal in all quantities."""
        return not (self.differences or self.only_a or self.only_b)

    def frame(self) -> DataFrame:
        """One row per Difference: policy, quantity, a, b, change, ratio; the rest in attrs."""
        table = DataFrame([[*row.values()] for row in self.record()["differences"]], columns=[*COLUMNS])
        table = table.astype({"change": float, "ratio": float})
        a, b = [*self.only_a], [*self.only_b]
        return pt.columns.described(table, alike=self.alike, only_a=a, only_b=b, exact=self.exact)

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        rows = [{key: getattr(row, key) for key in COLUMNS} for row in self.differences]
        return {**self._asdict(), "differences": rows, "exact": self.exact}


def compare(a: DataFrame | pt.formats.PathLike, b: DataFrame | pt.formats.PathLike) -> DataFrame:
    """Differences between two sets of results: policy, quantity, a, b, change (b - a), ratio (b / a).

    a, b  tables of `whatif`, or files that `ptanalyze whatif -o` wrote. Rows are matched by policy and
    parameters; two single rows are compared whatever their policies. attrs: "alike" (number of equal
    quantities), "only_a", "only_b" (policies), "exact" (nothing differs).
    """
    return compare_rows(rows_of(a), rows_of(b)).frame()


def rows_of(source: DataFrame | pt.formats.PathLike) -> list[dict[str, Any]]:
    if not isinstance(source, (str, os.PathLike)):
        return [{str(key): value for key, value in row.items()} for row in source.to_dict("records")]
    return pt.formats.read_rows(source)


def compare_rows(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> Comparison:
    """Comparison of two lists of rows (of Result.row, or read from files).

    Rows are matched by policy and parameters; two single rows are compared whatever their policies.
    """
    only: tuple[tuple[str, ...], tuple[str, ...]]
    if len(a) == len(b) == 1:
        pairs, only = [(a[0], b[0])], ((), ())
    else:
        left, right = ({_label(row): row for row in rows} for rows in (a, b))
        pairs = [(left[label], right[label]) for label in left if label in right]
        only = tuple(x for x in left if x not in right), tuple(x for x in right if x not in left)
    quantities = [quantity for pair in pairs for quantity in _row(*pair)]
    different = tuple(quantity for quantity in quantities if quantity.a != quantity.b)
    return Comparison(different, len(quantities) - len(different), *only, _note(a, b))


def _note(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> str:
    untraced = [any(row.get("placement") == pt.result.EVERY_NODE for row in rows) for rows in (a, b)]
    if untraced[0] == untraced[1]:
        return ""
    traced, other = "BA" if untraced[0] else "AB"
    return (
        f"{traced} has a trace, {other} has none: {traced}'s walks are those of the trace, with caches; "
        f"{other}'s are taken to start on every node alike and to read DRAM, so differences say little"
    )


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['policy']} {row['params'] or ''}".strip()


def _row(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Difference]:
    label = a["policy"] if a["policy"] == b["policy"] else f"{a['policy']} / {b['policy']}"
    for key in {**a, **b}:
        of_a, of_b = (_plain(row.get(key)) for row in (a, b))
        if key in PROSE or _number(of_a) or _number(of_b):
            yield Difference(label, key, of_a, of_b)


def _plain(value: Any) -> Any:
    """The value as a number or text, None where it is unknown."""
    if value is None or value != value:
        return None
    return value if isinstance(value, str | int | float) else str(value)


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
