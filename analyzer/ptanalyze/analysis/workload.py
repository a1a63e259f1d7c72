"""How a program runs: which nodes walk, what they share, whether one node would do, who allocates its memory.

vMitosis (Panwar et al., sections 2 and 3.4): a Thin workload fits one socket, its page tables should follow
it (migration); a Wide workload spans sockets, each of which needs a copy (replication).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import UNKNOWN_NODE
from ..core.messages import message
from ..core.snapshot import blocks, leaf
from ..core.trace import chunk_runs, give_back, threads_placed
from ..world.mm_events import allowed
from ..world.scaling import mapped_bytes
from ..world.thread_placement import RECORDED

if TYPE_CHECKING:
    from ..core.snapshot import Snapshot, Tree
    from ..world.scenario import Scenario

THIN_SHARE = 0.9  # smallest share of walks from one node for a workload to count as Thin
PAGE_BYTES = 4096
WALKS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Workload:
    """
    walks          int64[nodes]  walks by the node they came from
    tables         int64[nodes + 1]  leaf tables by the number of nodes that walked through them; [0] unused
    memory_bytes   mapped by the run that is asked for
    node_bytes     memory of the largest node of the captured machine; 0 where it has only one, or unknown
    assumed        where threads are taken to run, "" where that was recorded
    threads        that one node of the machine has CPUs for; 0 where it has not, where numactl cannot bind
                   all page tables, or where no node is known to hold the memory of a larger run; without a
                   trace, busy CPUs
    node           the first node with CPUs
    vm             of a VM's guest: whether it is shown the nodes; None: no VM
    host_small     of what the host maps, the share by 4 KiB pages, counted in 2 MiB
    on_host        Machine.on_host
    allocator      of most of its memory, as `allocator`
    huge_pages     what the process may have, as mm_events.allowed
    """

    walks: np.ndarray
    tables: np.ndarray
    memory_bytes: int = 0
    node_bytes: int = 0
    assumed: str = ""
    threads: int = 0
    node: int = 0
    vm: bool | None = None
    host_small: float = 0.0
    on_host: Callable[[int], tuple[int, ...]] = lambda node: (node,)
    allocator: str = ""
    huge_pages: str | None = None

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

    def evidence(self) -> list[str]:
        """Lines for people."""
        walks = {f"node {node}": count / self.walks.sum() for node, count in enumerate(self.walks) if count}
        if not walks:
            return [str(message("workload", "no-trace"))]
        nodes = ", ".join(f"{node} {100 * share:.1f} %" for node, share in walks.items())
        lines = [message("workload", "assumed", where=self.assumed)] if self.assumed else []
        lines.append(message("workload", "from", nodes=nodes, spread=self.spread))
        lines.append(message("workload", "shared", share=self.shared, tables=int(self.tables.sum())))
        sizes = {"memory": self.memory_bytes, "node": self.node_bytes}
        lines.append(message("workload", "memory-of-node" if self.node_bytes else "memory", **sizes))
        return [*map(str, lines)]

    @property
    def fits(self) -> bool:
        """Whether a Wide program would fit one node."""
        return self.thin is False and self.may_fit_one_node

    @property
    def may_fit_one_node(self) -> bool:
        """Whether its threads fit one node, and its memory as far as is known."""
        return self.threads > 0 and not 0 < self.node_bytes < self.memory_bytes

    @property
    def walker(self) -> int:
        """The host's number of the node that most walks come from."""
        return self.on_host(int(self.walks.argmax()))[0]


