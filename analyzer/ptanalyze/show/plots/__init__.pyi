"""Where each plot is defined: __init__.py reads it, so that drawing one imports no other."""

from .localities import fragmentation as fragmentation
from .localities import latency as latency
from .localities import locality as locality
from .localities import reads as reads
from .localities import timeline as timeline
from .speedups import comparison as comparison
from .speedups import curve as curve
from .speedups import footprint as footprint
from .speedups import pareto as pareto
from .speedups import roofline as roofline
from .speedups import speedup as speedup
from .style import save as save
from .table_maps import changes as changes
from .table_maps import page_table_map as page_table_map
from .table_maps import table_pages as table_pages
from .table_maps import walk as walk
from .table_maps import walk_map as walk_map
