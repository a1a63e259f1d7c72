"""Flat table ids over both dimensions of a snapshot, and the leaf tables of a trace's regions."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core import snapshot as bits
from ..core.errors import UNKNOWN_NODE, CaptureError
from ..core.snapshot import EMULATOR, NO_PARENT, Heat, Snapshot, Tree
from ..core.trace import PAGE_SHIFT, REGION_SHIFT, SLOT_BITS, Regions, Tables, read_only

if TYPE_CHECKING:
    from ..kernels.classify import Host

SLOTS = np.uint64(511)
PAGE_BITS = 12
MAX_GUEST_REGIONS = (1 << 23) - 1  # 16 TiB of guest-physical memory: frames fit 32-bit tags beside EMPTY
NO_TABLE = -1


@dataclass(frozen=True)
class AddressSpace:
    """A snapshot as kernels see it. Flat ids: guest_tables, then host_tables, then inferred_tables.

    tables      Tables of all of them; a parent's id is below its children's
    regions     Regions of the trace, by region id
    host_of     int32[D]: flat id of the host table with the leaf entry of guest frame f at [f >> 9], NO_TABLE
                where nothing is mapped; empty native. Frames from D << 9 up are outside the VM's memory
    """

    snapshot: Snapshot
    tables: Tables
    regions: Regions
    host_of: np.ndarray
    guest_tables: int
    host_tables: int
    inferred_tables: int

    @cached_property
    def sides(self) -> tuple[slice, slice]:
        """Flat ids of the guest's tables, and of the host's."""
        return slice(0, self.guest_tables), slice(self.guest_tables, self.guest_tables + self.host_tables)

    @property
    def native(self) -> bool:
        return self.snapshot.host is None

    @property
    def unplaced(self) -> int:
        """Guest tables whose own frame cannot be followed into the host tree."""
        leaf = self.tables.host_leaf[: 0 if self.native else self.guest_tables]
        return int(np.count_nonzero(leaf == NO_TABLE))

    @property
    def program_tables(self) -> np.ndarray:
        """bool[guest_tables]: table pages of the program, not only of its tracer."""
        return self.snapshot.guest.flags & EMULATOR == 0


def address_space(snapshot: Snapshot, region_va: np.ndarray) -> AddressSpace:
    """AddressSpace of a snapshot for a trace that touched `region_va` (uint64[R], address >> 21).

    Regions without a leaf table (unmapped again, or never faulted in) get inferred tables below their deepest
    existing ancestor. Raises CaptureError where the tables are not a tree.
    """
    host_of = np.zeros(0, np.int32) if snapshot.native else host_index(snapshot.nested, len(snapshot.guest))
    tables, regions = _resolve(snapshot, _flatten(snapshot, host_of), host_of, np.array(region_va, np.uint64))
    guest, host = len(snapshot.guest), 0 if snapshot.host is None else len(snapshot.host)
    return AddressSpace(snapshot, tables, regions, host_of, guest, host, len(tables.level) - guest - host)


def host_index(tree: Tree, first: int = 0) -> np.ndarray:
    """int32[D], AddressSpace.host_of of nested tables that are numbered from `first` on.

    Guest-physical memory from 16 TiB up counts as outside.
    """
    leaves = []
    for level in (3, 2):
        table, _, va = huge_leaves(tree, level)
        leaves.append((table, va >> np.uint64(21), 512 ** (level - 2)))
    small = np.flatnonzero(tree.level == 1)
    leaves.append((small, tree.base[small] >> np.uint64(21), 1))
    within = ((region[region < np.uint64(MAX_GUEST_REGIONS)], span) for _, region, span in leaves)
    size = max((int(region.max()) + span for region, span in within if len(region)), default=0)
    host_of = np.full(min(size, MAX_GUEST_REGIONS), NO_TABLE, np.int32)
    for table, region, span in leaves:
        inside = region < np.uint64(len(host_of))
        for k in range(span):
            at = region[inside] + np.uint64(k)
            fits = at < np.uint64(len(host_of))
            host_of[at[fits]] = table[inside][fits] + first
    return host_of


def huge_leaves(tree: Tree, level: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(int64[n] table, int64[n] slot, uint64[n] first byte) of the leaf entries at level 2 or 3."""
    of_level = np.flatnonzero(tree.level == level)
    which, slot = np.nonzero(bits.leaf(tree.entries[of_level], level, tree.encoding))
    table = of_level[which]
    return table, slot, tree.base[table] + (slot.astype(np.uint64) << np.uint64(3 + 9 * level))


