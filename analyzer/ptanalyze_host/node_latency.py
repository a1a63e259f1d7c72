"""Latencies of dependent reads between NUMA nodes, idle and loaded, and of page walks: dumps/chase.c."""

import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

import ptanalyze as pt

from . import sysfs

ASYMMETRIC = 0.10  # directions of a pair that differ more are named
SHOWN = 4  # asymmetric pairs


@dataclass(frozen=True)
class NodeLatency:
    """ns of a dependent read, [reader's node][serving node].

    nodes      numbers of the nodes, in the order of rows and columns
    idle       float64[n, n]
    contended  float64[n, n]: with other threads streaming on the serving node, None where not measured
    source     a line: how the latencies are known
    flags      oddities, a line each
    memory_nodes  numbers of those of the nodes that have no CPUs: no reads start there, so their rows are
                  their columns, and their own memory is as near as to the node that reaches it fastest
    groups     of each of the nodes, itself and the nodes of CPUs alone that count with it; (): itself
    """

    nodes: tuple[int, ...]
    idle: np.ndarray
    contended: np.ndarray | None
    source: str
    flags: tuple[str, ...] = ()
    memory_nodes: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()


def asymmetric(which: str, nodes: Sequence[int], matrix: np.ndarray) -> Iterator[str]:
    """A line for each of the worst pairs whose directions differ; float64[n, n] ns."""
    pairs = np.argwhere(np.triu(abs(matrix - matrix.T) > ASYMMETRIC * matrix.T))
    pairs = pairs[np.argsort([-abs(np.log(matrix[a, b] / matrix[b, a])) for a, b in pairs], kind="stable")]
    for a, b in pairs[:SHOWN]:
        yield (
            f"{which}: node {nodes[a]} to {nodes[b]} takes {matrix[a, b]:g} ns, back {matrix[b, a]:g} ns: "
            "asymmetric; the mean is used"
        )
    if len(pairs) > SHOWN:
        yield f"{which}: {pt.errors.plural(len(pairs) - SHOWN, 'more pair is', 'more pairs are')} asymmetric"


NODES = sysfs.SYSTEM / "node"
TOOL = "ptchase"
BURSTS = 100  # of 20,000 reads
LEAST_MEBIBYTES = 256
CACHES = 6  # times the last-level cache, whose part of the buffer then hardly counts
CACHE_SIZE = sysfs.SYSTEM / "cpu/cpu0/cache/index3/size"
MOSTLY_HUGE = 90  # percent of the buffer; below, page walks are part of the latency

Places: TypeAlias = Mapping[int, list[int]]  # usable CPUs of each node
Line: TypeAlias = tuple[int, int, bool, str]  # reader, server, loaded?, CPUs that load


def measure_nodes(
    mebibytes: int | None = None, bursts: int = BURSTS, progress: pt.process.Progress = None
) -> NodeLatency:
    """NodeLatency of this machine's nodes that have CPUs and memory.

    A CPU of the reader's node reads. Idle: the fastest of `bursts`, as interference only slows. Contended:
    the median while the other usable CPUs of the serving node all stream through its memory; not measured
    where a node has no CPU left for it, or other programs never leave them all. UsageError: the tool is
    missing, or names what it cannot use.
    """
    places = usable_nodes()
    lines = [(a, b, loaded) for loaded in (False, True) for a in places for b in places]
    asked = [(a, b, loaded, _load(places, a, b) if loaded else "-") for a, b, loaded in lines]
    lonely = [node for node in places if not _load(places, node, node)]
    asked = [line for line in asked if line[3] and not (line[2] and lonely)]
    idle = np.full((len(places), len(places)), np.nan)
    busy, at = idle.copy(), {node: i for i, node in enumerate(places)}
    flags: set[str] = set()
    answers = _answers(asked, places, mebibytes or default_mebibytes(), bursts)
    for done, ((a, b, loaded, _), (huge, ns)) in enumerate(answers, 1):
        if ns.size >= bursts / 4:
            (busy if loaded else idle)[at[a], at[b]] = np.median(ns) if loaded else ns.min()
        else:
            flags.add(f"node {b}: its CPUs were busy: contended latency not measured")
        if huge < MOSTLY_HUGE:
            flags.add(f"node {b}: {huge} % of its buffer in huge pages: page walks are part of the latency")
        if progress:
            progress(done, len(asked), "measuring latencies of nodes")
    if lonely:
        flags.add(f"node {lonely[0]}: one usable CPU, none left to load it: contended latency not measured")
    contended = None if np.isnan(busy).any() else np.maximum(busy, idle)
    lines_of = {"idle": idle} if contended is None else {"idle": idle, "contended": contended}
    odd = [line for which, ns in lines_of.items() for line in asymmetric(which, [*places], ns)]
    return NodeLatency(tuple(places), idle, contended, _method(), (*odd, *sorted(flags)))


