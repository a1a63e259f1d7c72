"""Share of a guest's leaf tables in regions that the host maps as a whole."""

from .entries import X86, frame, mapped
from .hooks import kernel


@kernel
def count_covered(entries, tables, pages, leaves, covered):
    """leaves[i] = mapped x86 entries of leaf table tables[i] (all int64); covered[i] = those in full regions.

    entries  uint64[T, 512]
    pages    uint16[D]  by guest frame >> 9: number of the region's 512 pages that the host maps
    """
    for i in range(len(tables)):
        run = entries[tables[i]]
        n = full = 0
        for k in range(len(run)):
            if mapped(run[k], 1, X86):
                n += 1
                region = frame(run[k], 1, X86) >> 9
                full += region < len(pages) and pages[region] == 512
        leaves[i], covered[i] = n, full
