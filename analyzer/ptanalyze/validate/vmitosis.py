"""vMitosis (ASPLOS 2021), figure by figure."""

from . import vmitosis_tables as tables

FIGURES = {
    "Table 4": tables.table_4,
    "Table 5": tables.table_5,
    "Table 6": tables.table_6,
    "section 1, section 5.2: reads of a cold walk": tables.cold_walks,
}