MOST_TABLES = 128  # MiB: ptchase maps a file for each table, and Linux allows 65,530


def measure_walks(
    mebibytes: int | None = None, bursts: int = BURSTS, progress: pt.process.Progress = None
) -> dict[tuple[int, int], float]:
    """{(reader's node, node of the leaf tables): ns of a page walk} of this machine, data near and in caches.

    The fastest of `bursts`: TLBs miss at every read, and the tables exceed the caches, `mebibytes` of them.
    Tables go by set_mempolicy, data by mbind. UsageError as `measure_nodes`.
    """
    places = usable_nodes()
    asked, found = [(a, a, True, f"walk:{b}") for a in places for b in places], {}
    size = mebibytes or min(default_mebibytes(), MOST_TABLES)
    for done, ((node, _, _, tables), (_, ns)) in enumerate(_answers(asked, places, size, bursts), 1):
        found[node, int(tables.removeprefix("walk:"))] = float(ns.min())
        if progress:
            progress(done, len(asked), "measuring page walks")
    return found


RANDOM_MEBIBYTES = 512  # beyond the TLBs with small pages, within them with huge ones
TURNS, PAIRS = 40, 5
LEAST_TURNS, SECONDS = 8, 8  # where other programs have the CPU most of the time


def measure_pages(
    mebibytes: int = RANDOM_MEBIBYTES, turns: int = TURNS, progress: pt.process.Progress = None
) -> np.ndarray:
    """float64[n, 2]: ns of a read of random lines of `mebibytes` with small and with huge pages, n pairs of
    bursts of milliseconds, small and huge in turn. The data compete for the caches, and a guest's walk has
    both dimensions. After SECONDS, LEAST_TURNS are enough.

    float64[0, 2] where huge pages are not to be had. UsageError as `measure_nodes`.
    """
    places = usable_nodes()
    asked: list[Line] = [(min(places), min(places), False, "pages")] * turns
    pairs, began = [], time.monotonic()
    for done, (_, (huge, ns)) in enumerate(_answers(asked, places, mebibytes, PAIRS), 1):
        if huge < MOSTLY_HUGE:
            return np.empty((0, 2))
        pairs.append(ns.reshape(-1, 2))
        if progress:
            progress(done, turns, "measuring page walks beside data")
        if done >= LEAST_TURNS and time.monotonic() - began > SECONDS:
            break
    return np.concatenate(pairs)


CACHED, PART = 4, 8  # times L2, part of the last-level cache: what it holds, if no other guest does


