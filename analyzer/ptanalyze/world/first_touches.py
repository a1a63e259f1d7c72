"""Where the memory is that was mapped before the region of interest: with the threads that touched it first.

Linux allocates a page table in the fault that needs it, on the node of the faulting CPU unless a memory
policy says otherwise (__pte_alloc in mm/memory.c, pte_alloc_one in arch/x86/mm/pgtable.c); data alike. The
trace's FIRST_TOUCH events tell whose fault that was, by 2 MiB. Without an event (older captures, memory that
the kernel filled itself) it is taken to be the thread that mapped the memory, as for Hydra's owners.

What this cannot tell: threads that share 2 MiB and touched different pages of it first; a table that went
because the only mapping in its 2 MiB, smaller than that, was unmapped, and was made again by another thread.
"""

from typing import NamedTuple

import numpy as np

from ..core import snapshot as bits
from ..core.finding import Finding
from ..core.trace import REGION_SHIFT, Event, Trace
from ..core.walks import Placement
from .address_space import AddressSpace
from .history import History
from .mm_events import region_of_interest
from .site import Site

NOWHERE = -1
ADDRESSES = np.uint64(1 << 57)  # what lies above is no address
REGION = np.uint64(1 << REGION_SHIFT)
ROWS_AT_ONCE = 4096
WITHOUT = Finding(
    "first-touches-unseen",
    "recorded without first touches: page tables and data mapped before the region of interest are taken to "
    "be where the thread that mapped them ran",
)


class FirstTouches(NamedTuple):
    """Regions that were touched before the region of interest and not unmapped as a whole since.

    region  uint64[F]  address >> 21, sorted
    order   int64[F]   index of the event
    node    int16[F]   of the CPU of the thread that touched it first
    """

    region: np.ndarray
    order: np.ndarray
    node: np.ndarray

    def earliest(self, region: np.ndarray, count: np.ndarray) -> np.ndarray:
        """int64[n]: position of the first touch of `count` regions from `region` on (uint64[n]), else -1."""
        first, last = np.searchsorted(self.region, region), np.searchsorted(self.region, region + count)
        found = np.where(last > first, first, -1)
        for k in np.flatnonzero(last - first > 1):
            found[k] += np.argmin(self.order[first[k] : last[k]])
        return found

    def in_span(self, base: np.ndarray, level: np.ndarray) -> np.ndarray:
        """int64[n]: `earliest` of what tables of these bases and levels map."""
        return self.earliest(base >> np.uint64(REGION_SHIFT), np.uint64(512) ** (level - np.uint64(1)))

    def nodes_of(self, position: np.ndarray) -> np.ndarray:
        """int16[n]: node of the touch at each position, NOWHERE for -1."""
        found: np.ndarray = np.append(self.node, np.int16(NOWHERE))[position]
        return found

    def order_of(self, base: np.ndarray, level: np.ndarray) -> np.ndarray:
        """int64[n]: index of the event of the first touch in each table's span; without one the largest."""
        found: np.ndarray = np.append(self.order, np.iinfo(np.int64).max)[self.in_span(base, level)]
        return found


def single_node(space: AddressSpace) -> bool:
    """Whether all memory was captured on one node, which says nothing of a machine with several."""
    return space.native and len(space.snapshot.topology) < 2


def placed_by_touch(site: Site) -> bool:
    """Whether memory is where threads touch it first instead of where it was captured."""
    return site.traced and single_node(site.space)


def first_touches(trace: Trace, placement: Placement) -> FirstTouches:
    """FirstTouches of a Trace whose threads run as placed; none where the trace has no region of interest."""
    events = trace.events[: region_of_interest(trace.events).first]
    touches = np.flatnonzero(events["kind"] == Event.FIRST_TOUCH)[::-1]
    region, latest = np.unique(events["a"][touches] >> np.uint64(REGION_SHIFT), return_index=True)
    order = touches[latest]
    there = np.ones(len(region), bool)
    first, last, when = _unmapped(events)
    first, last = np.searchsorted(region, first), np.searchsorted(region, last)
    for k in np.flatnonzero(first < last):
        there[first[k] : last[k]] &= order[first[k] : last[k]] > when[k]
    region, order = region[there], order[there]
    return FirstTouches(region, order, placement.cpu_node[placement.event_cpu[order]].astype(np.int16))


