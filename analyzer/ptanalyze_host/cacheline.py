"""CPUs that share a socket, by the latency of cache-line transfers between them (dumps/pingpong.c).

Two CPUs of a socket hand a cache line over faster than CPUs of different sockets (Panwar et al., vMitosis,
3.3.4). A guest that sees no NUMA nodes groups its vCPUs by that: fast within a group, slow across. A machine
may have more than two latencies: between hyperthreads of a core, cores of a socket, sockets. Each gap is a
level.
"""

import os
import random
import select
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import combinations

import numpy as np

import ptanalyze as pt

from .node_latency import cpu_list

TOOL = "ptpingpong"
ROUNDS = 1000  # round trips per repetition: 0.1 to 0.3 ms
REPEAT = 7
PATIENCE = 60.0  # seconds per pair; a busy CPU takes milliseconds
PAIR_SECONDS = 1.2e-3  # per repetition beside its round trips: WARM_UP_NS of dumps/pingpong.c, two threads
TRANSFER_SECONDS = 1e-7  # of a transfer, about


@dataclass(frozen=True)
class LatencyMatrix:
    """One row and column per CPU, symmetric, nan on the diagonal.

    ns      float64[n, n]: one-way transfer, the fastest repetition
    spread  float64[n, n]: median over minimum of the repetitions
    """

    cpus: tuple[int, ...]
    ns: np.ndarray
    spread: np.ndarray


def measure(
    cpus: tuple[int, ...], *, repeat: int = REPEAT, rounds: int = ROUNDS, progress: pt.process.Progress = None
) -> LatencyMatrix:
    """LatencyMatrix of `usable` CPUs.

    Each pair is measured `repeat` times, in passes over all pairs, each in another order; the minimum counts,
    since interference only slows. progress(done, total, what) or None.
    UsageError: the native tool is missing or does not answer.
    """
    pairs = list(combinations(range(len(cpus)), 2))
    samples = np.empty((repeat, len(pairs)))
    with player(rounds) as play:
        for turn in range(repeat):
            for done, at in enumerate(random.sample(range(len(pairs)), len(pairs)), turn * len(pairs) + 1):
                a, b = pairs[at]
                samples[turn, at] = play(cpus[a], cpus[b])
                if progress:
                    progress(done, samples.size, "measuring pairs of CPUs")
    fastest = samples.min(axis=0)
    spread = np.median(samples, axis=0) / fastest
    return LatencyMatrix(cpus, both_ways(len(cpus), pairs, fastest), both_ways(len(cpus), pairs, spread))


def seconds(count: int, repeat: int) -> float:
    """Approximate duration of measure() for `count` CPUs."""
    return count * (count - 1) / 2 * repeat * (PAIR_SECONDS + 2 * ROUNDS * TRANSFER_SECONDS)


def usable(cpus: Iterable[int] | None = None) -> tuple[int, ...]:
    """Sorted tuple of the CPUs, None: all on which this process may run; UsageError names another."""
    allowed = os.sched_getaffinity(0)
    cpus = tuple(sorted(allowed if cpus is None else set(cpus)))
    for cpu in cpus:
        if cpu not in allowed:
            raise pt.UsageError(f"CPU {cpu}: this process may only run on {cpu_list(allowed)}")
    if len(cpus) < 2:
        raise pt.UsageError(f"CPUs {cpu_list(cpus)}: a pair needs two")
    return cpus


@contextmanager
def player(rounds: int) -> Iterator[Callable[[int, int], float]]:
    """play(a, b): ns per transfer between two CPUs. In a process group of its own: Ctrl-C is ours."""
    argv, pipe, die = [str(pt.live.native(TOOL)), str(rounds)], subprocess.PIPE, pt.live.die_with_us()
    with subprocess.Popen(
        argv, bufsize=0, process_group=0, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=die
    ) as process:
        try:
            yield lambda a, b: play(process, a, b)
        finally:
            process.kill()
            process.wait()


