"""What a policy is called in a plot: its name, and its parameters where the name alone is not enough."""

from collections.abc import Iterable, Sequence
from textwrap import fill

from pandas import DataFrame, Series

WIDE = 32  # characters of a line where a label has room
BOUNDS = ("ideal",)  # no policy that anybody could use


def policy_labels(table: DataFrame) -> Series:
    """A label for each row: rows of one policy that differ in parameters get those that differ."""
    params = table["params"] if "params" in table else Series("", table.index)
    params = params.fillna("")
    found = table["policy"].astype(str).copy()
    for name, rows in params.groupby(table["policy"], sort=False):
        variants = [dict(pair.split("=", 1) for pair in text.split()) for text in rows]
        keys = dict.fromkeys(key for variant in variants for key in variant)
        differing = [key for key in keys if len({variant.get(key) for variant in variants}) > 1]
        if differing:
            found[rows.index] = [
                f"{name} {' '.join(f'{key}={variant[key]}' for key in differing if key in variant)}".rstrip()
                for variant in variants
            ]
    return found


def by_policy(table: DataFrame) -> list[tuple[str, DataFrame]]:
    """[(label, rows)] of each policy in the table's order; one that was asked for twice comes once."""
    once = table.drop_duplicates()
    return [(str(name), of) for name, of in once.groupby(policy_labels(once), sort=False)]


def usable(names: Iterable[str]) -> list[str]:
    """Those that are no bounds, or all where there is nothing else."""
    found = list(names)
    return [name for name in found if name not in BOUNDS] or found


def broken(label: str, width: int = 18) -> str:
    """The label on lines of at most `width` characters, broken after "+", at spaces, or anywhere."""
    return fill(label.replace("+", "+ "), width).replace("+ ", "+")


def rows_high(labels: Sequence[str], least: float = 0.32) -> float:
    """Inches that rows with these labels take, each as much as the one of most lines, at least `least`."""
    lines = max((1 + label.count("\n") for label in labels), default=1)
    return len(labels) * max(least, 0.19 * lines)


def step_of(names: Sequence[str], inches: float) -> int:
    """Every how many-th of the names can stand beside each other on so many inches."""
    one = 0.12 + 0.09 * max((len(name) for name in names), default=0)
    return max(-int(-len(names) * one // inches), 1)
