"""Throughput over time around a migration, and its figures: of published samples as of ours."""

from typing import NamedTuple, Self

import numpy as np
import pandas as pd

from ..core.errors import bundled

STEP, WIDE = 5.0, 7  # seconds between points of a curve; points of a running median
SETTLED, PLATEAU = 10.0, 70.0  # seconds after the move: the plateau's begin and end
RECOVERED = 0.9


class Curve(NamedTuple):
    """float64[n]: seconds  rising, since the move; share  throughput over that before the move."""

    seconds: np.ndarray
    share: np.ndarray

    @classmethod
    def of(cls, ends: np.ndarray, speed: np.ndarray, moved: float) -> Self:
        """Of throughputs `speed` up to each of `ends` (s); threads moved at `moved`."""
        steady = ends[1:] <= moved  # not the first, which finds caches empty
        before = float(np.median(speed[1:][steady]))
        return cls(ends - moved, speed / before)

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """(seconds, share) at every STEP after the move, the share smoothed by a running median."""
        at = np.arange(STEP / 2, self.seconds[-1], STEP)
        share = self.share[np.searchsorted(self.seconds, at)]
        near = np.lib.stride_tricks.sliding_window_view(np.pad(share, WIDE // 2, mode="edge"), WIDE)
        return at, np.median(near, axis=1)


class Moved(NamedTuple):
    """What a curve says of a migration.

    drop     throughput from 10 to 70 s after the move, % of that before: the median
    dip      second dip: how far it falls below the drop before it recovers, % of the drop; 0 without any
    end      throughput in the last third after the move, % of that before: the median
    recover  s from the move until a running median over 35 s is 90 % of the end
    """

    drop: float
    dip: float
    end: float
    recover: float


def moved(curve: Curve) -> Moved:
    after = curve.seconds > 0
    last = curve.seconds > curve.seconds[-1] * 2 / 3
    at, share = curve.points()
    drop = float(np.median(share[(at > SETTLED) & (at < PLATEAU)]))
    end = float(np.median(curve.share[after & last]))
    back = np.flatnonzero((at >= PLATEAU) & (share >= RECOVERED * end))
    recover = at[back[0]] if len(back) else np.inf
    low = float(share[(at >= SETTLED) & (at < recover)].min())
    return Moved(100 * drop, 100 * max(1 - low / drop, 0.0), 100 * end, float(recover))


def published(config: str) -> Curve:
    """Curve of a configuration of vMitosis, Figure 6, from the artifact: samples of equal work."""
    rows = pd.read_csv(bundled("models") / "reference" / "vmitosis-figure-6.csv")
    rows = rows[rows["config"] == config]
    ends = rows["interval_s"].cumsum().to_numpy()
    return Curve.of(ends, rows["throughput_ops_s"].to_numpy(float), ends[(rows["phase"] == "pre").sum() - 1])
