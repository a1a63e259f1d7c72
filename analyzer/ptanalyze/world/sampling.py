"""Which pages of a trace a sample holds, and what it has to be scaled by."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..core.arrays import read_only
from ..core.errors import UsageError
from ..core.machine import LINE_BYTES, Array, Cache, Machine, Tlb
from ..core.mapped import blocks
from ..core.sample import Sample
from ..core.trace import SLOT_BITS, Trace
from ..core.walks import Regions, WalkStream
from .equal_regions import must_be_worth_enough
from .moves import Moves
from .part import BLOCK, Part, Weights

if TYPE_CHECKING:
    from ..kernels import thin as kernels

CLASSES = 16  # of numbers of pages, or of cache lines: what sets have in common
LINE_PAGES = 8  # whose entries share a cache line
SET_GROUPS = 8
RECORD_ANEW = "record the whole trace for it"


@dataclass(frozen=True)
class Sampling(Part):
    """A Sample of the pages of an address space.

    region, slot  as kernels.thin.Groups
    stratum       int64[R]
    cached        share of the data caches that its cache lines would have
    beyond        cache lines above the leaves that CPUs of a node walk through, more than their part
    recorded      whether the trace has no other: it is taken before the TLBs, and shares no set with the rest
    """

    region: np.ndarray
    slot: np.ndarray
    stratum: np.ndarray
    cached: float
    beyond: float = 0.0
    recorded: bool = False

    @property
    def by_sets(self) -> bool:
        return self.sample.unit == "sets"

    @cached_property
    def groups(self) -> "kernels.Groups":
        from ..kernels.thin import Groups

        return Groups(read_only(self.region), read_only(self.slot), self.outside)

    def of(self, page: np.ndarray) -> np.ndarray:
        """int16[n]: group of each page of a stream."""
        from ..kernels.thin import group_pages

        out = np.empty(len(page), np.int16)
        group_pages(read_only(page), self.groups, out)
        return out

    def groups_of(self, stream: WalkStream, begin: int, end: int) -> np.ndarray:
        return self.of(stream.page[begin:end])

    def weights(self, stream: WalkStream) -> Weights:
        if stream.whole and not self.by_sets:
            must_be_worth_enough(self.sample, stream.whole.by_region)
        return super().weights(stream)

    def held(self, walks: np.ndarray, stream: WalkStream) -> tuple[np.ndarray, np.ndarray]:
        """Walks, which are known of the whole; of a recorded sample pages, whose first touches are all there
        (ratio estimator: Cochran, "Sampling Techniques", 1977, chapter 6)."""
        if stream.pages is not None:
            return stream.pages[:-1, None].astype(np.float64), np.array([float(stream.pages.sum())])
        assert stream.whole is not None
        return walks.astype(np.float64), np.bincount(self.stratum, stream.whole.by_region, self.strata)

    def pages(self, page: np.ndarray) -> np.ndarray:
        """WalkStream.pages of a recorded stream's uint32[W] pages, each in the size that the TLB holds."""
        seen = np.zeros(len(self.region) << SLOT_BITS, bool)
        for block in blocks(page, BLOCK):
            huge = self.region[block >> SLOT_BITS] >= 0
            seen[np.where(huge, block >> SLOT_BITS << SLOT_BITS, block)] = True
        return np.bincount(self.of(np.flatnonzero(seen).astype(np.uint32)), minlength=self.outside + 1)

    def hits(self, stream: WalkStream) -> np.ndarray:
        """As if walks, and hits of the second level, were in proportion to pages; accesses are counted."""
        hits = super().hits(stream)
        if stream.pages is None:
            return hits
        beyond = np.rint(hits[1:] * self.weights(stream).scales()).astype(np.int64)
        return np.array([max(int(hits.sum() - beyond.sum()), 0), *beyond], np.int64)

    def by_chunk(self, stream: WalkStream) -> np.ndarray:
        return stream.whole.by_chunk if stream.whole else super().by_chunk(stream)

    def on(self, machine: Machine) -> Machine:
        """The Machine with caches of the size that what the sample holds would have of them."""
        from msgspec import structs

        l2, llc = (structs.replace(cache, bytes=self._bytes(cache)) for cache in (machine.l2, machine.llc))
        if self.by_sets:
            return structs.replace(machine, l2=l2, llc=llc)
        own, part = machine.walk_caches, self.cached
        own = structs.replace(own, pde=_part(own.pde, part), nested=own.nested and _part(own.nested, part))
        return structs.replace(machine, walk_caches=own, l2=l2, llc=llc)

    def _bytes(self, cache: Cache) -> int:
        """Of a data cache that holds what the sample's lines have of it, in sets that its classes divide."""
        lines = cache.bytes * cache.share / LINE_BYTES * self.cached + self.beyond
        if self.by_sets and not self.recorded:
            sets = cache.lines // cache.ways
            lines = (round(sets / CLASSES) * CLASSES or sets) * cache.ways + 0.5
        return round(max(lines, cache.ways) * LINE_BYTES / cache.share)


def must_allow(sample: Sample, trace: Trace, moves: Moves) -> None:
    """UsageError where a trace, or what moves data, does not allow a sample."""
    if trace.facts.get("sampled") or trace.facts.get("walks"):
        raise UsageError(f"sample = {sample}: the trace holds samples already; leave the option out")
    if moves.autonuma:
        raise UsageError(
            f"sample = {sample}: NUMA balancing moves each page that is touched, not only those of a sample; "
            "leave out one of the two"
        )


