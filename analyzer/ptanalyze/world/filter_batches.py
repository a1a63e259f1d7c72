"""How the TLB filter shares out its work: batches overlap, and for the slower kernel a TLB is split by set.

An entry of a TLB only ever meets those of its own set. Where the number of sets of every array is a multiple
of 2^k, the low k bits of an entry's number (the page's, in pages of its size) split all arrays at once: 2^k
parts that never meet, each of which sees all touches and takes its own. Results are the same to the last bit.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.arrays import read_only
from ..core.machine import Array, Tlb
from ..core.trace import Touches, Trace
from .thinner import Thinner

if TYPE_CHECKING:
    from ..kernels import tlb as kernels

UNDER_WAY = 2  # batches that are decoded ahead, and that wait for their last part while the next are begun
MOST_PARTS = 64


def parts_of(tlb: Tlb, sizes: list[int], wanted: int) -> int:
    """Parts that the sets of a TLB are split into: a power of two, `wanted` or more where it divides all.

    sizes  of the pages that are touched: 1, 2, 3 for 4 KiB, 2 MiB, 1 GiB
    """
    first = {1: tlb.l1_4k, 2: tlb.l1_2m, 3: tlb.l1_1g}
    second = {size: tlb.l2 for size, name in ((1, "4k"), (2, "2m"), (3, "1g")) if name in tlb.l2_holds}
    if tlb.l2_1g:
        second[3] = tlb.l2_1g
    used: list[Array | None] = [*(first[size] for size in sizes), *(second.get(size) for size in sizes)]
    sets = [array.sets for array in used if array]
    parts = 1
    while parts < min(wanted, MOST_PARTS) and all(n % (2 * parts) == 0 for n in sets):
        parts *= 2
    return parts


class Batch:
    """Touches of consecutive chunks, and where each part of each CPU's TLB missed.

    by_cpu   (CPUs, positions of the chunks of each); touches  their number, with those that were left out
    """

    def __init__(self, trace: Trace, touches: Touches, chunk_cpu: np.ndarray) -> None:
        self.page, self.write = read_only(touches.page), read_only(touches.write)
        count = trace.chunks["touches"][touches.chunks]
        number = np.arange(touches.chunks.start, touches.chunks.stop)
        self.chunks = np.column_stack([number, np.cumsum(count) - count, count])
        self.by_cpu, self.touches = by_cpu(chunk_cpu), len(self.page)
        self.missed = np.zeros((0, 0), bool)
        self.jobs: list[Future[None]] = []

    def keep(self, stays: np.ndarray) -> None:
        """Leave out the touches that do not stay, before the TLBs."""
        page, write, count = self.those(stays)
        self.page, self.write = read_only(page), read_only(write)
        self.chunks[:, 1], self.chunks[:, 2] = np.cumsum(count) - count, count

    def run(
        self,
        kernel: Callable[..., Any],
        tables: "tuple[kernels.Pages, kernels.Shootdowns]",
        state: "kernels.State",
        mine: np.ndarray,
    ) -> None:
        """Filter the chunks at positions `mine`, all of the same CPU."""
        kernel(self.page, self.chunks[mine], *tables, state, self.missed[state.part])

    def misses(self) -> np.ndarray:
        """bool[n]: touches that missed, once all parts are done."""
        for job in self.jobs:
            job.result()
        missed: np.ndarray = self.missed[0]
        for other in self.missed[1:]:
            missed |= other
        return missed

    def those(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(page, write, number by chunk) of touches of all CPUs, in the order of the trace."""
        from ..kernels.tlb import gather

        page, write = np.empty(len(self.page), np.uint32), np.empty(len(self.page), bool)
        count = np.zeros(len(self.chunks), np.int64)
        n = gather(self.page, self.write, which, self.chunks, page, write, count)
        return page[:n], write[:n], count


