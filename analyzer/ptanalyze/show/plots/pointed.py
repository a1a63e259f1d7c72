"""Labels of points: to the right of the axes, each with a line to its point, none over another."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch
from matplotlib.transforms import ScaledTranslation

from .labels import WIDE, broken
from .style import GREY

LINE, AROUND = 0.2, 2.4  # inches: of a line of a label; of the figure above and below the axes
LEAD = 14.0  # points between the axes and the labels
COVERED = 0.012  # of the axes: points nearer to each other are one


def point_labels(
    axis: Axes, names: Sequence[str], x: Sequence[float], y: Sequence[float], values: Sequence[str] = ()
) -> None:
    """Label points of an axis, drawn before, with their values; the figure grows until all have room.

    Points that cover each other share a label.
    """
    figure = axis.figure
    assert isinstance(figure, Figure)
    axis.autoscale_view()  # limits that are still to come
    points = axis.transLimits.transform(axis.transScale.transform(np.column_stack([x, y])))
    groups = sorted(together(points), key=lambda of: uncrossed(*points[of[0]]))
    labels = [
        broken(joined([names[k] for k in of], [values[k] for k in of] if values else []), WIDE)
        for of in groups
    ]
    lines = np.array([1.2 + label.count("\n") for label in labels])
    high = max(figure.get_figheight() - AROUND, LINE * float(lines.sum()))
    figure.set_figheight(high + AROUND)
    at = spread(levelled(points[[of[0] for of in groups], 1]), LINE * lines / high)
    right = axis.twinx()
    right.set_ylim(0, 1)
    right.set_yticks(at, labels)
    right.tick_params(axis="y", length=0, pad=LEAD)
    right.grid(False)
    beside = axis.transAxes + ScaledTranslation((LEAD - 2) / 72, 0, figure.dpi_scale_trans)
    for of, place in zip(groups, at.tolist(), strict=True):
        point = (x[of[0]], y[of[0]])
        line = ConnectionPatch(
            point, (1, place), axis.transData, beside, color=GREY, linewidth=0.7, alpha=0.7
        )
        line.set_in_layout(False)
        axis.add_artist(line)


def uncrossed(x: float, y: float) -> float:
    """In what order, from the top, labels of points at one height have lines that do not cross.

    Labels of points in the lower half make room upwards: there the leftmost point has the highest label.
    """
    return x if y < 0.5 else -x


def levelled(heights: np.ndarray) -> np.ndarray:
    """Heights of which those that follow each other within COVERED are the same."""
    order = np.argsort(heights)
    lowest = np.diff(heights[order], prepend=-np.inf) >= COVERED
    levels = np.empty_like(heights)
    levels[order] = heights[order][lowest][np.cumsum(lowest) - 1]
    return levels


def together(points: np.ndarray) -> list[list[int]]:
    """Indices of points (shares of the axes) by the first that each lies on."""
    groups: list[list[int]] = []
    for k, point in enumerate(points):
        near = (of for of in groups if np.abs(points[of[0]] - point).max() < COVERED)
        of = next(near, None)
        groups.append([k]) if of is None else of.append(k)
    return groups


def joined(names: Sequence[str], values: Sequence[str]) -> str:
    """Names with their values; one value for all where it is the same."""
    if len(set(values)) > 1:
        return ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))
    return " ".join([", ".join(names), *values[:1]])


def spread(wanted: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Middles in 0..1, as near as can be to `wanted`, of labels that heights[k] keep apart.

    Equal ones stay in the given order, the first on top. The heights together are at most 1.
    """
    order = np.lexsort((np.arange(len(wanted)), -wanted))
    own = heights[order]
    packed = np.cumsum(own) - own / 2  # from the top, without gaps
    moved = isotonic(1 - wanted[order] - packed)
    places = np.empty(len(wanted))
    places[order] = 1 - packed - np.clip(moved, 0, 1 - own.sum())
    return places


def isotonic(values: np.ndarray) -> np.ndarray:
    """The nearest values that never fall, by pooling adjacent violators."""
    pools: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, count = value, 1
        while pools and pools[-1][0] > mean:
            before, many = pools.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        pools.append((mean, count))
    return np.repeat([mean for mean, _ in pools], [count for _, count in pools])
