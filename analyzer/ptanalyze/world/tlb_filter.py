"""The TLB filter: a trace in, the walks that miss every TLB level out. Independent of the policy.

It can be run twice over a trace: the first time with empty TLBs, then over its steady part once more with the
TLBs as the first time left them.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.arrays import read_only
from ..core.errors import CaptureError, UsageError
from ..core.machine import Tlb
from ..core.trace import PAGE_SHIFT, SLOT_BITS, Touches, Trace
from ..core.walks import Placement, Regions, WalkStream
from . import stream_store
from .address_space import AddressSpace
from .cache_pass import shape
from .mm_events import invalidations
from .sampling import Sampling, forgotten
from .stripped import must_be_no_sample, must_fit

if TYPE_CHECKING:
    from ..kernels import thin
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
    temporary files. Memory: about 12 bytes per touch of a batch. `progress` is called with the touches of
    each batch. With `sampling` streams hold the sample's walks, and the others that may be faults or copy
    entries (kernels.thin); hits are of the whole trace, estimated where the sample is taken before the TLBs.
    `first` and `again` raise UsageError (too many regions, cache not writable, a stripped trace that does not
    fit the TLB, samples of accesses) and CaptureError (pages outside the regions).
    """

    def __init__(
        self,
        trace: Trace,
        space: AddressSpace,
        placement: Placement,
        tlb: Tlb,
        threads: int = 1,
        cache_dir: str | PathLike[str] | None = None,
        batch: int = 1 << 20,
        progress: Callable[[int], None] | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.trace, self.space, self.placement, self.tlb = trace, space, placement, tlb
        self.threads, self.cache_dir, self.batch, self.progress = threads, cache_dir, batch, progress
        self.sampling = sampling
        self.states: list[kernels.State] = []
        self.seen: list[thin.Seen] = []

    def first(self) -> WalkStream:
        """WalkStream of the whole trace, all TLBs empty at first."""
        key = self._key()
        return self._load(key) or self._first(key)

    def again(self, begin: int) -> WalkStream:
        """WalkStream of the chunks from `begin` on, run once more; chunks before have no walks.

        All TLBs begin as the whole trace left them.
        """
        name = self._key() + stream_store.AGAIN
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
        sample = self.sampling and str(self.sampling.sample)
        return stream_store.key(self.trace, self.placement, self.tlb, regions.tlb_level, sample or "")

    def _load(self, key: str) -> WalkStream | None:
        if not self.cache_dir:
            return None
        return stream_store.load(self.cache_dir, key, len(self.trace.chunks), len(self.space.regions.va))

    def _first(self, key: str | None) -> WalkStream:
        """Filter the whole trace; key: name to store the stream under, None: it is not stored."""
        cpus = range(len(self.placement.cpu_node))
        self.states = [_state(self.tlb) for _ in cpus]
        self.seen = [_unseen(self.space.regions) for _ in cpus] if self.sampling else []
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
        thinner = self._thinner()
        if again:
            self._after_the_last_chunk(kernel, pages, shootdowns, thinner)
        for state in self.states:
            state.done[0], state.hits[:] = np.searchsorted(shootdowns.chunk, begin), 0
        if thinner:
            thinner.begin(begin)
        with ThreadPoolExecutor(self.threads) as pool:
            for touches in _from(trace, begin, self.batch):
                self._must_be_known(touches)
                batched = _Batch(trace, touches, kernel, pages, shootdowns, self.states, thinner)
                list(pool.map(batched.run, *_by_cpu(placement.chunk_cpu[touches.chunks])))
                writer.append(*batched.walks())
                if self.progress:
                    self.progress(len(touches.page))
        hits = np.array([state.hits for state in self.states], np.int64).reshape(len(self.states), 3)
        if self.sampling and self.sampling.before:
            hits[:, 2] -= np.array([int(seen.kept[0]) for seen in self.seen], np.int64)
            hits *= self.sampling.sample.one_in
        if self.sampling and self.sampling.before:
            return self._rest_in_l1(hits, begin)
        merged = trace.chunks["accesses"][begin:] - trace.chunks["touches"][begin:]
        np.add.at(hits[:, 0], placement.chunk_cpu[begin:], merged)
        return hits

    def _rest_in_l1(self, hits: np.ndarray, begin: int) -> np.ndarray:
        """Estimated hits and walks from chunk `begin` on; every other access hits the first level."""
        accesses = np.zeros(len(hits), np.int64)
        np.add.at(accesses, self.placement.chunk_cpu[begin:], self.trace.chunks["accesses"][begin:])
        hits[:, 0] = np.maximum(accesses - hits[:, 1:].sum(axis=1), 0)
        return hits

    def _after_the_last_chunk(
        self,
        kernel: Callable[..., Any],
        pages: "kernels.Pages",
        shootdowns: "kernels.Shootdowns",
        thinner: "_Thinner | None",
    ) -> None:
        """Let each CPU see the events that happened after the last chunk that it ran."""
        none, end = Touches(slice(0, 0), *_nothing()), np.array([[len(self.trace.chunks), 0, 0]], np.int64)
        batch = _Batch(self.trace, none, kernel, pages, shootdowns, self.states, thinner)
        batch.chunks = end
        for cpu in range(len(self.states)):
            batch.misses = np.zeros(1, np.int64)
            batch.run(cpu, np.zeros(1, np.int64))

    def _thinner(self) -> "_Thinner | None":
        if self.sampling is None:
            return None
        lost = forgotten(self.trace.events, self.space.regions)
        return _Thinner(self.sampling, read_only(self.space.regions.tlb_level), lost, self.seen)

    def _all(self, writer: stream_store.Writer, begin: int) -> np.ndarray:
        """As _filter for samples of TLB misses: each access is a walk, no TLB is asked."""
        accesses, cpu = self.trace.chunks["accesses"], self.placement.chunk_cpu
        for touches in _from(self.trace, begin, self.batch):
            self._must_be_known(touches)
            page, write = (np.repeat(column, touches.count) for column in (touches.page, touches.write))
            writer.append(page, write, accesses[touches.chunks])
        hits = np.zeros((len(self.placement.cpu_node), 3), np.int64)
        np.add.at(hits[:, 2], cpu[begin:], accesses[begin:])
        return hits

    def _must_be_known(self, touches: Touches) -> None:
        known = len(self.space.regions.va)
        if len(touches.page) and int(touches.page.max()) >> SLOT_BITS >= known:
            raise CaptureError("trace", "page", int(touches.page.max()), f"beyond its {known} regions")


def _nothing() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros(0, np.uint32), np.zeros(0, bool), np.zeros(0, np.uint32)


def _from(trace: Trace, begin: int, batch: int) -> Iterator[Touches]:
    """Iterate Touches of the chunks from `begin` on."""
    for touches in trace.batches(batch):
        first, last = touches.chunks.start, touches.chunks.stop
        if first >= begin:
            yield touches
        elif last > begin:
            at = int(trace.chunks["touches"][first:begin].sum())
            rest = (column[at:] for column in (touches.page, touches.write, touches.count))
            yield Touches(slice(begin, last), *rest)


class _Thinner:
    """Leaves out of chunks of a CPU what a sample does not hold."""

    def __init__(
        self, sampling: Sampling, size: np.ndarray, lost: "thin.Forgotten", seen: "list[thin.Seen]"
    ) -> None:
        self.before, self.seen, self.lost = sampling.before, seen, lost
        self.tables = size, sampling.groups, lost

    def begin(self, chunk: int) -> None:
        """Whatever is forgotten before a chunk is forgotten."""
        for seen in self.seen:
            seen.done[0], seen.kept[0] = np.searchsorted(self.lost.chunk, chunk), 0

    def run(
        self, cpu: int, page: np.ndarray, write: np.ndarray, chunks: np.ndarray, out: tuple[np.ndarray, ...]
    ) -> np.ndarray:
        """int64[m]: how many of each chunk stay, in `out` where the chunk began."""
        from ..kernels.thin import thin

        kept = np.zeros(len(chunks), np.int64)
        thin(read_only(page), read_only(write), chunks, *self.tables, self.seen[cpu], *out, kept)
        return kept


class _Batch:
    """A batch: CPUs write a chunk's misses in the place of its touches; then the gaps are closed."""

    def __init__(
        self,
        trace: Trace,
        touches: Touches,
        kernel: Callable[..., Any],
        pages: "kernels.Pages",
        shootdowns: "kernels.Shootdowns",
        states: "list[kernels.State]",
        thinner: _Thinner | None,
    ) -> None:
        self.kernel, self.states, self.thinner = kernel, states, thinner
        self.page, self.write = read_only(touches.page), read_only(touches.write)
        count = trace.chunks["touches"][touches.chunks]
        number = np.arange(touches.chunks.start, touches.chunks.stop)
        self.chunks = np.column_stack([number, np.cumsum(count) - count, count])
        self.tables = pages, shootdowns
        self.out = np.empty(len(self.page), np.uint32), np.empty(len(self.page), bool)
        self.misses = np.zeros(len(number), np.int64)
        if thinner and thinner.before:
            self.thinned = np.empty(len(self.page), np.uint32), np.empty(len(self.page), bool)

    def run(self, cpu: int, mine: np.ndarray) -> None:
        """Filter the chunks at positions `mine`, all of the same CPU."""
        state, misses = self.states[cpu], np.zeros(len(mine), np.int64)
        chunks, page, write = self.chunks[mine], self.page, self.write
        _make_room(state, len(self.page))
        if self.thinner and self.thinner.before:
            chunks[:, 2] = self.thinner.run(cpu, page, write, chunks, self.thinned)
            page, write = read_only(self.thinned[0]), read_only(self.thinned[1])
        self.kernel(page, write, chunks, *self.tables, state, *self.out, misses)
        if self.thinner and not self.thinner.before:
            chunks[:, 2] = misses
            misses = self.thinner.run(cpu, *self.out, chunks, self.out)
        self.misses[mine] = misses

    def walks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(page, write, misses by chunk) of all CPUs, in the order of the trace."""
        from ..kernels.tlb import close_gaps

        n = close_gaps(*self.out, self.chunks[:, 1].copy(), self.misses)
        return self.out[0][:n], self.out[1][:n], self.misses


def is_common(tlb: Tlb) -> bool:
    """Whether the faster of the two equal kernels takes this shape; see kernels.tlb."""
    sets = (tlb.l1_4k.sets, tlb.l2.sets)
    fits = all(n <= MAX_COMMON_SETS and n & (n - 1) == 0 for n in sets)
    return fits and tlb.l1_4k.ways == 4 and tlb.l2.ways <= 16 and "4k" in tlb.l2_holds


def _state(tlb: Tlb) -> "kernels.State":
    from ..kernels import tlb as kernels
    from ..kernels.setassoc import EMPTY, bank

    common = is_common(tlb)
    first_level = [shape(array) for array in (tlb.l1_4k, tlb.l1_2m, tlb.l1_1g)]
    arrays = bank(1, [*first_level, None if common else shape(tlb.l2), shape(tlb.l2_1g), None])
    level2 = [kernels.L2 if size in tlb.l2_holds else kernels.NO_ARRAY for size in ("4k", "2m", "1g")]
    if tlb.l2_1g:
        level2[2] = kernels.L2_1G
    sets = tlb.l2.sets if common else 0
    way = np.arange(kernels.ROW, dtype=np.uint32)
    age = np.tile(np.where(way < tlb.l2.ways, way, kernels.PAD), sets)
    tag = np.full(sets * kernels.ROW, EMPTY, np.uint32)
    counters = np.zeros(1, np.uint32), np.zeros(1, np.int64), np.zeros(3, np.int64)
    return kernels.State(arrays, np.array([kernels.NO_ARRAY, *level2]), tag, age, sets, *counters)


def _unseen(regions: Regions) -> "thin.Seen":
    from ..kernels.thin import Seen

    return Seen(np.zeros(len(regions.va) * 8, np.uint64), np.zeros(1, np.int64), np.zeros(1, np.int64))


def _make_room(state: "kernels.State", touches: int) -> None:
    """Before filter_common's 32-bit clock can wrap, ages become ranks within their set, in the same order."""
    from ..kernels.tlb import PAD, ROW

    if not state.sets or int(state.now[0]) + (touches + 1) * ROW < int(PAD):
        return
    age = state.age.reshape(-1, ROW)
    rank = age.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable").astype(np.uint32)
    time = (rank + np.uint32(1)) * np.uint32(ROW)
    age[:] = np.where((age < ROW) | (age == PAD), age, time | age % np.uint32(ROW))
    state.now[0] = ROW * (ROW + 1)


def _pages(regions: Regions) -> "kernels.Pages":
    from ..kernels.tlb import Pages

    gig = np.arange(len(regions.va), dtype=np.uint32)
    at = np.flatnonzero(regions.tlb_level == 3)
    _, first, which = np.unique(regions.va[at] >> np.uint64(9), return_index=True, return_inverse=True)
    gig[at] = at[first][which]
    return Pages(regions.va, regions.tlb_level, gig, bool((regions.tlb_level > 1).any()))


def _by_cpu(chunk_cpu: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
    """(CPUs that have chunks, positions of the chunks of each, in order)."""
    order = np.argsort(chunk_cpu, kind="stable")
    cpus, first = np.unique(chunk_cpu[order], return_index=True)
    return cpus.tolist(), np.split(order, first[1:])


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
