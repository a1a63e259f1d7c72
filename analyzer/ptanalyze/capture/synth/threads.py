"""The CPU, node and part of the dataset of each thread."""

from dataclasses import dataclass

import numpy as np

from ...core.errors import is_whole
from .parameters import Parameters, refused


@dataclass(frozen=True)
class Threads:
    """T threads, a CPU each; CPU numbers are those of the machine, or of the VM (vCPUs).

    node      int16[T]      at first
    cpu       int16[T]      at first; moved_cpu  int16[T]  after the move, the same where a thread stays
    cpu_node  int16[CPUs]   every node has as many CPUs
    part      int64[T + 1]  thread t's own pages are part[t]..part[t + 1] - 1
    """

    node: np.ndarray
    cpu: np.ndarray
    moved_cpu: np.ndarray
    cpu_node: np.ndarray
    part: np.ndarray

    def __len__(self) -> int:
        return len(self.node)


def threads_of(asked: Parameters, count: int, pages: int, move: tuple[int, int, float] | None) -> Threads:
    """Threads of Parameters; move  (source, target, when) nodes or None.

    UsageError for unknown nodes, and for more threads than there are 2 MiB regions.
    """
    node = spread(asked.threads_to_nodes, count, asked.nodes)
    regions = pages >> 9
    if count > regions:
        raise refused("threads", count, f"at most {regions}, one per 2 MiB region of the dataset")
    part = (np.arange(count + 1) * regions // count) << 9
    part[-1] = pages
    later = node if move is None else np.where(node == move[0], move[1], node)
    if move is not None and (node == later).all():
        raise refused("move", asked.move, f"no thread runs on node {move[0]}")
    used, moves = np.zeros(asked.nodes, np.int64), later != node
    at_first = places(node, used)
    place = at_first.copy()
    place[moves] = places(later[moves], used)
    each = int(used.max())
    cpu_node = np.repeat(np.arange(asked.nodes, dtype=np.int16), each)
    cpu, moved = (
        (n.astype(np.int64) * each + k).astype(np.int16) for n, k in ((node, at_first), (later, place))
    )
    return Threads(node, cpu, moved, cpu_node, part)


def places(nodes: np.ndarray, used: np.ndarray) -> np.ndarray:
    """int64[n]: for each of `nodes` the next free place on it; `used` (int64[N]) counts them."""
    places_on = np.zeros(len(nodes), np.int64)
    for i, node in enumerate(nodes.tolist()):
        places_on[i] = used[node]
        used[node] += 1
    return places_on


def spread(how: str, count: int, nodes: int) -> np.ndarray:
    """int16[count]: "round-robin", "block", or a node for each thread as in "0,0,1,1"."""
    order = np.arange(count)
    if how == "round-robin":
        return (order % nodes).astype(np.int16)
    if how == "block":
        return (order * nodes // count).astype(np.int16)
    parts = how.split(",")
    if not all(is_whole(part.strip()) and int(part) < nodes for part in parts):
        allowed = f'round-robin, block, or a node of 0..{nodes - 1} for each thread as in "0,0,1,1"'
        raise refused("threads_to_nodes", how, allowed)
    if len(parts) != count:
        raise refused("threads_to_nodes", how, f"{len(parts)} nodes for {count} threads")
    return np.array([int(part) for part in parts], np.int16)
