"""How often pages are walked for, estimated from samples of accessed bits."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

BATCHES = 10  # parts of the time; estimates without each of them say how sure the whole is
BISECTIONS = 60
SLOWEST, FASTEST = 1e-6, 1e9  # walks per second
ALIKE = 0.02  # windows that differ by less than this part are taken as one


@dataclass(frozen=True)
class Heat:
    """Samples of which pages were used: P pages, L lengths of samples, BATCHES parts of the time.

    address  uint64[P]      first byte of each page that some sample found used
    level    uint8[P]       of the table whose entry maps it: 1 = 4 KiB
    seen     uint8 or uint16[P, BATCHES, L]  samples that found it used
    samples  int64[BATCHES, L]
    seconds  float64[L]     mean length of the samples, the shortest first: all cleared, none read yet
    handling float64[L]     mean seconds that clearing and reading took
    within   float64[P]     part of these within the page's window, which begins when its table is cleared and
                            ends when that is read: about 1 for what is cleared first
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
    handling: np.ndarray
    within: np.ndarray
    over: float = 0.0

    @property
    def sampled_seconds(self) -> float:
        """From the first page cleared to the last page read: no page's windows are longer."""
        return float(self.samples.sum(axis=0) @ (self.seconds + self.handling))

    @cached_property
    def walks(self) -> np.ndarray:
        """int64[P]: estimated walks of each page in `over` seconds.

        Rounded so that those of pages that follow one another add up to what is estimated of all of them.
        """
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

    @cached_property
    def _alike(self) -> np.ndarray:
        """uint64[P]: pages with equal numbers have windows that differ by less than ALIKE."""
        window = np.log(self.seconds[0] + self.within * self.handling[0]) / ALIKE
        alike: np.ndarray = np.rint(window - window.min(initial=np.inf)).astype(np.uint64)
        return alike

    def _walks(self, seen: np.ndarray, samples: np.ndarray) -> np.ndarray:
        place = np.cumprod(np.append(1, samples[:-1] + 1))
        kinds = self._alike.max(initial=0) + np.uint64(1)
        pattern = (seen @ place).astype(np.uint64) * kinds + self._alike
        patterns, which = np.unique(pattern, return_inverse=True)
        of_pattern = (patterns // kinds).astype(np.int64)[:, None] // place % (samples + 1)
        within = np.bincount(which, self.within) / np.bincount(which)
        windows = self.seconds + within[:, None] * self.handling
        time = float(samples @ (self.seconds + self.handling))
        scale = self.over / self.sampled_seconds if self.over else 1.0
        walks = (rates(of_pattern, samples, windows) * time * scale)[which]
        return np.diff(np.floor(np.cumsum(walks) + 0.5).astype(np.int64), prepend=0)


def rates(seen: np.ndarray, samples: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """float64[U]: walks per second that int64[U, L] `seen` of int64[L] `samples` tell of.

    seconds  float64[L] or float64[U, L], of each sample
    A page walked for at random times (Poisson) at rate r is seen in a sample of t seconds with probability
    1 - exp(-r t). The likeliest r is too high on average where samples are few, so that half a sample more is
    taken to have missed it, of the mean t weighted by what each length tells of r (Firth, "Bias reduction of
    maximum likelihood estimates", Biometrika 80, 1993): the root of sum(seen t / (exp(r t) - 1)) -
    sum((samples - seen) t) - sum(w t) / sum(w) / 2 with w = samples t^2 / (exp(r t) - 1), by bisection. Of
    one length it is log((samples + 1/2) / (samples - seen + 1/2)) / t: a lower bound where all saw it. Walks
    that come in bursts are more than this.
    """
    if not samples.any():
        return np.zeros(len(seen))
    missed = ((samples - seen) * seconds).sum(axis=1)
    low, high = np.full(len(seen), np.log(SLOWEST)), np.full(len(seen), np.log(FASTEST))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        passed = np.minimum(np.exp(middle)[:, None] * seconds, 600.0)
        each = seconds / np.expm1(passed)
        tells = samples * seconds * each
        more = (seen * each).sum(axis=1) > missed + (tells * seconds).sum(axis=1) / tells.sum(axis=1) / 2
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return np.where(seen.any(axis=1), np.exp(low), 0.0)
