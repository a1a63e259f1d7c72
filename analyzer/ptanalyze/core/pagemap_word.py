"""Bits of a word of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst)."""

import numpy as np

FRAME = np.uint64((1 << 55) - 1)  # of a present page; zeros where frames are hidden from the reader
PRESENT = np.uint64(1 << 63)
