"""Page frames renumbered node by node, in order, keeping everything that results depend on.

Frames move in units: the aligned 1 GiB around a 1 GiB page, else an aligned 2 MiB region. A unit keeps its
inner order, so huge pages stay whole and aligned; units of a node keep theirs. A node's units stand at the
start of a new range as long as the node's memory; units that no single node owns follow after all nodes, and
the new topology divides them as the old one did. Frames between units are forgotten.
"""

from dataclasses import dataclass, replace

import numpy as np

from ...core import snapshot as bits
from ...core.errors import UsageError
from ...core.snapshot import Topology, Tree

Ranges = list[tuple[int, int, int]]  # first frame, one past the last, node

REGION, GIANT = 1 << 9, 1 << 18  # frames of a 2 MiB and of a 1 GiB unit
MIXED = -2  # pseudo node of units with several owners or none
MOST_FRAMES = 1 << 40


@dataclass(frozen=True)
class FrameMap:
    """start, new int64[U]: old (sorted) and new first frame of each unit; topology: with new ranges."""

    start: np.ndarray
    new: np.ndarray
    topology: Topology

    def frames(self, frames: np.ndarray) -> np.ndarray:
        """int64: new number of each frame that the mapped tree names; -1 (unknown) stays."""
        frames = np.asarray(frames, np.int64)
        if not len(self.start):
            return np.full(frames.shape, -1)
        at = np.clip(np.searchsorted(self.start, frames, side="right") - 1, 0, None)
        return np.where(frames < 0, -1, self.new[at] + frames - self.start[at])

    def entries(self, raw: np.ndarray, level: int, encoding: str) -> np.ndarray:
        """uint64, the shape of `raw`: entries of tables at `level`; those that map nothing are zero."""
        mapped, leaf = bits.mapped(raw, level, encoding), bits.leaf(raw, level, encoding)
        out = np.zeros_like(raw)
        for chosen, leaves in ((mapped & leaf, True), (mapped & ~leaf, False)):
            old = raw[chosen]
            number = self.frames(bits.frame(old, level, encoding, leaves)).astype(np.uint64) << np.uint64(12)
            if encoding == "x86":
                number = np.where(bits.inaccessible(old, level), ~number, number)
            mask = address_mask(level, leaves)
            out[chosen] = old & ~mask | number & mask
        return out


def address_mask(level: int, leaves: bool) -> np.uint64:
    """The bits of an entry that hold its frame: a huge page's low bits are flags (bit 12: PAT)."""
    low = 3 + 9 * level if leaves else 12
    return np.uint64((1 << 52) - (1 << low))


def frame_map(tree: Tree, topology: Topology) -> FrameMap:
    """FrameMap of every frame that `tree` names: of its tables, behind its entries, of whole huge pages."""
    regions, giants = units_of(tree)
    regions = regions[~np.isin(regions >> 9, giants)]
    start = np.concatenate([giants * GIANT, regions * REGION])
    size = np.repeat([GIANT, REGION], [len(giants), len(regions)])
    owner = owners(start, size, topology)
    shared = [part for i in straddling(start, size, topology) for part in parts(start[i], size[i], topology)]
    new, ranges, at = np.zeros(len(start), np.int64), [], 0
    for node in topology.nodes:
        at = -(-at // GIANT) * GIANT
        place(owner == node.id, start, size, at, new)
        elsewhere = sum(b - a for a, b, who in shared if who == node.id)
        length = int((node.frames[:, 1] - node.frames[:, 0]).sum()) - elsewhere
        ranges.append((at, at + length, node.id))
        at += length
    at = -(-at // GIANT) * GIANT
    place(owner == MIXED, start, size, at, new)
    if at + int(size[owner == MIXED].sum()) > MOST_FRAMES:
        raise UsageError("frames: more of them than addresses of 52 bits can number")
    order = np.argsort(start)
    made = FrameMap(start[order], new[order], topology)
    for a, b, who in shared:
        first = int(made.frames(np.array([a]))[0])
        ranges.append((first, first + b - a, who))
    return replace(made, topology=with_ranges(topology, ranges))


def place(mine: np.ndarray, start: np.ndarray, size: np.ndarray, at: int, new: np.ndarray) -> None:
    """Number the units `mine` from `at` on, those of 1 GiB first, each kind in order."""
    mine = np.flatnonzero(mine)
    mine = mine[np.lexsort((start[mine], -size[mine]))]
    new[mine] = at + np.cumsum(size[mine]) - size[mine]


def units_of(tree: Tree) -> tuple[np.ndarray, np.ndarray]:
    """(regions, giants): sorted numbers of the 2 MiB and 1 GiB units with frames that `tree` names."""
    regions, giants = np.unique(tree.frame[tree.frame >= 0] >> 9), np.zeros(0, np.int64)
    for level, _, raw in bits.blocks(tree, range(1, tree.levels + 1)):
        leaf, mapped = bits.leaf(raw, level, tree.encoding), bits.mapped(raw, level, tree.encoding)
        frames = bits.frame(raw[mapped & ~leaf], level, tree.encoding, leaves=False)
        regions = np.union1d(regions, frames >> 9)
        frames = bits.frame(raw[leaf], level, tree.encoding)
        if level == 3:
            giants = np.union1d(giants, frames >> 18)
        else:
            regions = np.union1d(regions, frames >> 9)
    return regions, giants


def owners(start: np.ndarray, size: np.ndarray, topology: Topology) -> np.ndarray:
    """int64[U]: the node that owns all frames of each unit, MIXED where there is no single owner."""
    ranges = sorted((int(a), int(b)) for node in topology.nodes for a, b in node.frames)
    ends = np.array([b for _, b in ranges], np.int64)
    owner = topology.node_of_frame(start).astype(np.int64)
    at = np.searchsorted(ends, start, side="right")
    whole = (owner >= 0) & (np.append(ends, 0)[at] >= start + size)
    return np.where(whole, owner, MIXED)


def straddling(start: np.ndarray, size: np.ndarray, topology: Topology) -> np.ndarray:
    """Indices of the units in which some node's memory begins or ends."""
    edges = np.unique(np.concatenate([np.zeros((0,), np.int64), *(n.frames.ravel() for n in topology.nodes)]))
    inside = np.searchsorted(edges, start, side="right") < np.searchsorted(edges, start + size, side="left")
    return np.flatnonzero(inside)


def parts(start: int, size: int, topology: Topology) -> Ranges:
    """[(first, one past the last, node)] of the parts of a unit that nodes own."""
    end = start + size
    cut = [(max(a, start), min(b, end), node.id) for node in topology.nodes for a, b in node.frames]
    return [(int(a), int(b), node) for a, b, node in cut if a < b]


def with_ranges(topology: Topology, ranges: Ranges) -> Topology:
    """`topology` with the ranges [(first, one past the last, node)] in place of its own."""
    frames: dict[int, list[tuple[int, int]]] = {node.id: [] for node in topology.nodes}
    for a, b, who in sorted(ranges):
        frames[who] += [(a, b)] * (a < b)
    return Topology(
        tuple(replace(n, frames=np.array(frames[n.id], np.int64).reshape(-1, 2)) for n in topology.nodes)
    )
