"""Replays of a capture that stands for a larger run: what of the machine shrinks, and which memory is folded.

A use of a page or line after uses of D others hits an LRU array of C entries if D < C. Where the data grow N
times under the same law of accesses, D does: N D < C, or D < C / N. So every array that reaches across the
data is divided by N: L2, LLC, the last level of the TLB, the paging-structure caches. The first-level TLB of
4 KiB pages is not: what it holds is used again within a few accesses, whatever the size of the data.

Memory that does not grow (text, stacks, tables of a fixed size) has the D of the larger run already. Its
lines of leaf entries are folded onto 1/N of them, so that dividing the caches does not thin them: as caches
and TLBs see it, line l is line l modulo (lines / N). It is folded behind the first-level TLB, which is whole.
Walks keep the table and the entry that they go to: placement is that of the capture.

Two sources of N, one rule: a capture that was made smaller (`synth --scale`, Snapshot.scale), all of whose
memory grows, and `--stands-for` of the question; they multiply.
"""

import re
from typing import NamedTuple

import numpy as np
from msgspec.structs import asdict, replace

from ..core.columns import CAREFUL, SCALE, SEARCHES, Finding, noted
from ..core.errors import UsageError, parse_size, plural, size_in_words
from ..core.machine import LINE_BYTES, Array, Cache, Machine, Moves, Tlb
from ..core.snapshot import ENTRIES_PER_TABLE as SLOTS
from ..core.snapshot import MOST_SCALED, Snapshot, leaf
from ..core.snapshot import blocks as table_blocks
from ..core.trace import PAGE_SHIFT, SLOT_BITS, Fold, Regions, WalkStream, blocks, read_only
from ..kernels.walker import CODES, Segments, count_mapped
from .address_space import AddressSpace, groups, huge_leaves, segments, vma_of

# The machine, 1/N of it.


