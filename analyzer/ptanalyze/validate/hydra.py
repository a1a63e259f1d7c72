"""Hydra (USENIX ATC 2024), figure by figure.

Figures 3 and 4 have no number in the text. Everything is replayed on machine hydra-haswell.
"""

from . import hydra_calls as calls
from . import hydra_cases as cases
from . import hydra_placement as placement
from . import hydra_tables as tables

FIGURES = {
    "Figure 1": calls.figure_1,
    "Figure 2": calls.figure_2,
    "Figure 6": placement.figure_6,
    "Figure 7": placement.figure_7,
    "Figure 8": placement.figure_8,
    "Figure 9": calls.figure_9,
    "Figure 10": calls.figure_10,
    "Figure 11": cases.figure_11,
    "Figure 12": cases.figure_12,
    "Figure 13": cases.figure_13,
    "Figure 14": cases.figure_14,
    "Table 4": tables.table_4,
    "section 7.0.3": tables.radixvm,
}
