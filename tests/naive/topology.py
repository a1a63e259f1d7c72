"""NUMA nodes of this machine and the page frames they own, as dumps/topology.c reads them."""

import re
from pathlib import Path

import numpy as np

from ptanalyze.core.snapshot import Node, Topology
from ptanalyze_host.sysfs import SYSTEM, distances, nodes_of, parse_cpus, text_of

NODES = SYSTEM / "node"
ONLINE = SYSTEM / "cpu/online"
BLOCK_BYTES = SYSTEM / "memory/block_size_bytes"
PAGE = 4096


def read_topology():
    """(Topology, a line that names the source of its frame ranges)."""
    zones = parse_zones(text_of(Path("/proc/zoneinfo")))
    listed = nodes_of(NODES)
    if not listed:
        return topology_of([(0, parse_cpus(text_of(ONLINE), ONLINE), (10,))], zones), "frame ranges of zones"
    apart = distances(NODES, listed)
    nodes = [(node, one.cpus, tuple(apart[node].values())) for node, one in listed.items()]
    blocks = [
        (int(path.name[6:]), node) for node in listed for path in (NODES / f"node{node}").glob("memory[0-9]*")
    ]
    if not blocks:
        return topology_of(nodes, zones), "frame ranges of zones"
    ranges = block_ranges(blocks, int(text_of(BLOCK_BYTES), 16) // PAGE, zones)
    return topology_of(nodes, ranges), "frame ranges of memory blocks"


def topology_of(nodes, ranges):
    ranges = tidy(ranges)
    frames = {node: [(a, b) for a, b, owner in ranges if owner == node] for node, _, _ in nodes}
    owned = {node: np.array(found, np.int64).reshape(-1, 2) for node, found in frames.items()}
    return Topology(tuple(Node(n, cpus, owned[n], distance) for n, cpus, distance in nodes))


def parse_zones(text):
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


def block_ranges(blocks, frames, zones):
    """Ranges of memory blocks [(number, node)]; a block of several nodes is divided as their zones are."""
    owners = {}
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


def tidy(ranges):
    """Ranges sorted and joined; frames that two nodes claim are cut out of both."""
    kept = []
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
