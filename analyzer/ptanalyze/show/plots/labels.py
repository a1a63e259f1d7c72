"""Label of a policy in a plot, and how it is broken into lines."""

from collections.abc import Iterable, Sequence
from textwrap import fill

from pandas import DataFrame, Series

from ...policies import BOUND, label
from .room import NARROW_NAME, is_narrow

WIDE = 32  # characters per line where a label has room


def policy_labels(table: DataFrame) -> Series:
    """A label per row: the policy, with settings that are not the defaults or that differ among its rows."""
    params = table["params"] if "params" in table else Series("", table.index)
    rows = list(zip(table["policy"].astype(str), params.fillna(""), strict=True))
    once = {row: dict(pair.split("=", 1) for pair in row[1].split()) for row in rows}
    found = {
        row: label(row[0], own, [other for (name, _), other in once.items() if name == row[0]])
        for row, own in once.items()
    }
    return Series([found[row] for row in rows], table.index, dtype=object)


def by_policy(table: DataFrame) -> list[tuple[str, DataFrame]]:
    """[(label, rows)] of each policy in the table's order; a repeated policy comes once."""
    once = table.drop_duplicates()
    return [(str(name), of) for name, of in once.groupby(policy_labels(once), sort=False)]


def usable(names: Iterable[str]) -> list[str]:
    """Names without bounds, or all if only bounds are left."""
    all_names = list(names)
    return [name for name in all_names if name != BOUND] or all_names


def broken(label: str, width: int = 18) -> str:
    """The label on lines of at most `width` characters, broken after "+" or ":", at spaces, or anywhere.

    Of a narrow plot at most NARROW_NAME.
    """
    width = min(width, NARROW_NAME) if is_narrow() else width
    parts = label.replace("+", "+ ").replace(":", ": ")
    return fill(parts, width).replace("+ ", "+").replace(": ", ":")


def rows_high(labels: Sequence[str], least: float = 0.32) -> float:
    """Inches that rows with these labels take, each as high as the label of most lines, at least `least`."""
    lines = max((1 + label.count("\n") for label in labels), default=1)
    return len(labels) * max(least, 0.19 * lines)


def step_of(names: Sequence[str], inches: float) -> int:
    """Tick stride at which labels do not overlap within so many inches."""
    width = 0.12 + 0.09 * max((len(name) for name in names), default=0)
    return max(-int(-len(names) * width // inches), 1)
