"""Measure cache-line transfer latencies between all pairs of CPUs, with dumps/pingpong.c."""

import os
import platform
import random
import re
import select
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ...core.errors import UsageError
from ...core.process import Progress
from ...core.sysfs import SYSTEM, found, groups_of, nodes_of
from ...formats.measured.latency import LatencyMatrix, Method, NodeLatency, checked
from .native import native
from .process import NODES

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
    named = re.search(r"^model name\s*:(.*)", found(Path("/proc/cpuinfo")) or "", re.MULTILINE)
    return named[1].strip() if named else ""


# Measure latencies of dependent reads between NUMA nodes, idle and loaded, with dumps/chase.c.

CHASE_TOOL = "ptchase"
BURSTS = 100  # of 20,000 reads
LEAST_MEBIBYTES = 256
CACHES = 6  # times the last-level cache, whose part of the buffer then hardly counts
CACHE_SIZE = SYSTEM / "cpu/cpu0/cache/index3/size"
MOSTLY_HUGE = 90  # percent of the buffer; below, page walks are part of the latency

Places: TypeAlias = Mapping[int, list[int]]  # usable CPUs of each node
Line: TypeAlias = tuple[int, int, bool, str]  # reader, server, loaded?, CPUs that load


def measure_nodes(
    nodes: Path = NODES, mebibytes: int | None = None, bursts: int = BURSTS, progress: Progress = None
) -> NodeLatency:
    """NodeLatency of this machine's nodes that have CPUs and memory.

    A CPU of the reader's node reads. Idle: the fastest of `bursts`, as interference only slows. Contended:
    the median while the other usable CPUs of the serving node stream through its memory; not measured where a
    node has no CPU left for it. UsageError: the tool is missing, or names what it cannot use.
    """
    places = usable_nodes(nodes)
    lines = [(a, b, loaded) for loaded in (False, True) for a in places for b in places]
    asked = [(a, b, loaded, _load(places, a, b) if loaded else "-") for a, b, loaded in lines]
    lonely = [node for node in places if not _load(places, node, node)]
    asked = [line for line in asked if line[3] and not (line[2] and lonely)]
    idle = np.full((len(places), len(places)), np.nan)
    busy, at = idle.copy(), {node: i for i, node in enumerate(places)}
    flags: set[str] = set()
    answers = _answers(asked, places, mebibytes or default_mebibytes(), bursts)
    for done, ((a, b, loaded, _), (fastest, median, huge)) in enumerate(answers, 1):
        (busy if loaded else idle)[at[a], at[b]] = median if loaded else fastest
        if huge < MOSTLY_HUGE:
            flags.add(f"node {b}: {huge} % of its buffer in huge pages: page walks are part of the latency")
        if progress:
            progress(done, len(asked), "measuring pairs of nodes")
    if lonely:
        flags.add(f"node {lonely[0]}: one usable CPU, none left to load it: contended latency not measured")
    contended = None if lonely else np.maximum(busy, idle)
    latency: NodeLatency = checked("this machine", tuple(places), idle, contended, _method())
    return replace(latency, flags=(*latency.flags, *sorted(flags)))


MOST_TABLES = 128  # MiB: ptchase maps a file for each table, and Linux allows 65,530


def measure_walks(
    nodes: Path = NODES, mebibytes: int | None = None, bursts: int = BURSTS, progress: Progress = None
) -> dict[tuple[int, int], float]:
    """{(reader's node, node of the leaf tables): ns of a page walk} of this machine, data near and in caches.

    The fastest of `bursts`: TLBs miss at every read, and the tables exceed the caches, `mebibytes` of them.
    Tables go by set_mempolicy, data by mbind. UsageError as `measure_nodes`.
    """
    places = usable_nodes(nodes)
    asked = [(a, a, True, f"walk:{b}") for a in places for b in places]
    found = {}
    size = mebibytes or min(default_mebibytes(), MOST_TABLES)
    for done, ((node, _, _, tables), (fastest, *_)) in enumerate(_answers(asked, places, size, bursts), 1):
        found[node, int(tables.removeprefix("walk:"))] = fastest
        if progress:
            progress(done, len(asked), "measuring page walks")
    return found


def said_of_walks(walks: Mapping[tuple[int, int], float]) -> str:
    """The source of a machine file: what a page walk takes over near and over far tables."""
    near = [ns for (reader, tables), ns in walks.items() if reader == tables]
    far = [ns for (reader, tables), ns in walks.items() if reader != tables]
    told = f"measured, ns of a page walk: {min(near):.0f} to {max(near):.0f} over near leaf tables"
    if not far:
        return f"{told}; one node: none over far ones"
    return f"{told}, {min(far):.0f} to {max(far):.0f} over far ones; {_method()}"


def usable_nodes(nodes: Path = NODES) -> dict[int, list[int]]:
    """{node: CPUs that this process may run on} of the nodes with memory, with those of nodes without."""
    allowed, known = os.sched_getaffinity(0), nodes_of(nodes)
    groups = groups_of(nodes, known)
    places = {
        group[0]: [cpu for node in group for cpu in known[node].cpus if cpu in allowed] for group in groups
    }
    return {node: cpus for node, cpus in places.items() if cpus} or {0: sorted(allowed)}


def default_mebibytes() -> int:
    """Size of the buffer: several times the last-level cache."""
    size = re.fullmatch(r"(\d{1,9})K", found(CACHE_SIZE) or "", re.ASCII)
    return max(LEAST_MEBIBYTES, CACHES * int(size[1]) // 1024) if size else LEAST_MEBIBYTES


def _load(places: Places, reader: int, server: int) -> str:
    """CPUs of the serving node but the reader, as a list; "" where there is none."""
    return ",".join(str(cpu) for cpu in places[server] if cpu != places[reader][0])


def _answers(
    asked: Sequence[Line], places: Places, mebibytes: int, bursts: int
) -> Iterator[tuple[Line, tuple[float, float, int]]]:
    """((reader, server, loaded, load), (fastest ns, median ns, percent huge)), in order."""
    argv, pipe = [str(native(CHASE_TOOL)), str(mebibytes), str(bursts)], subprocess.PIPE
    with subprocess.Popen(argv, text=True, process_group=0, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin and process.stdout and process.stderr
        try:
            for line in asked:
                process.stdin.write(f"{places[line[0]][0]} {line[1]} {line[3]}\n")
                process.stdin.flush()
                answer = process.stdout.readline().split()
                if len(answer) != 5:
                    raise BrokenPipeError
                yield line, (float(answer[2]), float(answer[3]), int(answer[4]))
        except BrokenPipeError:
            why = process.stderr.read().splitlines()
            raise UsageError(why[-1] if why else f"{CHASE_TOOL}: ended with {process.wait()}") from None
        finally:
            process.kill()


def _method() -> str:
    return f"pointer chase on {cpu_model()}; CPUs {cpu_list(os.sched_getaffinity(0))} were usable"