def measure_cached(machine: pt.Machine) -> float:
    """ns of a read of data that exceed L2 and not the last-level cache, which guests of a host share, with
    huge pages; 0: not to be had, or no such size. UsageError as `measure_nodes`."""
    size = max(CACHED * machine.l2.bytes, machine.llc.bytes // PART)
    if not 1 << 20 <= size <= machine.llc.bytes / 2:
        return 0.0
    pairs = measure_pages(size >> 20, LEAST_TURNS)
    return float(np.median(pairs[:, 1])) if len(pairs) else 0.0


def added_by_walks(pairs: np.ndarray) -> pt.Interval:
    """How much longer a read takes with small pages, as a part of its time with huge ones: the median of
    `measure_pages` pairs, and their quartiles.

    Other load slows both bursts of a pair, and of a burst that it hits alone the median knows nothing.
    """
    low, middle, high = np.percentile(np.maximum(pairs[:, 0] / pairs[:, 1] - 1, 0), [25, 50, 75])
    return pt.Interval(float(low), float(middle), float(high))


def walk_source(walks: Mapping[tuple[int, int], float]) -> str:
    """The source of a machine file: what a page walk takes over near and over far tables."""
    near = [ns for (reader, tables), ns in walks.items() if reader == tables]
    far = [ns for (reader, tables), ns in walks.items() if reader != tables]
    text = f"measured, ns of a page walk: {min(near):.0f} to {max(near):.0f} over near leaf tables"
    if not far:
        return f"{text}; one node: none over far ones"
    return f"{text}, {min(far):.0f} to {max(far):.0f} over far ones; {_method()}"


def usable_nodes() -> dict[int, list[int]]:
    """{node: CPUs that this process may run on} of the nodes with memory, with those of nodes without."""
    allowed, known = os.sched_getaffinity(0), sysfs.nodes_of(NODES)
    groups = sysfs.groups_of(NODES, known)
    places = {
        group[0]: [cpu for node in group for cpu in known[node].cpus if cpu in allowed] for group in groups
    }
    return {node: cpus for node, cpus in places.items() if cpus} or {0: sorted(allowed)}


def default_mebibytes() -> int:
    """Size of the buffer: several times the last-level cache."""
    size = re.fullmatch(r"(\d{1,9})K", sysfs.found(CACHE_SIZE) or "", re.ASCII)
    return max(LEAST_MEBIBYTES, CACHES * int(size[1]) // 1024) if size else LEAST_MEBIBYTES


def _load(places: Places, reader: int, server: int) -> str:
    """CPUs of the serving node but the reader, as a list; "" where there is none."""
    return ",".join(str(cpu) for cpu in places[server] if cpu != places[reader][0])


def _answers(
    asked: Sequence[Line], places: Places, mebibytes: int, bursts: int
) -> Iterator[tuple[Line, tuple[int, np.ndarray]]]:
    """((reader, server, loaded, load), (percent huge, float64[n] ns of each burst)), in order."""
    argv, pipe = [str(pt.live.native(TOOL)), str(mebibytes), str(bursts)], subprocess.PIPE
    with subprocess.Popen(argv, text=True, process_group=0, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin and process.stdout and process.stderr
        try:
            for line in asked:
                process.stdin.write(f"{places[line[0]][0]} {line[1]} {line[3]}\n")
                process.stdin.flush()
                answer = process.stdout.readline().split()
                if len(answer) < 3:
                    raise BrokenPipeError
                yield line, (int(answer[2]), np.array(answer[3:], np.float64))
        except BrokenPipeError:
            why = process.stderr.read().splitlines()
            raise pt.UsageError(why[-1] if why else f"{TOOL}: ended with {process.wait()}") from None
        finally:
            process.kill()


def _method() -> str:
    return f"pointer chase on {cpu_model()}; CPUs {cpu_list(os.sched_getaffinity(0))} were usable"


def cpu_list(cpus: Iterable[int]) -> str:
    """CPU numbers as the kernel writes them: "0-7,9"."""
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and spans[-1][1] == cpu - 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def cpu_model() -> str:
    """Name of the CPU by /proc/cpuinfo, "" unknown."""
    named = re.search(r"^model name\s*:(.*)", sysfs.found(Path("/proc/cpuinfo")) or "", re.MULTILINE)
    return named[1].strip() if named else ""