def recorded_sets(sample: Sample, regions: Regions, tlb: Tlb) -> Sampling:
    """Sampling of a trace that holds no other sets. UsageError where these TLBs do not allow it."""
    sizes = np.unique(regions.tlb_level).tolist()
    must_be_recorded(sample, closed_sets(sample, tlb, sizes), sizes)
    lines = np.unique(recorded_classes(sample) // LINE_PAGES)  # of the two that 16 pages have
    return replace(_by_number(sample, regions, 1, len(lines) * LINE_PAGES / CLASSES), recorded=True)


def chosen_sets(sample: Sample, regions: Regions) -> Sampling:
    """Sampling of cache lines of leaf entries by their numbers modulo 16, and so of the data caches' sets.

    Lines of the sample meet each other there, and those of tables above the leaves, as in the whole.
    """
    further = (hashed(regions.va) % np.uint64(SET_GROUPS)).astype(np.int64)
    return _by_number(sample, regions, LINE_PAGES, 1.0, further)


def _by_number(
    sample: Sample, regions: Regions, together: int, cached: float, further: np.ndarray | int = 0
) -> Sampling:
    """Sampling of so many pages together, of any size, by their number.

    further  int64[R]: by how many the groups of a region are moved
    """
    shift = np.maximum((regions.tlb_level.astype(np.int64) - 2) * SLOT_BITS, 0)
    huge = (regions.va.astype(np.int64) >> shift) // together
    groups = min(SET_GROUPS, (1 << SLOT_BITS) // together // sample.one_in)  # each has some of a table
    held, parts = recorded_classes(sample), max(groups * sample.one_in // CLASSES, 1)
    group_of_class = np.full(CLASSES, -1)
    group_of_class[held] = np.arange(len(held))

    def group(number: np.ndarray) -> np.ndarray:
        of = group_of_class[number % CLASSES]
        own = (of * parts + number // CLASSES % parts) % groups
        found: np.ndarray = np.where(of < 0, groups, own).astype(np.int16)
        return found

    of_region = np.where(regions.tlb_level == 1, -1 - further, group(huge)).astype(np.int16)
    one = np.zeros(len(regions.va), np.int64)
    slot = group(np.arange(1 << SLOT_BITS) // together)
    return Sampling(sample, groups, of_region, slot, one, cached)


def recorded_classes(sample: Sample) -> np.ndarray:
    """int64[16 / n]: the page numbers modulo 16 that `record --sample` traces, whatever the machine."""
    return classes(sample, CLASSES)


def must_be_recorded(sample: Sample, sets: int, sizes: list[int]) -> None:
    """UsageError where a machine needs others than recorded_classes, or page sizes need others."""
    if not np.array_equal(classes(sample, sets), recorded_classes(sample)):
        raise UsageError(f"sample = {sample}: recorded for arrays of 8 sets or more; {RECORD_ANEW}")
    if 3 in sizes:
        raise UsageError(
            f"sample = {sample}: recorded for pages of 4 KiB and 2 MiB, not of 1 GiB; {RECORD_ANEW}"
        )


def classes(sample: Sample, sets: int) -> np.ndarray:
    """int64[16 / n]: page numbers modulo 16 of a sample, whole classes modulo `sets` where possible.

    The order of classes is that of their hashes, by pairs that are 8 apart: their entries are in both halves
    of the cache lines.
    """
    wide = min(sets, CLASSES // 2)
    order = np.argsort(hashed(np.arange(wide)), kind="stable")
    both = np.stack([order + k * wide for k in range(CLASSES // wide)], axis=1).ravel()
    each = CLASSES // sample.one_in
    return np.sort(both[sample.which * each : (sample.which + 1) * each])


def closed_sets(sample: Sample, tlb: Tlb, sizes: list[int]) -> int:
    """The largest power of two, 16 at most, that divides the number of sets of all arrays in use."""
    names = {1: "4k", 2: "2m", 3: "1g"}
    arrays: dict[str, Array | None] = {
        f"l1_{names[size]}": getattr(tlb, f"l1_{names[size]}") for size in sizes
    }
    if any(names[size] in tlb.l2_holds for size in sizes):
        arrays["l2"] = tlb.l2
    if 3 in sizes:
        arrays["l2_1g"] = tlb.l2_1g
    known = {name: array.sets for name, array in arrays.items() if array}
    common = int(np.gcd.reduce([CLASSES, *known.values()]))
    if sample.one_in > common:
        name = min(known, key=lambda array: int(np.gcd(known[array], CLASSES)))
        raise UsageError(
            f"sample = {sample}: tlb.{name} has {known[name]} sets, of which page numbers modulo 16 leave at "
            f"most 1/{common} apart; {RECORD_ANEW}"
        )
    return common


def hashed(numbers: np.ndarray) -> np.ndarray:
    """uint64[n]: the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


def _part(array: Array, part: float) -> Array:
    """A set-associative array of about a part of its entries, at least one."""
    sets, ways = max(round(array.sets * part), 1), array.ways
    if array.sets * part < 1:
        ways = max(round(array.entries * part), 1)
    return Array(entries=sets * ways, ways=ways)
