"""A hypervisor's tables behind what the guest had mapped before the region: where that was touched first.

KVM makes a page of the nested table in the violation that needs it, on the node of the vCPU that faults
(kvm_tdp_mmu_map in arch/x86/kvm/mmu/tdp_mmu.c). The guest's memory is taken to be new to the host then: what
the guest's kernel and other programs had used before this one is not known.
"""

import numpy as np

from ..core import snapshot as bits
from .first_touches import first_touches
from .history import History
from .site import Site

NOWHERE = -1


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
