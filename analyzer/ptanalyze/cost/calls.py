"""How many system calls on memory a trace made: what their price is made of."""

from typing import NamedTuple

import numpy as np


class SystemCalls(NamedTuple):
    """int64[calls, nodes] each: [steps.CALLS, node of the calling CPU], the same under every policy.

    calls       that succeeded, those that changed nothing included
    flushes     TLB flushes because valid entries changed
    shootdowns  of these, while other CPUs ran threads of the process
    """

    calls: np.ndarray
    flushes: np.ndarray
    shootdowns: np.ndarray
