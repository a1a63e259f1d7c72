"""Plots of the API's tables: one function a plot, a DataFrame in, a matplotlib Figure out; nothing is shown.

`save(figure, "plot.svg")` writes one. A Figure draws itself in a notebook. Every title is computed from the
table and says what is to be seen; colours are Okabe's and Ito's, and nothing is told by colour alone.
All functions raise errors.UsageError where the table has nothing to draw.
"""

from .comparison import comparison
from .curve import curve
from .files import save
from .footprint import footprint
from .fragmentation import fragmentation
from .locality import locality
from .page_table_map import page_table_map
from .pareto import pareto
from .prediction import prediction
from .reads import reads
from .roofline import roofline
from .speedup import speedup
from .timeline import timeline

__all__ = [
    "comparison",
    "curve",
    "footprint",
    "fragmentation",
    "locality",
    "page_table_map",
    "pareto",
    "prediction",
    "reads",
    "roofline",
    "save",
    "speedup",
    "timeline",
]
