"""A part of a trace that stands for all of it: what its walks are counted as, whatever the part is of."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from ..core.errors import UsageError
from ..core.machine import Machine
from ..core.sample import Sample
from ..core.walks import WalkStream

BLOCK = 1 << 20  # walks looked at together
WAY_OUT = {
    "sets": "sample regions of a whole trace, or leave the sample out",
    "regions": "name a larger part, or leave the sample out",
    "windows": "record more windows",
}


class Weights(NamedTuple):
    """What the walks of a part stand for.

    walks  int64[groups, strata]: in the part
    held   float64[groups, strata]: how much of the whole each group is, in the unit of `total`
    total  float64[strata]: of the whole
    """

    walks: np.ndarray
    held: np.ndarray
    total: np.ndarray

    def scales(self, without: int | None = None) -> np.ndarray:
        """float64[strata]: how many walks each one of the part stands for, if a group had not been in it.

        A stratum that the part holds nothing of is shared out among the others.
        """
        left = _left(self.held, without)
        known = left > 0
        of_known = self.total[known].sum()
        spread = self.total.sum() / of_known if of_known > 0 else 0.0
        scales: np.ndarray = np.divide(self.total, left, out=np.zeros_like(left), where=known) * spread
        return scales

    @property
    def of_cells(self) -> np.ndarray:
        """float64[groups * strata + 1]: the same of each cell, 0 outside the part."""
        return np.append(np.tile(self.scales(), len(self.walks)), 0.0)

    def whole(self, column: np.ndarray, without: int | None = None) -> np.ndarray:
        """int64[n, ...] for the whole trace of what was counted by cell, int64[(cells + 1) * n, ...]."""
        rows = len(column) // (self.walks.size + 1)
        by_cell = column[: -rows or None].reshape(*self.walks.shape, rows, *column.shape[1:])
        counts = np.tensordot(self.scales(without), _left(by_cell, without), 1)
        return np.rint(counts).astype(np.int64)

    def estimate(self, without: int | None = None) -> int:
        """Walks of the whole trace, if a group had not been in the part."""
        return round(float(_left(self.walks, without) @ self.scales(without)))


def _left(by_group: np.ndarray, without: int | None) -> np.ndarray:
    """Sum over groups, but for one."""
    total: np.ndarray = by_group.sum(axis=0)
    return total if without is None else total - by_group[without]


@dataclass(frozen=True)
class Part(ABC):
    """A Sample of a trace, in cells: groups, in each of which are all strata.

    outside  number of cells, and the cell of what is not in the sample
    strata   that are scaled each by itself; cell = group * strata + stratum
    """

    least: ClassVar[int] = 4  # groups with walks: fewer may be all alike, and so look sure

    sample: Sample
    outside: int
    strata: int = field(default=1, kw_only=True)

    @abstractmethod
    def groups_of(self, stream: WalkStream, begin: int, end: int) -> np.ndarray:
        """int16[end - begin]: cell of each of these walks of a stream of the part."""

    @abstractmethod
    def held(self, walks: np.ndarray, stream: WalkStream) -> tuple[np.ndarray, np.ndarray]:
        """(Weights.held, Weights.total) for a stream with so many walks in each cell."""

    def on(self, machine: Machine) -> Machine:
        """The Machine with caches of the size that what the part holds would have of them."""
        return machine

    def hits(self, stream: WalkStream) -> np.ndarray:
        """int64[3] as WalkStream.hits: of all CPUs, of the whole trace."""
        total: np.ndarray = stream.hits.sum(axis=0)
        return total

    @property
    def unread(self) -> int:
        """Cell of walks that read nothing but their leaf entry and change no cache, -1: there are none."""
        return self.outside

    def weights(self, stream: WalkStream) -> Weights:
        """Weights of a stream of this part. UsageError where it has too few groups."""
        walks = np.zeros(self.outside + 1, np.int64)
        for begin in range(0, len(stream), BLOCK):
            group = self.groups_of(stream, begin, min(begin + BLOCK, len(stream)))
            walks += np.bincount(group, minlength=len(walks))
        inside = walks[:-1].reshape(-1, self.strata)
        groups = np.count_nonzero(inside.sum(axis=1))
        if walks.any() and groups < self.least:
            raise UsageError(
                f"sample = {self.sample}: it holds {inside.sum():,} walks in {groups} of "
                f"{len(inside)} groups, too few to tell its error; {WAY_OUT[self.sample.unit]}"
            )
        return Weights(inside, *self.held(inside, stream))

    def by_chunk(self, stream: WalkStream) -> np.ndarray:
        """int64 or, estimated, float64[chunks]: walks of each chunk of the whole trace."""
        inside, scales = np.zeros(len(stream) + 1), self.weights(stream).of_cells
        for begin in range(0, len(stream), BLOCK):
            group = self.groups_of(stream, begin, min(begin + BLOCK, len(stream)))
            inside[begin + 1 : begin + 1 + len(group)] = scales[group]
        np.cumsum(inside, out=inside)
        counts: np.ndarray = np.diff(inside[stream.offset])
        return counts