def workload(scenario: Scenario) -> Workload:
    """Workload of a captured Scenario; without a trace, only its memory."""
    snapshot, machine = scenario.snapshot, scenario.machine
    walks = np.zeros(scenario.nodes, np.int64)
    tables = np.zeros(scenario.nodes + 1, np.int64)
    if scenario.traced:
        node = scenario.placement.cpu_node[scenario.placement.chunk_cpu]
        np.add.at(walks, node, np.diff(scenario.stream.offset))
        tables += np.bincount(_walked_by(scenario, node).sum(axis=0), minlength=len(tables))
        tables[0] = 0
    memory = round(scenario.times_captured * scenario.extent[0])
    nodes = [node for node in snapshot.topology.nodes if node.id != UNKNOWN_NODE]
    frames = [int(np.diff(node.frames, axis=1).sum()) for node in nodes] if len(nodes) > 1 else [0]
    room = max(frames) * PAGE_BYTES
    how, threads = scenario.placement.how, threads_of(scenario)
    unheld = scenario.growth.factor > 1 and not memory <= room  # nor where a node's size is not known
    could = snapshot.native and threads <= machine.cpus_per_node and not unheld
    vm: tuple[bool, float] = (True, 0.0)
    if not snapshot.native:
        vm = not snapshot.numa_oblivious, small_share(snapshot.nested)
    return Workload(
        walks,
        tables,
        memory,
        room,
        "" if threads < 2 or not how or how.startswith(RECORDED) else threads_placed(how),
        threads if could else 0,
        machine.cpu_nodes[0],
        None if snapshot.native else vm[0],
        vm[1],
        machine.on_host,
        allocator(snapshot),
        allowed(snapshot, scenario.trace),
    )


def threads_of(scenario: Scenario) -> int:
    """Number of threads; without a trace, of busy CPUs."""
    heat = scenario.snapshot.heat
    if not scenario.traced and heat is not None and heat.footprint is not None:
        return int(np.ceil(heat.footprint.cpus))
    return len(np.unique(scenario.trace.chunks["thread"]))


def small_share(tree: Tree) -> float:
    """Share of the 2 MiB regions of a Tree with a leaf table; larger pages count by their size."""
    small, huge = int(np.count_nonzero(tree.level == 1)), 0
    for level, _, raw in blocks(tree, (2, 3)):
        huge += int(np.count_nonzero(leaf(raw, level, tree.encoding))) << 9 * (level - 2)
    return small / max(small + huge, 1)


def _walked_by(scenario: Scenario, node_of_chunk: np.ndarray) -> np.ndarray:
    """bool[nodes, touched leaf tables]: whether a node walks through a table."""
    rows, stream = scenario.history.rows, scenario.stream
    seen = np.zeros((scenario.nodes, len(rows.leaf)), bool)
    for first, last in chunk_runs(stream.offset, WALKS_AT_ONCE):
        page = stream.page[stream.offset[first] : stream.offset[last]]
        node = np.repeat(node_of_chunk[first:last], np.diff(stream.offset[first : last + 1]))
        seen[node, rows.of_region[page >> np.uint32(9)]] = True
        give_back(page)
    return seen


# Who allocates: a line about huge pages does something only for the allocator that it names.

LIBRARIES = {"libjvm.so": "java", "libjemalloc": "jemalloc", "libtcmalloc": "tcmalloc"}
ARENA = 64 << 20  # bytes, at whose multiples glibc maps what threads allocate from (HEAP_MAX_SIZE)
REDIS = ("/redis-server", "/valkey-server")  # turn huge pages off unless told otherwise


def allocator(snapshot: Snapshot) -> str:
    """Who allocates most of a program's memory, by its mappings: "java", "jemalloc", "tcmalloc", "redis"
    (jemalloc, huge pages off), "glibc" (its heap and the arenas of its threads), "anonymous" (any mmap),
    "file" (or shared memory), "" nothing is mapped."""
    vmas, names = snapshot.vmas, [name.removesuffix(" (deleted)") for name in snapshot.vma_names]
    mapped = mapped_bytes(snapshot)[:-1]
    if not mapped.any():
        return ""
    unnamed = np.array([not name or name.startswith(("[heap]", "[anon")) for name in names])
    anonymous = ~vmas["shared"] & unnamed
    if 2 * mapped[anonymous].sum() < mapped.sum():
        return "file"
    files = [name for name, own in zip(names, ~vmas["emulator"], strict=True) if own and "/" in name]
    for library, code in LIBRARIES.items():
        if any(library in name for name in files):
            return "redis" if code == "jemalloc" and any(name.endswith(REDIS) for name in files) else code
    arena = (vmas["start"] % np.uint64(ARENA) == 0) & (vmas["end"] - vmas["start"] <= ARENA)
    malloc = anonymous & (arena | np.array([name == "[heap]" for name in names]))
    glibc = any(name.endswith("/libc.so.6") for name in files)
    return "glibc" if glibc and 2 * mapped[malloc].sum() >= mapped[anonymous].sum() else "anonymous"
