"""Counts by node folded to counts by socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..kernels.replay import Counters
    from ..world.world import World


def socket_of(world: World) -> np.ndarray:
    """int16[nodes]: socket of each node."""
    return (np.arange(world.nodes) // world.domains).astype(np.int16)


def folded(array: np.ndarray, axis: int, domains: int) -> np.ndarray:
    """The array with its axes `axis` and axis + 1, of nodes, by socket."""
    nodes = array.shape[axis] // domains
    shape = *array.shape[:axis], nodes, domains, nodes, domains, *array.shape[axis + 2 :]
    sums: np.ndarray = array.reshape(shape).sum(axis=(axis + 1, axis + 3))
    return sums


def by_socket(counters: Counters, domains: int) -> Counters:
    """Counters of sockets with `domains` nodes each: events between nodes of the same socket are local."""
    return counters._replace(
        reads=folded(counters.reads, 1, domains),
        events=folded(counters.events, 2, domains),
        host_events=folded(counters.host_events, 2, domains),
    )
