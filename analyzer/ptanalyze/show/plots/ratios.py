"""Axes of ratios: logarithmic where they span too much for a linear axis, with ticks in plain numbers."""

from collections.abc import Iterable
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

MOST_LINEAR = 5.0  # the largest over the smallest
SHOWN = 0.01  # of a speed-up to either side of 1


def fitted(axes: Axes, side: Literal["x", "y"], ratios: Iterable[float]) -> None:
    """Make the x or y axis logarithmic if the ratios, all above 0, span more than MOST_LINEAR."""
    known = [ratio for ratio in ratios if np.isfinite(ratio)]
    if max([*known, 1.0]) / min([*known, 1.0]) > MOST_LINEAR:
        logarithmic(axes, side, known)


def widened(axes: Axes, side: Literal["x", "y"], by: float = SHOWN) -> None:
    """Have the axis show at least 1 - by to 1 + by: what is less is not drawn as a difference."""
    low, high = axes.get_xlim() if side == "x" else axes.get_ylim()
    axes.set(**{f"{side}lim": (min(low, 1 - by), max(high, 1 + by))})


def logarithmic(axes: Axes, side: Literal["x", "y"], ratios: list[float]) -> None:
    axes.set(**{f"{side}scale": "log"})
    axis = axes.xaxis if side == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=subdivisions(ratios), numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if value < 1e5 else f"{value:.0e}"))
    axis.set_minor_formatter(NullFormatter())


def subdivisions(ratios: list[float]) -> list[float]:
    """Ticks within a decade: fewer for more decades."""
    decades = np.log10(max([*ratios, 1.0])) - np.log10(min([*ratios, 1.0]))
    if decades > 3:
        return [1.0]
    return [1.0, 2.0, 5.0] if decades > 0.6 else [1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0, 8.5]
