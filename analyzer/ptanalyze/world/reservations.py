"""PTEMagnet's allocator in the place of the guest's: the same faults, other guest frames.

PTEMagnet, section 4. Which frames it hands out, and why: docs/adr/0007.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..core.arrays import read_only
from ..core.snapshot import Snapshot
from ..kernels.steps import Steps
from .guest_pages import GuestPages, free_blocks, guest_pages
from .trees import mapped_again
from .world import World

if TYPE_CHECKING:
    from ..kernels.reserve import Guest

POINTS = 512  # of the series, at most
BATCH = 1 << 22  # walks at a time


@dataclass(frozen=True)
class Reservations:
    """What the allocator did.

    snapshot  the guest's leaf entries with the frames it gave, all else as it was
    counts    {kernels.reserve.COUNTS: number}, at the end of the trace
    kept      {reason: pages of the program that keep their frames}
    early     pages it mapped before the trace, in address order: those no walk faults in
    late      pages it mapped after the trace: the trace's events had freed them, the snapshot has them
    walks     of the trace
    series    int64[S, 4]: walk, unused reserved frames, live reservations, pages mapped
    """

    snapshot: Snapshot
    counts: dict[str, int]
    kept: dict[str, int]
    early: int
    late: int
    walks: int
    series: np.ndarray


def reserve(world: World, pages: int = 8, limit: int = -1) -> Reservations:
    """Reservations over the walks and steps of a two-dimensional World.

    pages  of a group: a power of two, 2..512
    limit  unused reserved frames above which reservations are released, oldest first; -1: no limit
    Memory: about 9 bytes for each entry of the guest's leaf tables and 20 for each block of guest memory;
    entries that change, in memory-mapped ones the 4 KiB around them.
    """
    from ..kernels import guest_frames
    from ..kernels import reserve as kernels

    shift = pages.bit_length() - 1
    found = guest_pages(world.space)
    region_base, steps, row_base = _touched(world, found)
    walks = _batches(world.stream.page)
    for page in walks:
        guest_frames.mark_walked(page, region_base, found.now)
    _mapped_before(world, found, row_base)
    guest = _guest(found, shift, limit)
    kernels.fault_all(found.captured, True, guest)
    early, first, step = int(guest.count[kernels.MAPPED]), 0, 0
    stride = -(-max(len(world.stream), 1) // POINTS)
    series = np.zeros((-(-len(world.stream) // stride), 4), np.int64)
    for page in walks:
        step = kernels.run(
            page, region_base, found.captured, first, steps, row_base, step, guest, stride, series
        )
        first += len(page)
    counts = dict(zip(kernels.COUNTS, guest.count.tolist(), strict=True))
    kernels.fault_all(found.captured, False, guest)
    late = int(guest.count[kernels.MAPPED]) - counts["mapped"]
    _find_singles(found)
    snapshot = _with_frames(world.snapshot, found)
    return Reservations(snapshot, counts, found.kept, early, late, len(world.stream), series)


def _batches(page: np.ndarray) -> list[np.ndarray]:
    return [read_only(page[first : first + BATCH]) for first in range(0, len(page), BATCH)]


def _touched(world: World, found: GuestPages) -> tuple[np.ndarray, Steps, np.ndarray]:
    """(region_base, Steps, row_base) of kernels.reserve.run; nothing of them without a trace."""
    regions = world.space.regions
    region_base = np.where(regions.level == 1, found.base[regions.leaf], -1)
    if not world.traced:
        none = Steps(*(np.zeros(0, np.int64) for _ in Steps._fields))
        return region_base, none, np.zeros(0, np.int64)
    return region_base, world.history.steps, found.base[world.history.rows.leaf]


def _mapped_before(world: World, found: GuestPages, row_base: np.ndarray) -> None:
    """What was mapped before the region of interest began waits for no walk."""
    from ..kernels.reserve import FREE, WAITING

    if not world.traced or not world.history.premapped:
        return
    rows = np.flatnonzero((row_base >= 0) & world.history.valid.any(axis=1))
    for row in rows.tolist():
        valid = np.unpackbits(world.history.valid[row].view(np.uint8), bitorder="little").astype(bool)
        now = found.now[row_base[row] : row_base[row] + 512]
        now[valid & (now == WAITING)] = FREE


def _guest(found: GuestPages, shift: int, limit: int) -> "Guest":
    """kernels.reserve.Guest with nothing mapped; pools by address."""
    from ..kernels import reserve as kernels
    from ..kernels.guest_frames import NO_POOL

    blocks, free = len(found.users) >> shift, free_blocks(found, shift)
    which = found.pool_of[free.astype(np.int64) << shift >> 9]
    pools = int(found.pool_of[found.pool_of != NO_POOL].max(initial=0)) + 1
    first = np.concatenate([[0], np.cumsum(np.bincount(which, minlength=pools))]).astype(np.int64)
    pool = free[np.argsort(which, kind="stable")]
    at = np.full(blocks, kernels.NONE, np.int32)
    at[pool] = np.arange(len(pool))
    lowest = np.argmax(found.pool_of != NO_POOL) << 9 >> shift
    return kernels.Guest(
        frame=found.now,
        block=np.full(len(found.now) >> shift, kernels.NONE, np.int32),
        group=np.full(blocks, kernels.NONE, np.int32),
        used=np.zeros(blocks, np.int16),
        older=np.full(blocks + 1, blocks, np.int32),
        newer=np.full(blocks + 1, blocks, np.int32),
        pool=pool,
        at=at,
        first=first,
        next=first[:-1].copy(),
        pool_of=found.pool_of,
        count=np.zeros(len(kernels.COUNTS), np.int64),
        last=np.array([lowest], np.int64),
        shift=shift,
        limit=limit,
    )


def _find_singles(found: GuestPages) -> None:
    """Pages that found no block: the frame they were captured with, else one that nobody has now.

    There is one: as many frames were taken from captured pages as there are such pages.
    """
    from ..kernels.guest_frames import MOVABLE
    from ..kernels.reserve import SINGLE, SPECIAL

    mapped = found.captured < SPECIAL
    pending = np.flatnonzero(mapped & (found.now == SINGLE))
    if not len(pending):
        return
    taken = np.zeros(len(found.users), bool)
    taken[found.now[mapped & (found.now < SPECIAL)]] = True
    own = found.captured[pending]
    again = ~taken[own]
    taken[own[again]] = True
    left = np.flatnonzero((found.users == MOVABLE) & ~taken)
    found.now[pending[again]] = own[again]
    found.now[pending[~again]] = left[: np.count_nonzero(~again)]


def _with_frames(snapshot: Snapshot, found: GuestPages) -> Snapshot:
    from ..kernels.guest_frames import rewrite

    entries = _own_copy(snapshot.guest.entries)
    mine = found.table < len(snapshot.guest)
    pages = np.repeat(mine, 512)
    rewrite(entries, found.table[mine], found.captured[pages], found.now[pages])
    return replace(snapshot, guest=replace(snapshot.guest, entries=entries))


def _own_copy(entries: np.ndarray) -> np.ndarray:
    """Entries to write to: of a memory-mapped file a private mapping, copied page by page when written."""
    again = mapped_again(entries)
    return np.array(entries) if again is None else again
