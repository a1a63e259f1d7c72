"""Plots of the API's tables: one function per plot, from a DataFrame to a matplotlib Figure, not shown.

`save(figure, "plot.svg")` writes a file. A Figure draws itself in a notebook. Every title is computed from
the table and states its main result; colours are Okabe's and Ito's, and nothing is shown by colour alone.
All functions raise errors.UsageError for a table with nothing to draw.
"""

from .changes import changes
from .checks import checks
from .coefficients import coefficients
from .comparison import comparison
from .curve import curve
from .degrees import degrees
from .files import save
from .fit import fit
from .footprint import footprint
from .fragmentation import fragmentation
from .latency import latency
from .locality import locality
from .machines import machines
from .page_table_map import page_table_map
from .pareto import pareto
from .policies import policies
from .prediction import prediction
from .prediction_errors import prediction_errors
from .reads import reads
from .roofline import roofline
from .speedup import speedup
from .survey import survey
from .table_pages import table_pages
from .throughput import throughput
from .timeline import timeline
from .validation import validation
from .walk import walk
from .walk_map import walk_map

__all__ = [
    "changes",
    "checks",
    "coefficients",
    "comparison",
    "curve",
    "degrees",
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
