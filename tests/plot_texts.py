"""What a Figure writes and where, by the renderer that draws it."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text


def written(figure):
    """[(text, bounding box in pixels)] of everything that is drawn; ticks outside of an axis are not."""
    canvas = FigureCanvasAgg(figure)
    figure.set_layout_engine(None)  # it is laid out already
    figure.draw_without_rendering()
    hidden = {id(text) for axes in figure.axes for text in undrawn(axes)}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    renderer = canvas.get_renderer()
    return [(t.get_text(), t.get_window_extent(renderer)) for t in texts if id(t) not in hidden]


def words(figure):
    """Texts of a plot, which is laid out already: without drawing it again."""
    hidden = {id(text) for axes in figure.axes for text in undrawn(axes)}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and id(text) not in hidden]
    return [text.get_text() for text in texts if text.get_text().strip()]


def undrawn(axes):
    """Texts of axes that are off, and of ticks outside the limits."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        slack = 1e-9 * max(abs(low), abs(high), 1)
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            inside = low - slack <= tick.get_loc() <= high + slack
            yield from (label for label in (tick.label1, tick.label2) if not inside or not axes.axison)


def overlapping(texts):
    """Pairs of `written` texts that share more than a pixel's rim."""
    x0, y0, x1, y1 = np.array([box.extents for _, box in texts]).reshape(-1, 4).T
    width = np.minimum.outer(x1, x1) - np.maximum.outer(x0, x0)
    height = np.minimum.outer(y1, y1) - np.maximum.outer(y0, y0)
    pairs = np.argwhere(np.triu((width > 1) & (height > 1), 1)).tolist()
    return [(texts[one][0], texts[other][0]) for one, other in pairs]


def clipped(texts, whole):
    """Those `written` texts that reach outside the figure's box."""
    return [
        text
        for text, box in texts
        if box.x0 < whole.x0 - 1 or box.y0 < whole.y0 - 1 or box.x1 > whole.x1 + 1 or box.y1 > whole.y1 + 1
    ]


def readable(figure):
    """No text overlaps another or the figure's edge, none is below 10 points."""
    texts = written(figure)
    assert overlapping(texts) == [] and clipped(texts, figure.bbox) == []
    assert min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip()) >= 10
    return True
