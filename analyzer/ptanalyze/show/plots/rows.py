"""Rows of a plot: names on the left, numbers on the right."""

from collections.abc import Sequence

from matplotlib.axes import Axes


def name_rows(axis: Axes, names: Sequence[str], numbers: Sequence[str], lines: bool = True) -> None:
    """Names and numbers of rows 0, 1, ... from the top; lines: vertical grid lines stay."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    numbers_beside(axis, numbers, lines)


def numbers_beside(axis: Axes, numbers: Sequence[str], lines: bool = True) -> None:
    """Numbers at the right of rows 0, 1, ... of an axis whose limits are set."""
    right = axis.twinx()
    right.set_ylim(axis.get_ylim())
    right.set_yticks(range(len(numbers)), numbers)
    for side in (axis, right):
        side.tick_params(axis="y", length=0)
        side.grid(False, axis="y" if lines else "both")
