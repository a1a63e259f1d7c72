"""How wide plots are drawn: for a slide or a page, or narrow for a phone."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

WIDTH, NARROW = 9.0, 4.2  # inches
NARROW_NAME = 20  # characters per line of a row's name

_width: ContextVar[float] = ContextVar("width", default=WIDTH)


@contextmanager
def narrow() -> Iterator[None]:
    """Plots drawn within are NARROW inches wide: names break earlier, panels are below each other."""
    before = _width.set(NARROW)
    try:
        yield
    finally:
        _width.reset(before)


def width() -> float:
    """Inches."""
    return _width.get()


def is_narrow() -> bool:
    return width() < WIDTH


def scaled(wide: int) -> int:
    """So many of what fits `wide` times into WIDTH."""
    return max(int(wide * width() / WIDTH), 1)


def beside(inches: float) -> float:
    """Of `inches` for panels within WIDTH, what a plot of this width has: the rest beside them stays."""
    return max(width() - (WIDTH - inches), NARROW / 2)
