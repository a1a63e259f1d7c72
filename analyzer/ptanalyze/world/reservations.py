"""How scattered neighbouring pages of a guest are in its host, and the allocator of PTEMagnet that avoids it.

PTEMagnet, section 3.2: a cache line of the guest's leaf table holds the gPTEs of eight neighbouring pages.
The walks to these pages read as many cache lines of ePT leaf entries as their guest frames are scattered
over: 1 where all are in an aligned block of eight frames, 8 at worst. The metric is the mean over all lines.

Section 4: the same faults, other guest frames. The choice of frames is explained in docs/adr/0007.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import snapshot as bits
from ..core.errors import UsageError
from ..core.snapshot import Snapshot
from ..core.trace import blocks
from ..kernels import reshape as kernels
from . import address_space
from .address_space import AddressSpace, Nested
from .history import History
from .traced_program import TracedProgram
from .trees import anonymous_private, with_frame

if TYPE_CHECKING:
    import pandas as pd


LINE = 8  # entries of 8 bytes in a cache line of 64


@dataclass(frozen=True)
class Fragmentation:
    """gPT cache lines of leaf tables (4 KiB pages), by the number of ePT cache lines of their pages.

    groups      names: ("all",), or VMAs
    counts      int64[groups, 9, 9]: lines by [pages mapped in both dimensions, distinct ePT lines]
    huge        int64[groups, 2]: leaves of 2 MiB and of 1 GiB in the guest; they have no line of 4 KiB gPTEs
    unresolved  int64[groups]: gPTEs whose frame the host does not map: they have no ePT line
    """

    groups: tuple[str, ...]
    counts: np.ndarray
    huge: np.ndarray
    unresolved: np.ndarray

    def histogram(self, full: bool = False) -> np.ndarray:
        """int64[groups, 8]: gPT lines with 1, 2, ... 8 ePT lines; `full`: only lines with all eight pages."""
        return (self.counts[:, LINE] if full else self.counts.sum(axis=1))[:, 1:]

    def summary(self, full: bool = False) -> list[dict[str, Any]]:
        """[dict by group]: of, gPT lines, mean, and the shares with several and with eight ePT lines.

        Mean and shares are None where there is no line.
        """
        return [
            {"of": name, "gPT lines": int(row.sum()), **_metrics(row)}
            for name, row in zip(self.groups, self.histogram(full), strict=True)
        ]

    def mean(self, full: bool = False) -> float | None:
        """The paper's metric over all groups; None where no page is mapped by 4 KiB."""
        return _metrics(self.histogram(full).sum(axis=0))["mean"]

    def frame(self) -> pd.DataFrame:
        """pandas DataFrame, tidy: group, lines ("all" or "full"), ept_lines, count, share of its group."""
        import pandas as pd

        parts = []
        for lines in ("all", "full"):
            counts = self.histogram(lines == "full")
            total = counts.sum(axis=1, keepdims=True)
            share = np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0)
            names = [self.groups, (lines,), range(1, LINE + 1)]
            index = pd.MultiIndex.from_product(names, names=["group", "lines", "ept_lines"])
            parts.append(pd.DataFrame({"count": counts.ravel(), "share": share.ravel()}, index=index))
        return pd.concat(parts).reset_index()


def _metrics(row: np.ndarray) -> dict[str, float | None]:
    """Metrics of int64[8], gPT lines with 1..8 ePT lines."""
    total = row.sum()
    if not total:
        return dict.fromkeys(("mean", "scattered", "fully scattered"))
    parts = row @ np.arange(1, LINE + 1), row[1:].sum(), row[-1]
    return dict(zip(("mean", "scattered", "fully scattered"), (float(p / total) for p in parts), strict=True))


