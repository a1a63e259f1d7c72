"""The cheapest degree and sharing tier of each VMA, and of all together, beside the bound."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core.errors import UsageError
from ..formats.capture import CaptureLike
from .degree_runs import NODE, ONE, SOCKET, Degrees, Point, degree_runs
from .opened import opened
from .setup import Setup

TIERS = {ONE: "one copy", SOCKET: "a copy per socket", NODE: "a copy per node"}
WHEN = ("first", "every")
MOST_REPEATS = 1e15


@dataclass(frozen=True)
class Chosen:
    """The cheapest point of each VMA, and of all together, by the middle of the exposed share.

    repeat          how often the steady part runs once more after the run as traced
    by_vma, of_all  indices into known.points
    sure, all_sure  whether the ends of the exposed share lead to the same
    """

    known: Degrees
    repeat: float
    by_vma: np.ndarray
    of_all: int
    sure: np.ndarray
    all_sure: bool

    @cached_property
    def cycles(self) -> np.ndarray:
        """float64[points, V]"""
        exposed = self.known.costs.exposed.middle
        return np.array([point.cycles(exposed, self.repeat) for point in self.known.points])

    @property
    def of_each(self) -> np.ndarray:
        """float64[V]: cycles of each VMA's cheapest point."""
        chosen: np.ndarray = self.cycles[self.by_vma, np.arange(len(self.by_vma))]
        return chosen

    @cached_property
    def bound(self) -> np.ndarray:
        """float64[V]: no tier of a VMA with any prefetching costs less."""
        exposed = self.known.costs.exposed.middle
        tiers = (self.known.points[0], *self.known.bounds)
        least: np.ndarray = np.min([point.cycles(exposed, self.repeat) for point in tiers], axis=0)
        return least

    def best(self, vma: int) -> Point:
        return self.known.points[int(self.by_vma[vma])]

    @property
    def overall(self) -> Point:
        """The cheapest point that all VMAs share, as the kernels have a single setting."""
        return self.known.points[self.of_all]

    def point(self, tier: str, degree: int | None) -> Point:
        return next(p for p in self.known.points if (p.tier, p.degree) == (tier, degree))

    def never_used(self, point: Point) -> np.ndarray:
        """int64[V]: entries copied that their node does not use before they are written anew or cleared.

        Every degree copies what degree 0 does, sooner or later: that is what is used.
        """
        if point.degree is None:
            return np.zeros(len(point.propagated), np.int64)
        unused: np.ndarray = point.propagated - self.point(point.tier, 0).propagated
        return unused

    @cached_property
    def pays_back(self) -> np.ndarray:
        """float64[V + 1]: further runs after which copies beat one copy, for each VMA, then for all.

        0: within the run as traced; infinite: never.
        """
        exposed = self.known.costs.exposed.middle
        one, *copies = (
            (with_total(p.traced.cycles(exposed)), with_total(p.again.cycles(exposed)))
            for p in self.known.points
        )
        after = [earned(first - one[0], one[1], again) for first, again in copies]
        soonest: np.ndarray = np.min(after, axis=0)
        return soonest


def with_total(by_vma: np.ndarray) -> np.ndarray:
    return np.append(by_vma, by_vma.sum())


def earned(once: np.ndarray, before: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Runs after which what a run saves, where that can be read (as_read), exceeds `once`; 0 where nothing
    has to be earned back."""
    after = np.full(len(once), np.inf)
    np.divide(once, before - now, out=after, where=as_read(now, before) < 1)
    return np.where(once < 0, 0.0, after)


def chosen(capture: CaptureLike, setup: Setup, prefetch_on: str = "first", repeat: float = 0.0) -> Chosen:
    """Chosen for a capture. UsageError without a trace or walks, and where Hydra cannot run."""
    if prefetch_on not in WHEN:
        raise UsageError(f"prefetch_on = {prefetch_on}: {' or '.join(WHEN)}")
    if not 0 <= repeat <= MOST_REPEATS:
        raise UsageError(f"repeat = {repeat:g}: 0 to {MOST_REPEATS:g} further runs")
    if repeat and setup.move_threads:
        raise UsageError(
            f"repeat = {repeat:g}: threads that move while the trace runs leave no steady part to repeat; "
            "leave out one of the two"
        )
    known = opened(capture)
    known.capture.trace  # noqa: B018 - UsageError without a trace
    world = known.world(setup)
    if not len(world.stream):
        raise UsageError(f"{known.capture.directory}: no page walks in the trace: record a longer one")
    return choose(degree_runs(world, setup, prefetch_on, known.provenance), repeat)


def choose(known: Degrees, repeat: float = 0.0) -> Chosen:
    """The cheapest of the points, by their shares of one copy's cycles as they are read; of those that read
    alike, one copy before several, then the cheapest, then the lower degree."""
    low, middle, high = (cheapest(known, share, repeat) for share in known.costs.exposed)
    sure = (low[0] == middle[0]) & (middle[0] == high[0])
    return Chosen(known, repeat, *middle, sure, low[1] == middle[1] == high[1])


def cheapest(known: Degrees, exposed: float, repeat: float) -> tuple[np.ndarray, int]:
    """(int64[V], the point that is cheapest for all VMAs together)."""
    cycles = np.array([with_total(point.cycles(exposed, repeat)) for point in known.points])
    tier = np.broadcast_to([[list(TIERS).index(point.tier)] for point in known.points], cycles.shape)
    first = np.lexsort((cycles.T, tier.T, as_read(cycles, cycles[0]).T))[:, 0]
    return first[:-1], int(first[-1])


def as_read(cycles: np.ndarray, one: np.ndarray) -> np.ndarray:
    """float64: share of one copy's cycles, to a tenth of a percent as degree_settings.share writes it."""
    shares = np.divide(cycles, one, out=np.ones_like(cycles), where=one > 0)
    rounded: np.ndarray = np.round(shares, 3)
    return rounded
