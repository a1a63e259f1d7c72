"""NUMA nodes of this machine and the page frames they own, as dumps/topology.c reads them."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ...core.snapshot import Node, Topology

NODES = Path("/sys/devices/system/node")
BLOCK_BYTES = Path("/sys/devices/system/memory/block_size_bytes")
PAGE = 4096

Range: TypeAlias = tuple[int, int, int]  # first frame, one past the last, node
Listed: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...]]  # node, its CPUs, its distances


def read_topology() -> tuple[Topology, str]:
    """(Topology, a line that names the source of its frame ranges)."""
    zones = parse_zones(Path("/proc/zoneinfo").read_text())
    ids = sorted(int(path.name[4:]) for path in NODES.glob("node[0-9]*"))
    if not ids:
        cpus = parse_cpus(Path("/sys/devices/system/cpu/online").read_text())
        return topology_of([(0, cpus, (10,))], zones), "frame ranges of zones"
    nodes = [
        (
            node,
            parse_cpus((NODES / f"node{node}/cpulist").read_text()),
            tuple(map(int, (NODES / f"node{node}/distance").read_text().split())),
        )
        for node in ids
    ]
    blocks = [
        (int(path.name[6:]), node) for node in ids for path in (NODES / f"node{node}").glob("memory[0-9]*")
    ]
    if not blocks:
        return topology_of(nodes, zones), "frame ranges of zones"
    ranges = block_ranges(blocks, int(BLOCK_BYTES.read_text(), 16) // PAGE, zones)
    return topology_of(nodes, ranges), "frame ranges of memory blocks"


def topology_of(nodes: list[Listed], ranges: list[Range]) -> Topology:
    ranges = tidy(ranges)
    frames = {node: [(a, b) for a, b, owner in ranges if owner == node] for node, _, _ in nodes}
    return Topology(
        tuple(
            Node(n, cpus, np.array(frames[n], np.int64).reshape(-1, 2), distance)
            for n, cpus, distance in nodes
        )
    )


def parse_cpus(text: str) -> tuple[int, ...]:
    """CPU numbers of a kernel list such as "0-3,8"."""
    spans = [part.split("-") for part in text.strip().split(",") if part]
    return tuple(cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1))


def parse_zones(text: str) -> list[Range]:
    """[(first frame, one past the last, node)] of every zone that spans memory, from /proc/zoneinfo."""
    zones, node, spanned = [], 0, 0
    for line in text.splitlines():
        if match := re.match(r"Node (\d+),", line):
            node = int(match[1])
        elif match := re.match(r"\s+spanned\s+(\d+)", line):
            spanned = int(match[1])
        elif (match := re.match(r"\s+start_pfn:\s+(\d+)", line)) and spanned:
            zones.append((int(match[1]), int(match[1]) + spanned, node))
    return zones


def block_ranges(blocks: Iterable[tuple[int, int]], frames: int, zones: list[Range]) -> list[Range]:
    """Ranges of memory blocks [(number, node)]; a block of several nodes is divided as their zones are."""
    owners: dict[int, set[int]] = {}
    for number, node in blocks:
        owners.setdefault(number, set()).add(node)
    ranges = []
    for number, nodes in owners.items():
        start, end = number * frames, (number + 1) * frames
        if len(nodes) == 1:
            ranges.append((start, end, next(iter(nodes))))
        else:
            ranges += [(max(a, start), min(b, end), node) for a, b, node in zones if a < end and b > start]
    return ranges


def tidy(ranges: list[Range]) -> list[Range]:
    """Ranges sorted and joined; frames that two nodes claim are cut out of both."""
    kept: list[Range] = []
    for start, end, node in sorted(ranges):
        if kept and kept[-1][2] == node and kept[-1][1] >= start:
            kept[-1] = (kept[-1][0], max(kept[-1][1], end), node)
            continue
        if kept and kept[-1][1] > start:
            last = kept.pop()
            if last[0] < start:
                kept.append((last[0], start, last[2]))
            start = last[1]
        if start < end:
            kept.append((start, end, node))
    return kept