def measure(space: AddressSpace, *, by: str = "all", filled: bool = False) -> Fragmentation:
    """Fragmentation of a two-dimensional snapshot (AddressSpace), the tracer's VMAs left out.

    by      "all" or "vma"; a gPT line with pages of two VMAs counts in both, with its pages there
    filled  take holes in host leaf tables as mapped: the host fills them once the guest uses these frames

    Raises UsageError for a native snapshot, which has no ePT, and another grouping.
    """
    if by not in ("all", "vma"):
        raise UsageError(f"by = {by}: one of all, vma")
    if space.native:
        raise UsageError(
            "fragmentation: host tables = none: it counts cache lines of the ePT and needs a VM's capture; "
            "dump one with `ptanalyze dump vm` or join a guest's with its host's: `ptanalyze join`"
        )
    tree, vmas = space.snapshot.guest, space.snapshot.vmas
    groups, group_of_vma = address_space.groups(space.snapshot, by)
    counts = np.zeros((len(groups), LINE + 1, LINE + 1), np.int64)
    unresolved, nested = np.zeros(len(groups), np.int64), Nested(space.snapshot.nested)
    full = filled | (nested.tree.level > 1) | (address_space.leaf_entries(nested.tree) == 512)
    small = np.flatnonzero(tree.level == 1)
    for some, frame in bits.leaf_frames(tree, small):
        page = tree.base[small[some], None] + address_space.VMA_PAGES
        group = group_of_vma[address_space.vma_of(page.ravel(), vmas)]
        mapped, line = frame.ravel() >= 0, host_lines(frame.ravel(), nested, full)
        np.add.at(unresolved, group[mapped & (line < 0) & (group >= 0)], 1)
        at = np.flatnonzero((line >= 0) & (group >= 0))
        each = at // LINE * len(groups) + group[at]
        each = each[np.append(True, np.diff(each) != 0)[: len(each)]]
        each = np.unique(each) if len(groups) > 1 else each  # lines, once in each group
        at, of = np.divmod(each, len(groups))
        mine = group.reshape(-1, LINE)[at] == of[:, None]
        own = np.sort(np.where(mine, line.reshape(-1, LINE)[at], -1), axis=1)
        new = own >= 0
        new[:, 1:] &= np.diff(own, axis=1) > 0
        np.add.at(counts, (of, np.count_nonzero(own >= 0, axis=1), np.count_nonzero(new, axis=1)), 1)
    huge = np.zeros((len(groups), 2), np.int64)
    for level in (2, 3):
        group = group_of_vma[address_space.vma_of(address_space.huge_leaves(tree, level)[2], vmas)]
        huge[:, level - 2] = np.bincount(group[group >= 0], minlength=len(groups))
    return Fragmentation(groups, counts, huge, unresolved)


def host_lines(frame: np.ndarray, nested: Nested, full: np.ndarray) -> np.ndarray:
    """int64[n]: ePT cache line with the leaf entry of each guest frame, -1 where the host maps nothing.

    full  bool[T]: host tables without holes, whose entries need not be read
    """
    inside = (frame >= 0) & (frame >> 9 < len(nested.table))
    table = np.append(nested.table, address_space.NO_TABLE)[np.where(inside, frame >> 9, -1)]
    there, holes = (table >= 0) & full[table], np.flatnonzero((table >= 0) & ~full[table])
    there[holes] = nested.host_frames(frame[holes]) >= 0
    level = nested.tree.level[table].astype(np.int64)
    return np.where(there, frame >> 9 * level - 6 << 2 | level, -1)


# The 4 KiB pages that another guest allocator could serve, and the frames for them.

MOVABLE, STAYING = 0, 1  # groups of VMAs
BLOCKS = 1 << 18  # per block of work
REASONS = ("in file-backed, shared or special VMAs", "of a frame with several users", "unmapped in the host")


