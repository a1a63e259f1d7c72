"""A machine whose remote nodes are so many times as far as a node's own memory."""

import msgspec
import numpy as np

from .errors import UsageError
from .machine import Latency, Machine, Matrix

MOST = 1000  # remote over local latency


def at_latency_ratio(machine: Machine, ratio: float) -> Machine:
    """The Machine with remote nodes at `ratio` times the reader's own latency, idle and loaded.

    Nodes without CPUs, and nodes no farther than a node's own memory, stay as they are. UsageError for a
    ratio outside 1 to MOST, and for a machine without remote nodes.
    """
    if not 1 <= ratio <= MOST:
        raise UsageError(f"latency_ratio = {ratio:g}: remote over local latency, from 1 to {MOST}")
    idle, loaded = machine.latency.idle, machine.latency.contended
    far = np.asarray(idle) > np.diagonal(np.asarray(idle))[:, None]
    slow = list(machine.memory_nodes)
    far[slow], far[:, slow] = False, False
    if not far.any():
        raise UsageError(f"latency_ratio = {ratio:g}: machine {machine.name} has no remote nodes with CPUs")
    latency = Latency(
        idle=_stretched(idle, far, ratio),
        contended=None if loaded is None else _stretched(loaded, far, ratio),
    )
    name = f"{machine.name}, remote {ratio:g} times local"
    return msgspec.structs.replace(machine, name=name, latency=latency)


def _stretched(matrix: Matrix, far: np.ndarray, ratio: float) -> Matrix:
    """The latencies, those `far` (bool[nodes, nodes]) at `ratio` times the reader's own."""
    latency = np.asarray(matrix)
    stretched = np.where(far, np.diagonal(latency)[:, None] * ratio, latency)
    return tuple(tuple(row) for row in stretched.tolist())
