"""The 4 KiB pages that another guest allocator could serve, and the frames for them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core import snapshot as bits
from ..core.trace import read_only
from . import vma_rows
from .address_space import AddressSpace

if TYPE_CHECKING:
    from ..kernels.reserve import Parts

ANONYMOUS = ("[heap]", "[stack", "[anon")  # and no name at all
MOVABLE, STAYING = 0, 1  # groups of VMAs
BLOCKS = 1 << 18  # per block of work
REASONS = ("in file-backed, shared or special VMAs", "of a frame with several users", "unmapped in the host")


@dataclass(frozen=True)
class GuestPages:
    """Pages of leaf tables, numbered by address: table k, in order of its base, has pages k << 9 and up.

    table     int32[L]      flat id of each leaf table: the snapshot's, and those the trace touched
    base      int64[T]      number of the first page of each flat id, -1 for other tables
    captured  uint32[L<<9]  frame of each mapped page that may get another frame, else kernels.reserve.FREE
    now       uint32[L<<9]  kernels.reserve.FREE where the allocator serves a page, else KEPT
    users     uint8[D<<9]   by guest frame, as in kernels.guest_frames
    pool_of   uint8[D]      host node (its rank) with the ePT leaf entries of each 2 MiB
                            of guest memory: reservations keep it, so that only cache lines change
    kept      {reason: pages of the program that stay}
    """

    table: np.ndarray
    base: np.ndarray
    captured: np.ndarray
    now: np.ndarray
    users: np.ndarray
    pool_of: np.ndarray
    kept: dict[str, int]


def guest_pages(space: AddressSpace) -> GuestPages:
    """GuestPages of a two-dimensional AddressSpace.

    Pages stay where they are if they are not anonymous private memory (names of VMAs, as in maps), if others
    use their frame too (the zero page, merged pages), or if the host does not map them. The tracer's stay.
    """
    from ..kernels import reserve
    from ..kernels.reserve import FREE, KEPT

    table = _leaf_tables(space)
    base = np.full(len(space.tables.level), -1, np.int64)
    base[table] = np.arange(len(table)) << 9
    pool_of, users = _pools(space), _users(space)
    captured = np.full(len(table) << 9, FREE, np.uint32)
    now, kept = np.full(len(table) << 9, KEPT, np.uint32), np.zeros(len(REASONS), np.int64)
    entries = read_only(space.snapshot.guest.entries)
    reserve.pick(entries, _parts(space, base), pool_of, users, captured, now, kept)
    return GuestPages(
        table, base, captured, now, users, pool_of, dict(zip(REASONS, kept.tolist(), strict=True))
    )


def free_blocks(pages: GuestPages, shift: int) -> np.ndarray:
    """int32[n], ascending: blocks of 1 << shift frames that the host maps and that no staying page uses."""
    from ..kernels.reserve import MOVABLE, NO_POOL

    free = np.repeat(pages.pool_of != NO_POOL, 512 >> shift)
    users = pages.users.reshape(-1, 1 << shift)
    for first in range(0, len(users), BLOCKS):
        part = users[first : first + BLOCKS]
        free[first : first + BLOCKS] &= ((part == 0) | (part == MOVABLE)).all(axis=1)
    return np.flatnonzero(free).astype(np.int32)


def _leaf_tables(space: AddressSpace) -> np.ndarray:
    level = space.tables.level
    first = space.guest_tables + space.host_tables
    mine = np.concatenate([np.arange(space.guest_tables), np.arange(first, len(level))])
    leaves = mine[level[mine] == 1].astype(np.int32)
    by_address: np.ndarray = leaves[np.argsort(space.tables.base[leaves], kind="stable")]
    return by_address


def _pools(space: AddressSpace) -> np.ndarray:
    from ..kernels.reserve import NO_POOL

    there = space.host_of >= 0
    node = space.tables.node[space.host_of[there]].astype(np.int64)
    pool_of = np.full(len(space.host_of), NO_POOL, np.uint8)
    pool_of[there] = np.unique(node, return_inverse=True)[1]
    return pool_of


def _users(space: AddressSpace) -> np.ndarray:
    """uint8[D << 9]: pages of 4 KiB by guest frame, up to SEVERAL; tables and huge pages count as SEVERAL."""
    from ..kernels import reserve

    tree = space.snapshot.guest
    users = np.zeros(len(space.host_of) << 9, np.uint8)
    leaves = np.flatnonzero(tree.level == 1).astype(np.int32)
    reserve.count_users(read_only(tree.entries), leaves, users)
    mine = tree.frame[(tree.frame >= 0) & (tree.frame < len(users))]
    users[mine] = reserve.SEVERAL
    for level, _, raw in bits.blocks(tree, (2, 3)):
        for first in bits.frame(raw[bits.leaf(raw, level, tree.encoding)], level, tree.encoding).tolist():
            users[first : first + 512 ** (level - 1)] = reserve.SEVERAL
    return users


def _parts(space: AddressSpace, base: np.ndarray) -> "Parts":
    """kernels.guest_frames.Parts: the program's pages, and whether their VMA is served."""
    from ..kernels.reserve import Parts

    snapshot = space.snapshot
    anonymous = [name == "" or name.startswith(ANONYMOUS) for name in snapshot.vma_names]
    group = np.full(len(snapshot.vmas) + 1, MOVABLE)
    group[:-1] = np.where(np.array(anonymous, bool) & ~snapshot.vmas["shared"], MOVABLE, STAYING)
    group[:-1][snapshot.vmas["emulator"]] = vma_rows.LEFT_OUT
    level = np.where(base >= 0, space.tables.level, 0)
    table, lo, hi, which = vma_rows.segments(space.tables._replace(level=level), snapshot.vmas, group)
    return Parts(table, base[table], lo, hi, which == MOVABLE)