def play(process: subprocess.Popen[bytes], a: int, b: int) -> float:
    assert process.stdin and process.stdout and process.stderr
    with suppress(BrokenPipeError):  # the tool has ended: the missing answer tells
        process.stdin.write(f"{a} {b}\n".encode())
    if not select.select([process.stdout], [], [], PATIENCE)[0]:
        raise pt.UsageError(f"CPUs {a} and {b}: no answer in {PATIENCE:g} s: is one of them kept busy?")
    answer = process.stdout.readline().decode().split()
    if answer[:2] != [str(a), str(b)] or len(answer) != 3:
        process.kill()
        why = process.stderr.read().decode(errors="replace").splitlines()
        raise pt.UsageError(f"CPUs {a} and {b}: {why[-1] if why else f'{TOOL} ended with {process.wait()}'}")
    return float(answer[2])


def both_ways(count: int, pairs: Sequence[tuple[int, int]], values: np.ndarray) -> np.ndarray:
    """float64[count, count], symmetric, nan on the diagonal, from a value per pair."""
    matrix = np.full((count, count), np.nan)
    a, b = np.array(pairs).T
    matrix[a, b] = matrix[b, a] = values
    return matrix


# Virtual NUMA groups.

# Neighbours in the sorted latencies that differ by less belong to the same level. vMitosis, Table 4:
# 62 / 50 = 1.24 is the whole spread of the level within sockets, 125 / 62 = 2.02 the gap to the level across.
GAP = 1.3


@dataclass(frozen=True)
class Level:
    """A partition that the latencies support: each pair within a group takes at most `within_ns`, each pair
    across groups at least `across_ns`.

    groups  sorted CPUs of each, sorted by their first CPU
    """

    groups: list[tuple[int, ...]]
    within_ns: float
    across_ns: float


def latency_levels(ns: np.ndarray, cpus: Sequence[int]) -> list[Level]:
    """Every Level of two or more groups, the coarsest first.

    ns  float64[n, n], symmetric, row and column i for cpus[i]; nan for unknown pairs and on the diagonal

    Thresholds are the gaps between sorted latencies; CPUs joined by faster pairs are one group (single
    linkage). UsageError where no gap is as wide as GAP, or none holds for every pair.
    """
    steps = np.unique(ns[~np.isnan(ns)])
    wide = np.flatnonzero(steps[1:] >= GAP * steps[:-1])[::-1]
    found, why = list[Level](), ""
    for below, above in zip(steps[wide], steps[wide + 1], strict=True):
        group = linked(ns <= below)
        slow = np.argwhere(group & (ns >= above))
        if not len(slow):
            groups = sorted({tuple(sorted(np.array(cpus)[row].tolist())) for row in group})
            found.append(Level(groups, float(below), float(above)))
        elif not why:
            a, b = slow[0]
            why = (
                f"CPUs {cpus[a]} and {cpus[b]} take {ns[a, b]:.4g} ns, as CPUs of two groups do, but pairs "
                f"of at most {below:.4g} ns join them: measure again"
            )
    if not found:
        gapless = f"latencies lie between {steps[0]:.4g} and {steps[-1]:.4g} ns without a gap of {GAP} times"
        raise pt.UsageError(f"no groups: {why or gapless}")
    return found


def linked(close: np.ndarray) -> np.ndarray:
    """bool[n, n]: pairs that are joined by a chain of `close` pairs, bool[n, n], symmetric."""
    reach = close | np.eye(len(close), dtype=bool)
    while (wider := reach @ reach).sum() > reach.sum():
        reach = wider
    return reach


def mean_latencies(
    matrix: LatencyMatrix, groups: Iterable[tuple[int, ...]]
) -> Iterator[tuple[float | None, float]]:
    """Yield (mean ns within, mean ns to other groups) of each group; None in a group of one CPU."""
    for group in groups:
        own = np.isin(matrix.cpus, group)
        within = float(np.nanmean(matrix.ns[np.ix_(own, own)])) if len(group) > 1 else None
        yield within, float(np.nanmean(matrix.ns[np.ix_(own, ~own)]))
