"""Differences between results as a view for people, and as a record for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..analysis.answer import Section
from ..analysis.compare import Comparison, Difference
from .terminal import number


def view(comparison: Comparison, a: str, b: str) -> Iterator[Section]:
    if comparison.note:
        yield Section(lines=[f"Note: {comparison.note}.", ""])
    if comparison.differences:
        rows = [row(difference) for difference in comparison.differences]
        yield Section(f"Differences (A = {a}, B = {b})", rows)
    counts = f"- equal in {comparison.alike} quantities, different in {len(comparison.differences)}"
    sides = (("A", comparison.only_a), ("B", comparison.only_b))
    yield Section(lines=[counts, *(f"- only in {side}: {'; '.join(only)}" for side, only in sides if only)])


def row(difference: Difference) -> dict[str, str]:
    return {
        "policy": difference.policy,
        "quantity": difference.quantity,
        "A": shown(difference.a),
        "B": shown(difference.b),
        "B - A": shown(difference.change),
        "B / A": "-" if difference.ratio is None else f"{difference.ratio:.4g}",
    }


def shown(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else number(value)


def comparison_record(comparison: Comparison) -> dict[str, Any]:
    rows = [{**d._asdict(), "change": d.change, "ratio": d.ratio} for d in comparison.differences]
    return {**comparison._asdict(), "differences": rows, "exact": comparison.exact}
