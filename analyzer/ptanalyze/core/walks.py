"""The stream of TLB misses that every policy replays, computed once per trace, TLB shape and placement."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

GUEST_BIT = 8  # bit of a read mask: GUEST_BIT * guest level + host level (docs/data-path.md)


@dataclass(frozen=True)
class Placement:
    """Placement of the trace's threads on the replaying machine.

    chunk_cpu  int32[chunks]  CPU index of each chunk; CPUs are numbered densely, one TLB each
    cpu_node   int16[cpus]    NUMA node of each CPU
    event_cpu  int32[events]  CPU index that each event happened on
    how        description for people: "recorded: 4 CPUs on 4 nodes", "round-robin over 4 nodes", ...
    """

    chunk_cpu: np.ndarray
    cpu_node: np.ndarray
    event_cpu: np.ndarray
    how: str


ONE_THREAD = "one thread"  # begins the `how` of a Placement where threads are no plural


def threads_placed(how: str) -> str:
    """ "threads round-robin over 4 nodes", "one thread, on node 0" of a Placement's `how`."""
    return how if how.startswith(ONE_THREAD) else f"threads {how}"


@dataclass(frozen=True)
class WalkStream:
    """Touches that missed every TLB level, in trace order.

    page      uint32[W]          as Touches.page, usually memory-mapped
    write     bool[W]
    offset    int64[chunks + 1]  walks of chunk c are page[offset[c]:offset[c + 1]]
    hits      int64[cpus, 3]     accesses that hit L1, hit L2, or walked; merged accesses count as L1 hits
    """

    page: np.ndarray
    write: np.ndarray
    offset: np.ndarray
    hits: np.ndarray

    def __len__(self) -> int:
        return len(self.page)


class Reads(NamedTuple):
    """The walker's reads for each walk of a batch: the input of every policy's replay.

    cpu        int32[n]   CPU that walked (Placement.cpu_node gives its node)
    page       uint32[n]  as Touches.page
    write      bool[n]
    leaf       int32[n]   flat id of the guest table that holds the leaf entry
    slot       int16[n]   entry within `leaf`
    host_leaf  int32[n]   flat id of the host table that maps the data page, -1 native
    host_slot  int16[n]   entry within `host_leaf`, -1 where host_leaf is -1
    read       uint64[n]  bit 8 * g + h: read at guest level g, host level h (see docs/data-path.md)
    dram       uint64[n, shares]  the reads of `read` that miss the caches, at each share of the LLC that may
                          be left to page tables, ascending: what misses at one misses at all before it
    """

    cpu: np.ndarray
    page: np.ndarray
    write: np.ndarray
    leaf: np.ndarray
    slot: np.ndarray
    host_leaf: np.ndarray
    host_slot: np.ndarray
    read: np.ndarray
    dram: np.ndarray


class Tables(NamedTuple):
    """Flat ids: guest tables, then host tables, then inferred tables (touched, but gone from the snapshot).

    parent     int32[T]   -1 for roots
    node       int16[T]   where the snapshot has it, UNKNOWN_NODE for inferred tables or where unknown
    level      uint8[T]
    base       uint64[T]  first address mapped, bytes
    host_leaf  int32[T]   for guest tables: the host table whose leaf entry maps this table's frame; -1 native
    host_slot  int16[T]   entry within `host_leaf`
    """

    parent: np.ndarray
    node: np.ndarray
    level: np.ndarray
    base: np.ndarray
    host_leaf: np.ndarray
    host_slot: np.ndarray


class Regions(NamedTuple):
    """Location of the translations of each 2 MiB region touched by the trace, by region id.

    va         uint64[R]  address >> 21
    leaf       int32[R]   flat id of the guest table that holds the region's leaf entries
    level      uint8[R]   level of `leaf`: 1 = 4 KiB pages, 2 = a 2 MiB page, 3 = part of a 1 GiB page
    slot       int16[R]   entry within `leaf` when level > 1, else -1 (the page's own low 9 bits)
    tlb_level  uint8[R]   page size the TLB holds: the smaller of guest's and host's leaf
    """

    va: np.ndarray
    leaf: np.ndarray
    level: np.ndarray
    slot: np.ndarray
    tlb_level: np.ndarray


class Joined(NamedTuple):
    """Pages of 4 KiB that share a TLB entry with their neighbours, 2^shift from a multiple of that on.

    They are seen as pages of their own, by number of such pages, of further regions behind the R.

    shift   int
    groups  bool[R, 512 >> shift]  whether the pages of each group are joined
    region  uint32[R]              region in which the groups of each are seen
    first   uint32[R]              number of its first group there
    va      uint64[...]            address >> 21 >> shift of these regions
    """

    shift: int
    groups: np.ndarray
    region: np.ndarray
    first: np.ndarray
    va: np.ndarray

    def of(self, page: np.ndarray) -> np.ndarray:
        """uint32[n]: what is seen in place of these pages."""
        region, group = page >> np.uint32(9), (page & np.uint32(511)) >> np.uint32(self.shift)
        seen: np.ndarray = np.where(
            self.groups[region, group], self.region[region] << np.uint32(9) | self.first[region] + group, page
        )
        return seen


class Fold(NamedTuple):
    """How caches and TLBs see memory that does not grow with the run that a capture stands for.

    first  int64[R]     where the pages of each region begin in `to`; -1: they are seen as they are
    to     uint32[...]  as Touches.page: what is seen in place of each
    """

    first: np.ndarray
    to: np.ndarray

    def of(self, page: np.ndarray) -> np.ndarray:
        """uint32[n]: the pages that are seen in place of these."""
        at, place = self.folded(page)
        seen = page.copy()
        seen[at] = self.to[place]
        return seen

    def folded(self, page: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(int64[k] which of the pages are of folded regions, int64[k] their places in `to`)."""
        first = self.first[page >> np.uint32(9)]
        at = np.flatnonzero(first >= 0)
        return at, first[at] + (page[at] & 511)