@dataclass(frozen=True)
class GuestPages:
    """Pages of leaf tables, numbered by address: table k, in order of its base, has pages k << 9 and up.

    table     int32[L]      flat id of each leaf table: the snapshot's, and those the trace touched
    base      int64[T]      number of the first page of each flat id, -1 for other tables
    captured  uint32[L<<9]  frame of each mapped page that may get another frame, else kernels.reshape.FREE
    now       uint32[L<<9]  kernels.reshape.FREE where the allocator serves a page, else KEPT
    users     uint8[D<<9]   by guest frame, as in kernels.reshape
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
    snapshot, tables = space.snapshot, space.tables
    level, host = tables.level, np.arange(len(tables.level)) - space.guest_tables
    table = np.flatnonzero((level == 1) & ((host < 0) | (host >= space.host_tables))).astype(np.int32)
    table = table[np.argsort(tables.base[table], kind="stable")]
    base = np.full(len(level), -1, np.int64)
    base[table] = np.arange(len(table)) << 9
    there, pool_of = space.host_of >= 0, np.full(len(space.host_of), kernels.NO_POOL, np.uint8)
    pool_of[there] = np.unique(tables.node[space.host_of[there]].astype(np.int64), return_inverse=True)[1]
    served = np.where(anonymous_private(snapshot), MOVABLE, STAYING)
    group = np.append(np.where(snapshot.vmas["emulator"], address_space.LEFT_OUT, served), MOVABLE)
    own = tables._replace(level=np.where(base >= 0, level, 0))
    users, captured = _users(space), np.full(len(table) << 9, kernels.FREE, np.uint32)
    now, kept = np.full(len(table) << 9, kernels.KEPT, np.uint32), np.zeros(len(REASONS), np.int64)
    of, lo, hi, which = address_space.segments(own, snapshot.vmas, group)
    for begin in range(0, len(of), bits.BLOCK):
        some = slice(begin, begin + bits.BLOCK)
        count = hi[some].astype(np.int64) - lo[some]
        run = np.repeat(np.arange(len(of))[some], count)
        slot = np.arange(len(run)) - np.repeat(np.cumsum(count) - count - lo[some], count)
        page, movable, known = base[of[run]] + slot, which[run] == MOVABLE, of[run] < len(snapshot.guest)
        number = np.full(len(run), -1)
        raw = snapshot.guest.entries[of[run[known]], slot[known]]
        number[known] = np.where(bits.leaf(raw, 1), bits.frame(raw, 1), -1)
        inside = (number >= 0) & (number < len(users))
        inside[inside] = pool_of[number[inside] >> 9] != kernels.NO_POOL
        mine = movable & inside
        mine[mine] = users[number[mine]] == 1
        now[page[movable & ((number < 0) | mine)]] = kernels.FREE
        captured[page[mine]], users[number[mine]] = number[mine], kernels.MOVABLE
        stays = (number >= 0) & ~mine
        reasons = ~movable, movable & inside, movable & ~inside
        kept += [np.count_nonzero(stays & why) for why in reasons]
    return GuestPages(
        table, base, captured, now, users, pool_of, dict(zip(REASONS, kept.tolist(), strict=True))
    )


def _users(space: AddressSpace) -> np.ndarray:
    """uint8[D << 9]: pages of 4 KiB by guest frame, up to SEVERAL; tables and huge pages count as SEVERAL."""
    tree = space.snapshot.guest
    users = np.zeros(len(space.host_of) << 9, np.uint8)
    for _, frame in bits.leaf_frames(tree, np.flatnonzero(tree.level == 1)):
        number, pages = np.unique(frame[(frame >= 0) & (frame < len(users))], return_counts=True)
        users[number] = np.minimum(users[number] + pages, kernels.SEVERAL)
    mine = tree.frame[(tree.frame >= 0) & (tree.frame < len(users))]
    users[mine] = kernels.SEVERAL
    for level, _, raw in bits.blocks(tree, (2, 3)):
        for first in bits.frame(raw[bits.leaf(raw, level, tree.encoding)], level, tree.encoding).tolist():
            users[first : first + 512 ** (level - 1)] = kernels.SEVERAL
    return users


@dataclass(frozen=True)
class Reservations:
    """Outcome of the allocator.

    snapshot  the guest's leaf entries with the frames it gave, all else as it was
    counts    {kernels.reshape.COUNTS: number}, at the end of the trace
    kept      {reason: pages of the program that keep their frames}
    early     pages it mapped before the trace, in address order: pages that no walk faults in
    late      pages it mapped after the trace: the trace's events had freed them, the snapshot has them
    walks     of the trace
    """

    snapshot: Snapshot
    counts: dict[str, int]
    kept: dict[str, int]
    early: int
    late: int
    walks: int


def reserve(program: TracedProgram, past: History, pages: int = 8, limit: int = -1) -> Reservations:
    """Reservations over the walks and steps of a two-dimensional program with this History.

    pages  of a group: a power of two, 2..512
    limit  unused reserved frames above which reservations are released, oldest first; -1: no limit
    Memory: about 17 bytes for each entry of the guest's leaf tables and 20 for each block of guest memory.
    """
    shift = pages.bit_length() - 1
    own, regions = guest_pages(program.space), program.space.regions
    region_base = np.where(regions.level == 1, own.base[regions.leaf], -1)
    row_base = own.base[past.rows.leaf]
    for page in blocks(program.stream.page):
        base = region_base[page >> np.uint32(9)]
        walked = (base + (page & np.uint32(511)))[base >= 0]
        own.now[walked[own.now[walked] == kernels.FREE]] = kernels.WAITING
    for row in np.flatnonzero((row_base >= 0) & past.valid.any(axis=1)).tolist():
        now = own.now[row_base[row] : row_base[row] + 512]  # what was mapped before waits for no walk
        now[past.mapped_pages([row])[0] & (now == kernels.WAITING)] = kernels.FREE
    guest = _guest(own, shift, limit)
    kernels.fault_all(own.captured, True, guest)
    early, first, step = int(guest.count[kernels.MAPPED]), 0, 0
    for page in blocks(program.stream.page):
        step = kernels.run(page, region_base, own.captured, first, past.steps, row_base, step, guest)
        first += len(page)
    counts = dict(zip(kernels.COUNTS, guest.count.tolist(), strict=True))
    kernels.fault_all(own.captured, False, guest)
    late = int(guest.count[kernels.MAPPED]) - counts["mapped"]
    _find_singles(own)
    tree = program.snapshot.guest
    entries, mine = np.array(tree.entries), own.table < len(tree)
    page = np.flatnonzero(np.repeat(mine, 512) & (own.captured < kernels.SPECIAL) & (own.now != own.captured))
    at = own.table[page >> 9], page & 511
    entries[at] = with_frame(entries[at], own.now[page], tree.encoding)
    snapshot = replace(program.snapshot, guest=replace(tree, entries=entries))
    return Reservations(snapshot, counts, own.kept, early, late, len(program.stream))


def _guest(pages: GuestPages, shift: int, limit: int) -> kernels.Guest:
    """kernels.reshape.Guest with nothing mapped; pools by address."""
    there = pages.pool_of != kernels.NO_POOL
    blocks, free = len(pages.users) >> shift, np.repeat(there, 512 >> shift)
    users = pages.users.reshape(-1, 1 << shift)
    for begin in range(0, blocks, BLOCKS):
        part = users[begin : begin + BLOCKS]  # no staying page may use any of their frames
        free[begin : begin + BLOCKS] &= ((part == 0) | (part == kernels.MOVABLE)).all(axis=1)
    free = np.flatnonzero(free).astype(np.int32)
    which = pages.pool_of[free.astype(np.int64) << shift >> 9]
    pools = int(pages.pool_of[there].max(initial=0)) + 1
    first = np.concatenate([[0], np.cumsum(np.bincount(which, minlength=pools))]).astype(np.int64)
    pool = free[np.argsort(which, kind="stable")]
    at = np.full(blocks, kernels.NONE, np.int32)
    at[pool] = np.arange(len(pool))
    lowest = np.argmax(there) << 9 >> shift
    return kernels.Guest(
        frame=pages.now,
        block=np.full(len(pages.now) >> shift, kernels.NONE, np.int32),
        group=np.full(blocks, kernels.NONE, np.int32),
        used=np.zeros(blocks, np.int16),
        older=np.full(blocks + 1, blocks, np.int32),
        newer=np.full(blocks + 1, blocks, np.int32),
        pool=pool,
        at=at,
        first=first,
        next=first[:-1].copy(),
        pool_of=pages.pool_of,
        count=np.zeros(len(kernels.COUNTS), np.int64),
        last=np.array([lowest], np.int64),
        shift=shift,
        limit=limit,
    )


def _find_singles(pages: GuestPages) -> None:
    """Give pages without a block the frame they were captured with, else a free frame.

    There is enough: as many frames were taken from captured pages as there are such pages.
    """
    mapped = pages.captured < kernels.SPECIAL
    pending = np.flatnonzero(mapped & (pages.now == kernels.SINGLE))
    if not len(pending):
        return
    taken = np.zeros(len(pages.users), bool)
    taken[pages.now[mapped & (pages.now < kernels.SPECIAL)]] = True
    own = pages.captured[pending]
    again = ~taken[own]
    taken[own[again]] = True
    left = np.flatnonzero((pages.users == kernels.MOVABLE) & ~taken)
    pages.now[pending[again]] = own[again]
    pages.now[pending[~again]] = left[: np.count_nonzero(~again)]
