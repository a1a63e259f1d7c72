"""Where do page walks go on a NUMA machine, and what would a better page-table placement change?"""

__version__ = "0.1.0.dev0"
