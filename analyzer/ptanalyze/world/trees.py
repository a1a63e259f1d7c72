"""Page tables with huge leaves in place of small ones, Tree in, Tree out.

The input Tree stays unchanged. Memory: 4 KiB of copied entries for each table page that is kept.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..core import snapshot as bits
from ..core.errors import UNKNOWN_NODE
from ..core.snapshot import NO_PARENT, Snapshot, Topology, Tree
from ..core.trace import REGION_SHIFT
from .address_space import AddressSpace, leaf_entries, vma_of

ANONYMOUS = ("[heap]", "[stack", "[anon")  # VMAs' names, and no name at all


def with_frame(raw: np.ndarray, frame: np.ndarray, encoding: str) -> np.ndarray:
    """uint64[n]: entries (uint64[n], mapped) that lead to other frames (int64[n]), all flags as they were.

    x86 entries that are mapped but not present keep their frame inverted (pgtable-invert.h).
    """
    address = np.asarray(frame, np.int64).astype(np.uint64) << np.uint64(12)
    if encoding == "x86":
        address = np.where(raw & bits.PRESENT == bits.NONE, ~address, address)
    return (raw & ~bits.ADDRESS) | (address & bits.ADDRESS)


def with_huge_leaves(
    tree: Tree, tables: np.ndarray, leaves: np.ndarray, deposited: np.ndarray | bool = False
) -> Tree:
    """The Tree without the leaf tables `tables` (int64[k], of level 1), huge leaves in their place.

    leaves     uint64[k]: their parents' new entries
    deposited  bool[k]: which tables stay beside the huge leaf, for when it is split
    """
    keep = np.ones(len(tree), bool)
    keep[tables] = deposited
    number = np.cumsum(keep) - 1
    kept = np.flatnonzero(keep)
    entries = tree.entries[kept]
    slot = tree.base[tables] >> np.uint64(REGION_SHIFT) & np.uint64(511)
    entries[number[tree.parent[tables]], slot] = leaves
    parent = tree.parent[kept]
    parent = np.where(parent == NO_PARENT, NO_PARENT, number[parent]).astype(np.int32)
    columns = {name: getattr(tree, name)[kept] for name in ("base", "frame", "node", "level", "flags")}
    return replace(tree, entries=entries, parent=parent, **columns)


def overlap(bases: np.ndarray, length: int, ranges: np.ndarray) -> np.ndarray:
    """bool[n]: some byte of the `length` from each base (uint64[n]) on is in `ranges` (uint64[k, 2])."""
    start, end = _first_that_ends_behind(bases, ranges)
    return (start < bases + np.uint64(length)) & (end > bases)


def within(bases: np.ndarray, length: int, ranges: np.ndarray) -> np.ndarray:
    """bool[n]: all of the `length` from each base (uint64[n]) on is in one of `ranges` (uint64[k, 2])."""
    start, end = _first_that_ends_behind(bases, ranges)
    return (start <= bases) & (end >= bases + np.uint64(length))


def _first_that_ends_behind(bases: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """uint64[2, n]: start and end of the range around each base or else the next; none begins at the end."""
    none = np.array([[(1 << 64) - 1, 0]], np.uint64)
    return np.vstack([ranges, none])[np.searchsorted(ranges[:, 1], bases, side="right")].T


REGION, REGION_BYTES = np.uint64(REGION_SHIFT), np.uint64(1 << REGION_SHIFT)
PAGES = 512


class Promoted(NamedTuple):
    """
    tree           with huge leaves; the input tree if nothing was promoted
    regions        promoted: as many table pages are gone
    fragmented     regions that stay 4 KiB for want of contiguous memory, by choice
    without_block  regions that stay 4 KiB as no aligned block of guest frames was left
    bloat_pages    4 KiB pages mapped by the huge pages alone
    zero_pages     of these, how many were mapped to the one of zeros
    forbidden      regions that stay 4 KiB as the program forbids them
    tables         int64[regions]: leaf tables of the input tree with a huge leaf in their place
    """

    tree: Tree
    regions: int
    fragmented: int = 0
    without_block: int = 0
    bloat_pages: int = 0
    zero_pages: int = 0
    forbidden: int = 0
    tables: np.ndarray = np.zeros(0, np.int64)


class Candidates(NamedTuple):
    """Leaf tables that could become a huge leaf, by address.

    table  int64[k]
    pages  int64[k]   mapped pages, but for the one of zeros, which the kernel maps where nothing was written
    zeros  int64[k]   how often it maps that
    raw    uint64[k]  the entry that gives a huge leaf its flags
    frame  int64[k]   the frame near which the huge page is placed
    """

    table: np.ndarray
    pages: np.ndarray
    zeros: np.ndarray
    raw: np.ndarray
    frame: np.ndarray

    def only(self, which: np.ndarray) -> "Candidates":
        return Candidates(*(column[which] for column in self))


def promote_guest(
    space: AddressSpace,
    min_pages: int,
    fragmentation: float,
    seed: int,
    ranges: np.ndarray,
    wanted: np.ndarray | bool = True,
    parted: np.ndarray | tuple[()] = (),
) -> Promoted:
    """Promoted guest tables of an AddressSpace: anonymous private regions with `min_pages` mapped pages.

    ranges         uint64[n, 2] of addresses where the program forbids it (mm_events.Advice)
    wanted         bool[T] of the guest's tables that may be promoted, or True for all
    fragmentation  share of these that stay as they are, drawn by `seed` and the region's address
    parted         uint64[B], address >> 21: regions whose leaf tables stay, for when their huge page is split

    The huge page takes the block of 512 guest frames around the region's first frame; if others use frames of
    that block, or the host maps nothing there, the next usable block, preferably one that the host maps as a
    whole. Natively, frames only tell the node: that of most of the region's pages, as in promote_host.
    """
    tree = space.snapshot.guest
    inside = one_anonymous_vma(space.snapshot, tree.base) & wanted
    inside &= ~np.isin(tree.base >> REGION, space.regions.twice)
    topology = space.snapshot.topology if space.native else Topology(())
    eligible = candidates(tree, min_pages, inside, topology)
    allowed = ~overlap(tree.base[eligible.table], 1 << REGION_SHIFT, ranges)
    forbidden, eligible = int(np.count_nonzero(~allowed)), eligible.only(allowed)
    chosen = eligible.only(_whole(tree.base[eligible.table], fragmentation, seed, 0))
    block = chosen.frame >> 9 if space.native else _blocks(space, chosen)
    return _promoted(tree, chosen, block, len(eligible.table), parted)._replace(forbidden=forbidden)


def promote_host(snapshot: Snapshot, min_pages: int, fragmentation: float, seed: int) -> Promoted:
    """Promoted host tables: every region under a leaf table with `min_pages` mapped pages.

    The huge page is on the node of most of its pages: the aligned block around the first frame there.
    """
    tree = snapshot.nested
    eligible = candidates(tree, min_pages, True, snapshot.topology)
    chosen = eligible.only(_whole(tree.base[eligible.table], fragmentation, seed, 1))
    return _promoted(tree, chosen, chosen.frame >> 9, len(eligible.table))


def anonymous_private(snapshot: Snapshot) -> np.ndarray:
    """bool[V]: VMAs of anonymous private memory."""
    named = np.array([name == "" or name.startswith(ANONYMOUS) for name in snapshot.vma_names], bool)
    return named & ~snapshot.vmas["shared"]


def one_anonymous_vma(snapshot: Snapshot, bases: np.ndarray) -> np.ndarray:
    """bool[n]: an anonymous private VMA of the program holds all 2 MiB from each base (uint64[n]) on."""
    vmas = snapshot.vmas
    good = np.append(anonymous_private(snapshot) & ~vmas["emulator"], False)
    vma = vma_of(bases, vmas)
    end = np.append(vmas["end"], np.uint64(0))[vma]
    return good[vma] & (end >= bases + REGION_BYTES)


def candidates(tree: Tree, min_pages: int, allowed: np.ndarray | bool, topology: Topology) -> Candidates:
    """Candidates among the leaf tables with `min_pages` (at least 1) pages.

    allowed   bool[T], or True for all
    topology  frame: the first on the node of most of a region's pages; of no nodes: the first
    """
    tables = np.flatnonzero((tree.level == 1) & allowed)
    tables = tables[np.argsort(tree.base[tables], kind="stable")]
    (pages, zeros, first), raw = np.zeros((3, len(tables)), np.int64), np.zeros(len(tables), np.uint64)
    ids = np.unique([UNKNOWN_NODE, *(node.id for node in topology.nodes)])
    for some, frame in bits.leaf_frames(tree, tables):
        entries, there, row = tree.entries[tables[some]], frame >= 0, np.arange(len(frame))
        node = topology.node_of_frame(frame)
        most = ids[np.argmax([np.count_nonzero(there & (node == one), axis=1) for one in ids], axis=0)]
        walked = there & bits.present(entries, tree.encoding)
        flags = np.where(walked.any(axis=1), walked.argmax(axis=1), there.argmax(axis=1))
        ordered = np.sort(frame, axis=1)
        twice = ordered[:, 1:][(np.diff(ordered) == 0) & (ordered[:, 1:] >= 0)]  # of zeros, if anything
        zeros[some], raw[some] = np.isin(frame, np.unique(twice)).sum(axis=1), entries[row, flags]
        pages[some] = there.sum(axis=1) - zeros[some]
        first[some] = frame[row, (there & (node == most[:, None])).argmax(axis=1)]
    return Candidates(tables, pages, zeros, raw, first).only(pages >= max(min_pages, 1))


def _whole(bases: np.ndarray, fragmentation: float, seed: int, dimension: int) -> np.ndarray:
    """bool[n]: regions for which there is memory: a hash of their number stays below 1 - fragmentation.

    Regions that stay 4 KiB at one fragmentation do at every higher one.
    """
    z = (bases >> REGION) * np.uint64(2) + np.uint64(dimension)
    return hashed(z + np.uint64(seed * GOLDEN & (1 << 64) - 1)) >= fragmentation


GOLDEN = 0x9E3779B97F4A7C15


def hashed(z: np.ndarray) -> np.ndarray:
    """float64 in [0, 1) of uint64 numbers, in the shape of `z`: splitmix64 (Steele et al., OOPSLA 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _promoted(
    tree: Tree, chosen: Candidates, block: np.ndarray, eligible: int, parted: np.ndarray | tuple[()] = ()
) -> Promoted:
    """Promoted from Candidates and the block of each, -1 where none was left."""
    given = block >= 0
    fragmented, without = eligible - len(block), int(np.count_nonzero(~given))
    chosen, frame = chosen.only(given), block[given] << 9
    if not len(frame):
        return Promoted(tree, 0, fragmented, without)
    leaves = with_frame(chosen.raw | bits.HUGE, frame, tree.encoding)
    bloat, zeros = int((PAGES - chosen.pages).sum()), int(chosen.zeros.sum())
    huge = with_huge_leaves(tree, chosen.table, leaves, np.isin(tree.base[chosen.table] >> REGION, parted))
    return Promoted(huge, len(frame), fragmented, without, bloat, zeros, tables=chosen.table)


def _blocks(space: AddressSpace, chosen: Candidates) -> np.ndarray:
    """int64[k]: an unused block of 512 guest frames for each of Candidates, -1 for none.

    Pages that stay keep their frames. So do pages of regions without a block: these are taken out, and the
    search is repeated for the others.
    """
    tree, block = space.snapshot.guest, np.zeros(len(chosen.table), np.int64)
    others = np.ones(len(tree), bool)
    others[chosen.table] = False
    used, host = _in_use(tree, others, len(space.host_of)), space.snapshot.nested
    mapped = np.append(np.where(host.level == 1, leaf_entries(host), PAGES), 0)  # the last: where no table is
    pages = mapped[np.where(space.host_of >= 0, space.host_of - space.guest_tables, len(host))]
    while True:
        at = np.flatnonzero(block >= 0)
        free = [
            np.flatnonzero(which & (used == 0)) for which in (pages == PAGES, (pages > 0) & (pages < PAGES))
        ]
        block[at] = nearest_free(chosen.frame[at] >> 9, *free)
        failed = chosen.table[at[block[at] < 0]]
        if not len(failed):
            return block
        others[:] = False
        others[failed] = True
        used += _in_use(tree, others, len(used))


def _in_use(tree: Tree, tables: np.ndarray, blocks: int) -> np.ndarray:
    """int64[blocks]: leaves of `tables` (bool[T]), and these tables, in each block of 512 frames."""
    used = np.zeros(blocks, np.int64)
    own = tree.frame[tables & (tree.frame >= 0)] >> 9
    np.add.at(used, own[own < blocks], 1)
    for _, frame in bits.leaf_frames(tree, np.flatnonzero(tables & (tree.level == 1))):
        block = frame[frame >= 0] >> 9
        np.add.at(used, block[block < blocks], 1)
    for level, ids, raw in bits.blocks(tree, (2, 3)):
        raw = raw[tables[ids]]
        first = bits.frame(raw[bits.leaf(raw, level, tree.encoding)], level, tree.encoding) >> 9
        for k in range(512 ** (level - 2)):
            used += np.bincount(first[first + k < blocks] + k, minlength=blocks)
    return used


def nearest_free(home: np.ndarray, *pools: np.ndarray) -> np.ndarray:
    """int64[k]: a different block for each home out of `pools` (sorted, disjoint), -1 where none is left.

    A home gets its own block if that is free and no earlier home is the same. The others, in the order of the
    homes, get the next higher block left in the first pool, past its end the lowest; then from the next pool.
    """
    given = np.full(len(home), -1, np.int64)
    _, first = np.unique(home, return_index=True)
    own = first[np.isin(home[first], np.concatenate(pools))]
    given[own] = home[own]
    for pool in pools:
        left = pool[~np.isin(pool, given[own])]
        rest = np.flatnonzero(given < 0)
        rest = rest[np.argsort(home[rest], kind="stable")]
        turn = np.arange(len(rest))
        at = np.maximum.accumulate(np.searchsorted(left, home[rest]) - turn) + turn
        above = at < len(left)
        given[rest[above]] = left[at[above]]
        low = np.delete(left, at[above])
        wrapped = rest[~above][: len(low)]
        given[wrapped] = low[: len(wrapped)]
    return given
