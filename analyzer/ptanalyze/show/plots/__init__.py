"""Plots of the API's tables: one function per plot, from a DataFrame to a matplotlib Figure, not shown.

`save(figure, "plot.svg")` writes a file. A Figure draws itself in a notebook. Every title is computed from
the table and states its main result; colours are Okabe's and Ito's, and nothing is shown by colour alone.
All functions raise errors.UsageError for a table with nothing to draw.
"""

from .locality import fragmentation, latency, locality, reads, timeline
from .page_table_map import changes, page_table_map, table_pages, walk, walk_map
from .speedup import comparison, curve, footprint, pareto, roofline, speedup
from .style import save

__all__ = [
    "changes",
    "comparison",
    "curve",
    "footprint",
    "fragmentation",
    "latency",
    "locality",
    "page_table_map",
    "pareto",
    "reads",
    "roofline",
    "save",
    "speedup",
    "table_pages",
    "timeline",
    "walk",
    "walk_map",
]
