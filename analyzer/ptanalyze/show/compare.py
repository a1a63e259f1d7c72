"""Differences between results for people, and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..analysis.answer import Section
from ..analysis.compare import Comparison, Difference
from .terminal import number


def view(comparison: Comparison, a: str, b: str) -> Iterator[Section]:
    if comparison.differences:
        rows = [row(one) for one in comparison.differences]
        yield Section(f"Differences (A = {a}, B = {b})", rows)
    counts = f"- equal in {comparison.alike} quantities, different in {len(comparison.differences)}"
    sides = (("A", comparison.only_a), ("B", comparison.only_b))
    yield Section(lines=[counts, *(f"- only in {side}: {'; '.join(only)}" for side, only in sides if only)])


def row(one: Difference) -> dict[str, str]:
    return {
        "policy": one.policy,
        "quantity": one.quantity,
        "A": shown(one.a),
        "B": shown(one.b),
        "B - A": shown(one.change),
        "B / A": "-" if one.ratio is None else f"{one.ratio:.4g}",
    }


def shown(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else number(value)


def as_record(comparison: Comparison) -> dict[str, Any]:
    rows = [{**one._asdict(), "change": one.change, "ratio": one.ratio} for one in comparison.differences]
    return {**comparison._asdict(), "differences": rows, "exact": comparison.exact}
