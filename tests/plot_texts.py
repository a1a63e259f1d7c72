"""What a Figure writes and where, by the renderer that draws it."""

from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text


def written(figure):
    """[(text, bounding box in pixels)] of everything that is drawn; ticks outside of an axis are not."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    hidden = {id(text) for axes in figure.axes for text in undrawn(axes)}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    renderer = canvas.get_renderer()
    return [(t.get_text(), t.get_window_extent(renderer)) for t in texts if id(t) not in hidden]


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
    found = []
    for (a, one), (b, other) in combinations(texts, 2):
        width = min(one.x1, other.x1) - max(one.x0, other.x0)
        height = min(one.y1, other.y1) - max(one.y0, other.y0)
        if width > 1 and height > 1:
            found.append((a, b))
    return found


def clipped(texts, whole):
    """Of `written` texts those that reach outside of the figure's box."""
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
