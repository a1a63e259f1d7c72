"""The table of a hypervisor without nested paging: guest-virtual to host-physical, in a single tree."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..core import snapshot as bits
from ..core.snapshot import Snapshot, Tree
from ..core.trace import read_only
from .address_space import AddressSpace
from .trees import with_small_leaves


class ShadowTable(NamedTuple):
    """
    snapshot      the shadow tree as the only one
    split_tables  table pages that stand for a huge leaf of the guest
    unmapped      4 KiB pages of the guest that the host does not map: the shadow table lacks them
    """

    snapshot: Snapshot
    split_tables: int
    unmapped: int


def shadow_table(space: AddressSpace) -> ShadowTable:
    """ShadowTable of a two-dimensional AddressSpace.

    It has the guest's shape, but a leaf is the smaller of the guest's and the host's, as in the TLB
    (Linux: kvm_mmu_hugepage_adjust in arch/x86/kvm/mmu/mmu.c). A table page is on the node of the guest's
    that it stands for, in an unknown frame. Memory: 4 KiB for each of its table pages, twice that while
    leaves are split.
    """
    tree, before = space.snapshot.guest, space.guest_tables
    for level in (3, 2):
        tables, slots = _to_split(tree, space, level)
        if len(tables):
            tree = with_small_leaves(tree, tables, slots)
    entries, unmapped = _to_host_frames(tree, space)
    unknown = np.full(len(tree), -1, tree.frame.dtype)
    guest = replace(tree, entries=entries, frame=unknown)
    return ShadowTable(replace(space.snapshot, guest=guest, host=None), len(tree) - before, unmapped)


def split_tables(space: AddressSpace, shadow: AddressSpace) -> np.ndarray:
    """bool[T]: tables of the AddressSpace `shadow` that stand for a huge leaf of the guest in `space`."""
    own, tree = space.snapshot.guest, shadow.snapshot.guest
    split = np.zeros(len(shadow.tables.level), bool)
    for level in (1, 2):
        mine = np.flatnonzero(tree.level == level)
        split[mine] = ~np.isin(tree.base[mine], own.base[own.level == level])
    return split


def _to_split(tree: Tree, space: AddressSpace, level: int) -> tuple[np.ndarray, np.ndarray]:
    """(tables, slots) of the leaves of a level that the host maps partly by smaller leaves."""
    tables, slots = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for _, ids, raw in bits.blocks(tree, (level,)):
        row, slot = np.nonzero(bits.leaf(raw, level, tree.encoding))
        region = bits.frame(raw[row, slot], level, tree.encoding) >> 9
        host = _host_levels(space, region[:, None] + np.arange(512 ** (level - 2)))
        split = ((host > 0) & (host < level)).any(axis=1)
        tables.append(ids[row[split]])
        slots.append(slot[split])
    return np.concatenate(tables), np.concatenate(slots)


def _host_levels(space: AddressSpace, regions: np.ndarray) -> np.ndarray:
    """uint8, the shape of `regions` (guest frame >> 9): level of the host's leaf entries, 0 for none."""
    inside = regions < len(space.host_of)
    table = np.where(inside, space.host_of[np.where(inside, regions, 0)], -1) if len(space.host_of) else -1
    return np.where(table >= 0, space.tables.level[table], 0)


def _to_host_frames(tree: Tree, space: AddressSpace) -> tuple[np.ndarray, int]:
    """(uint64[T, 512] entries with the host frames behind them, 4 KiB pages without a host frame)."""
    from ..kernels.reserve import Nested, to_host_frames
    from ..kernels.walker import CODES

    host = space.snapshot.nested
    entries = np.array(tree.entries)
    nested = Nested(
        read_only(host.entries), host.level, space.host_of, space.guest_tables, CODES[host.encoding]
    )
    unmapped = to_host_frames(entries, tree.level, CODES[tree.encoding], nested)
    return entries, int(unmapped)