def scaled_machine(machine: Machine, scale: float) -> Machine:
    """The Machine with 1/scale of its data caches (at least one set), paging-structure caches and last TLB
    level of each page size (at least an entry): they hold the same share of the program."""
    own = asdict(machine.walk_caches).items()
    fewer = {name: _fewer(array, array.entries // scale) for name, array in own if isinstance(array, Array)}
    return replace(
        machine,
        l1d=machine.l1d and _less(machine.l1d, scale),
        l2=_less(machine.l2, scale),
        llc=_less(machine.llc, scale),
        tlb=_scaled_tlb(machine.tlb, scale),
        walk_caches=replace(machine.walk_caches, **fewer),
    )


def _scaled_tlb(tlb: Tlb, scale: float) -> Tlb:
    """The Tlb with 1/scale of what a walk misses last: its second level, or the first where that is all."""
    second = _fewer(tlb.l2, tlb.l2.entries // scale)
    big = None if tlb.l2_1g is None else _fewer(tlb.l2_1g, tlb.l2_1g.entries // scale)
    behind = {size: second for size in tlb.l2_holds} | ({} if big is None else {"1g": big})
    first = {
        f"l1_{size}": _fewer(array, behind[size].entries if size in behind else array.entries // scale)
        for size, array in (("2m", tlb.l1_2m), ("1g", tlb.l1_1g))
    }
    return replace(tlb, l2=second, l2_1g=big, **first)


def _fewer(array: Array, most: float) -> Array:
    """The Array with at most this number of entries, at least one."""
    entries = max(min(array.entries, int(most)), 1)
    ways = min(array.ways, entries)
    return Array(entries=entries - entries % ways, ways=ways)


def _less(cache: Cache, scale: float) -> Cache:
    line = LINE_BYTES * cache.ways
    return replace(cache, bytes=max(int(cache.bytes // scale) // line, 1) * line) if scale > 1 else cache


def scaled_moves(moves: Moves, scale: float) -> Moves:
    """Moves at 1/scale of the pace: a pass over all pages takes as long as over those of the program."""
    limit, size = moves.rate_limit_mb_s / scale, moves.scan_size_mb / scale
    return replace(moves, scan_size_mb=size, rate_limit_mb_s=limit)


def scaled_by(scale: float) -> tuple[Finding, ...]:
    """What the capture stands for, nothing where that is the program itself."""
    return () if scale == 1 else (noted(SCALE, scale=scale),)


# What is asked: a factor or a size, and the memory that does not grow.

FACTOR = re.compile(r"(\d+(?:\.\d+)?)x")
ADDRESS = re.compile(r"0x[0-9a-fA-F]{1,16}")
ALL_GROWS = "none"
SMALL = 0.02  # of the mapped memory: VMAs that hold no more together are taken for what does not grow
KERNELS_OWN = ("[stack", "[vdso", "[vvar", "[vsyscall")
LEAST_TOUCHED = 8  # times the first-level TLB: fewer pages would hit there for their small number


class StandsFor(NamedTuple):
    """The run that an answer is about: `times` as large as the captured one, or of `size` bytes.

    fixed  memory that does not grow: "" the rule of `fixed_vmas`, "none", or names, addresses and sizes
    """

    times: float = 1.0
    size: float = 0.0
    fixed: str = ""

    @property
    def larger(self) -> bool:
        """Whether a run of another size is asked about."""
        return self.times != 1 or self.size > 0

    def must_have_a_trace(self) -> None:
        """UsageError for a larger run of a capture whose pages are counted without a trace."""
        if self.larger:
            raise UsageError(
                "--stands-for: page tables alone tell nothing about caches at any size; record a trace, or "
                "leave --weight out where there is one"
            )

    def factor(self, mapped: float, fixed: float = 0.0) -> float:
        """Times the memory that grows, of `mapped` bytes, some fixed; UsageError for a size not larger."""
        if not self.size:
            return self.times
        asked = size_in_words(int(self.size))
        if not mapped:
            why = "the capture has no page tables that tell its size; give a factor"
            raise UsageError(f"--stands-for {asked}: {why}")
        if self.size < mapped or mapped <= fixed:
            stays = f", {size_in_words(int(fixed))} of which does not grow" if fixed else ""
            raise UsageError(
                f"--stands-for {asked}: the capture maps {size_in_words(int(mapped))}{stays}; give a larger "
                "size, or leave it out"
            )
        return _in_range((self.size - fixed) / (mapped - fixed), asked)


AS_CAPTURED = StandsFor()


def stands_for(asked: str | float | None, fixed: str = "") -> StandsFor:
    """StandsFor of "16x" or 16, of "200G"; UsageError for anything else, "16" too: 16x or 16G?"""
    if asked is None:
        return StandsFor(fixed=fixed)
    text = asked.strip() if isinstance(asked, str) else f"{asked}x"
    if found := FACTOR.fullmatch(text):
        return StandsFor(_in_range(float(found[1]), text), 0.0, fixed)
    if (size := parse_size(text)) and text[-1:].isalpha():
        return StandsFor(1.0, size, fixed)
    raise UsageError(f"--stands-for {text}: write a factor as 64x, a size as 64G")


def _in_range(times: float, text: str) -> float:
    if not 1 <= times <= MOST_SCALED:
        raise UsageError(f"--stands-for {text}: {times:g} times the capture; 1 to {MOST_SCALED} can be asked")
    return times


# Memory that does not grow.


def mapped_bytes(snapshot: Snapshot) -> np.ndarray:
    """int64[V + 1]: bytes that the program maps in each VMA, at last in none; 0 in those of the tracer."""
    tree = snapshot.guest
    _, group = groups(snapshot, "vma")
    cut = segments(tree, snapshot.vmas, group)
    counts = np.zeros(len(cut[0]), np.int64)
    count_mapped(read_only(tree.entries), Segments(*cut), CODES[tree.encoding], counts)
    found = np.zeros(len(snapshot.vmas) + 1, np.int64)
    np.add.at(found, cut[3], counts << PAGE_SHIFT)
    for level in (2, 3):
        of = group[vma_of(huge_leaves(tree, level)[2], snapshot.vmas)]
        np.add.at(found, of[of >= 0], 1 << (3 + 9 * level))
    return found


class Growth(NamedTuple):
    """factor: of the memory that grows, memory: of all; fixed: uint64[k, 2] first page, one past the last, of
    what does not; findings: for a reader."""

    factor: float = 1.0
    memory: float = 1.0
    fixed: np.ndarray = np.zeros((0, 2), np.uint64)
    findings: tuple[Finding, ...] = ()


AS_IT_IS = Growth()


def growth(snapshot: Snapshot, asked: StandsFor) -> Growth:
    """Growth of a capture's memory, as asked."""
    if not asked.larger:
        return AS_IT_IS
    mapped, scale = mapped_bytes(snapshot), snapshot.scale
    total = int(mapped.sum())
    if not snapshot.native or not len(snapshot.vmas):
        if asked.fixed not in ("", ALL_GROWS):
            why = "VMAs of a guest are not distinguished" if len(snapshot.vmas) else "the capture has no VMAs"
            raise UsageError(f"--fixed {asked.fixed}: {why}; leave it out")
        factor = asked.factor(total * scale)
        return Growth(factor, factor, findings=(noted("all-memory-grows"),))
    which = fixed_vmas(snapshot, mapped, asked.fixed)
    vmas, size = snapshot.vmas[which], int(mapped[:-1][which].sum())
    if asked.fixed and size == total:
        named = f"--fixed {asked.fixed}: {size_in_words(size)}"
        raise UsageError(f"{named}, all the capture maps, so nothing would grow; name less")
    pages = np.stack([vmas["start"], vmas["end"]], axis=1) >> np.uint64(PAGE_SHIFT)
    largest, line = int(mapped[:-1][which].max(initial=0)), "fixed-memory" if size else "no-fixed-memory"
    fixed = noted("fixed-memory", line=line, fixed=size, mapped=total, largest=largest)
    factor = asked.factor(total * scale, size * scale)
    return Growth(factor, factor - (factor - 1) * size / max(total, 1), pages, (fixed,))


def fixed_vmas(snapshot: Snapshot, mapped: np.ndarray, asked: str) -> np.ndarray:
    """bool[V]: VMAs that do not grow with the program. mapped: mapped_bytes

    Unless named: files of which a part is executable, stacks, and the smallest others, which together map at
    most SMALL of all. A program's data may lie in many small VMAs, and then grow.
    """
    vmas, names = snapshot.vmas, snapshot.vma_names
    own, size = ~vmas["emulator"], mapped[:-1]
    if asked == ALL_GROWS:
        return np.zeros(len(vmas), bool)
    if asked:
        return own & _named(snapshot, size, asked)
    code = {
        name
        for name, prot in zip(names, vmas["prot"].tolist(), strict=True)
        if prot & 4 and name.startswith("/")
    }
    fixed = np.array([name in code or name.startswith(KERNELS_OWN) for name in names], bool)
    order = np.argsort(np.where(fixed, 0, size), kind="stable")
    fixed[order] |= np.cumsum(np.where(fixed, 0, size)[order]) <= SMALL * mapped.sum()
    return own & fixed


def _named(snapshot: Snapshot, size: np.ndarray, asked: str) -> np.ndarray:
    vmas, fixed = snapshot.vmas, np.zeros(len(snapshot.vmas), bool)
    for part in asked.split(","):
        if ADDRESS.fullmatch(part):
            address = np.uint64(int(part, 16))
            found = (vmas["start"] <= address) & (address < vmas["end"])
        elif most := parse_size(part):
            found = (size > 0) & (size <= most)
        else:
            found = np.array([bool(part) and part in name for name in snapshot.vma_names], bool)
        if not found.any():
            raise UsageError(
                f"--fixed {part}: no VMA of the capture; give a part of a name that `ptanalyze classify --by "
                "vma` lists, an address as 0x7f0000000000, a size as 64M for all that map no more, or none"
            )
        fixed |= found
    return fixed


def more_tables(space: AddressSpace, growth: Growth) -> tuple[float, float]:
    """Times the captured table pages that the run has, the guest's and the host's.

    Leaf tables grow as what they map, between the first and the last page that grows; each above holds 512 of
    what is below, tables or huge pages, and stays at least what it is.
    """
    snapshot, tables, (guest, host) = space.snapshot, space.tables, space.sides
    if snapshot.scale * growth.factor == 1:
        return 1.0, 1.0
    scale, times = snapshot.scale, snapshot.scale * growth.factor
    number, grow = np.full(len(tables.level) + 1, SLOTS * times), np.ones(len(tables.level), bool)
    number[: host.stop], number[:-1][tables.level > 1], grow[guest] = 0.0, 0.0, space.program_tables
    trees = [snapshot.guest] if snapshot.native else [snapshot.guest, snapshot.nested]
    for tree, side in zip(trees, space.sides, strict=False):
        for level, ids, raw in table_blocks(tree, (1, 2, 3)):
            page = tree.base[ids, None] >> np.uint64(PAGE_SHIFT)
            page = page + (np.arange(SLOTS, dtype=np.uint64) << np.uint64(SLOT_BITS * (level - 1)))
            there = leaf(raw, level, tree.encoding)
            more = there & (np.searchsorted(growth.fixed.ravel(), page, side="right") % 2 == 0)
            span = (SLOTS - more.argmax(axis=1) - more[:, ::-1].argmax(axis=1)) * more.any(axis=1)
            grown = span if level == 1 else more.sum(axis=1)
            number[side.start + ids] = grown * times + (there & ~more).sum(axis=1) * scale
    for level in range(1, int(tables.level.max()) + 1):
        at = np.flatnonzero(tables.level == level)
        need = number[at] / SLOTS if level == 1 else np.ceil(number[at] / SLOTS)
        number[at] = np.where(grow[at], np.maximum(need, 1.0), 1.0)
        np.add.at(number, tables.parent[at], number[at])  # of a root: the last, which is none
    grow[host] = False
    return float(number[:-1][grow].mean()), float(number[host].mean()) if space.host_tables else 1.0


# Pages as caches and TLBs see them: those of memory that does not grow on 1/N of its lines.

LINE = 3  # bits of a slot within a line of 8 entries


def fold(growth: Growth, regions: Regions, touched: WalkStream) -> Fold | None:
    """Fold of lines of 4 KiB pages touched behind the first TLB level that do not grow; None without any."""
    small = np.flatnonzero(regions.tlb_level == 1)
    number = regions.va[small, None] << np.uint64(SLOT_BITS) | np.arange(512, dtype=np.uint64)
    fixed = np.zeros(number.shape, bool)
    for begin, end in growth.fixed:
        near = (number[:, 0] < end) & (number[:, -1] >= begin)
        fixed[near] |= (number[near] >= begin) & (number[near] < end)
    some = fixed.any(axis=1)
    small, fixed = small[some], fixed[some]
    if not len(small):
        return None
    order = np.argsort(regions.va[small], kind="stable")
    small, fixed = small[order], fixed[order]
    row = np.full(len(regions.va), -1)
    row[small] = np.arange(len(small))
    used = np.zeros((len(small), 64), bool)
    for block in blocks(touched.page):
        of = row[block >> np.uint32(SLOT_BITS)]
        at = np.flatnonzero(of >= 0)
        used[of[at], (block[at] & 511) >> LINE] = True
    used &= fixed.reshape(-1, 64, 8).any(axis=2)
    lines = np.flatnonzero(used)
    if not len(lines):
        return None
    kept = max(round(len(lines) / growth.factor), 1)
    own = (small[:, None] << SLOT_BITS | np.arange(512)).astype(np.uint32)
    onto = np.arange(own.size).reshape(-1, 8)
    onto[lines] = onto[np.resize(lines[:kept], len(lines))]
    onto = np.where(fixed.ravel(), onto.ravel(), np.arange(own.size))
    return Fold(np.where(row >= 0, row << SLOT_BITS, -1), own.ravel()[onto])


# What no trace of one size tells: how much deeper a larger run searches, whether its hot pages are as few.

HALF = (0.4, 0.6)
FAR = 4  # pages: shorter ways have no half
SEARCHED = 0.2  # of the walks go half as far; a tenth do where each goes anywhere
FEW = 8  # the last level of the whole TLB holds this many times the pages of half the walks
LOOKED_AT = 1 << 22  # walks


def of_one_size(stream: WalkStream, region_va: np.ndarray, tlb: Tlb) -> list[Finding]:
    """What makes a larger run doubtful. stream: its walks; tlb: the whole one, not 1/N of it"""
    if (share := halving(stream, region_va)) >= SEARCHED:
        return [noted(SEARCHES, CAREFUL, share=share)]
    if 0 < (pages := hottest(stream)) <= tlb.l2.entries / FEW:
        return [noted("hot-pages", CAREFUL, pages=pages)]
    return []


def hottest(stream: WalkStream) -> int:
    """Pages that half of the walks go to, the most walked first; 0 without walks."""
    counts = np.sort(np.unique(stream.page[:LOOKED_AT], return_counts=True)[1])[::-1]
    return int(np.searchsorted(np.cumsum(counts), counts.sum() / 2)) + 1 if len(counts) else 0


def halving(stream: WalkStream, region_va: np.ndarray) -> float:
    """Share of walks that go half as far as the one before, a page each; 0 where fewer than 1,000 tell.

    A tenth where walks are independent, most in a binary search. Such a search of N times the data reads
    log2 N pages more for each key, and the dropped halves of the captured one lie within a page.
    """
    page = stream.page[:LOOKED_AT]
    number = (region_va[page >> np.uint32(SLOT_BITS)] << np.uint64(SLOT_BITS)).astype(np.int64)
    way = np.abs(np.diff(number | (page & 511).astype(np.int64)))
    first = np.zeros(len(page) + 1, bool)
    first[np.minimum(stream.offset, len(page))] = True  # of a chunk: another thread's, or after a call
    known = (way[:-1] >= FAR) & (way[1:] > 0) & ~first[1:-2] & ~first[2:-1]
    if known.sum() < 1000:
        return 0.0
    part = way[1:][known] / way[:-1][known]
    return float(((part > HALF[0]) & (part < HALF[1])).mean())


# Refusals.


class TooSmallError(UsageError):
    """The capture is too small, or too regular, to stand for a larger run."""


def must_say_something(growth: Growth, tlb: Tlb, regions: Regions, pages: int) -> None:
    """TooSmallError unless a trace tells about a larger run.

    pages  distinct pages of 4 KiB that are touched behind the first TLB level
    """
    if not len(regions.va) or (regions.tlb_level > 1).all():
        raise TooSmallError(
            f"--stands-for {growth.factor:g}x: all touched memory has huge pages, whose few leaf entries "
            "tell nothing about a larger run; record without them"
        )
    if pages < LEAST_TOUCHED * tlb.l1_4k.entries:
        raise TooSmallError(
            f"--stands-for {growth.factor:g}x: {plural(pages, 'page')} touched beyond the first TLB level, "
            f"less than {LEAST_TOUCHED} times its {tlb.l1_4k.entries} entries; record a larger run"
        )
