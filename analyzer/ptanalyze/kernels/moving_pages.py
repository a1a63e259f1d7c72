"""State of the pass that moves data pages (kernels.data_moves), and the steps that it writes.

A page is int8: its node, MARKED added where the scan has marked it; NOT_MAPPED - n where it is not mapped and
will be on node n; NOWHERE where it is not mapped and its first touch decides.
"""

from typing import NamedTuple

import numpy as np

from .hooks import hook
from .steps import FLUSH

NOWHERE, NOT_MAPPED = -1, -2
MARKED = 64
CHUNK, WALK, STEP, NEXT_SCAN, ROW, SLOT, FLUSHES, OUT, REFILLED, STOP = range(10)
ANY = -1  # instead of a slot: a FLUSH of pages of several tables


class State(NamedTuple):
    """guest int8[L, 512], host int8[H, 512]: pages; clock int64[10], credit float64[1] in pages."""

    guest: np.ndarray
    host: np.ndarray
    clock: np.ndarray
    credit: np.ndarray


@hook
def put(state, out, at, kind, row, lo, hi, was, number, to, node, call):
    """Write a step; operands as in Steps."""
    k = state.clock[OUT]
    out.at[k], out.kind[k], out.row[k], out.lo[k], out.hi[k] = at, kind, row, lo, hi
    out.was[k], out.number[k], out.to[k], out.node[k], out.call[k] = was, number, to, node, call
    state.clock[OUT] = k + 1


@hook
def shoot_down(at, row, slot, node, call, first, state, out):
    """A FLUSH of the page of a slot, in row and lo, or of ANY; first: number of the pass's first one."""
    put(state, out, at, FLUSH, row, slot, 0, 0, first + state.clock[FLUSHES], 0, node, call)
    state.clock[FLUSHES] += 1
