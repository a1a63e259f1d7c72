"""Demotion of data pages to slower memory: Linux's reclaim where there is a lower tier (mm/vmscan.c)."""

from typing import NamedTuple

import numpy as np

from .hooks import kernel
from .moving_pages import ANY, MARKED, NEXT_LOOK, put, shoot_down
from .steps import DATA, DEMOTION, HINT

HUGE = 512  # 4 KiB pages


class Demotion(NamedTuple):
    """idle    ns from one look at the accessed bits to the next; 0: nothing is demoted
    batch   4 KiB pages that are unmapped before a common shootdown
    target  int16[nodes]  node that pages of each node go to, -1: they stay
    """

    idle: int
    batch: int
    target: np.ndarray


@kernel
def demote(w, now, demotion, order, pages, first, state, out):
    """Demote what no walk has used since the last look, each node's pages by its own kswapd, by address.

    order, pages, first  as Where.order, pages, shootdowns

    Each entry is written twice: unmapped (try_to_migrate_one), set to the new page (remove_migration_pte).
    Between the two is the batch's shootdown (migrate_pages_batch), here after both. A huge page has one of
    its own (pmdp_invalidate) and ends its batch. Pages of 1 GiB are hugetlbfs's, which reclaim does not see.
    """
    state.clock[NEXT_LOOK] = now + demotion.idle
    for node in range(demotion.target.size):
        to, taken = demotion.target[node], np.int64(0)
        begun, last, end = np.int64(0), np.int64(0), np.int64(0)
        if to < 0:
            continue
        for row in order:
            size = pages[row]
            if size > HUGE:
                continue
            for slot in range(512):
                value = np.int64(state.guest[row, slot])
                if value < 0 or value & ~MARKED != node or state.used[row, slot]:
                    continue
                if taken and taken + size > demotion.batch:
                    shoot_down(w, last, end if begun == last else ANY, node, DEMOTION, first, state, out)
                    taken = 0
                put(state, out, w, HINT, row, slot, 0, 0, 0, 0, node, DEMOTION)
                put(state, out, w, DATA, row, slot, 0, node, -1, to, node, DEMOTION)
                state.guest[row, slot] = to
                begun, last, end = begun if taken else row, row, slot
                taken += size
        if taken:
            shoot_down(w, last, end if begun == last else ANY, node, DEMOTION, first, state, out)
    state.used[:] = False
