"""Where each plot is defined: __init__.py reads it, so that drawing one imports no other."""

from .locality import fragmentation as fragmentation
from .locality import latency as latency
from .locality import locality as locality
from .locality import reads as reads
from .locality import timeline as timeline
from .page_table_map import changes as changes
from .page_table_map import page_table_map as page_table_map
from .page_table_map import table_pages as table_pages
from .page_table_map import walk as walk
from .page_table_map import walk_map as walk_map
from .speedup import comparison as comparison
from .speedup import curve as curve
from .speedup import footprint as footprint
from .speedup import pareto as pareto
from .speedup import roofline as roofline
from .speedup import speedup as speedup
from .style import save as save
