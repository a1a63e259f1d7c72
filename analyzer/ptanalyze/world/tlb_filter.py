"""The TLB filter: a trace in, the walks that miss every TLB level out. Independent of the policy.

It can be run twice over a trace: the first time with empty TLBs, then over its steady part once more with the
TLBs as the first time left them.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import CaptureError, UsageError
from ..core.machine import Tlb
from ..core.trace import PAGE_SHIFT, SLOT_BITS, Piece, Scratch, Touches, Trace
from ..core.walks import Placement, Regions, WalkStream
from . import stream_store
from .address_space import AddressSpace
from .cache_pass import shape
from .filter_batches import Filtering, parts_of
from .mm_events import invalidations
from .stripped import must_be_no_sample, must_fit

if TYPE_CHECKING:
    from ..kernels import tlb as kernels

FLUSH_CEILING = 33  # pages; longer ranges flush everything: tlb_single_page_flush_ceiling, arch/x86/mm/tlb.c
MAX_REGIONS = (1 << 23) - 1  # dense page numbers have 32 bits, a value is left for empty ways
MAX_COMMON_SETS = 1 << SLOT_BITS  # more would use bits that differ between dense and real page numbers
BLOCK = 1 << 16  # shootdowns that are turned into tags at a time


class TlbFilter:
    """A trace on the TLBs (machine.Tlb) of the CPUs that `placement` puts its threads on.

    Each event that changes translations drops them from the TLB of every CPU, as Linux's shootdowns do;
    ranges over 33 pages of 4 KiB flush it. Results do not depend on `threads` or `batch`. With `cache_dir`
    streams are stored there, by trace, placement, TLB shape and page sizes; without, they live in unlinked
    temporary files. Memory: about 15 bytes per touch of a batch, one per thread. `progress` is called with
    the touches of each batch. `first` and `again` raise UsageError (too many regions, cache not writable, a
    stripped trace that does not fit the TLB, samples of accesses) and CaptureError (pages outside the
    regions).
    """

    def __init__(
        self,
        trace: Trace,
        space: AddressSpace,
        placement: Placement,
        tlb: Tlb,
        threads: int = 1,
        cache_dir: str | PathLike[str] | None = None,
        batch: int = 1 << 19,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.trace, self.space, self.placement, self.tlb = trace, space, placement, tlb
        self.threads, self.cache_dir, self.batch, self.progress = threads, cache_dir, batch, progress
        self.states: list[list[kernels.State]] = []  # by CPU, by part

    def first(self) -> WalkStream:
        """WalkStream of the whole trace, all TLBs empty at first."""
        key = self._key()
        return self._load(key) or self._first(key)

    def again(self, begin: int) -> WalkStream:
        """WalkStream of the chunks from `begin` on, run once more; chunks before have no walks.

        All TLBs begin as the whole trace left them.
        """
        name = f"{self._key()}{stream_store.AGAIN}{begin}"
        stored = self._load(name)
        if stored:
            return stored
        if not self.states:
            self._first(None)
        if self.progress:
            self.progress(int(self.trace.chunks["touches"][:begin].sum()))
        with stream_store.Writer(self.cache_dir, name) as writer:
            writer.append(np.zeros(0, np.uint32), np.zeros(0, bool), np.zeros(begin, np.int64))
            return writer.seal(self._filter(writer, begin, again=True))

    def _key(self) -> str:
        regions = self.space.regions
        if len(regions.va) > MAX_REGIONS:
            raise UsageError(
                f"trace: {len(regions.va)} regions of 2 MiB, at most {MAX_REGIONS} can be filtered"
            )
        must_be_no_sample(self.trace)
        must_fit(self.trace, self.tlb, regions.tlb_level)
        return stream_store.key(self.trace, self.placement, self.tlb, regions.tlb_level)

    def _load(self, key: str) -> WalkStream | None:
        if not self.cache_dir:
            return None
        trace = self.trace
        walks = trace.accesses if trace.facts.get("walks") else trace.touches
        return stream_store.load(self.cache_dir, key, len(trace.chunks), len(self.space.regions.va), walks)

    def _first(self, key: str | None) -> WalkStream:
        """Filter the whole trace; key: name to store the stream under, None: it is not stored."""
        cpus = len(self.placement.cpu_node)
        used = max(len(np.unique(self.placement.chunk_cpu)), 1)
        sizes = np.unique(self.space.regions.tlb_level).tolist()
        # filter_common takes a quarter of the time, so that four threads find enough else to do
        wanted = 1 if is_common(self.tlb) else -(-self.threads // used)
        parts = parts_of(self.tlb, sizes, wanted)
        self.states = [[_state(self.tlb, parts, part) for part in range(parts)] for _ in range(cpus)]
        with stream_store.Writer(self.cache_dir if key else None, key or "") as writer:
            return writer.seal(self._filter(writer, 0))

    def _filter(self, writer: stream_store.Writer, begin: int, again: bool = False) -> np.ndarray:
        """Filter chunks from `begin` on, batch by batch, into `writer`; int64[cpus, 3] as WalkStream.hits."""
        if self.trace.facts.get("walks"):
            return self._all(writer, begin)
        from ..kernels import tlb as kernels

        trace, placement = self.trace, self.placement
        pages = _pages(self.space.regions)
        shootdowns = _shootdowns(trace.events, pages)
        kernel = kernels.filter_common if is_common(self.tlb) else kernels.filter_any
        filtering = Filtering(kernel, (pages, shootdowns), self.states, self.threads)
        if again:
            filtering.settle(len(trace.chunks))
        for state in chain.from_iterable(self.states):
            state.done[0], state.hits[:] = np.searchsorted(shootdowns.chunk, begin), 0
        for touches in filtering.run(trace, placement.chunk_cpu, self._pieces(begin), writer.append):
            if self.progress:
                self.progress(touches)
        hits = np.array([sum(state.hits for state in parts) for parts in self.states], np.int64)
        return self._whole(hits.reshape(len(self.states), 3), begin)

    def _whole(self, hits: np.ndarray, begin: int) -> np.ndarray:
        """Hits with the accesses that were merged into touches."""
        chunks, cpu = self.trace.chunks[begin:], self.placement.chunk_cpu[begin:]
        np.add.at(hits[:, 0], cpu, chunks["accesses"] - chunks["touches"])
        return hits

    def _all(self, writer: stream_store.Writer, begin: int) -> np.ndarray:
        """As _filter for samples of TLB misses: each access is a walk, no TLB is asked."""
        accesses, cpu = self.trace.chunks["accesses"], self.placement.chunk_cpu
        scratch = Scratch()
        for piece in self._pieces(begin):
            touches = piece.decode(scratch)
            page, write = (np.repeat(column, touches.count) for column in (touches.page, touches.write))
            writer.append(page, write, accesses[piece.chunks])
        hits = np.zeros((len(self.placement.cpu_node), 3), np.int64)
        np.add.at(hits[:, 2], cpu[begin:], accesses[begin:])
        return hits

    def _pieces(self, begin: int) -> Iterator[Piece]:
        """Iterate Pieces of the chunks from `begin` on; decoding raises CaptureError beyond the regions."""
        for piece in self.trace.pieces(self.batch, begin, len(self.trace.chunks)):
            yield Piece(piece.chunks, partial(self._decoded, piece))

    def _decoded(self, piece: Piece, scratch: Scratch) -> Touches:
        touches, known = piece.decode(scratch), len(self.space.regions.va)
        if len(touches.page) and int(touches.page.max()) >> SLOT_BITS >= known:
            raise CaptureError("trace", "page", int(touches.page.max()), f"beyond its {known} regions")
        return touches


def is_common(tlb: Tlb) -> bool:
    """Whether the faster of the two equal kernels takes this shape; see kernels.tlb."""
    from ..kernels.tlb import TAGS

    sets = (tlb.l1_4k.sets, tlb.l2.sets)
    fits = all(n <= MAX_COMMON_SETS and n & (n - 1) == 0 for n in sets)
    return fits and max(tlb.l1_4k.ways, tlb.l2.ways) <= TAGS and "4k" in tlb.l2_holds


def _state(tlb: Tlb, parts: int = 1, part: int = 0) -> "kernels.State":
    """An empty TLB, of whose `parts` parts by set this is number `part`."""
    from ..kernels import tlb as kernels
    from ..kernels.setrows import bank, row_bank

    small, second = shape(tlb.l1_4k), shape(tlb.l2)
    others = [shape(tlb.l1_2m), shape(tlb.l1_1g)], [shape(tlb.l2_1g), None]
    level2 = [kernels.L2 if size in tlb.l2_holds else kernels.NO_ARRAY for size in ("4k", "2m", "1g")]
    if tlb.l2_1g:
        level2[2] = kernels.L2_1G
    if is_common(tlb):
        rows, arrays = (
            row_bank(1, [small, second], (kernels.TAGS,)),
            bank(1, [None, *others[0], None, *others[1]]),
        )
        where = np.full(len(arrays.ways), kernels.IN_BANK)
        where[kernels.L1_4K], where[kernels.L2] = kernels.FIRST, kernels.SECOND
    else:
        rows, arrays = row_bank(1, [small, *others[0], second, *others[1]]), bank(1, [])
        where = np.arange(len(rows.shape))
    own = np.zeros(1, np.int64), np.zeros(3, np.int64), parts - 1, part, np.zeros(kernels.BLOCK, np.uint32)
    return kernels.State(np.array([kernels.NO_ARRAY, *level2]), rows, arrays, where, *own)


def _pages(regions: Regions) -> "kernels.Pages":
    from ..kernels.tlb import Pages

    gig = np.arange(len(regions.va), dtype=np.uint32)
    at = np.flatnonzero(regions.tlb_level == 3)
    _, first, which = np.unique(regions.va[at] >> np.uint64(9), return_index=True, return_inverse=True)
    gig[at] = at[first][which]
    return Pages(regions.va, regions.tlb_level, gig, bool((regions.tlb_level > 1).any()))


def _shootdowns(events: np.ndarray, pages: "kernels.Pages") -> "kernels.Shootdowns":
    """kernels.tlb.Shootdowns of the events: the tags of the touched pages in each range, or everything."""
    from ..kernels.tlb import Shootdowns

    rows = invalidations(events)
    begin = rows["start"] >> np.uint64(PAGE_SHIFT)
    count = (rows["end"] - rows["start"]) >> np.uint64(PAGE_SHIFT)
    long = count > FLUSH_CEILING
    count = np.where(long, 0, count).astype(np.int64)
    tags, kept = [np.zeros(0, np.uint32)], [np.zeros(0, np.int64)]
    for block in range(0, len(rows), BLOCK):
        n = count[block : block + BLOCK]
        offset = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        number = np.repeat(begin[block : block + BLOCK].astype(np.int64), n) + offset
        tag, known = _tags(number, pages)
        tags.append(tag[known])
        kept.append(np.bincount(np.repeat(np.arange(len(n)), n)[known], minlength=len(n)))
    first = np.concatenate([[0], np.cumsum(np.concatenate(kept))]).astype(np.int64)
    return Shootdowns(rows["chunk"].astype(np.int64), long, first, np.concatenate(tags))


def _tags(number: np.ndarray, pages: "kernels.Pages") -> tuple[np.ndarray, np.ndarray]:
    """(uint32 tags of the TLB entries that map page numbers, bool: whether any entry can)."""
    region, known = _find(number >> SLOT_BITS, pages.va.astype(np.int64))
    size = np.where(known, pages.size[region] if len(pages.size) else 0, 0)
    tag = region << SLOT_BITS | np.where(size == 1, number & 511, 0)
    big = np.flatnonzero(pages.size == 3)
    gig, in_gig = _find(number >> 18, pages.va[big].astype(np.int64) >> 9)
    if len(big):
        tag = np.where(in_gig, pages.gig[big[gig]].astype(np.int64) << SLOT_BITS, tag)
    return tag.astype(np.uint32), known | in_gig


def _find(wanted: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64 position of each wanted value in keys, 0 if absent; bool present)."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    order = np.argsort(keys, kind="stable")
    at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    return at, keys[at] == wanted
