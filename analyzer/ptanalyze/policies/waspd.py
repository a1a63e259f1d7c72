"""When WASP's daemon switches a process's replicas on and off, from what it counts over a trace.

After waspd.c of the public port (github.com/julianw1010/WASP-daemon, commit e93634b), function
update_and_decide: each interval it reads a process's loads and the TLB misses that cause a walk. If more than
THR_MAR loads a second and more than THR_DTLB walks per load hold at all samples for the hysteresis, replicas
are switched on; if they have not held for as long, off.

Differences: a trace merges loads and stores, so both are counted, in both indicators. A sample is taken where
a chunk of the trace ends. After the trace the program is taken to go on as in its steady part for longer
than the hysteresis: what the daemon decides then is the state of a further run.
"""

from typing import NamedTuple

import numpy as np

from ..core.errors import UsageError
from ..world.site import Site

MOST_SAMPLES = 1_000_000
NS = 1e9


class Thresholds(NamedTuple):
    """
    interval, hysteresis  ns of the trace's clock
    accesses              per ns of it; negative: any rate will do
    misses                per access
    """

    interval: float
    hysteresis: float
    accesses: float
    misses: float


class Decisions(NamedTuple):
    """What the daemon does with S switches in the trace.

    chunk   int64[S]  the first chunk that runs after each; the first switches replicas on, the next off, ...
    steady  whether replicas are there when the steady part goes on
    accesses_per_ns, misses_per_access  of the steady part; the first is NaN where the trace has no times
    """

    chunk: np.ndarray
    steady: bool
    accesses_per_ns: float
    misses_per_access: float


def decisions(site: Site, limits: Thresholds) -> Decisions:
    """Decisions over the trace of a Site. UsageError for an interval that would be sampled too often."""
    chunks, walks, warm = site.trace.chunks, site.walks_by_chunk, site.again_walks_by_chunk
    time, accesses = chunks["time"], chunks["accesses"].astype(np.float64)
    first = site.steady.chunk
    counted = accesses[first:].sum()
    misses = warm[first:].sum() / counted if counted else 0.0
    span = int(time[-1] - time[first]) if len(time) > first else 0
    rate = accesses[first:-1].sum() / span if span else np.nan  # when the last chunk ended is not known
    steady = bool(misses > limits.misses and not rate <= limits.accesses)
    samples = int(time[-1] / limits.interval) if len(time) and time[0] != time[-1] else 0
    if samples > MOST_SAMPLES:
        raise UsageError(
            f"policy wasp: interval_ms = {limits.interval / 1e6:g}: {samples} samples of this trace, at most "
            f"{MOST_SAMPLES}; give a longer interval"
        )
    above = _above(time, accesses, walks, samples, limits)
    when = (np.array(switches(above, limits)) * limits.interval).astype(np.float64)
    return Decisions(np.searchsorted(time, when), steady, float(rate), float(misses))


def _above(
    time: np.ndarray, accesses: np.ndarray, walks: np.ndarray, samples: int, limits: Thresholds
) -> np.ndarray:
    """bool[samples]: whether each sample is above both thresholds."""
    sample = (time / limits.interval).astype(np.int64)
    done, missed = (np.bincount(sample, of, samples)[:samples] for of in (accesses, walks))
    above: np.ndarray = (done > limits.accesses * limits.interval) & (missed > limits.misses * done)
    return above


def switches(above: np.ndarray, limits: Thresholds) -> list[int]:
    """Numbers of the samples, from 1, after which replicas are switched: on, off, on, ..."""
    found: list[int] = []
    since, before = 0, None
    for sample, now in enumerate(above.tolist(), 1):
        if now is not before:
            since, before = sample, now
        on = len(found) % 2 == 1
        if now is not on and (sample - since) * limits.interval >= limits.hysteresis:
            found.append(sample)
    return found
