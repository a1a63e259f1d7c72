"""Batches of walks through their steps, one piece after the other, or on two threads side by side.

Where walks end depends on nothing; which entries they read, on the paging-structure caches; which of these
come from DRAM, on the data caches. So one piece can descend while the one before is fetched and the next one
is located.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from .walk_steps import Batch, Steps


def in_turn(steps: Steps, batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        for piece in batch.pieces(steps.kernels.PIECE):
            steps.locate(piece, 0)
            steps.fetch(piece, 0, steps.descend(piece, 0))
        yield batch


def side_by_side(steps: Steps, batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches, each while the next is under way."""
    pair, before = Pair(steps), None
    try:
        for batch in batches:
            fetched = pair.begin(batch)
            if before:
                fetched.result()
                yield before
            before = batch
        if before:
            pair.fetch_rest().result()
            yield before
    finally:
        pair.stop()


class Pair:
    """A thread descends, another fetches what that one is done with; they locate pieces in turns."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.pieces = steps, 0
        self.descending, self.fetching = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self.due: tuple[Batch, int, Future[int]] | None = None
        self.fetched: list[Future[None]] = [_done() for _ in steps.scratch]  # the last that took each
        self.latest = _done()

    def begin(self, batch: Batch) -> "Future[None]":
        """What is done when all batches before this one are."""
        before: Future[None] | None = None
        for piece in batch.pieces(self.steps.kernels.PIECE):
            at, locating = self.pieces % len(self.fetched), (self.descending, self.fetching)[self.pieces % 2]
            located = locating.submit(self._locate, piece, at, self.fetched[at])
            descended = self.descending.submit(self._descend, piece, at, located)
            fetched = self.fetch_rest()
            before = before or fetched
            self.due, self.pieces = (piece, at, descended), self.pieces + 1
        return before or self.fetch_rest()

    def fetch_rest(self) -> "Future[None]":
        """What is done when all that was begun is; the last piece waits behind what is to be located next."""
        if self.due:
            at = self.due[1]
            self.latest = self.fetched[at] = self.fetching.submit(self._fetch, *self.due, self.latest)
            self.due = None
        return self.latest

    def stop(self) -> None:
        for pool in (self.descending, self.fetching):
            pool.shutdown(cancel_futures=True)

    def _locate(self, piece: Batch, at: int, fetched: "Future[None]") -> None:
        fetched.result()
        self.steps.locate(piece, at)

    def _descend(self, piece: Batch, at: int, located: "Future[None]") -> int:
        located.result()
        return self.steps.descend(piece, at)

    def _fetch(self, piece: Batch, at: int, descended: "Future[int]", before: "Future[None]") -> None:
        before.result()
        self.steps.fetch(piece, at, descended.result())


def _done() -> "Future[None]":
    future: Future[None] = Future()
    future.set_result(None)
    return future
