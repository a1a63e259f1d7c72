"""Measure cache-line transfer latencies between all pairs of CPUs, with dumps/pingpong.c."""

import os
import platform
import random
import re
import select
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import combinations

import numpy as np

from ...core.errors import UsageError
from ...core.progress import Progress
from ...formats.node_latency import LatencyMatrix, Method
from .native import native
from .process import cpu_lines

TOOL = "ptpingpong"
ROUNDS = 1000  # round trips per repetition: 0.1 to 0.3 ms
REPEAT = 7
PATIENCE = 60.0  # seconds per pair; a busy CPU takes milliseconds
PAIR_SECONDS = 1.2e-3  # per repetition beside its round trips: WARM_UP_NS of dumps/pingpong.c, two threads
TRANSFER_SECONDS = 1e-7  # of a transfer, about
NOISY = 1.3  # a median this much above the minimum: the pair was disturbed most of the time


def measure(
    cpus: Iterable[int] | None = None,
    *,
    rounds: int = ROUNDS,
    repeat: int = REPEAT,
    progress: Progress = None,
) -> LatencyMatrix:
    """LatencyMatrix of the CPUs, by number; None: all on which this process may run.

    Each pair is measured `repeat` times, in passes over all pairs, each in another order; kept is the
    minimum, since interference only slows. progress(done, total, what) or None.
    UsageError: fewer than two CPUs, a CPU that may not be used, the native tool missing or not answering.
    """
    cpus = usable(cpus)
    pairs = list(combinations(range(len(cpus)), 2))
    samples = np.empty((repeat, len(pairs)))
    order = list(range(len(pairs)))
    with player(rounds) as play:
        for turn in range(repeat):
            random.shuffle(order)
            for done, at in enumerate(order, turn * len(pairs) + 1):
                a, b = pairs[at]
                samples[turn, at] = play(cpus[a], cpus[b])
                if progress:
                    progress(done, samples.size, "measuring pairs of CPUs")
    fastest = samples.min(axis=0)
    method = Method(rounds=rounds, repeat=repeat, cpu=cpu_model(), kernel=platform.release())
    spread = both_ways(len(cpus), pairs, np.median(samples, axis=0) / fastest)
    return LatencyMatrix(cpus, both_ways(len(cpus), pairs, fastest), spread, method)


def seconds(count: int, rounds: int, repeat: int) -> float:
    """Approximate duration of measure() for `count` CPUs."""
    return count * (count - 1) / 2 * repeat * (PAIR_SECONDS + 2 * rounds * TRANSFER_SECONDS)


def usable(cpus: Iterable[int] | None = None) -> tuple[int, ...]:
    """Sorted tuple of the CPUs, None: all on which this process may run; UsageError names another."""
    allowed = os.sched_getaffinity(0)
    cpus = tuple(sorted(allowed if cpus is None else set(cpus)))
    for cpu in cpus:
        if cpu not in allowed:
            raise UsageError(f"CPU {cpu}: this process may only run on {cpu_list(allowed)}")
    if len(cpus) < 2:
        raise UsageError(f"CPUs {cpu_list(cpus)}: a pair needs two")
    return cpus


def parse_cpu_list(text: str) -> set[int]:
    """Set of CPU numbers from a list such as "0-7,9"; UsageError if malformed."""
    cpus: set[int] = set()
    for part in text.split(","):
        span = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part, re.ASCII)
        if not span or int(span[2] or span[1]) < int(span[1]):
            raise UsageError(f"CPUs {text!r}: expected a list such as 0-7,9")
        cpus.update(range(int(span[1]), int(span[2] or span[1]) + 1))
    return cpus


def cpu_list(cpus: Iterable[int]) -> str:
    """CPU numbers as the kernel writes them: "0-7,9"."""
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and spans[-1][1] == cpu - 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


@contextmanager
def player(rounds: int) -> Iterator[Callable[[int, int], float]]:
    """play(a, b): ns per transfer between two CPUs. In a process group of its own: Ctrl-C is ours."""
    argv, pipe = [str(native(TOOL)), str(rounds)], subprocess.PIPE
    with subprocess.Popen(argv, bufsize=0, process_group=0, stdin=pipe, stdout=pipe, stderr=pipe) as process:
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
        raise UsageError(f"CPUs {a} and {b}: no answer in {PATIENCE:g} s: is one of them kept busy?")
    answer = process.stdout.readline().decode().split()
    if answer[:2] != [str(a), str(b)] or len(answer) != 3:
        process.kill()
        why = process.stderr.read().decode(errors="replace").splitlines()
        raise UsageError(f"CPUs {a} and {b}: {why[-1] if why else f'{TOOL} ended with {process.wait()}'}")
    return float(answer[2])


def both_ways(count: int, pairs: Sequence[tuple[int, int]], values: np.ndarray) -> np.ndarray:
    """float64[count, count], symmetric, nan on the diagonal, from a value per pair."""
    matrix = np.full((count, count), np.nan)
    a, b = np.array(pairs).T
    matrix[a, b] = matrix[b, a] = values
    return matrix


def noisy_pairs(matrix: LatencyMatrix) -> list[tuple[int, int, float]]:
    """[(CPU, CPU, spread)] of the pairs that were disturbed most of the time."""
    if matrix.spread is None:
        return []
    noisy = np.argwhere(np.triu(np.nan_to_num(matrix.spread), 1) >= NOISY)
    return [(matrix.cpus[a], matrix.cpus[b], float(matrix.spread[a, b])) for a, b in noisy]


def cpu_model() -> str:
    named = next((line for line in cpu_lines() if line.startswith("model name")), ":")
    return named.partition(":")[2].strip()
