"""How often leaf entries are read from DRAM, in closed form, from the use of a process that runs.

A line is read from DRAM again once as many other lines were read as the cache holds. With fp(w), the mean
number of distinct lines read in windows of length w, a cache of C lines fills in T: fp(T) = C; and what is
read from DRAM per unit of time is the slope of fp at T: Denning and Schwartz, "Properties of the working-set
model" (CACM 15(3), 1972), whose windows are of constant length, and Xiang et al., "HOTL: a higher order
theory of locality" (ASPLOS 2013), who equate them with the cache. Nothing is assumed of the order of reads
but that a window is as good as any other. Where only samples of walks are known, references are taken to be
independent (Che, Tung and Wang, IEEE JSAC 20(7), 2002), with counts in place of rates (`reads_per_walk`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .errors import UsageError, plural
from .interval import Interval, margins

LINE_PAGES = 8  # entries of a 64-byte line of a page table
ORDER = 0.05  # cyclic order, conflicts in sets, phases: a footprint says the reads from DRAM within this part
GROUPS = 10  # of rounds, for the jackknife
LEAST_CPU = 0.01  # CPUs: a process that uses no more is idle
BISECTIONS = 60
MOST_TAKEN = 0.9  # of a window
TICK = 0.004  # s of CPU time between two updates by the kernel of another process's
BLUR = 2.0  # times: what reads were more than their best guess where caches fill faster


@dataclass(frozen=True)
class Footprint:
    """Leaf lines of page tables that walks read, in windows of L lengths after clearing of accessed bits.

    base    uint64[T]      first address that each table maps of which some line was read
    level   uint8[T]       of it
    lines   float32[T, L]  mean number of its lines read; tables that chance left out are made up for
    seconds float64[L]     lengths, in seconds of CPU time of the process, the shortest first
    curve   float64[R, L]  lines of all tables, in each round of one clearing; nan: not known
    pages   float64[L]     pages walked for in them: accessed bits that were set
    price   what an access takes longer that sets one, s, of independent accesses: others lose less
    cpus    seconds of CPU time of the process per second
    used    lines read at any time
    steady  whether CPU time went on evenly: else windows are less sure

    A walk that sets a bit overlaps with no other work: right after clearing the process is slower, so that
    windows are shorter than they seem, by `pages` x `price` at most.
    """

    base: np.ndarray
    level: np.ndarray
    lines: np.ndarray
    seconds: np.ndarray
    curve: np.ndarray
    pages: np.ndarray
    price: float
    cpus: float
    used: int
    steady: bool = True

    @property
    def busy(self) -> int:
        """CPUs that it kept busy, from as many of which it walks at a time at most; 0: idle."""
        return max(int(np.ceil(self.cpus - LEAST_CPU)), 0)

    @cached_property
    def mean(self) -> np.ndarray:
        """float64[L]: lines in windows of each length, rising."""
        return rising(mean_of(self.curve))

    def without(self, part: float) -> np.ndarray:
        """float64[L]: the lengths without a part, 0 to 1, of what sampling may have taken in them."""
        bit = np.min(self.seconds[1:] / np.maximum(self.pages[1:], 1.0), initial=np.inf)
        left = self.seconds - part * min(self.price, MOST_TAKEN * bit) * self.pages
        least = (1 - MOST_TAKEN) * self.seconds[0]
        return rising(np.maximum(left, least)) * (1 + 1e-9 * np.arange(len(left)))

    def taken(self, lines: float) -> float:
        """Share of the time, until a cache of these lines is full, that sampling itself may have taken."""
        time = self.filled(lines, 0.0)[0]
        if not self.price or time == np.inf:
            return 0.0
        return float(1 - np.interp(time, self.seconds, self.without(1.0) / self.seconds))

    def filled(self, lines: float, part: float = 0.5) -> tuple[float, float]:
        """(T, reads from DRAM) of a cache of these lines: both by CPU time of the process, s and 1/s.

        part  of what sampling may have taken in the windows that is left out
        Where the footprint does not reach so far: (inf, 0.0).
        """
        return filled(self.without(part), self.mean, lines)

    def reads(self, lines: Interval, nodes: int) -> Interval:
        """Reads of leaf entries from DRAM per second of CPU time, by all nodes together.

        lines  that the caches of a node hold of page tables
        nodes  that the threads walk from. If all use the same lines alike, a node's cache fills as often as
               one cache would that saw all walks; if each has lines of its own, as one `nodes` times as
               large. The truth lies between: the first is the middle.
        """
        high = self.filled(lines.low, 1.0)[1]
        middle = self.filled(lines.middle)[1]
        low = self.filled(nodes * lines.high, 0.0)[1]
        unsure = self.unsure(lines.middle)
        if self.blurred(lines.middle):
            high *= BLUR
        high = high * (1 + ORDER) + unsure
        if self.mean[-1] <= lines.low < self.used:  # windows end before: the slope there, which only falls
            high = max(high, filled(self.without(1.0), self.mean, self.mean[-1] * (1 - 1e-9))[1])
        return Interval(max(low * (1 - ORDER) - unsure, 0.0), middle, max(high, middle))

    def blurred(self, lines: float) -> bool:
        """Whether CPU time came in bursts, and a cache of these lines fills between two updates of it."""
        return not self.steady and self.filled(lines)[0] < TICK

    def unsure(self, lines: float) -> float:
        """Half the width of the 95 % interval of the reads by sampling: jackknife over parts of the time."""
        rounds = self.curve[~np.isnan(self.curve).all(axis=1)]
        parts = min(GROUPS, len(rounds))
        if parts < 2:
            return self.filled(lines)[1]
        part = np.arange(len(rounds)) * parts // len(rounds)
        without = [rising(mean_of(rounds[part != k])) for k in range(parts)]
        return float(margins(np.array([filled(self.without(0.5), one, lines)[1] for one in without])))

    def shares(self, lines: float) -> np.ndarray:
        """float64[T]: of these reads, those of each table, by what each adds to the footprint about T.

        Zeros where nothing is read from DRAM.
        """
        time = self.filled(lines, 0.0)[0]
        if not np.isfinite(time) or len(self.seconds) < 2:
            return np.zeros(len(self.base))
        right = int(np.clip(np.searchsorted(self.seconds, time), 1, len(self.seconds) - 1))
        left, right = max(right - 2, 0), min(right + 1, len(self.seconds) - 1)
        added = np.maximum(self.lines[:, right] - self.lines[:, left], 0.0).astype(np.float64)
        of: np.ndarray = added if added.any() else self.lines[:, right].astype(np.float64)
        return of / max(float(of.sum()), 1e-9)


def together(each: Sequence[Footprint]) -> Footprint | None:
    """Footprint of processes that were sampled at the same time, with their tables one after another; None
    where windows differ. Rounds are made equal in number by means over parts of the time."""
    windows = [one.seconds / one.cpus for one in each]
    if any(len(one) != len(windows[0]) or not np.allclose(one, windows[0]) for one in windows):
        return None
    cpus = sum(one.cpus for one in each)
    parts = min(len(one.curve) for one in each)
    curves = [np.stack([mean_of(some) for some in np.array_split(one.curve, parts)]) for one in each]
    return Footprint(
        np.concatenate([one.base for one in each]),
        np.concatenate([one.level for one in each]),
        np.concatenate([one.lines for one in each]),
        windows[0] * cpus,
        np.sum(curves, axis=0),
        np.sum([one.pages for one in each], axis=0),
        max(one.price for one in each),
        cpus,
        sum(one.used for one in each),
        all(one.steady for one in each),
    )


def mean_of(curve: np.ndarray) -> np.ndarray:
    """float64[L]: means over the rounds in which they are known."""
    known = ~np.isnan(curve)
    return np.where(known, curve, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)


def rising(curve: np.ndarray) -> np.ndarray:
    return np.maximum.accumulate(curve, axis=-1)


def filled(seconds: np.ndarray, curve: np.ndarray, lines: float) -> tuple[float, float]:
    """(time in which these lines are read, slope of the curve there); (inf, 0.0) where it ends below.

    By a monotone cubic through the logarithms of both (Fritsch and Butland, SIAM J. Sci. Stat. Comput. 5,
    1984). Below the first point the curve goes on as between the first two.
    """
    keep = np.append(True, np.diff(curve) > 0) & (curve > 0)
    seconds, curve = seconds[keep], curve[keep]
    if not len(curve) or lines >= curve[-1]:
        return np.inf, 0.0
    x, y = np.log(seconds), np.log(curve)
    slope = np.diff(y) / np.diff(x)
    if lines <= curve[0]:
        first = min(float(slope[0]), 1.0) if len(slope) else 1.0
        time = float(seconds[0] * (lines / curve[0]) ** (1 / first))
        return time, first * lines / time
    inner = 2 * slope[:-1] * slope[1:] / (slope[:-1] + slope[1:])
    at = np.concatenate([slope[:1], inner, slope[-1:]])
    k = int(np.searchsorted(curve, lines)) - 1
    h, low, high = x[k + 1] - x[k], 0.0, 1.0
    wanted = np.log(lines)

    def value(t: float) -> float:
        return float(
            (2 * t**3 - 3 * t**2 + 1) * y[k]
            + (t**3 - 2 * t**2 + t) * h * at[k]
            + (3 * t**2 - 2 * t**3) * y[k + 1]
            + (t**3 - t**2) * h * at[k + 1]
        )

    for _ in range(BISECTIONS):
        t = (low + high) / 2
        low, high = (t, high) if value(t) < wanted else (low, t)
    elasticity = (
        6 * (t - t**2) * (y[k + 1] - y[k]) / h
        + (3 * t**2 - 4 * t + 1) * at[k]
        + (3 * t**2 - 2 * t) * at[k + 1]
    )
    time = float(np.exp(x[k] + t * h))
    return time, float(elasticity) * lines / time


# From samples of walks.


def reads_per_walk(counts: np.ndarray, lines: float) -> float:
    """Reads from DRAM per walk by a cache of `lines`, from the numbers of sampled walks of each line.

    Of independent references with rates r, sum(1 - exp(-r T)) = C, and sum(r exp(-r T)) are read from DRAM
    (Che). Counts n are no rates: of Poisson counts with mean m the mean of s^n is exp(-m (1 - s)), so that
    sum(1 - s^n) = C has s = 1 - T / tau, and sum(n s^(n-1)) / sum(n) is the answer without bias: Good and
    Toulmin, "The number of new species" (Biometrika 43, 1956). Thinning leaves independent references what
    they are, so no period of sampling goes in. UsageError where fewer lines were seen than the cache holds.
    """
    counts = counts[counts > 0]
    times, number = np.unique(counts, return_counts=True)
    if len(counts) <= lines:
        raise UsageError(
            f"{plural(int(counts.sum()), 'sample')} saw {plural(len(counts), 'line')} of leaf entries, and "
            f"caches hold {lines:.0f}: too few samples; sample longer or more often, or take `--tracer heat`"
        )
    low, high = -40.0, 8.0  # log of -log s
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        held = float((number * -np.expm1(-times * np.exp(middle))).sum())
        low, high = (middle, high) if held < lines else (low, middle)
    left = np.exp(-(times - 1) * np.exp(middle))
    return float((number * times * left).sum() / (number * times).sum())


RECENT = 4  # lines


def heads(line: np.ndarray, thread: np.ndarray) -> np.ndarray:
    """bool[W]: walks whose line is none of the last RECENT that their thread walked for: those of a burst
    find it in the cache, whatever else is there.

    line, thread  int64[W], in the order of time
    """
    order = np.argsort(thread, kind="stable")
    line, thread = line[order], thread[order]
    head = np.ones(len(line), np.bool_)
    for back in range(1, RECENT + 1):
        head[back:] &= (line[back:] != line[:-back]) | (thread[back:] != thread[:-back])
    found = np.empty_like(head)
    found[order] = head
    return found


# From accessed bits.


def footprint_of(
    at: np.ndarray, bits: np.ndarray, pages: np.ndarray, spans: np.ndarray, cpu: np.ndarray, rounds: "Rounds"
) -> Footprint | None:
    """Footprint of G readings of a table in one round, L times each; None where the process used no CPU time.

    at       int64[G, 3]      round, first address of the table, its level
    bits     uint8[G, L]      lines of it that were used, from its clearing to its reading
    pages    int64[G, L]      pages of it that were
    spans    float64[G, L]    s, 0 where it is not known how long after its clearing it was read
    cpu      float64[G, L]    s of CPU time of the process in them
    """
    if rounds.cpus <= 0 or not len(at):
        return None
    axis = spans * rounds.cpus if rounds.steady else cpu
    known = spans > 0
    grid = rounds.lengths * rounds.cpus
    lines = interpolated(axis, known, rising(bits).astype(np.float64), grid)
    all_pages = interpolated(axis, known, rising(pages).astype(np.float64), grid)
    of = at[:, 0]
    seen = ~np.isnan(lines)
    groups = np.bincount(of, minlength=rounds.number)
    there = np.stack([np.bincount(of, column, rounds.number) for column in seen.T], axis=1)
    enough = (2 * there >= groups[:, None]) & (groups[:, None] > 0)
    scale = np.where(enough, rounds.scale[:, None] * groups[:, None] / np.maximum(there, 1), np.nan)
    value = np.where(seen, lines, 0.0)
    curve, walked = (
        np.stack([np.bincount(of, column, rounds.number) for column in one.T], axis=1) * scale
        for one in (value, np.where(seen, all_pages, 0.0))
    )
    keep = ~np.isnan(curve).all(axis=0)
    curve, walked, value, scale = (column[:, keep] for column in (curve, walked, value, scale))
    grid = grid[keep]
    if not keep.any():
        return None
    tables, which = np.unique(at[:, 1:], axis=0, return_inverse=True)
    weight = np.nan_to_num(scale / np.maximum((~np.isnan(curve)).sum(axis=0), 1))[of]
    of_table = [np.bincount(which.ravel(), column, len(tables)) for column in (value * weight).T]
    return Footprint(
        tables[:, 0].astype(np.uint64),
        tables[:, 1].astype(np.uint8),
        np.stack(of_table, axis=1).astype(np.float32),
        grid,
        curve,
        rising(mean_of(walked)),
        rounds.price,
        rounds.cpus,
        rounds.used,
        rounds.steady,
    )


@dataclass(frozen=True)
class Rounds:
    """lengths: s, asked for; scale: float64[R], tables there per table read repeatedly; else as Footprint."""

    number: int
    lengths: np.ndarray
    scale: np.ndarray
    cpus: float
    steady: bool
    price: float
    used: int


def interpolated(axis: np.ndarray, known: np.ndarray, lines: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """float64[G, L]: lines at each point of the grid, straight between what is known, from 0 lines at 0 on;
    nan beyond, and below the first known one where others before it are not.

    axis, lines  float64[G, L]; known: bool[G, L]. What falls along a row stays at the highest before:
                 readers do not check CPU times, whose counter in files wraps after 429 s.
    """
    x, y = (np.pad(rising(np.where(known, column, 0.0)), ((0, 0), (1, 0))) for column in (axis, lines))
    row, last = np.arange(len(x)), x.shape[1] - 1
    first = np.where(known[:, 0], 0.0, x[row, 1 + np.argmax(known, axis=1)])
    on_grid = np.empty((len(x), len(grid)))
    for k, at in enumerate(grid.tolist()):
        left = np.count_nonzero(x <= at, axis=1) - 1
        right = np.minimum(left + 1, last)
        x0, y0, width = x[row, left], y[row, left], x[row, right] - x[row, left]
        share = np.divide(at - x0, width, out=np.zeros_like(x0), where=width > 0)
        inside = (first <= at) & (at <= x[:, last] * NEAR)
        on_grid[:, k] = np.where(inside, y0 + (y[row, right] - y0) * share, np.nan)
    return on_grid


NEAR = 1.03  # a window that ends so little before is as good
