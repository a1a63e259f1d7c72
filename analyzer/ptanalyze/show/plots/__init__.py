"""Plots of the API's tables: one function per plot, from a DataFrame to a matplotlib Figure, not shown.

`save(figure, "plot.svg")` writes a file. A Figure draws itself in a notebook. Every title is computed from
the table and states its main result; colours are Okabe's and Ito's, and nothing is shown by colour alone.
All functions raise errors.UsageError for a table with nothing to draw.
"""

from ...core.lazy import attach

API, __getattr__ = attach(__name__, __file__)
__all__ = list(API)
