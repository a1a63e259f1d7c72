"""How the TLB filter shares out its work: batches overlap, and for the slower kernel a TLB is split by set.

A batch is decoded, filtered and gathered by one thread, in whose cache it stays, while other threads have the
next ones. The TLB of a CPU, or a part of it, takes batches in their order: each waits for the one before.

An entry of a TLB only ever meets those of its own set. Where the number of sets of every array is a multiple
of 2^k, the low k bits of an entry's number (the page's, in pages of its size) split all arrays at once: 2^k
parts that never meet, each of which sees all touches and takes its own. Results are the same to the last bit.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, local
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.machine import Array, Tlb
from ..core.trace import Piece, Scratch, Trace, read_only

if TYPE_CHECKING:
    from ..kernels import tlb as kernels

UNDER_WAY = 2  # batches per thread that are begun before the first is done
MOST_PARTS = 64
Turn = tuple[int, int]  # CPU and part
APPEND: Turn = -1, -1
Walks = tuple[np.ndarray, np.ndarray, np.ndarray]  # page, write, number by chunk


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
    """A piece of a trace on its way through the TLBs.

    by_cpu  (CPUs, positions of the chunks of each); touches  their number
    turns   of all that the batch uses in turn: (set by the batch before, set by this one when it is done)
    """

    def __init__(self, trace: Trace, piece: Piece, cpus: np.ndarray) -> None:
        self.piece, self.by_cpu = piece, by_cpu(cpus)
        count = trace.chunks["touches"][piece.chunks]
        number = np.arange(piece.chunks.start, piece.chunks.stop)
        self.chunks = np.column_stack([number, np.cumsum(count) - count, count])
        self.touches = int(count.sum())
        self.turns: dict[Turn, tuple[Event | None, Event]] = {}

    def decode(self, scratch: Scratch) -> None:
        touches = self.piece.decode(scratch)
        self.page, self.write = read_only(touches.page), read_only(touches.write)

    def those(self, which: np.ndarray, scratch: Scratch) -> Walks:
        """(page, write, number by chunk) of touches of all CPUs, in the order of the trace."""
        from ..kernels.tlb import gather

        room = len(self.page)
        page, write = (
            scratch.empty("gathered page", room, np.uint32),
            scratch.empty("gathered write", room, bool),
        )
        count = np.zeros(len(self.chunks), np.int64)
        n = gather(self.page, self.write, which, self.chunks, page, write, count)
        return page[:n], write[:n], count

    @contextmanager
    def turn(self, of: Turn) -> Iterator[None]:
        """Once the batch before is done with it; then the next may have it."""
        before, done = self.turns.pop(of)
        try:
            if before:
                before.wait()
            yield
        finally:
            done.set()

    def give_up(self) -> None:
        """Let the next batches have what this one, which failed, did not take."""
        for of in list(self.turns):
            with self.turn(of):
                pass


class Filtering:
    """Batches through the TLBs of all CPUs, in order, on `threads` threads.

    kernel  filter_any or filter_common; states [CPU][part]
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        tables: "tuple[kernels.Pages, kernels.Shootdowns]",
        states: "list[list[kernels.State]]",
        threads: int,
    ) -> None:
        self.kernel, self.tables, self.states, self.threads = kernel, tables, states, threads
        self.latest: dict[Turn, Event] = {}
        self.own = local()

    def run(
        self,
        trace: Trace,
        chunk_cpu: np.ndarray,
        pieces: Iterator[Piece],
        append: Callable[..., None],
    ) -> Iterator[int]:
        """Filter the pieces of a trace and iterate over their touches, whose walks were appended by then.

        append  called with page, write and misses by chunk, in the order of the trace, on any thread; it
                keeps none of them
        """
        batches = (self._begun(Batch(trace, piece, chunk_cpu[piece.chunks])) for piece in pieces)
        if self.threads < 2:
            for batch in batches:
                yield self._through(batch, append)
            return
        window: deque[Future[int]] = deque()
        with ThreadPoolExecutor(self.threads) as pool:
            for batch in batches:
                window.append(pool.submit(self._through, batch, append))
                if len(window) > UNDER_WAY * self.threads:
                    yield window.popleft().result()
            while window:
                yield window.popleft().result()

    def settle(self, chunk: int) -> None:
        """Let each CPU see the events before a chunk that it may not have run."""
        none, at = read_only(np.zeros(0, np.uint32)), np.array([[chunk, 0, 0]], np.int64)
        for parts in self.states:
            for state in parts:
                self.kernel(none, at, *self.tables, state, np.zeros(0, bool))

    def _begun(self, batch: Batch) -> Batch:
        """The batch, which has its turns after those begun before it."""
        parts = range(len(self.states[0]) if self.states else 0)
        for turn in (*((cpu, part) for cpu in batch.by_cpu[0] for part in parts), APPEND):
            done = Event()
            batch.turns[turn] = self.latest.get(turn), done
            self.latest[turn] = done
        return batch

    def _through(self, batch: Batch, append: Callable[..., None]) -> int:
        """Touches of a batch that was begun, and is appended now; on any thread."""
        try:
            scratch = self._scratch()
            batch.decode(scratch)
            missed = self._missed(batch, scratch)
            walks = batch.those(missed, scratch)
            with batch.turn(APPEND):
                append(*walks)
            return batch.touches
        finally:
            batch.give_up()

    def _scratch(self) -> Scratch:
        """This thread's."""
        if not hasattr(self.own, "scratch"):
            self.own.scratch = Scratch()
        scratch: Scratch = self.own.scratch
        return scratch

    def _missed(self, batch: Batch, scratch: Scratch) -> np.ndarray:
        """bool[n]: touches that miss; each part of each CPU's TLB finds its own."""
        missed = scratch.zeros("missed", len(batch.page), bool)
        for cpu, mine in zip(*batch.by_cpu, strict=True):
            chunks = batch.chunks[mine]
            for part, state in enumerate(self.states[cpu]):
                with batch.turn((cpu, part)):
                    self.kernel(batch.page, chunks, *self.tables, state, missed)
        return missed


def by_cpu(chunk_cpu: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
    """(CPUs that have chunks, positions of the chunks of each, in order)."""
    order = np.argsort(chunk_cpu, kind="stable")
    cpus, first = np.unique(chunk_cpu[order], return_index=True)
    return cpus.tolist(), np.split(order, first[1:])
