"""Thin or Wide: whether a program runs on one socket or several, judged by its walks and its memory.

vMitosis (Panwar et al., sections 2 and 3.4): a Thin workload fits one socket, its page tables should follow
it (migration); a Wide workload spans sockets, each of which needs a copy (replication).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.arrays import chunk_runs
from ..core.mapped import give_back
from ..core.unknown_node import UNKNOWN_NODE

if TYPE_CHECKING:
    from ..world.world import World

THIN_SHARE = 0.9  # smallest share of walks from one node for a workload to count as Thin
PAGE_BYTES = 4096
ENTRIES = 512
WALKS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Workload:
    """
    walks          int64[sockets]  walks by the node they came from
    tables         int64[sockets + 1]  leaf tables by the number of nodes that walked through them; [0] unused
    mapped_bytes   upper bound of mapped memory: all leaf tables, each counted as full
    node_bytes     memory of the largest node of the captured machine, 0 where not known
    """

    walks: np.ndarray
    tables: np.ndarray
    mapped_bytes: int
    node_bytes: int

    @property
    def thin(self) -> bool | None:
        """Whether nearly all walks come from one node; None without walks."""
        total = int(self.walks.sum())
        return bool(self.walks.max() >= THIN_SHARE * total) if total else None

    @property
    def name(self) -> str:
        return {True: "Thin", False: "Wide", None: "unknown"}[self.thin]

    @property
    def spread(self) -> float:
        """Nodes that the walks come from, evenly weighted: 1 / sum of squared shares (inverse Simpson)."""
        share = self.walks / max(int(self.walks.sum()), 1)
        return float(1 / (share**2).sum()) if share.any() else 0.0

    @property
    def shared(self) -> float:
        """Share of touched leaf tables that more than one node walks through."""
        return float(self.tables[2:].sum() / max(int(self.tables.sum()), 1))

    def _whence(self, total: int) -> str:
        by_node = [f"node {n} {100 * w / total:.1f} %" for n, w in enumerate(self.walks) if w]
        if len(by_node) == 1:
            return f"all walks come from node {int(np.argmax(self.walks))}"
        return (
            f"walks come from {len(by_node)} nodes ({', '.join(by_node)}), as spread as "
            f"over {self.spread:.2f} nodes of equal shares"
        )

    def evidence(self) -> list[str]:
        """Lines for people."""
        total = int(self.walks.sum())
        if not total:
            return ["no trace: the nodes that the program walks from are not known"]
        lines = [
            self._whence(total),
            f"{100 * self.shared:.1f} % of {int(self.tables.sum())} touched leaf tables are walked through "
            "from more than one node",
        ]
        if self.node_bytes:
            lines.append(
                f"its leaf tables map at most {self.mapped_bytes / 2**30:.2f} GiB, the largest node has "
                f"{self.node_bytes / 2**30:.2f} GiB"
            )
        return lines


def workload(world: World) -> Workload:
    """Workload of a captured World; without a trace, only its memory."""
    space, tree = world.space, world.snapshot.guest
    walks = np.zeros(world.sockets, np.int64)
    tables = np.zeros(world.sockets + 1, np.int64)
    if world.traced:
        node = world.placement.cpu_node[world.placement.chunk_cpu] // world.domains
        np.add.at(walks, node, np.rint(world.walks_by_chunk).astype(np.int64))
        tables += np.bincount(_walked_by(world, node).sum(axis=0), minlength=len(tables))
        tables[0] = 0
    mapped = int(np.count_nonzero((tree.level == 1) & space.program_tables)) * ENTRIES * PAGE_BYTES
    frames = [
        int(np.diff(n.frames, axis=1).sum()) for n in world.snapshot.topology.nodes if n.id != UNKNOWN_NODE
    ]
    return Workload(walks, tables, mapped, max(frames, default=0) * PAGE_BYTES)


def _walked_by(world: World, node_of_chunk: np.ndarray) -> np.ndarray:
    """bool[sockets, touched leaf tables]: whether a node walks through a table."""
    rows, stream = world.history.rows, world.stream
    seen = np.zeros((world.sockets, len(rows.leaf)), bool)
    for first, last in chunk_runs(stream.offset, WALKS_AT_ONCE):
        page = stream.page[stream.offset[first] : stream.offset[last]]
        node = np.repeat(node_of_chunk[first:last], np.diff(stream.offset[first : last + 1]))
        seen[node, rows.of_region[page >> np.uint32(9)]] = True
        give_back(page)
    return seen
