"""What a narrow figure changes: labels that break, fewer ticks, a legend below everything."""

from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator
from matplotlib.transforms import ScaledTranslation

LABEL, PANEL, TICKS = 30, 46, 3  # characters of a line of a label or of a panel's title; intervals of an axis
GAP = 0.08  # inches above a legend


def fit(figure: Figure) -> None:
    """Break labels of axes and titles of panels; leave out ticks that would touch."""
    label = LABEL // (1 if panels_beside(figure) == 1 else 2)
    for axis in figure.axes:
        axis.set_xlabel(fill(axis.get_xlabel().replace("\n", " "), label))
        axis.set_ylabel(fill(axis.get_ylabel().replace("\n", " "), LABEL))
        for where in ("left", "center"):
            axis.set_title(
                "\n".join(fill(line, PANEL) for line in axis.get_title(where).split("\n")), loc=where
            )
        if isinstance(axis.xaxis.get_major_locator(), AutoLocator):
            axis.locator_params(axis="x", nbins=TICKS)


def panels_beside(figure: Figure) -> int:
    """The most panels beside each other."""
    return max(
        (spec.get_gridspec().ncols for axis in figure.axes if (spec := axis.get_subplotspec())), default=1
    )


def legend_below(figure: Figure, handles: Any, labels: Any, **how: Any) -> None:
    """A legend below the lowest axes on the left and what is written there."""
    fit(figure)
    axis = lowest(figure)
    renderer: Any = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    written = axis.xaxis.get_tightbbox(renderer)
    down = (axis.bbox.y0 - written.y0) / figure.dpi if written is not None else 0.0
    moved = axis.transAxes + ScaledTranslation(0, -down - GAP, figure.dpi_scale_trans)
    axis.legend(handles, labels, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=moved, **how)


def lowest(figure: Figure) -> Axes:
    def place(axis: Axes) -> tuple[int, int]:
        spec = axis.get_subplotspec()
        return (spec.rowspan.stop, -spec.colspan.start) if spec else (0, 0)

    return max(figure.axes, key=place)
