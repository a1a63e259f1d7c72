"""Latencies of cache-line transfers between pairs of CPUs: checked to be possible and symmetric."""

from collections.abc import Sequence
from os import PathLike

import numpy as np

from .errors import CaptureError

# Neighbours in the sorted latencies that differ by less belong to the same level. vMitosis, Table 4:
# 62 / 50 = 1.24 is the whole spread of the level within sockets, 125 / 62 = 2.02 the gap to the level across.
GAP = 1.3
LEAST_NS, MOST_NS = 0.1, 1e9  # below a clock cycle, above a second: no transfer of a cache line


def known_pairs(
    matrix: np.ndarray, cpus: Sequence[int], name: str | PathLike[str] = "latency matrix"
) -> np.ndarray:
    """float64[n, n], symmetric: the faster direction of each pair (interference only slows), nan where none
    is known and on the diagonal. CaptureError names the CPUs of a pair with an impossible latency, or with
    two different ones."""
    ns, cpus = np.array(matrix, np.float64), [int(cpu) for cpu in cpus]
    if ns.shape != (len(cpus), len(cpus)):
        why = f"must be square, one row and column per CPU ({len(cpus)})"
        raise CaptureError(name, "shape", ns.shape, why)
    if len(cpus) < 2:
        raise CaptureError(name, "CPUs", len(cpus), "a pair needs two")
    if len(set(cpus)) < len(cpus):
        raise CaptureError(name, "CPU", next(cpu for cpu in cpus if cpus.count(cpu) > 1), "named twice")
    np.fill_diagonal(ns, np.nan)
    for a, b in np.argwhere((ns < LEAST_NS) | (ns > MOST_NS))[:1]:
        why = f"expected ns from {LEAST_NS} to {MOST_NS:.0e}, or - where a pair was not measured"
        raise CaptureError(name, f"[{cpus[a]}][{cpus[b]}]", ns[a, b], why)
    for a, b in np.argwhere(ns > GAP * ns.T)[:1]:
        why = f"but [{cpus[b]}][{cpus[a]}] = {ns[b, a]}, more than noise ({GAP} times) apart: measure again"
        raise CaptureError(name, f"[{cpus[a]}][{cpus[b]}]", ns[a, b], why)
    return np.fmin(ns, ns.T)
