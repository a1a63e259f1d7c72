"""The second filter of pintool/second.h: a chunk's touches without those of the page last in its set.

What it leaves out mostly hits in a second-level TLB. Not all does, so that some runs of chunks are kept from
it: world/second_filter.py measures in them how wrong the number of walks is.
"""

import numpy as np

from .decode import COUNT_MAX
from .hooks import allocating_kernel


@allocating_kernel
def keep_again(page, write, count, sets):
    """bool[n]: touches of a chunk to keep; `count` of the others is added to the last kept one of their page.

    page int64[n], write bool[n], count int64[n] (1 to COUNT_MAX)
    """
    kept = np.ones(len(page), np.bool_)
    last = np.full(sets, -1, np.int64)  # kept touch of each set
    for i in range(len(page)):
        before = last[page[i] % sets]
        if (
            before >= 0
            and page[before] == page[i]
            and write[before] >= write[i]
            and count[before] + count[i] <= COUNT_MAX
        ):
            count[before] += count[i]
            kept[i] = False
        else:
            last[page[i] % sets] = i
    return kept
