"""Which pages of a trace a sample holds, and what it has to be scaled by."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..core.arrays import read_only
from ..core.errors import UsageError
from ..core.machine import LINE_BYTES, Array, Machine, Tlb
from ..core.sample import Sample
from ..core.trace import SLOT_BITS, Trace
from ..core.walks import Regions, WalkStream
from .moves import Moves
from .part import Part

if TYPE_CHECKING:
    from ..kernels import thin as kernels

CLASSES = 16  # of page numbers: what TLB sets have in common
LINE_PAGES = 8  # whose entries share a cache line
SET_GROUPS = 8
REGION_GROUPS = 16
REGION_LEAST = 8
RECORD_ANEW = "record the whole trace for it"


@dataclass(frozen=True)
class Sampling(Part):
    """A Sample of the pages of an address space.

    region, slot  as kernels.thin.Groups
    """

    region: np.ndarray
    slot: np.ndarray

    @property
    def before(self) -> bool:
        """Whether it is taken before the TLBs: what it leaves out shares no set with what it holds."""
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

    @property
    def least(self) -> int:  # type: ignore[override]
        return super().least if self.before else REGION_LEAST

    def held(self, walks: np.ndarray, stream: WalkStream) -> tuple[np.ndarray, float]:
        """Walks, which are known, of regions; of sets the same for each."""
        if self.before:
            return np.ones(self.outside), float(self.outside * self.sample.one_in)
        return walks.astype(np.float64), float(stream.hits[:, 2].sum())

    def on(self, machine: Machine) -> Machine:
        """The Machine with caches of the size that what the sample holds would have of them."""
        from msgspec.structs import replace

        lines = self._lines()
        of = {name: getattr(machine, name) for name in ("l2", "llc")}
        caches = {
            name: replace(cache, bytes=max(round(cache.bytes * lines), LINE_BYTES * cache.ways))
            for name, cache in of.items()
        }
        if self.before:
            return replace(machine, **caches)
        own, part = machine.walk_caches, 1 / self.sample.one_in
        own = replace(own, pde=_part(own.pde, part), nested=own.nested and _part(own.nested, part))
        return replace(machine, walk_caches=own, **caches)

    def _lines(self) -> float:
        """Share of the cache lines of leaf tables that the sample's walks read."""
        if not self.before:
            return 1 / self.sample.one_in
        held = np.flatnonzero(self.slot[:CLASSES] != self.outside) // LINE_PAGES
        return len(np.unique(held)) * LINE_PAGES / CLASSES if len(held) else 1.0


def sampling(sample: Sample, trace: Trace, regions: Regions, tlb: Tlb, moves: Moves) -> Sampling:
    """Sampling of a trace. UsageError where these TLBs, or what moves data, do not allow it."""
    if trace.facts.get("sampled") or trace.facts.get("walks"):
        raise UsageError(f"sample = {sample}: the trace holds samples already; leave the option out")
    if moves.demote_idle_ms:
        raise UsageError(
            f"sample = {sample}: which pages are idle, only the whole trace tells; leave out one"
        )
    if moves.autonuma:
        raise UsageError(
            f"sample = {sample}: NUMA balancing moves each page that is touched, not only those of a sample; "
            "leave out one of the two"
        )
    if sample.unit == "regions":
        return _of_regions(sample, regions)
    return _of_sets(sample, regions, tlb, "sample" in trace.facts)


def _of_regions(sample: Sample, regions: Regions) -> Sampling:
    """Every n-th region in the order of their addresses' hashes, dealt out to groups in that order."""
    rank = np.empty(len(regions.va), np.int64)
    rank[np.argsort(hashed(regions.va), kind="stable")] = np.arange(len(regions.va))
    group = rank // sample.one_in % REGION_GROUPS
    held = rank % sample.one_in == sample.which
    of = np.where(held, group, REGION_GROUPS).astype(np.int16)
    return Sampling(sample, REGION_GROUPS, of, np.zeros(1 << SLOT_BITS, np.int16))


def _of_sets(sample: Sample, regions: Regions, tlb: Tlb, recorded: bool) -> Sampling:
    sizes = np.unique(regions.tlb_level).tolist()
    sets = closed_sets(sample, tlb, sizes, recorded)
    if recorded:
        must_be_recorded(sample, sets, sizes)
    held, parts = classes(sample, sets), max(SET_GROUPS * sample.one_in // CLASSES, 1)
    group_of_class = np.full(CLASSES, -1)
    group_of_class[held] = np.arange(len(held))

    def group(number: np.ndarray) -> np.ndarray:
        of = group_of_class[number % CLASSES]
        groups: np.ndarray = np.where(
            of < 0, SET_GROUPS, (of * parts + number // CLASSES % parts) % SET_GROUPS
        )
        return groups.astype(np.int16)

    shift = (regions.tlb_level.astype(np.int64) - 2) * SLOT_BITS
    huge = group(regions.va.astype(np.int64) >> np.maximum(shift, 0))
    of_region = np.where(regions.tlb_level == 1, -1, huge).astype(np.int16)
    return Sampling(sample, SET_GROUPS, of_region, group(np.arange(1 << SLOT_BITS)))


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


def closed_sets(sample: Sample, tlb: Tlb, sizes: list[int], recorded: bool = False) -> int:
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
        instead = f"sample regions instead: regions:1/{sample.one_in}"
        way_out = RECORD_ANEW if recorded else instead
        name = min(known, key=lambda array: int(np.gcd(known[array], CLASSES)))
        raise UsageError(
            f"sample = {sample}: tlb.{name} has {known[name]} sets, of which page numbers modulo 16 leave at "
            f"most 1/{common} apart; {way_out}"
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
