"""How often pages are walked for, estimated from samples of accessed bits."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

BATCHES = 10  # parts of the time; estimates without each of them say how sure the whole is
SATURATED = 0.5  # samples by which a page that all of them found used is taken to have been missed
BISECTIONS = 60
SLOWEST, FASTEST = 1e-6, 1e9  # walks per second


@dataclass(frozen=True)
class Heat:
    """Samples of which pages were used: P pages, L lengths of samples, BATCHES parts of the time.

    address  uint64[P]      first byte of each page that some sample found used
    level    uint8[P]       of the table whose entry maps it: 1 = 4 KiB
    seen     uint8 or uint16[P, BATCHES, L]  samples that found it used
    samples  int64[BATCHES, L]
    seconds  float64[L]     mean length of the samples, the shortest first
    over     seconds that walks are estimated for, 0: those sampled; the same of processes sampled together

    An accessed bit that was cleared is set again when the page is walked for: clearing flushes no TLB
    (clear_refs_write() of fs/proc/task_mmu.c, since Linux 5.11; ptdump needs 5.17). So a sample finds a page
    used if it was walked for at least once. Hot pages saturate the long samples, cold ones need them.
    """

    address: np.ndarray
    level: np.ndarray
    seen: np.ndarray
    samples: np.ndarray
    seconds: np.ndarray
    over: float = 0.0

    @property
    def sampled_seconds(self) -> float:
        return float(self.samples.sum(axis=0) @ self.seconds)

    @cached_property
    def walks(self) -> np.ndarray:
        """int64[P]: estimated walks of each page in `over` seconds, at least 1."""
        return self._walks(self.seen.sum(axis=1, dtype=np.int64), self.samples.sum(axis=0))

    @cached_property
    def walks_without(self) -> np.ndarray:
        """int64[P, BATCHES]: the same without the samples of each part of the time; 0 where none is left."""
        seen, samples = self.seen.sum(axis=1, dtype=np.int64), self.samples.sum(axis=0)
        parts = [self._walks(seen - self.seen[:, b], samples - self.samples[b]) for b in range(BATCHES)]
        return np.stack(parts, axis=1)

    @property
    def enough(self) -> bool:
        """Whether every part of the time has samples, so that they say how sure the whole is."""
        return bool(self.samples.sum(axis=1).all())

    @cached_property
    def saturated(self) -> np.ndarray:
        """bool[P]: every sample found it used, so that its walks may be far more than estimated."""
        every: np.ndarray = (self.seen.sum(axis=1) == self.samples.sum(axis=0)).all(axis=1)
        return every

    def _walks(self, seen: np.ndarray, samples: np.ndarray) -> np.ndarray:
        place = np.cumprod(np.append(1, samples[:-1] + 1))
        patterns, which = np.unique(seen @ place, return_inverse=True)
        of_pattern = patterns[:, None] // place % (samples + 1)
        scale = self.over / self.sampled_seconds if self.over else 1.0
        walks = rates(of_pattern, samples, self.seconds) * float(samples @ self.seconds) * scale
        return np.maximum(np.rint(walks), patterns > 0).astype(np.int64)[which]


def rates(seen: np.ndarray, samples: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """float64[U]: walks per second that make int64[U, L] `seen` of int64[L] `samples` likeliest.

    A page walked for at random times (Poisson) at rate r is seen in a sample of t seconds with probability
    1 - exp(-r t): the root of sum(seen t / (exp(r t) - 1)) - sum((samples - seen) t), which falls with r, by
    bisection. Where all samples saw it, half of one of the shortest is taken to have not: a lower bound.
    Walks that come in bursts are more than this.
    """
    found = seen.astype(float)
    shortest = int(np.flatnonzero(samples)[0]) if samples.any() else 0
    found[(seen == samples).all(axis=1), shortest] -= SATURATED
    low, high = np.full(len(seen), np.log(SLOWEST)), np.full(len(seen), np.log(FASTEST))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        passed = np.minimum(np.exp(middle)[:, None] * seconds, 700.0)
        more = (found * seconds / np.expm1(passed)).sum(axis=1) > ((samples - found) * seconds).sum(axis=1)
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return np.where(seen.any(axis=1), np.exp(low), 0.0)
