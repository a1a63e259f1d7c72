"""A part of a trace that stands for all of it: what its walks are counted as, whatever the part is of."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
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

    walks  int64[groups]: in the part
    held   float64[groups]: how much of the whole each group is, of `total`, in the same unit
    """

    walks: np.ndarray
    held: np.ndarray
    total: float

    @property
    def scale(self) -> float:
        """How many walks each one of the part stands for."""
        return self.without(None)

    def without(self, group: int | None) -> float:
        """The same if a group had not been in the part."""
        left = float(self.held.sum()) - (0.0 if group is None else float(self.held[group]))
        return self.total / left if left > 0 else 0.0

    def estimate(self, group: int | None = None) -> int:
        """Walks of the whole trace, if a group had not been in the part."""
        left = int(self.walks.sum()) - (0 if group is None else int(self.walks[group]))
        return round(left * self.without(group))


@dataclass(frozen=True)
class Part(ABC):
    """A Sample of a trace, in groups.

    outside  number of groups, and the group of what is not in the sample
    """

    least: ClassVar[int] = 4  # groups with walks: fewer may be all alike, and so look sure

    sample: Sample
    outside: int

    @abstractmethod
    def groups_of(self, stream: WalkStream, begin: int, end: int) -> np.ndarray:
        """int16[end - begin]: group of each of these walks of a stream of the part."""

    @abstractmethod
    def held(self, walks: np.ndarray, stream: WalkStream) -> tuple[np.ndarray, float]:
        """(Weights.held, Weights.total) for a stream with so many walks in each group."""

    def on(self, machine: Machine) -> Machine:
        """The Machine with caches of the size that what the part holds would have of them."""
        return machine

    def hits(self, stream: WalkStream) -> np.ndarray:
        """int64[3] as WalkStream.hits: of all CPUs, of the whole trace."""
        total: np.ndarray = stream.hits.sum(axis=0)
        return total

    @property
    def unread(self) -> int:
        """Group of walks that read nothing but their leaf entry and change no cache, -1: there are none."""
        return self.outside

    def weights(self, stream: WalkStream) -> Weights:
        """Weights of a stream of this part. UsageError where it has too few groups."""
        walks = np.zeros(self.outside + 1, np.int64)
        for begin in range(0, len(stream), BLOCK):
            group = self.groups_of(stream, begin, min(begin + BLOCK, len(stream)))
            walks += np.bincount(group, minlength=len(walks))
        inside = walks[:-1]
        if walks.any() and np.count_nonzero(inside) < self.least:
            raise UsageError(
                f"sample = {self.sample}: it holds {inside.sum():,} walks in {np.count_nonzero(inside)} of "
                f"{self.outside} groups, too few to tell its error; {WAY_OUT[self.sample.unit]}"
            )
        return Weights(inside, *self.held(inside, stream))

    def by_chunk(self, stream: WalkStream) -> np.ndarray:
        """float64[chunks]: estimated walks of each chunk of the whole trace."""
        inside = np.zeros(len(stream) + 1, np.int64)
        for begin in range(0, len(stream), BLOCK):
            group = self.groups_of(stream, begin, min(begin + BLOCK, len(stream)))
            inside[begin + 1 : begin + 1 + len(group)] = group != self.outside
        np.cumsum(inside, out=inside)
        counts: np.ndarray = np.diff(inside[stream.offset]) * self.weights(stream).scale
        return counts
