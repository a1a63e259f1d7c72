"""Thin or Wide: whether a program runs on one socket or several, judged by its walks and its memory.

vMitosis (Panwar et al., sections 2 and 3.4): a Thin workload fits one socket, its page tables should follow
it (migration); a Wide workload spans sockets, each of which needs a copy (replication).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import UNKNOWN_NODE
from ..core.trace import chunk_runs, give_back
from ..core.walks import threads_placed
from ..world.placement import RECORDED

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
    node_bytes     memory of the largest node of the captured machine; 0 where it has only one, or unknown
    assumed        where threads are taken to run, "" where that was recorded
    threads        that fit the CPUs of one node of the machine, 0 where they do not or numactl cannot bind
                   all page tables
    node           the first node with CPUs
    """

    walks: np.ndarray
    tables: np.ndarray
    mapped_bytes: int
    node_bytes: int
    assumed: str = ""
    threads: int = 0
    node: int = 0

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
        lines = [f"by the assumed placement, {self.assumed}"] if self.assumed else []
        lines += [
            self._whence(total),
            f"{100 * self.shared:.1f} % of {int(self.tables.sum())} touched leaf tables are walked through "
            "from more than one node",
        ]
        mapped = f"its leaf tables map at most {self.mapped_bytes / 2**30:.2f} GiB"
        if self.node_bytes:
            mapped += f", the captured machine's largest node has {self.node_bytes / 2**30:.2f} GiB"
        return [*lines, mapped, *filter(None, [self.fits])]

    @property
    def fits(self) -> str:
        """That a Wide program would fit one node, and how to run it there; "" elsewhere."""
        if self.thin is not False or not self.threads or 0 < self.node_bytes < self.mapped_bytes:
            return ""
        return (
            f"its {self.threads} threads fit one node: if its memory does, too, run it there (numactl "
            f"--cpunodebind={self.node} --membind={self.node} ./app), and all walks are local"
        )

    @property
    def doubt(self) -> str:
        """What stands against calling it Thin or Wide, in a line: an assumption, and a node that it fits."""
        assumed = f"{self.name} by the assumed placement: {self.assumed}" if self.assumed else ""
        fits = f"{self.fits[:1].upper()}{self.fits[1:]}"
        return " ".join(f"{line}." for line in (assumed, fits) if line)


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
    known = [n for n in world.snapshot.topology.nodes if n.id != UNKNOWN_NODE]
    frames = [int(np.diff(n.frames, axis=1).sum()) for n in known] if len(known) > 1 else [0]
    return Workload(walks, tables, mapped, max(frames) * PAGE_BYTES, *on_nodes(world))


def on_nodes(world: World) -> tuple[str, int, int]:
    """assumed, threads and node of Workload."""
    machine, how = world.machine, world.placement.how
    threads = len(np.unique(world.trace.chunks["thread"]))
    assumed = "" if threads < 2 or how.startswith(RECORDED) else threads_placed(how)
    could = world.snapshot.native and threads <= machine.cpus_per_node
    return assumed, threads if could else 0, machine.cpu_nodes[0]


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
