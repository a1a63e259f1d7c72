"""Label of a policy in a plot: its name, and its parameters where the name alone is not enough."""

from collections.abc import Iterable, Sequence
from textwrap import fill

from pandas import DataFrame, Series

from ...policies import BOUND
from .room import NARROW_NAME, is_narrow

WIDE = 32  # characters per line where a label has room


def policy_labels(table: DataFrame) -> Series:
    """A label per row: rows of a policy that differ in parameters get the differing parameters."""
    params = table["params"] if "params" in table else Series("", table.index)
    params = params.fillna("")
    labels = table["policy"].astype(str).copy()
    for name, rows in params.groupby(table["policy"], sort=False):
        variants = [dict(pair.split("=", 1) for pair in text.split()) for text in rows]
        keys = dict.fromkeys(key for variant in variants for key in variant)
        differing = [key for key in keys if len({variant.get(key) for variant in variants}) > 1]
        if differing:
            labels[rows.index] = [
                f"{name} {' '.join(f'{key}={variant[key]}' for key in differing if key in variant)}".rstrip()
                for variant in variants
            ]
    return labels


def by_policy(table: DataFrame) -> list[tuple[str, DataFrame]]:
    """[(label, rows)] of each policy in the table's order; a repeated policy comes once."""
    once = table.drop_duplicates()
    return [(str(name), of) for name, of in once.groupby(policy_labels(once), sort=False)]


def usable(names: Iterable[str]) -> list[str]:
    """Names without bounds, or all if only bounds are left."""
    all_names = list(names)
    return [name for name in all_names if name != BOUND] or all_names


def broken(label: str, width: int = 18) -> str:
    """The label on lines of at most `width` characters, broken after "+", at spaces, or anywhere.

    Of a narrow plot at most NARROW_NAME.
    """
    width = min(width, NARROW_NAME) if is_narrow() else width
    return fill(label.replace("+", "+ "), width).replace("+ ", "+")


def rows_high(labels: Sequence[str], least: float = 0.32) -> float:
    """Inches that rows with these labels take, each as high as the label of most lines, at least `least`."""
    lines = max((1 + label.count("\n") for label in labels), default=1)
    return len(labels) * max(least, 0.19 * lines)


def step_of(names: Sequence[str], inches: float) -> int:
    """Tick stride at which labels do not overlap within so many inches."""
    width = 0.12 + 0.09 * max((len(name) for name in names), default=0)
    return max(-int(-len(names) * width // inches), 1)
