"""Mitosis (ASPLOS 2020), figure by figure."""

from . import mitosis_law as law
from . import mitosis_poster as poster

FIGURES = {
    "Figure 6": law.figure_6,
    "Figure 9": law.figure_9,
    "Figure 10": law.figure_10,
    "Table 5": law.table_5,
    "poster": poster.poster,
}