def _flatten(snapshot: Snapshot, host_of: np.ndarray) -> Tables:
    guest, host = snapshot.guest, snapshot.host
    _must_be_tree(guest, "gpt.tables")
    host_leaf, host_slot = np.full(len(guest), NO_TABLE, np.int32), np.full(len(guest), -1, np.int16)
    own = Tables(guest.parent, guest.node, guest.level, guest.base, host_leaf, host_slot)
    if host is None:
        return own
    _must_be_tree(host, "ept.tables")
    known = guest.frame >= 0
    region = np.where(known, guest.frame >> 9, 0)
    inside = known & (region < len(host_of))
    host_leaf[inside] = host_of[region[inside]]
    mapped = host_leaf != NO_TABLE
    level = host.level[host_leaf[mapped] - len(guest)].astype(np.int64)
    host_slot[mapped] = guest.frame[mapped] >> (9 * (level - 1)) & 511
    parent = np.where(host.parent == NO_PARENT, NO_PARENT, host.parent + len(guest))
    return _with_more(own, parent, host.node, host.level, host.base)


def _with_more(
    tables: Tables, parent: np.ndarray, node: np.ndarray, level: np.ndarray, base: np.ndarray
) -> Tables:
    """Tables with further ones, which no host table maps."""
    nowhere = np.full(len(parent), -1)
    more = parent, node, level, base, nowhere, nowhere
    return Tables(*(np.append(old, new.astype(old.dtype)) for old, new in zip(tables, more, strict=True)))


def _must_be_tree(tree: Tree, file: str) -> None:
    """Kernels follow parents unchecked: each must precede its children, one level above them."""
    parent, ids = tree.parent.astype(np.int64), np.arange(len(tree))
    root = parent == NO_PARENT
    wrong = ~root & ((parent < 0) | (parent >= ids))
    if wrong.any():
        at = int(np.argmax(wrong))
        why = "a parent stands before its children"
        raise CaptureError(file, f"parent of table {at}", int(parent[at]), why)
    level = tree.level.astype(np.int64)
    wrong = np.where(root, level != tree.levels, level != level[parent] - 1) | (level < 1)
    if wrong.any():
        at = int(np.argmax(wrong))
        why = "not one below its parent's, from the root"
        raise CaptureError(file, f"level of table {at}", int(level[at]), why)


def _resolve(snapshot: Snapshot, flat: Tables, host_of: np.ndarray, va: np.ndarray) -> tuple[Tables, Regions]:
    """Descend for all regions at once, level by level; add inferred tables where the tree ends."""
    tree = snapshot.guest
    index = _ByBase(tree)
    leaf, level = index.find(1, va), np.ones(len(va), np.uint8)
    _, first, which, count = np.unique(va, return_index=True, return_inverse=True, return_counts=True)
    huge_first = (count[which] > 1) & (first[which] == np.arange(len(va)))  # Regions.va
    split = (count[which] > 1) & ~huge_first
    slot = np.full(len(va), -1, np.int16)
    first_frame = np.full(len(va), -1, np.int64)
    for up in (2, 3):
        table = index.find(up, va)
        entry_slot = (va >> np.uint64(9 * (up - 2)) & SLOTS).astype(np.int64)
        at = np.flatnonzero(((leaf == NO_TABLE) | huge_first) & ~split & (table != NO_TABLE) & (level == 1))
        raw = tree.entries[table[at], entry_slot[at]]
        huge = bits.leaf(raw, up, tree.encoding)
        at, raw = at[huge], raw[huge]
        leaf[at], level[at], slot[at] = table[at], up, entry_slot[at]
        first_frame[at] = bits.frame(raw, up, tree.encoding)
    first_frame += np.where(level == 3, (va & SLOTS).astype(np.int64) << 9, 0)
    inferred = _infer(index, va[leaf == NO_TABLE], len(flat.level))
    parent, base, height = map(np.concatenate, zip(*inferred, strict=True))
    tables = _with_more(flat, parent, np.full(len(parent), UNKNOWN_NODE), height, base)
    leaf = np.where(leaf == NO_TABLE, index.find(1, va), leaf).astype(np.int32)
    tlb_level = level if snapshot.native else _tlb_level(level, first_frame, tables, host_of)
    return tables, Regions(va, leaf, level, slot, tlb_level)


def _tlb_level(level: np.ndarray, first_frame: np.ndarray, tables: Tables, host_of: np.ndarray) -> np.ndarray:
    """A TLB entry of a two-dimensional walk spans the smaller of both leaves (Intel SDM 3C, 29.4.1)."""
    region = first_frame >> 9
    inside = (level > 1) & (region >= 0) & (region < len(host_of))
    table = np.full(len(level), NO_TABLE)
    table[inside] = host_of[region[inside]]
    return np.minimum(level, np.where(table == NO_TABLE, 1, tables.level[table])).astype(np.uint8)


