"""Regions of 2 MiB that a huge leaf could map instead of a leaf table, and their promotion."""

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core import snapshot as bits
from ..core.snapshot import Snapshot, Topology, Tree
from ..core.trace import PAGE_SHIFT, REGION_SHIFT, Event, Trace, read_only
from .address_space import AddressSpace, vma_of
from .trees import ANONYMOUS, with_frame, with_huge_leaves

if TYPE_CHECKING:
    from ..kernels.reshape import Ranges


# Memory that a program asks huge pages for, or forbids them, as far as a trace shows.
#
# Linux gives a VMA with VM_NOHUGEPAGE none, whatever the administrator allows, and one with VM_HUGEPAGE some
# unless he allows none (thp_vma_allowable_orders, vma_thp_disabled, include/linux/huge_mm.h, 6.12). madvise
# sets one of these flags and clears the other (hugepage_madvise, mm/khugepaged.c), a new VMA is without, and
# mremap gives the moved or grown VMA the flags of the old one. MADV_COLLAPSE makes huge pages at once,
# whatever is allowed (madvise_collapse), until the memory is given back. After prctl(PR_SET_THP_DISABLE) a
# process gets none at all. What is unmapped keeps its mark here until something else is mapped there: page
# tables may have been read before that.

FORBIDDEN, PRCTL, ADVISED = "MADV_NOHUGEPAGE", "PR_SET_THP_DISABLE", "MADV_HUGEPAGE"  # in notes
MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLLAPSE = 14, 15, 25
GIVES_BACK = (4, 8, 9)  # MADV_DONTNEED, MADV_FREE, MADV_REMOVE
ADVICE = (MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLLAPSE)
DISABLED = "forbidden"
DONE = (0, -12)  # with ENOMEM part of the range was not mapped, and the rest is advised
PAGE = 1 << PAGE_SHIFT


class Marks:
    """Marked ranges of addresses: `bounds`, ascending, where marked and unmarked addresses take turns."""

    def __init__(self) -> None:
        self.bounds: list[int] = []

    def set(self, start: int, end: int, marked: bool) -> None:
        if start >= end:
            return
        first, last = bisect_left(self.bounds, start), bisect_right(self.bounds, end)
        left, right = first % 2 == 1, last % 2 == 1
        self.bounds[first:last] = [start] * (left != marked) + [end] * (right != marked)

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """The marked ranges from start to end."""
        first, last = bisect_right(self.bounds, start), bisect_left(self.bounds, end)
        cut = [start] * (first % 2) + self.bounds[first:last] + [end] * (last % 2)
        return list(zip(cut[::2], cut[1::2], strict=True))


class Advice(NamedTuple):
    """uint64[n, 2] each: starts and ends, ascending, of memory that a program forbids huge pages
    (MADV_NOHUGEPAGE), asks them for (MADV_HUGEPAGE), and has made huge (MADV_COLLAPSE)."""

    forbidden: np.ndarray
    asked: np.ndarray
    collapsed: np.ndarray


def allowed(snapshot: Snapshot, trace: Trace) -> str | None:
    """Transparent huge pages that the process may have: "always", "madvise", "never" as the captured machine
    was set, DISABLED by prctl(PR_SET_THP_DISABLE), which QEMU does not pass on; None: not recorded."""
    asked = trace.events[trace.events["kind"] == Event.THP_DISABLE]
    if len(asked) and asked["a"][-1] and not asked["b"][-1]:
        return DISABLED
    known = snapshot.facts.get("huge_pages")
    return None if known is None else str(known)


def advice(events: np.ndarray) -> Advice:
    """Advice of Trace.events, as it stands after the last of them."""
    advised = (events["kind"] == Event.MADVISE) & np.isin(events["result"], DONE)
    if not (advised & np.isin(events["c"], ADVICE)).any():
        return Advice(*(np.zeros((0, 2), np.uint64) for _ in Advice._fields))
    advised &= np.isin(events["c"], (*ADVICE, *GIVES_BACK))
    made = np.isin(events["kind"], (Event.MMAP, Event.MREMAP, Event.BRK)) & (events["result"] > 0)
    forbidden, asked, collapsed = marks = Marks(), Marks(), Marks()
    brk = 0
    for event in events[advised | made]:
        kind, result, a, b, c = (int(event[name]) for name in ("kind", "result", "a", "b", "c"))
        if kind == Event.MADVISE:
            end = page_up(a + b)
            if c in (MADV_HUGEPAGE, MADV_NOHUGEPAGE):
                asked.set(a, end, c == MADV_HUGEPAGE)
                forbidden.set(a, end, c == MADV_NOHUGEPAGE)
            else:
                collapsed.set(a, end, c == MADV_COLLAPSE)
            continue
        for mark in marks:
            if kind == Event.MMAP:
                mark.set(result, page_up(result + b), False)
            elif kind == Event.BRK:
                mark.set(page_up(brk or result), page_up(result), False)
            else:
                remap(mark, a, page_up(b), result, page_up(c))
        brk = result if kind == Event.BRK else brk
    return Advice(*(np.array(mark.bounds, np.uint64).reshape(-1, 2) for mark in marks))


