"""How the TLB filter shares out its work: batches overlap, and a CPU's TLB is split by set.

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

if TYPE_CHECKING:
    from ..kernels import tlb as kernels

UNDER_WAY = 2  # batches that wait for their last part while the next are begun
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
    """Touches of consecutive chunks, and where each part of each CPU's TLB missed."""

    def __init__(self, trace: Trace, touches: Touches, parts: int) -> None:
        self.page, self.write = read_only(touches.page), read_only(touches.write)
        count = trace.chunks["touches"][touches.chunks]
        number = np.arange(touches.chunks.start, touches.chunks.stop)
        self.chunks = np.column_stack([number, np.cumsum(count) - count, count])
        self.missed = np.zeros((parts, len(self.page)), bool)
        self.jobs: list[Future[None]] = []

    def run(
        self,
        kernel: Callable[..., Any],
        tables: "tuple[kernels.Pages, kernels.Shootdowns]",
        state: "kernels.State",
        mine: np.ndarray,
    ) -> None:
        """Filter the chunks at positions `mine`, all of the same CPU."""
        kernel(self.page, self.chunks[mine], *tables, state, self.missed[state.part])

    def walks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(page, write, misses by chunk) of all CPUs, in the order of the trace."""
        from ..kernels.tlb import gather

        for job in self.jobs:
            job.result()
        missed = self.missed[0]
        for other in self.missed[1:]:
            missed |= other
        page, write = np.empty(len(self.page), np.uint32), np.empty(len(self.page), bool)
        misses = np.zeros(len(self.chunks), np.int64)
        n = gather(self.page, self.write, missed, self.chunks, page, write, misses)
        return page[:n], write[:n], misses


class Filtering:
    """Batches through the TLBs of all CPUs, in order, on `threads` threads.

    kernel  filter_any or filter_common; states [CPU][part]
    ready   called with each state before a batch of so many touches
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        tables: "tuple[kernels.Pages, kernels.Shootdowns]",
        states: "list[list[kernels.State]]",
        ready: "Callable[[kernels.State, int], None]",
        threads: int,
    ) -> None:
        self.kernel, self.tables, self.states, self.threads = kernel, tables, states, threads
        self.ready = ready
        self.latest: dict[tuple[int, int], Future[None]] = {}

    def walks(
        self, trace: Trace, chunk_cpu: np.ndarray, source: Iterator[Touches]
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
        """Iterate (*Batch.walks, touches) over `source`, which is decoded while others are filtered."""
        window: deque[Batch] = deque()
        parts = len(self.states[0]) if self.states else 1
        with ThreadPoolExecutor(max(self.threads, 1)) as pool:
            for touches in ahead(pool, source):
                batch = Batch(trace, touches, parts)
                self._begin(pool, batch, chunk_cpu[touches.chunks])
                window.append(batch)
                if len(window) > (UNDER_WAY if self.threads > 1 else 0):
                    yield finished(window.popleft())
            yield from map(finished, window)

    def _begin(self, pool: ThreadPoolExecutor, batch: Batch, chunk_cpu: np.ndarray) -> None:
        """Have each part of each CPU filter the batch after the one before."""
        for cpu, mine in zip(*by_cpu(chunk_cpu), strict=True):
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
        self.ready(state, len(batch.page))
        batch.run(self.kernel, self.tables, state, mine)


def finished(batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    return *batch.walks(), len(batch.page)


def ahead(pool: ThreadPoolExecutor, source: Iterator[Touches]) -> Iterator[Touches]:
    """Iterate over `source`, the next of which is made by a thread of `pool` meanwhile."""
    job = pool.submit(next, source, None)
    while (touches := job.result()) is not None:
        job = pool.submit(next, source, None)
        yield touches


def by_cpu(chunk_cpu: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
    """(CPUs that have chunks, positions of the chunks of each, in order)."""
    order = np.argsort(chunk_cpu, kind="stable")
    cpus, first = np.unique(chunk_cpu[order], return_index=True)
    return cpus.tolist(), np.split(order, first[1:])
