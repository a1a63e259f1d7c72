"""What a capture says of the machine under it: the tables' share of the LLC, and how busy memory is.

Neither is a property of the machine alone (docs/adr/0031-share-and-load-in-whatif.md): lines of page tables
and lines of data push each other out of the last-level cache. Idle latencies are those of one thread: with
all CPUs walking, the run's own load lengthens them, by how much depends on data that the trace does not show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core.interval import Interval
from ..core.machine import LINE_BYTES

if TYPE_CHECKING:
    from ..core.machine import Machine

PAGE_LINES = 64  # of 4 KiB
NEIGHBOURS = 2  # lines that a miss brings at most: its own, and the other one of an aligned pair
STEPS = 1 << 12  # of the LLC that are told apart
NEVER = 1e-6  # reads from DRAM per walk: fewer push nothing out
SUSTAINED = 0.77  # of what memory serves at most: an EPYC of 460.8 GB/s under full load measured 353
MOST_USED = 1 - 1e-6  # of what a node can serve: r / (1 - r) is no number beyond


def data_lines(accesses: float, visits: float) -> Interval:
    """Lines of data per walk that may push others out of the LLC.

    visits    to pages that first-level TLBs did not hold, per walk: a line each, at least
    accesses  per walk: each a line and the one beside it at most, up to all lines of each page visited.
              Prefetchers bring the second line of an aligned pair (Intel Optimization Reference Manual,
              spatial prefetcher; AMD 56665, L2 up/down prefetcher).
    Without offsets within pages a trace says no more: the middle is as many times the least as the most is
    the middle.
    """
    least = max(visits, 1.0)
    most = max(NEIGHBOURS * min(accesses, PAGE_LINES * least), least)
    return Interval(least, math.sqrt(least * most), most)


def table_share(shares: Sequence[float], missed: Sequence[float], lines: float) -> float:
    """Share of an LRU cache that lines of page tables take beside `lines` of data per walk.

    shares, missed  rising shares of the cache, and DRAM reads of tables per walk with that much to themselves

    A line stays for T walks after its last use, whichever kind it is. Data then have d T of the C lines,
    tables s C = F(T), the distinct ones read in T walks, and all together fill the cache: s + d T / C = 1.
    Misses are how fast F grows where it reaches s C (Denning and Slutz, Generalized working sets for segment
    reference strings, CACM 1978), m(s) = dF/dT, so that T / C is the integral of ds / m(s) from 0 to s.
    """
    at = (np.arange(STEPS) + 0.5) / STEPS
    curve = np.maximum(np.interp(np.log(at), np.log(shares), missed), NEVER)
    filled = at + 0.5 / STEPS + lines * np.cumsum(1 / curve) / STEPS
    return float(at[min(int(np.searchsorted(filled, 1.0)), STEPS - 1)])


def told_share(shares: Sequence[float], missed: Sequence[float], lines: Interval) -> Interval:
    """The share, and its bounds, for data_lines that are not known exactly; arguments of table_share."""
    return Interval(*(table_share(shares, missed, d) for d in reversed([*lines])))


class Pages(NamedTuple):
    """Pages that walks reach, and what of them the caches hold.

    by_node   counted once for each node
    distinct  that any node reaches
    beyond    of by_node, those beyond the lines of all caches of their nodes: they miss with a line each
    held      of by_node, those that the caches hold with all of their lines
    """

    by_node: int
    distinct: int
    beyond: int
    held: float

    @property
    def shared(self) -> float:
        """Share of what nodes read that others read as well."""
        return 1 - self.distinct / self.by_node if self.by_node else 0.0

    def missing(self, least: float) -> float:
        """Lines of data from DRAM per walk, `least` of them for sure: where all of a page is read, those of
        pages that the caches do not hold."""
        return max(least, 1 - self.held / self.by_node if self.by_node else 0.0)


class Traffic(NamedTuple):
    """Who reads memory beside the page walkers, as far as the trace tells.

    cpus    that walk at a time
    data    lines of data from DRAM per walk
    shared  share of them on pages that several nodes walk to: they may be on any node, others are local
    """

    cpus: int
    data: float
    shared: float


def busy_walk_cycles(
    reads: np.ndarray, walks: float, machine: Machine, traffic: Traffic, outside: float, exposed: float
) -> float:
    """Walk cycles of int64[bits, nodes, nodes, 2] reads at the load that the run itself makes.

    outside  cycles of all CPUs outside walks; exposed  cycles that they stall per walk cycle

    A node that serves the share r of what its memory can, as r / (1 - r) of the way from idle to contended
    latencies, and there at most: a queue with one server, whose mean length is r / (1 - r). The run is as
    long as its own latencies make it, found by bisection, and at least as long as its busiest node needs for
    the lines of tables alone: where one node holds the tables of all CPUs, they queue there, whatever the
    latencies (the bottleneck of a closed network: Denning and Buzen, Computing Surveys 10(3), 1978, section
    5). Idle cycles where the machine file has no contended latencies or no `node_gb_s`.
    """
    idle = machine.table_cycles()
    dram = reads[..., 1].sum(axis=0, dtype=np.float64)
    still = float(reads[..., 0].sum()) * (machine.l2.cycles + machine.llc.cycles) / 2
    still += float((dram * idle).sum())
    if machine.latency.contended is None or not machine.node_gb_s:
        return still
    further = dram * np.maximum(machine.table_cycles(contended=True) - idle, 0.0)
    # cycles of all CPUs that each node needs for a line at least
    line = LINE_BYTES * traffic.cpus * machine.ghz / (SUSTAINED * machine.node_gb_s)
    least = (dram + _data(reads, walks, machine, traffic)).sum(axis=0) * line
    longest = float(dram.sum(axis=0).max()) * line

    def waited(whole: float) -> float:
        used = np.minimum(least / whole, MOST_USED)
        return still + float((further * np.minimum(used / (1 - used), 1.0)).sum())

    low, high = (max(outside + exposed * walks, 1.0) for walks in (still, still + float(further.sum())))
    for _ in range(32):
        whole = math.sqrt(low * high)
        low, high = (whole, high) if outside + exposed * waited(whole) > whole else (low, whole)
    return max(waited(high), (longest - outside) / exposed if exposed else 0.0)


def _data(reads: np.ndarray, walks: float, machine: Machine, traffic: Traffic) -> np.ndarray:
    """float64[nodes, nodes]: lines of data by [reader's node, serving node]."""
    by_reader = reads.sum(axis=(0, 2, 3), dtype=np.float64)
    by_reader *= traffic.data * walks / max(by_reader.sum(), 1.0)
    servers = np.isin(np.arange(machine.nodes), machine.cpu_nodes) / len(machine.cpu_nodes)
    found: np.ndarray = np.diag(by_reader * (1 - traffic.shared)) + traffic.shared * np.outer(
        by_reader, servers
    )
    return found