def remap(marks: Marks, old: int, length: int, new: int, new_length: int) -> None:
    """mremap: what the pages had they keep, and what is added is as the last of them."""
    kept = marks.within(old, old + min(length, new_length))
    grows = length > 0 and marks.within(old + length - PAGE, old + length) != []
    marks.set(new, new + new_length, False)
    for start, end in kept:
        marks.set(new + start - old, new + end - old, True)
    if grows:
        marks.set(new + length, new + new_length, True)


def page_up(address: int) -> int:
    return -(-address // PAGE) * PAGE


def overlap(bases: np.ndarray, length: int, ranges: np.ndarray) -> np.ndarray:
    """bool[n]: some byte of the `length` from each base (uint64[n]) on is in `ranges` (uint64[k, 2])."""
    ends = np.append(ranges[:, 1], np.uint64(0))
    starts = np.append(ranges[:, 0], np.uint64((1 << 64) - 1))
    first = np.searchsorted(ranges[:, 1], bases, side="right")
    found: np.ndarray = (starts[first] < bases + np.uint64(length)) & (ends[first] > bases)
    return found


def within(bases: np.ndarray, length: int, ranges: np.ndarray) -> np.ndarray:
    """bool[n]: all of the `length` from each base (uint64[n]) on is in one of `ranges` (uint64[k, 2])."""
    ends = np.append(ranges[:, 1], np.uint64(0))
    starts = np.append(ranges[:, 0], np.uint64((1 << 64) - 1))
    first = np.searchsorted(ranges[:, 1], bases, side="right")
    found: np.ndarray = (starts[first] <= bases) & (ends[first] >= bases + np.uint64(length))
    return found


REGION_BYTES = np.uint64(1 << REGION_SHIFT)
PAGES = 512


class Promoted(NamedTuple):
    """
    tree           with huge leaves; the input tree if nothing was promoted
    regions        promoted: as many table pages are gone
    fragmented     regions that stay 4 KiB for want of contiguous memory, by choice
    without_block  regions that stay 4 KiB as no aligned block of guest frames was left
    bloat_pages    4 KiB pages mapped by the huge pages alone
    forbidden      regions that stay 4 KiB as the program forbids them
    tables         int64[regions]: leaf tables of the input tree that are gone
    """

    tree: Tree
    regions: int
    fragmented: int = 0
    without_block: int = 0
    bloat_pages: int = 0
    forbidden: int = 0
    tables: np.ndarray = np.zeros(0, np.int64)


class Candidates(NamedTuple):
    """Leaf tables that could become a huge leaf, by address.

    table  int64[k]; pages int64[k]: number of mapped pages; raw uint64[k]: the entry that gives a huge leaf
    its flags; frame  int64[k]: the frame near which the huge page is placed
    """

    table: np.ndarray
    pages: np.ndarray
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
) -> Promoted:
    """Promoted guest tables of an AddressSpace: anonymous private regions with `min_pages` mapped pages.

    ranges         uint64[n, 2] of addresses where the program forbids it (no_huge_pages.Advice)
    wanted         bool[T] of the guest's tables that may be promoted, or True for all
    fragmentation  share of these that stay as they are, drawn by `seed` and the region's address

    The huge page takes the block of 512 guest frames around the region's first frame; if others use frames of
    that block, or the host maps nothing there, the next usable block, preferably one that the host maps as a
    whole. Natively, frames only tell the node: that of most of the region's pages, as in promote_host.
    """
    tree = space.snapshot.guest
    inside = one_anonymous_vma(space.snapshot, tree.base) & wanted
    eligible = candidates(tree, min_pages, inside, space.snapshot.topology if space.native else None)
    allowed = ~overlap(tree.base[eligible.table], 1 << REGION_SHIFT, ranges)
    forbidden, eligible = int(np.count_nonzero(~allowed)), eligible.only(allowed)
    chosen = eligible.only(_whole(tree.base[eligible.table], fragmentation, seed, 0))
    block = chosen.frame >> 9 if space.native else _blocks(space, chosen)
    return _promoted(tree, chosen, block, len(eligible.table))._replace(forbidden=forbidden)


def promote_host(snapshot: Snapshot, min_pages: int, fragmentation: float, seed: int) -> Promoted:
    """Promoted host tables: every region under a leaf table with `min_pages` mapped pages.

    The huge page is on the node of most of its pages: the aligned block around the first frame there.
    """
    tree = snapshot.nested
    eligible = candidates(tree, min_pages, True, snapshot.topology)
    chosen = eligible.only(_whole(tree.base[eligible.table], fragmentation, seed, 1))
    return _promoted(tree, chosen, chosen.frame >> 9, len(eligible.table))