def _unmapped(events: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(first region, one past the last, index of the event): regions unmapped, moved away or mapped again."""
    kind, a, b, result = (events[name] for name in ("kind", "a", "b", "result"))
    start = np.where(kind == Event.MMAP, result.astype(np.uint64), a)
    leaves = (kind == Event.MUNMAP) & (result >= 0)
    leaves |= (kind == Event.MMAP) & (result > 0)
    leaves |= (kind == Event.MREMAP) & (result > 0) & (result.astype(np.uint64) != a)
    when = np.flatnonzero(leaves & (start < ADDRESSES) & (b < ADDRESSES))
    end = start[when] + (b[when] + np.uint64(4095)) // np.uint64(4096) * np.uint64(4096)
    return (start[when] + REGION - np.uint64(1)) // REGION, end // REGION, when


def table_homes(site: Site, past: History) -> np.ndarray:
    """int16[T]: node of each guest table that exists at the start under first touch, NOWHERE for all others.

    A table is where its span was touched first. Without a first touch in it a table is where the VMA of its
    lowest mapped entry was mapped, else where its lowest child is, else where the lowest VMA in its span at
    the trace's end was mapped. The root is the main thread's, which the program began with.
    """
    tables = site.space.tables
    home = np.full(len(tables.level), NOWHERE, np.int16)
    if not site.traced:
        return home
    exists = past.exists.copy()
    exists[site.space.guest_tables :][: site.space.host_tables] = False
    ids = np.flatnonzero(exists)
    touches = first_touches(site.trace, site.placement)
    home[ids] = touches.nodes_of(touches.in_span(tables.base[ids], tables.level[ids]))
    _by_mapped_entry(past, exists, home)
    _by_last_vma(site, past, exists, home)
    _by_child(site, exists, home)
    home[exists & (tables.parent < 0)] = past.vma_owner[0]
    return home


def _by_mapped_entry(past: History, exists: np.ndarray, home: np.ndarray) -> None:
    leaf = past.rows.leaf
    rows = np.flatnonzero(exists[leaf] & (home[leaf] == NOWHERE) & past.valid.any(axis=1))
    lowest = np.unpackbits(past.valid[rows].view(np.uint8), axis=1, bitorder="little").argmax(axis=1)
    home[leaf[rows]] = owners(past, rows)[np.arange(len(rows)), lowest]


def _by_last_vma(site: Site, past: History, exists: np.ndarray, home: np.ndarray) -> None:
    """Tables that lead to nothing the trace touches."""
    tables, (starts, ends, owner) = site.space.tables, past.last
    childless = exists & (home == NOWHERE)
    childless[tables.parent[exists & (tables.parent >= 0)]] = False
    ids = np.flatnonzero(childless)
    low, level = tables.base[ids], tables.level[ids].astype(np.uint64)
    vma = np.searchsorted(ends, low, side="right")
    inside = np.append(starts, ~np.uint64(0))[vma] < low + (np.uint64(4096) << np.uint64(9) * level)
    home[ids] = np.where(inside, np.append(owner, NOWHERE)[vma], past.vma_owner[0])


def _by_child(site: Site, exists: np.ndarray, home: np.ndarray) -> None:
    """Tables without a home get that of their child of the lowest address: children follow in that order."""
    tables = site.space.tables
    for level in range(1, int(tables.level.max(initial=1))):
        below = np.flatnonzero(exists & (tables.level == level) & (tables.parent >= 0))[::-1]
        below = below[home[tables.parent[below]] == NOWHERE]
        home[tables.parent[below]] = home[below]


def owners(past: History, rows: np.ndarray) -> np.ndarray:
    """int16[n, 512]: node of the thread that mapped the VMA of each slot of `rows` at the start."""
    found: np.ndarray = np.repeat(past.vma_owner[past.vma[rows]][:, None], 512, axis=1)
    mixed = np.flatnonzero(past.mixed_row[rows] >= 0)
    found[mixed] = past.vma_owner[past.mixed[past.mixed_row[rows[mixed]]]]
    return found


def place_pages(site: Site, past: History, node: np.ndarray) -> None:
    """Fill node[row, slot] (int8[L, 512]) where it is NOWHERE and the page was mapped before.

    Such a page is where its 2 MiB were touched first, else where its VMA was mapped.
    """
    regions, touches = site.space.regions, first_touches(site.trace, site.placement)
    spans = np.uint64(512) ** np.maximum(regions.level, 2).astype(np.uint64) // np.uint64(512 * 512)
    toucher = touches.nodes_of(touches.earliest(regions.va // spans * spans, spans))
    small, row = regions.slot < 0, past.rows.of_region
    by_row = np.full(len(past.rows.leaf), NOWHERE, np.int16)
    by_row[row[small]] = toucher[small]
    of_huge = row[~small], regions.slot[~small], toucher[~small]
    for begin in range(0, len(by_row), ROWS_AT_ONCE):
        rows = np.arange(begin, min(begin + ROWS_AT_ONCE, len(by_row)))
        if not (past.valid[rows].any() and (node[rows] == NOWHERE).any()):
            continue
        mapped = np.unpackbits(past.valid[rows].view(np.uint8), axis=1, bitorder="little").astype(bool)
        there = owners(past, rows)
        touched = by_row[rows] != NOWHERE
        there[touched] = by_row[rows[touched]][:, None]
        here = (of_huge[0] >= begin) & (of_huge[0] < begin + len(rows)) & (of_huge[2] != NOWHERE)
        there[of_huge[0][here] - begin, of_huge[1][here]] = of_huge[2][here]
        node[rows] = np.where(mapped & (node[rows] == NOWHERE), there, node[rows])


def first_touches_unseen(site: Site, past: History) -> list[Finding]:
    """Whether memory was mapped before the region of interest without a record of its first touch."""
    noted = (site.trace.events["kind"] == Event.FIRST_TOUCH).any()
    return [WITHOUT] if past.premapped and not noted else []


# A hypervisor's tables behind what the guest had mapped before the region: where that was touched first.
#
# KVM makes a page of the nested table in the violation that needs it, on the node of the vCPU that faults
# (kvm_tdp_mmu_map in arch/x86/kvm/mmu/tdp_mmu.c). The guest's memory is taken to be new to the host then:
# what the guest's kernel and other programs had used before this one is not known.


def host_homes(site: Site, past: History, home: np.ndarray) -> np.ndarray:
    """int16[T]: node of each host table that what was mapped at the start needs, NOWHERE for all others.

    home  int16[T]: nodes of the guest's tables (first_touches.table_homes)

    The earliest guest table decides, of those whose own page or mapped pages a host table maps. They come
    in the order of the first touches in their spans, those without any after all others.
    """
    space, tables = site.space, site.space.tables
    found = np.full(len(home), NOWHERE, np.int16)
    guests = np.flatnonzero(home[: space.guest_tables] != NOWHERE)
    if space.native or not len(guests):
        return found
    order = first_touches(site.trace, site.placement).order_of(tables.base[guests], tables.level[guests])
    guests = guests[np.argsort(order, kind="stable")]
    rank = np.full(len(home), len(guests))
    rank[guests] = np.arange(len(guests))
    first = np.full(len(home) + 1, len(guests))  # the last: where nothing maps
    np.minimum.at(first, tables.host_leaf[guests], rank[guests])
    _behind_pages(site, past, rank, first)
    for level in range(1, site.snapshot.nested.levels):
        ids = np.arange(space.guest_tables, space.guest_tables + space.host_tables)
        ids = ids[(tables.level[ids] == level) & (tables.parent[ids] >= 0)]
        np.minimum.at(first, tables.parent[ids], first[ids])
    needed = np.flatnonzero(first[:-1] < len(guests))
    found[needed] = home[guests[first[needed]]]
    return found


def _behind_pages(site: Site, past: History, rank: np.ndarray, first: np.ndarray) -> None:
    """Lower first[host table] to the rank of the guest tables whose mapped pages it maps."""
    tree, host_of = site.snapshot.guest, np.append(site.space.host_of, NOWHERE)
    rows = np.flatnonzero((past.rows.leaf < site.space.guest_tables) & past.valid.any(axis=1))
    for begin in range(0, len(rows), bits.BLOCK):
        block = rows[begin : begin + bits.BLOCK]
        for level in np.unique(tree.level[past.rows.leaf[block]]).tolist():
            at = block[tree.level[past.rows.leaf[block]] == level]
            leaf = past.rows.leaf[at]
            mapped = np.unpackbits(past.valid[at].view(np.uint8), axis=1, bitorder="little").astype(bool)
            row, slot = np.nonzero(mapped)
            region = bits.frame(tree.entries[leaf[row], slot], level, tree.encoding)[:, None] >> 9
            region = region + np.arange(512 ** max(level - 2, 0))
            inside = (region >= 0) & (region < len(host_of) - 1)
            host = host_of[np.where(inside, region, -1)]
            np.minimum.at(first, host, np.broadcast_to(rank[leaf[row]][:, None], host.shape))
