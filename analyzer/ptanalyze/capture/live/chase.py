"""Measure latencies of dependent reads between NUMA nodes, idle and loaded, with dumps/chase.c."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ...core.errors import UsageError
from ...core.progress import Progress
from ...formats.node_latency import NodeLatency, checked
from .cacheline import cpu_list, cpu_model
from .native import native
from .topology import NODES, parse_cpus

TOOL = "ptchase"
BURSTS = 100  # of 20,000 reads
LEAST_MEBIBYTES = 256
CACHES = 6  # times the last-level cache, whose part of the buffer then hardly counts
CACHE_SIZE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
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


def usable_nodes(nodes: Path = NODES) -> dict[int, list[int]]:
    """{node: CPUs that this process may run on} of the nodes with both CPUs and memory."""
    allowed = os.sched_getaffinity(0)
    places = {}
    for path in sorted(Path(nodes).glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        cpus = sorted(allowed & set(parse_cpus((path / "cpulist").read_text())))
        memory = re.search(r"MemTotal:\s+(\d+) kB", (path / "meminfo").read_text())
        if cpus and memory and int(memory[1]):
            places[int(path.name[4:])] = cpus
    return places or {0: sorted(allowed)}


def default_mebibytes() -> int:
    """Size of the buffer: several times the last-level cache."""
    try:
        size = re.fullmatch(r"(\d+)K", CACHE_SIZE.read_text().strip())
    except OSError:
        return LEAST_MEBIBYTES
    return max(LEAST_MEBIBYTES, CACHES * int(size[1]) // 1024) if size else LEAST_MEBIBYTES


def _load(places: Places, reader: int, server: int) -> str:
    """CPUs of the serving node but the reader, as a list; "" where there is none."""
    return ",".join(str(cpu) for cpu in places[server] if cpu != places[reader][0])


def _answers(
    asked: Sequence[Line], places: Places, mebibytes: int, bursts: int
) -> Iterator[tuple[Line, tuple[float, float, int]]]:
    """((reader, server, loaded, load), (fastest ns, median ns, percent huge)), in order."""
    argv, pipe = [str(native(TOOL)), str(mebibytes), str(bursts)], subprocess.PIPE
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
            raise UsageError(why[-1] if why else f"{TOOL}: ended with {process.wait()}") from None
        finally:
            process.kill()


def _method() -> str:
    return f"pointer chase on {cpu_model()}; CPUs {cpu_list(os.sched_getaffinity(0))} were usable"
