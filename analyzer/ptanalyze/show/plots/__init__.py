"""Plots of the API's tables: one function per plot, from a DataFrame to a matplotlib Figure, not shown.

`save(figure, "plot.svg")` writes a file. A Figure draws itself in a notebook. Every title is computed from
the table and states its main result; colours are Okabe's and Ito's, and nothing is shown by colour alone.
All functions raise errors.UsageError for a table with nothing to draw.
"""

from .fragmentation import checks, fit, fragmentation
from .latency import latency, machines, policies
from .locality import changes, locality, reads, survey, table_pages
from .page_table_map import page_table_map, walk, walk_map
from .speedup import comparison, curve, footprint, pareto, speedup
from .style import save
from .timeline import roofline, throughput, timeline
from .validation import coefficients, prediction, prediction_errors, validation

__all__ = [
    "changes",
    "checks",
    "coefficients",
    "comparison",
    "curve",
    "fit",
    "footprint",
    "fragmentation",
    "latency",
    "locality",
    "machines",
    "page_table_map",
    "pareto",
    "policies",
    "prediction",
    "prediction_errors",
    "reads",
    "roofline",
    "save",
    "speedup",
    "survey",
    "table_pages",
    "throughput",
    "timeline",
    "validation",
    "walk",
    "walk_map",
]
