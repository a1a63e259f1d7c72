"""Batches of walks through their steps, one piece after the other, or on two threads side by side.

Where walks end depends on nothing; which entries they read, on the paging-structure caches; which of these
come from DRAM, on the data caches. So one piece can descend while the one before is fetched and the next one
is located.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from .walk_steps import Batch, Steps

AHEAD = 1  # batches begun before one is waited for


def in_turn(steps: Steps, batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        for piece in batch.pieces(steps.kernels.PIECE):
            steps.locate(piece, 0)
            steps.fetch(piece, 0, steps.descend(piece, 0))
        yield batch


def side_by_side(steps: Steps, batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches, each begun before the one before is asked for."""
    pair = Pair(steps)
    under_way: deque[tuple[Batch, Future[None] | None]] = deque()
    try:
        for batch in batches:
            under_way.append((batch, pair.begin(batch)))
            if len(under_way) > AHEAD:
                yield finished(*under_way.popleft())
        while under_way:
            yield finished(*under_way.popleft())
    finally:
        pair.stop()


def finished(batch: Batch, fetched: "Future[None] | None") -> Batch:
    if fetched:
        fetched.result()
    return batch


class Pair:
    """A thread descends; another fetches what that one is done with and locates what comes next."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.at = steps, 0
        self.descending, self.other = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self.fetched: Future[None] | None = None

    def begin(self, batch: Batch) -> "Future[None] | None":
        """What is done when the batch and all before it are; None: there was nothing to do yet."""
        due: tuple[Batch, int, Future[int]] | None = None
        for piece in batch.pieces(self.steps.kernels.PIECE):
            located = self.other.submit(self.steps.locate, piece, self.at)
            descended = self.descending.submit(self._descend, piece, self.at, located)
            self._fetch_later(due)
            due, self.at = (piece, self.at, descended), self.at ^ 1
        self._fetch_later(due)
        return self.fetched

    def stop(self) -> None:
        for pool in (self.descending, self.other):
            pool.shutdown(cancel_futures=True)

    def _fetch_later(self, due: "tuple[Batch, int, Future[int]] | None") -> None:
        if due:
            self.fetched = self.other.submit(self._fetch, *due, self.fetched)

    def _descend(self, piece: Batch, at: int, located: "Future[None]") -> int:
        located.result()
        return self.steps.descend(piece, at)

    def _fetch(self, piece: Batch, at: int, descended: "Future[int]", before: "Future[None] | None") -> None:
        if before:
            before.result()
        self.steps.fetch(piece, at, descended.result())