def _infer(index: "_ByBase", va: np.ndarray, next_id: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """[(parent id, base, level)] of the missing tables for regions `va`, top down; they join the index."""
    made = []
    for level in range(index.levels, 0, -1):
        bases = np.unique(index.base(level, va[index.find(level, va) == NO_TABLE]))
        parent = index.find(level + 1, bases >> np.uint64(21))
        index.add(level, bases, np.arange(next_id, next_id + len(bases)))
        made.append((parent, bases, np.full(len(bases), level)))
        next_id += len(bases)
    return made


class _ByBase:
    """Finds the table of a level that maps a region: ids sorted by base, a pair of arrays per level."""

    def __init__(self, tree: Tree) -> None:
        self.levels = tree.levels
        self.by_level: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for level in range(1, tree.levels + 1):
            ids = np.flatnonzero(tree.level == level).astype(np.int32)
            order = np.argsort(tree.base[ids], kind="stable")
            self.by_level[level] = tree.base[ids][order], ids[order]

    def base(self, level: int, va: np.ndarray) -> np.ndarray:
        """uint64: first byte of the table at `level` that maps region `va`."""
        span = PAGE_BITS + 9 * level
        top = np.uint64((1 << (PAGE_BITS + 9 * self.levels)) - 1)
        return ((va << np.uint64(21)) & top) >> np.uint64(span) << np.uint64(span)

    def find(self, level: int, va: np.ndarray) -> np.ndarray:
        """int64: id of the table at `level` that maps each region, NO_TABLE where there is none."""
        if level > self.levels or not len(self.by_level[level][0]):
            return np.full(len(va), NO_TABLE)
        bases, ids = self.by_level[level]
        wanted = self.base(level, va)
        at = np.minimum(np.searchsorted(bases, wanted), len(bases) - 1)
        return np.where(bases[at] == wanted, ids[at], NO_TABLE).astype(np.int64)

    def add(self, level: int, new_bases: np.ndarray, new_ids: np.ndarray) -> None:
        bases, ids = self.by_level[level]
        merged = np.concatenate([bases, new_bases])
        order = np.argsort(merged, kind="stable")
        self.by_level[level] = merged[order], np.concatenate([ids, new_ids.astype(np.int32)])[order]


# Guest frames through the nested tables to host frames, many at a time.


class Nested:
    """Nested tables; of several roots the last that maps a region counts.

    table  int32[D]  by guest frame >> 9: host table with the leaf entry, NO_TABLE where there is none
    """

    def __init__(self, tree: Tree) -> None:
        self.tree, self.table = tree, host_index(tree)

    def host_frames(self, frames: np.ndarray) -> np.ndarray:
        """int64[n]: host frame behind each guest frame (int64[n]), -1 where the host maps nothing."""
        return self.leaves(frames)[0]

    def leaves(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Call pages_of for the host tree and guest frames (int64[n])."""
        frames = np.asarray(frames, np.int64)
        inside = (frames >= 0) & (frames >> 9 < len(self.table))
        table = np.full(len(frames), NO_TABLE)
        table[inside] = self.table[frames[inside] >> 9]
        return pages_of(self.tree, table, frames)


def pages_of(tree: Tree, table: np.ndarray, page: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64[n]: frame behind each page number, -1 where none is mapped; uint64[n]: its leaf entry, else 0).

    table  int64[n]: the table of a Tree that holds it, or NO_TABLE
    """
    frame, entry = np.full(len(page), -1, np.int64), np.zeros(len(page), np.uint64)
    known = np.flatnonzero(table != NO_TABLE)
    for level in (1, 2, 3):
        at, shift = known[tree.level[table[known]] == level], 9 * (level - 1)
        raw = tree.entries[table[at], page[at] >> shift & 511]
        leaf = bits.leaf(raw, level, tree.encoding)
        at, raw = at[leaf], raw[leaf]
        frame[at] = bits.frame(raw, level, tree.encoding) + (page[at] & ((1 << shift) - 1))
        entry[at] = raw
    return frame, entry


def leaf_entries(tree: Tree) -> np.ndarray:
    """int64[T]: entries of each table of a Tree that map pages, of whatever size."""
    counts = np.zeros(len(tree), np.int64)
    for level, ids, raw in bits.blocks(tree, (1, 2, 3)):
        counts[ids] = bits.leaf(raw, level, tree.encoding).sum(axis=1)
    return counts


# Where bytes of the address space are among the leaf entries that a trace touches.


def host_classes(space: AddressSpace, of_table: np.ndarray, n: int) -> "Host":
    """kernels.classify.Host: full host tables are classified by region, tables with holes by frame.

    of_table  [T]: class of each table, below n
    """
    from ..kernels.classify import Host
    from ..kernels.walker import CODES, Segments, count_mapped

    tree, first = space.snapshot.nested, space.guest_tables
    unmapped, absent, closer = n + 1, n + 2, n + 3
    of_table = of_table[first : first + len(tree)].astype(np.uint8)
    known, entries, encoding = of_table.copy(), read_only(tree.entries), CODES[tree.encoding]
    small = np.flatnonzero(tree.level == 1).astype(np.int32)
    mapped, ends = np.zeros(len(small), np.int64), np.full(len(small), 512, np.int16)
    count_mapped(entries, Segments(small, np.zeros_like(ends), ends, mapped), encoding, mapped)
    known[small[mapped < 512]] = closer
    table = np.where(space.host_of >= 0, space.host_of - first, -1).astype(np.int32)
    of_region = np.where(table < 0, np.uint8(unmapped), np.append(known, 0)[table]).astype(np.uint8)
    return Host(of_region, of_table, table, entries, encoding, unmapped, absent, closer)


class Spans(NamedTuple):
    """A part of a region each: which range it is of, region id, first slot, one past the last (int64[n])."""

    of: np.ndarray
    region: np.ndarray
    lo: np.ndarray
    hi: np.ndarray


class Slots:
    """Finds the regions that a trace touched, and slots in them; order: region ids by address."""

    def __init__(self, regions: Regions) -> None:
        self.order = np.argsort(regions.va, kind="stable")
        self.va = regions.va[self.order]

    def spans(self, starts: np.ndarray, ends: np.ndarray) -> Spans:
        """Spans of byte ranges (uint64[k]) in the touched regions, range by range, each by address."""
        one, slots = np.uint64(1), np.uint64(SLOT_BITS)
        first = starts >> np.uint64(PAGE_SHIFT)
        past = (np.maximum(ends, one) - one >> np.uint64(PAGE_SHIFT)) + one
        low = np.searchsorted(self.va, first >> slots)
        count = np.searchsorted(self.va, past - one >> slots, side="right") - low
        count = np.where(ends > starts, count, 0)
        of = np.repeat(np.arange(len(starts)), count)
        at = np.arange(len(of)) + np.repeat(low - (np.cumsum(count) - count), count)
        base = self.va[at] << slots
        lo, hi = np.maximum(first[of], base) - base, np.minimum(past[of] - base, np.uint64(512))
        return Spans(of, self.order[at], lo.astype(np.int64), hi.astype(np.int64))


# The VMAs of leaf entries: rows of a result by VMA, the tracer's own VMAs left out.

LEFT_OUT = -1
NO_VMA = "no VMA"  # memory that was walked or mapped, but in no VMA when the snapshot was taken
REGION = np.uint64(1 << REGION_SHIFT)
VMA_PAGES = np.arange(512, dtype=np.uint64) << np.uint64(12)


def groups(snapshot: Snapshot, by: str) -> tuple[tuple[str, ...], np.ndarray]:
    """(names of the groups, int64[V + 1]: group of each VMA, LEFT_OUT for the tracer's; the last: none)."""
    vmas = snapshot.vmas
    if by == "vma":
        spans = zip(vmas["start"], vmas["end"], snapshot.vma_names, strict=True)
        names = (*(f"{int(a):x}-{int(b):x} {name}".rstrip() for a, b, name in spans), NO_VMA)
        group = np.arange(len(vmas) + 1)
    else:
        names, group = ("all",), np.zeros(len(vmas) + 1, np.int64)
    group[:-1][vmas["emulator"]] = LEFT_OUT
    return names, group


def vma_of(addresses: np.ndarray, vmas: np.ndarray) -> np.ndarray:
    """int64: index of the VMA around each address (uint64), len(vmas) for none."""
    at = np.searchsorted(vmas["start"], addresses, side="right") - 1  # -1: no address is below the end then
    return np.where(addresses < np.append(vmas["end"], np.uint64(0))[at], at, len(vmas))


def tracers_leaves(snapshot: Snapshot) -> dict[int, int]:
    """{level: leaf entries in VMAs of the tracer's own}; {} where it has none."""
    tree, own = snapshot.guest, snapshot.vmas["emulator"]
    if not own.any():
        return {}
    table, lo, hi, _ = segments(tree, snapshot.vmas, np.append(np.where(own, 0, LEFT_OUT), LEFT_OUT))
    raw = [np.zeros(0, np.uint64), *(tree.entries[t, a:b] for t, a, b in zip(table, lo, hi, strict=True))]
    counts = {1: int(np.count_nonzero(bits.leaf(np.concatenate(raw), 1, tree.encoding)))}
    for level in (2, 3):
        va = huge_leaves(tree, level)[2]
        counts[level] = int(np.count_nonzero(np.append(own, False)[vma_of(va, snapshot.vmas)]))
    return counts


def segments(
    tree: Tree | Tables, vmas: np.ndarray, group: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(table int32, lo int16, hi int16, group int64): tables of level 1, cut where the group changes."""
    table = np.flatnonzero(tree.level == 1).astype(np.int32)
    of_region, mixed = _regions(tree.base[table], vmas, group)
    whole = of_region >= 0
    lo, hi = [np.zeros(np.count_nonzero(whole), np.int16)], [np.full(np.count_nonzero(whole), 512, np.int16)]
    tables, rows = [table[whole]], [of_region[whole]]
    for k in np.flatnonzero(mixed):
        by_slot = group[vma_of(tree.base[table[k]] + VMA_PAGES, vmas)]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(by_slot)) + 1])
        kept = by_slot[starts] >= 0
        tables.append(np.full(np.count_nonzero(kept), table[k], np.int32))
        lo.append(starts[kept].astype(np.int16))
        hi.append(np.append(starts[1:], 512)[kept].astype(np.int16))
        rows.append(by_slot[starts[kept]])
    return np.concatenate(tables), np.concatenate(lo), np.concatenate(hi), np.concatenate(rows)


def of_regions(
    va: np.ndarray, vmas: np.ndarray, group: np.ndarray, scale: int
) -> tuple[np.ndarray, np.ndarray]:
    """(int64[R] group * scale by 2 MiB region, LEFT_OUT, or -2 - k: see row k of int64[k, 512] by slot)."""
    base = va << np.uint64(REGION_SHIFT)
    row, mixed = _regions(base, vmas, group)
    row = np.where(row >= 0, row * scale, LEFT_OUT)
    at = np.flatnonzero(mixed)
    row[at] = -2 - np.arange(len(at))
    by_slot = group[vma_of((base[at][:, None] + VMA_PAGES).ravel(), vmas)].reshape(-1, 512)
    return row, np.where(by_slot >= 0, by_slot * scale, LEFT_OUT)


def _regions(base: np.ndarray, vmas: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(group of each 2 MiB region, or LEFT_OUT; bool: several VMAs or a gap share the region)."""
    if not len(vmas) or (group == group[0]).all():
        return np.full(len(base), group[0]), np.zeros(len(base), bool)
    first = np.searchsorted(vmas["end"], base, side="right")
    overlapping = np.searchsorted(vmas["start"], base + REGION, side="left") - first
    vma = np.minimum(first, len(vmas) - 1)
    inside = (overlapping == 1) & (vmas["start"][vma] <= base) & (vmas["end"][vma] >= base + REGION)
    alone = np.where(inside, group[vma], group[-1])
    mixed = (overlapping > 0) & ~inside
    return np.where(mixed, LEFT_OUT, alone), mixed


# The leaf entries of pages whose accessed bits were sampled.


def leaves_of(tree: Tree, heat: Heat) -> tuple[np.ndarray, np.ndarray]:
    """(int64[P] table, int64[P] slot) of the entry that maps each page of a Heat; table -1: none does now."""
    table, slot = np.full(len(heat.address), NO_TABLE), np.zeros(len(heat.address), np.int64)
    index = _ByBase(tree)
    for level in np.unique(heat.level).tolist():
        of = np.flatnonzero(heat.level == level)
        at = index.find(level, heat.address[of] >> np.uint64(REGION_SHIFT))
        of, at = of[at != NO_TABLE], at[at != NO_TABLE]
        slot[of] = (heat.address[of] >> np.uint64(3 + 9 * level) & SLOTS).astype(np.int64)
        there = bits.leaf(tree.entries[at, slot[of]], level, tree.encoding)
        table[of[there]] = at[there]
    return table, slot


def known_pages(tree: Tree, heat: Heat) -> int:
    """Number of the pages of a Heat that the tree maps as they were mapped when they were sampled."""
    return int(np.count_nonzero(leaves_of(tree, heat)[0] >= 0))