def one_anonymous_vma(snapshot: Snapshot, bases: np.ndarray) -> np.ndarray:
    """bool[n]: an anonymous private VMA of the program holds all 2 MiB from each base (uint64[n]) on."""
    vmas = snapshot.vmas
    names = np.array([name == "" or name.startswith(ANONYMOUS) for name in snapshot.vma_names], bool)
    good = np.append(names & ~vmas["shared"] & ~vmas["emulator"], False)
    vma = vma_of(bases, vmas)
    end = np.append(vmas["end"], np.uint64(0))[vma]
    inside: np.ndarray = good[vma] & (end >= bases + REGION_BYTES)
    return inside


def candidates(
    tree: Tree, min_pages: int, allowed: np.ndarray | bool, topology: Topology | None = None
) -> Candidates:
    """Candidates among the leaf tables with `min_pages` (at least 1) mapped pages.

    allowed   bool[T], or True for all
    topology  frame: the first on the node of most of a region's pages; None: the first
    """
    from ..kernels.reshape import summarise
    from ..kernels.walker import CODES

    tables = np.flatnonzero((tree.level == 1) & allowed)
    tables = tables[np.argsort(tree.base[tables], kind="stable")]
    ranges = _ranges(topology)
    on_node = np.zeros(int(ranges.node.max(initial=0)) + 2, np.int64)
    pages, raw, first = (np.zeros(len(tables), dtype) for dtype in (np.int64, np.uint64, np.int64))
    summarise(read_only(tree.entries), tables, CODES[tree.encoding], ranges, on_node, pages, raw, first)
    return Candidates(tables, pages, raw, first).only(pages >= max(min_pages, 1))


def _ranges(topology: Topology | None) -> "Ranges":
    """kernels.huge_pages.Ranges of a Topology; of None: none."""
    from ..kernels.reshape import Ranges

    nodes = topology.nodes if topology else ()
    ranges = sorted((int(a), int(b), node.id) for node in nodes for a, b in node.frames)
    return Ranges(*np.array(ranges, np.int64).reshape(-1, 3).T.copy())


def _whole(bases: np.ndarray, fragmentation: float, seed: int, dimension: int) -> np.ndarray:
    """bool[n]: regions for which there is memory: a hash of their number stays below 1 - fragmentation.

    Regions that stay 4 KiB at one fragmentation do at every higher one. splitmix64 (Steele et al., 2014).
    """
    z = (bases >> np.uint64(REGION_SHIFT)) * np.uint64(2) + np.uint64(dimension)
    z = z + np.uint64(seed * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    z = z ^ (z >> np.uint64(31))
    whole: np.ndarray = (z >> np.uint64(11)).astype(np.float64) / 2**53 >= fragmentation
    return whole


def _promoted(tree: Tree, chosen: Candidates, block: np.ndarray, eligible: int) -> Promoted:
    """Promoted from Candidates and the block of each, -1 where none was left."""
    given = block >= 0
    fragmented, without = eligible - len(block), int(np.count_nonzero(~given))
    chosen, frame = chosen.only(given), block[given] << 9
    if not len(frame):
        return Promoted(tree, 0, fragmented, without)
    leaves = with_frame(chosen.raw | bits.HUGE, frame, tree.encoding)
    bloat = int((PAGES - chosen.pages).sum())
    huge = with_huge_leaves(tree, chosen.table, leaves)
    return Promoted(huge, len(frame), fragmented, without, bloat, tables=chosen.table)


def _blocks(space: AddressSpace, chosen: Candidates) -> np.ndarray:
    """int64[k]: an unused block of 512 guest frames for each of Candidates, -1 for none.

    Pages that stay keep their frames. So do pages of regions without a block: these are taken out, and the
    search is repeated for the others.
    """
    tree, block = space.snapshot.guest, np.zeros(len(chosen.table), np.int64)
    others = np.ones(len(tree), bool)
    others[chosen.table] = False
    used, pages = _in_use(tree, others, len(space.host_of)), _host_pages(space)
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
    from ..kernels.reshape import count_blocks
    from ..kernels.walker import CODES

    used = np.zeros(blocks, np.int64)
    own = tree.frame[tables & (tree.frame >= 0)] >> 9
    np.add.at(used, own[own < blocks], 1)
    small = np.flatnonzero(tables & (tree.level == 1))
    count_blocks(read_only(tree.entries), small, CODES[tree.encoding], used)
    for level, ids, raw in bits.blocks(tree, (2, 3)):
        raw = raw[tables[ids]]
        first = bits.frame(raw[bits.leaf(raw, level, tree.encoding)], level, tree.encoding) >> 9
        for k in range(512 ** (level - 2)):
            used += np.bincount(first[first + k < blocks] + k, minlength=blocks)
    return used


def _host_pages(space: AddressSpace) -> np.ndarray:
    """int64[D]: number of pages of each block of 512 guest frames that the host maps."""
    host = space.snapshot.nested
    pages = np.where(np.append(host.level, 1) == 1, 0, PAGES)
    tables = candidates(host, 1, True)
    pages[tables.table] = tables.pages
    return pages[np.where(space.host_of >= 0, space.host_of - space.guest_tables, len(host))]


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
