"""The sequence of pages that a thread touches, in blocks."""

from collections.abc import Callable

import numpy as np

from .kernels import PAGE_SHIFT, permute
from .plan import Plan, Shaped, part_of


def page_source(plan: Plan, thread: int) -> Callable[[int], np.ndarray]:
    """A function n -> int64[<= n]: the next pages (counted from 0) of a thread; fewer when it is done."""
    if plan.shape is not None:
        size, threads = plan.pages << PAGE_SHIFT, len(plan.threads)
        key = int(plan.rng(13).integers(0, 1 << 32))
        return Shaped(plan.shape, size, key, part_of(plan.shape, thread, threads), plan.accesses // threads)
    first, last = plan.threads.part[thread : thread + 2].tolist()
    low, high = (0, plan.pages) if plan.anywhere else (first, last)
    if plan.pattern == "sequential":
        return Sequential(first, low, high)
    if plan.pattern == "once":
        return Once(low, high, int(plan.rng(11, thread).integers(0, 1 << 32)))
    key = int(plan.rng(14).integers(0, 1 << 32))
    return Random(plan.rng(10, thread), first, last, plan.pages, plan.anywhere, plan.exponent, key)


def written(
    source: Callable[[int], np.ndarray], pages: np.ndarray, plan: Plan, rng: np.random.Generator
) -> np.ndarray:
    """bool[n]: which of the last pages of a source are written."""
    return source.wrote if isinstance(source, Shaped) else rng.random(len(pages)) < plan.writes


class Sequential:
    """From `at` on round and round through first..last-1."""

    def __init__(self, at: int, first: int, last: int) -> None:
        self.at, self.first, self.span = at - first, first, last - first

    def __call__(self, n: int) -> np.ndarray:
        pages = self.first + (self.at + np.arange(n)) % self.span
        self.at = (self.at + n) % self.span
        return pages


class Once:
    """Every page of first..last-1 once, in a random order that takes no memory."""

    def __init__(self, first: int, last: int, key: int) -> None:
        self.first, self.span, self.key, self.done = first, last - first, key, 0

    def __call__(self, n: int) -> np.ndarray:
        places = np.arange(self.done, min(self.done + n, self.span))
        self.done += len(places)
        return self.first + hashed(places, self.span, self.key)


def hashed(places: np.ndarray, span: int, key: int) -> np.ndarray:
    """int64[n]: the images of places (int64[n], below `span`) under a permutation of 0..span-1."""
    out = np.empty_like(places)
    bits = max(((span - 1).bit_length() + 1) // 2, 1)  # the least with 4 ** bits >= span
    permute(places, span, bits, key, out)
    return out


class Random:
    """Own pages first..last-1, or with probability `anywhere` all `pages`; popularity falls as rank ** -S.

    Ranks are drawn by inverting the continuous law on 1..n + 1 and rounding down. Which page has which rank
    is a permutation by a hash of `key`: in a regular order, such as multiples of a golden section, the pages'
    entries would share out sets of caches as no program's do.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        first: int,
        last: int,
        pages: int,
        anywhere: float,
        exponent: float,
        key: int,
    ) -> None:
        self.rng, self.anywhere, self.exponent, self.key = rng, anywhere, exponent, key
        self.first, self.own, self.pages = first, last - first, pages

    def __call__(self, n: int) -> np.ndarray:
        away = self.rng.random(n) < self.anywhere
        span = np.where(away, self.pages, self.own)
        pages: np.ndarray = np.minimum(self.ranks(self.rng.random(n), span), span - 1)
        if self.exponent:
            for of, those in ((self.own, ~away), (self.pages, away)):
                pages[those] = hashed(pages[those], of, self.key)
        pages[~away] += self.first
        return pages

    def ranks(self, u: np.ndarray, span: np.ndarray) -> np.ndarray:
        """int64[n] from u float64[n] in [0, 1): 0 is the most popular."""
        if self.exponent == 0:
            drawn: np.ndarray = (u * span).astype(np.int64)
        elif self.exponent == 1:
            drawn = np.power(span + 1.0, u).astype(np.int64) - 1
        else:
            power = 1 - self.exponent
            drawn = np.power((np.power(span + 1.0, power) - 1) * u + 1, 1 / power).astype(np.int64) - 1
        return drawn
