"""What a figure answers where the pointer is: a text for places of its axes."""

from collections.abc import Iterator
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

LEAST = 12.0  # points: smallest side of a spot


class Spot(NamedTuple):
    """A place of a figure, in per cent of its width and height from the top left, and what it says."""

    left: float
    top: float
    width: float
    height: float
    says: str


_noted: WeakKeyDictionary[Figure, list[tuple[Axes, np.ndarray, str]]] = WeakKeyDictionary()


def note(axis: Axes, says: str, x: tuple[float, float], y: tuple[float, float]) -> None:
    """The figure says this of a box, in the axes' data; a box without extent is a point."""
    figure = axis.figure
    if isinstance(figure, Figure):
        _noted.setdefault(figure, []).append((axis, np.column_stack([x, y]).astype(float), says))


def spots(figure: Figure) -> Iterator[Spot]:
    """Spots of a figure that is laid out, in the order of their notes."""
    whole = np.array([figure.bbox.width, figure.bbox.height])
    least = LEAST * figure.dpi / 72
    for axis, box, says in _noted.get(figure, ()):
        limits = np.sort(np.column_stack([axis.get_xlim(), axis.get_ylim()]), axis=0)
        corners = axis.transData.transform(np.clip(np.sort(box, axis=0), *limits))
        low, high = corners.min(axis=0), corners.max(axis=0)
        grown = np.maximum(least - (high - low), 0) / 2
        (left, bottom), (right, top) = 100 * (low - grown) / whole, 100 * (high + grown) / whole
        yield Spot(left, 100 - top, right - left, top - bottom, says)
