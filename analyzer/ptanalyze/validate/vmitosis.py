"""vMitosis (ASPLOS 2021), figure by figure."""

from . import vmitosis_classes as classes
from . import vmitosis_moved as moved
from . import vmitosis_shadow as shadow
from . import vmitosis_tables as tables
from . import vmitosis_thin as thin
from . import vmitosis_wide as wide

FIGURES = {
    "Figure 1": thin.figure_1,
    "Figure 2": classes.figure_2,
    "Figure 3": thin.figure_3,
    "Figure 4": wide.figure_4,
    "Figure 5": wide.figure_5,
    "section 4.2.2, misplaced": wide.misplaced_replicas,
    "Figure 6": thin.figure_6,
    "Figure 6, modelled": moved.figure_6_modelled,
    "Table 4": tables.table_4,
    "Table 5": tables.table_5,
    "Table 5, migration": shadow.migration,
    "Table 6": tables.table_6,
    "section 1, section 5.2: reads of a cold walk": tables.cold_walks,
    "section 5.2: shadow paging": shadow.shadow,
}