class Filtering:
    """Batches through the TLBs of all CPUs, in order, on `threads` threads.

    kernel  filter_any or filter_common; states [CPU][part]
    thinner  of a sample, None: of the whole trace. Before the TLBs it thins touches, else misses
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        tables: "tuple[kernels.Pages, kernels.Shootdowns]",
        states: "list[list[kernels.State]]",
        threads: int,
        thinner: Thinner | None = None,
    ) -> None:
        self.kernel, self.tables, self.states, self.threads = kernel, tables, states, threads
        self.thinner = thinner
        self.latest: dict[tuple[int, int], Future[None]] = {}

    def walks(
        self, trace: Trace, chunk_cpu: np.ndarray, source: Iterator[Touches]
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
        """Iterate (page, write, misses by chunk, touches) over batches of `source`, in the trace's order.

        With several threads the next of `source` are decoded while others are filtered.
        """
        window: deque[Batch] = deque()
        with ThreadPoolExecutor(max(self.threads, 1)) as pool, ThreadPoolExecutor(1) as decoder:
            for touches in ahead(decoder, source) if self.threads > 1 else source:
                batch = Batch(trace, touches, chunk_cpu[touches.chunks])
                if self.thinner and self.thinner.before:
                    batch.keep(self._thinned(self.thinner, pool, batch, np.ones(len(batch.page), bool)))
                self._begin(pool, batch)
                window.append(batch)
                if len(window) > (UNDER_WAY if self.threads > 1 else 0):
                    yield self._finished(pool, window.popleft())
            for batch in window:
                yield self._finished(pool, batch)

    def settle(self, chunk: int) -> None:
        """Let each CPU see the events before a chunk that it may not have run."""
        none, at = read_only(np.zeros(0, np.uint32)), np.array([[chunk, 0, 0]], np.int64)
        for cpu, parts in enumerate(self.states):
            for state in parts:
                self.kernel(none, at, *self.tables, state, np.zeros(0, bool))
            if self.thinner:
                self.thinner.run(cpu, none, at, np.zeros(0, bool))

    def _thinned(
        self, thinner: Thinner, pool: ThreadPoolExecutor, batch: Batch, stays: np.ndarray
    ) -> np.ndarray:
        """`stays` without the touches that a sample does not hold."""
        list(
            pool.map(lambda cpu, mine: thinner.run(cpu, batch.page, batch.chunks[mine], stays), *batch.by_cpu)
        )
        return stays

    def _finished(
        self, pool: ThreadPoolExecutor, batch: Batch
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        missed = batch.misses()
        if self.thinner and not self.thinner.before:
            missed = self._thinned(self.thinner, pool, batch, missed)
        return *batch.those(missed), batch.touches

    def _begin(self, pool: ThreadPoolExecutor, batch: Batch) -> None:
        """Have each part of each CPU filter the batch after the one before."""
        parts = len(self.states[0]) if self.states else 1
        batch.missed = np.zeros((parts, len(batch.page)), bool)
        for cpu, mine in zip(*batch.by_cpu, strict=True):
            for state in self.states[cpu]:
                key = cpu, state.part
                job = pool.submit(self._run, batch, state, mine, self.latest.get(key))
                self.latest[key] = job
                batch.jobs.append(job)

    def _run(
        self, batch: Batch, state: "kernels.State", mine: np.ndarray, before: "Future[None] | None"
    ) -> None:
        if before:
            before.result()
        batch.run(self.kernel, self.tables, state, mine)


def ahead(decoder: ThreadPoolExecutor, source: Iterator[Touches]) -> Iterator[Touches]:
    """Iterate over `source`; `decoder`, a single thread, makes the next UNDER_WAY meanwhile."""
    jobs = deque(decoder.submit(next, source, None) for _ in range(UNDER_WAY))
    while (touches := jobs.popleft().result()) is not None:
        jobs.append(decoder.submit(next, source, None))
        yield touches


def by_cpu(chunk_cpu: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
    """(CPUs that have chunks, positions of the chunks of each, in order)."""
    order = np.argsort(chunk_cpu, kind="stable")
    cpus, first = np.unique(chunk_cpu[order], return_index=True)
    return cpus.tolist(), np.split(order, first[1:])
