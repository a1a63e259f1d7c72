"""A run that has ended, and what is counted of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..kernels.replay import Counters, Mapped
    from ..world.world import World
    from .runs import Run


@dataclass(frozen=True)
class Finished:
    """A run that has ended, its World, and the pages mapped at its end.

    again, still  the World of the further run, and what it found mapped; those of the first where it was cold
    """

    run: Run
    world: World
    mapped: Mapped
    again: World
    still: Mapped

    @property
    def counted(self) -> Counters:
        """Counts of the run that is priced."""
        return self.run.counters

    @property
    def walks(self) -> int:
        return len(self.again.stream)

    @property
    def first(self) -> Counters:
        """Counts of the first run."""
        return self.run.first or self.run.counters

    @property
    def warm(self) -> bool:
        return self.run.first is not None

    @property
    def chunk(self) -> int:
        """First chunk of what is counted."""
        return self.world.steady.chunk if self.warm else 0
