"""Latencies of cache-line transfers between CPUs: measured with dumps/pingpong.c, kept as JSON."""

import os
import platform
import random
import select
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import combinations
from os import PathLike

import msgspec
import numpy as np

import ptanalyze as pt

from .cpu_levels import known_pairs
from .node_latency import cpu_list, cpu_model

FORMAT = "ptanalyze-topology"
VERSION = 1
MOST_BYTES = 1 << 28


@dataclass(frozen=True)
class LatencyMatrix:
    """One row and column per CPU, symmetric, nan where unknown and on the diagonal.

    ns      float64[n, n]: one-way transfer
    spread  float64[n, n]: median over minimum of the repetitions, or None
    """

    cpus: tuple[int, ...]
    ns: np.ndarray
    spread: np.ndarray | None = None
    method: "Method | None" = None


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """Each pair `repeat` times `rounds` round trips, in shuffled order; the fastest burst of 100 is kept."""

    rounds: int
    repeat: int
    cpu: str
    kernel: str


class MatrixRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`ns` and `spread`: a row per CPU, a value per column, null where unknown and on the diagonal."""

    format: str
    version: int
    cpus: tuple[int, ...]
    ns: tuple[tuple[float | None, ...], ...]
    spread: tuple[tuple[float | None, ...], ...] | None = None
    method: Method | None = None


def read_matrix(path: str | PathLike[str]) -> LatencyMatrix:
    """LatencyMatrix of a JSON file; InputError names file, field and value."""
    content = pt.safe_files.read_given(path, MOST_BYTES)
    record = pt.formats.decode_record(path, content, MatrixRecord, FORMAT, VERSION, pt.errors.InputError)
    ns = square(path, "ns", record.ns, record.cpus)
    spread = None if record.spread is None else square(path, "spread", record.spread, record.cpus)
    for cpu in record.cpus:
        if not 0 <= cpu < pt.errors.MOST_CPUS:
            raise pt.errors.InputError(
                path, "cpus", cpu, f"expected CPU numbers from 0 to {pt.errors.MOST_CPUS - 1}"
            )
    return LatencyMatrix(record.cpus, known_pairs(ns, record.cpus, path), spread, record.method)


def write_matrix(path: str | PathLike[str], matrix: LatencyMatrix) -> None:
    """Write a LatencyMatrix as JSON: whole, synced, 0600."""
    spread = None if matrix.spread is None else rows_of(matrix.spread)
    record = MatrixRecord(
        format=FORMAT,
        version=VERSION,
        cpus=matrix.cpus,
        ns=rows_of(matrix.ns),
        spread=spread,
        method=matrix.method,
    )
    pt.formats.write_record(path, record, given=True)


def rows_of(values: np.ndarray) -> tuple[tuple[float | None, ...], ...]:
    """Rows for JSON: two decimals, null for nan."""
    return tuple(tuple(None if np.isnan(v) else round(v, 2) for v in row) for row in values.tolist())


def square(
    path: str | PathLike[str], field: str, rows: Sequence[Sequence[float | None]], cpus: Sequence[int]
) -> np.ndarray:
    widths = {len(row) for row in rows} or {0}
    if len(rows) != len(cpus) or widths != {len(cpus)}:
        shape = f"{len(rows)} rows of {'/'.join(map(str, sorted(widths)))}"
        raise pt.errors.InputError(
            path, field, shape, f"expected {len(cpus)} rows of {len(cpus)}, one per CPU"
        )
    return np.array(rows, np.float64).reshape(len(cpus), len(cpus))


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
    progress: pt.process.Progress = None,
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


def noisy_pairs(matrix: LatencyMatrix) -> list[tuple[int, int, float]]:
    """[(CPU, CPU, spread)] of the pairs that were disturbed most of the time."""
    if matrix.spread is None:
        return []
    noisy = np.argwhere(np.triu(np.nan_to_num(matrix.spread), 1) >= NOISY)
    return [(matrix.cpus[a], matrix.cpus[b], float(matrix.spread[a, b])) for a, b in noisy]
