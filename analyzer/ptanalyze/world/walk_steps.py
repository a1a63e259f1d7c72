"""The three steps of walks: where they end, which entries they read, and which of these come from DRAM."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.trace import read_only
from ..core.walks import Placement, Reads
from .address_space import AddressSpace

if TYPE_CHECKING:
    from ..kernels import walker

PIECES = 3  # that may be between two steps


@dataclass(frozen=True)
class Batch:
    """Walks of a run of chunks, or a piece of them.

    flushes  int64[k], sorted: walks before which every CPU's guest paging-structure caches are dropped
    """

    chunks: slice
    reads: Reads
    flushes: np.ndarray

    def pieces(self, size: int) -> "Iterator[Batch]":
        for first in range(0, len(self.reads.page), size):
            columns = (column[first : first + size] for column in self.reads)
            within = np.searchsorted(self.flushes, [first, first + size])
            yield Batch(self.chunks, Reads(*columns), self.flushes[slice(*within)] - first)


class Steps:
    """The kernels of a pass, and what they need besides the walks."""

    def __init__(self, space: AddressSpace, placement: Placement, caches: "walker.Caches") -> None:
        from ..kernels import walker

        self.kernels, self.caches, self.trees = walker, caches, trees_of(space)
        self.regions, self.cpu_node = space.regions, placement.cpu_node
        self.scratch = [walker.scratch() for _ in range(PIECES)]
        self.chain = np.zeros((2, 8), np.int64)
        self.missed = np.zeros((2, walker.TOGETHER), np.uint64)

    def locate(self, piece: Batch, at: int) -> None:
        """Where the walks of a piece end; `at`: the scratch space it takes from step to step."""
        self.kernels.locate(*self._locating(piece, at))

    def descend(self, piece: Batch, at: int) -> int:
        """Which entries the walks of a piece read, after those of the piece before: their number."""
        reads: int = self.kernels.descend(*self._descending(piece, at))
        return reads

    def fetch(self, piece: Batch, at: int, reads: int) -> None:
        """Which of so many entries come from DRAM, after those of the piece before."""
        self.kernels.fetch(*self._fetching(piece, at, reads))

    def calls(self, piece: Batch) -> Iterator[tuple[Any, Callable[[], tuple[Any, ...]]]]:
        """Iterate (kernel, what returns its arguments), the longest to compile first."""
        yield self.kernels.descend, lambda: self._descending(piece, 0)
        yield self.kernels.fetch, lambda: self._fetching(piece, 0, 0)
        yield self.kernels.locate, lambda: self._locating(piece, 0)

    def _locating(self, piece: Batch, at: int) -> tuple[Any, ...]:
        return piece.reads.page, self.regions, self.trees, self.scratch[at], piece.reads

    def _descending(self, piece: Batch, at: int) -> tuple[Any, ...]:
        known = self.trees, self.caches, self.scratch[at], self.chain
        return piece.reads.cpu, piece.flushes, *known, piece.reads

    def _fetching(self, piece: Batch, at: int, reads: int) -> tuple[Any, ...]:
        known = self.caches, self.scratch[at], self.missed
        return piece.reads.cpu, self.cpu_node, reads, *known, piece.reads


def trees_of(space: AddressSpace) -> "walker.Trees":
    from ..kernels import walker

    guest, host = space.snapshot.guest, space.snapshot.host
    return walker.Trees(
        read_only(guest.entries),
        read_only(walker.table_rows(space.tables, guest.frame)),
        space.host_of,
        guest.levels,
        host.levels if host else 0,
        walker.CODES[guest.encoding],
    )
