"""Numbers of memory system calls in a trace, from which their cost is computed."""

from typing import NamedTuple

import numpy as np


class SystemCalls(NamedTuple):
    """int64[calls, nodes] each: [steps.CALLS, node of the calling CPU], the same under every policy.

    calls       successful calls, including those that changed nothing
    flushes     TLB flushes because valid entries changed
    shootdowns  flushes while other CPUs ran threads of the process
    """

    calls: np.ndarray
    flushes: np.ndarray
    shootdowns: np.ndarray
