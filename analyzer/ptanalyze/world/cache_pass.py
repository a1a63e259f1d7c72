"""The cache pass: the entries that each walk reads, and what serves them. Independent of the policy."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.errors import UsageError
from ..core.machine import LINE_BYTES, Cache, Machine, shape
from ..core.process import in_order
from ..core.trace import (
    NO_WALKS,
    Fold,
    Placement,
    Reads,
    Regions,
    WalkStream,
    chunk_runs,
    give_back,
    read_only,
)
from ..kernels import OWN_CACHES, walker
from ..kernels.lru import EMPTY, NEVER, row_bank
from .address_space import AddressSpace

NEARLY_ALL = 0.75  # of the walks: no other thread would have much to do


class Walker:
    """The kernels of a pass, and what they need besides the walks.

    mine  bool[cpus]: whose walks are taken, those of all other CPUs are left out
    """

    def __init__(
        self,
        regions: Regions,
        cpu_node: np.ndarray,
        trees: walker.Trees,
        caches: walker.Caches,
        mine: np.ndarray,
    ) -> None:
        self.caches, self.trees = caches, trees
        self.regions, self.cpu_node, self.mine = regions, cpu_node, mine
        self.scratch, self.chain = walker.scratch(), np.zeros((2, 8), np.int64)
        self.behind = np.zeros((2, walker.TOGETHER), np.uint64)

    def carry(self, reads: Reads, seen: Reads, flushes: np.ndarray) -> None:
        """Where walks end, which entries they read, and which caches these miss: PIECE walks take each step
        before the next, so that what one leaves to the other stays in the processor's cache.

        seen     the walks as caches see them, which may be `reads`
        flushes  int64[k], sorted: walks before which every CPU's guest paging-structure caches are dropped
        """
        size = walker.PIECE
        for first in range(0, len(reads.page), size):
            part, seen_part = _part(reads, first, size), _part(seen, first, size)
            if seen is not reads:
                walker.find_leaves(*self._locating(part))
            walker.find_leaves(*self._locating(seen_part))
            between = flushes[slice(*np.searchsorted(flushes, [first, first + size]))] - first
            entries = walker.descend(*self._descending(seen_part, between))
            walker.fetch(*self._fetching(seen_part, entries))

    def calls(self, none: Reads) -> Iterator[tuple[Any, Callable[[], tuple[Any, ...]]]]:
        """Iterate (kernel, what returns its arguments for no walks), the longest to compile first."""
        yield walker.descend, lambda: self._descending(none, np.zeros(0, np.int64))
        yield walker.fetch, lambda: self._fetching(none, 0)
        yield walker.find_leaves, lambda: self._locating(none)

    def _locating(self, walks: Reads) -> tuple[Any, ...]:
        return walks.page, walks.cpu, self.mine, self.regions, self.trees, self.scratch, walks

    def _descending(self, seen: Reads, flushes: np.ndarray) -> tuple[Any, ...]:
        return seen.cpu, self.mine, flushes, self.trees, self.caches, self.scratch, self.chain, seen

    def _fetching(self, seen: Reads, entries: int) -> tuple[Any, ...]:
        return seen.cpu, self.cpu_node, entries, self.caches, self.scratch, self.behind, seen


def _part(walks: Reads, first: int, size: int) -> Reads:
    return Reads(*(column[first : first + size] for column in walks))


def trees_of(space: AddressSpace) -> walker.Trees:
    guest, host = space.snapshot.guest, space.snapshot.host
    return walker.Trees(
        read_only(guest.entries),
        read_only(walker.table_rows(space.tables, guest.frame)),
        space.host_of,
        guest.levels,
        host.levels if host else 0,
        walker.CODES[guest.encoding],
    )


def work_by_thread(cpu_node: np.ndarray, walks: np.ndarray, threads: int) -> list[np.ndarray]:
    """[bool[cpus]]: CPUs of each thread, whole nodes, the most walks first to the thread with the fewest; all
    of one thread where no other would have much to do.

    walks  int64[cpus]
    """
    by_node = np.bincount(cpu_node, walks)
    used = max(int(np.count_nonzero(by_node)), 1)
    nodes: list[list[int]] = [[] for _ in range(min(threads, used))]
    for node in np.argsort(-by_node, kind="stable").tolist():
        min(nodes, key=lambda have: sum(by_node[have])).append(node)
    if max(sum(by_node[have]) for have in nodes) >= NEARLY_ALL * by_node.sum():
        return [np.ones(len(cpu_node), np.bool_)]
    return [np.isin(cpu_node, have) for have in nodes]


MAX_TABLES = (1 << 26) - 1  # tags of lines are 32 bits, table << 6 | line; EMPTY is a value, too


def cache_pass(
    space: AddressSpace,
    placement: Placement,
    machine: Machine,
    stream: WalkStream,
    *,
    batch: int = 1 << 17,
    caches: walker.Caches | None = None,
    threads: int = 1,
    fold: Fold | None = None,
    concurrent: bool = False,
) -> Iterator[tuple[slice, Reads]]:
    """Iterate (chunks, Reads): the walks of a run of whole chunks, about `batch` walks or a single chunk.

    chunks  slice of the trace's chunks; row r is walk r + stream.offset[chunks.start]
    caches  their contents, which change; None: empty_caches, forgotten afterwards

    threads  2 or more: as many share out the walks by node, which share no cache with others, unless nearly
             all come from one. A batch is under way while the caller looks at the one before

    fold    caches see these pages in place of those walked for, in tables of the same level; None: the same

    concurrent  CPUs walk at the same time, AT_ONCE walks together: caches see a walk of each in turn. A
             chunk is a long run beside a cache that stands for one N times its size

    Walks run in the order of the trace, and all caches keep their contents between batches, so results
    depend neither on `batch` nor on `threads`. Data pages whose guest frame leads nowhere have host_leaf -1
    and no nested reads. Memory: about 40 bytes per walk of a batch, on two threads of two batches. UsageError
    for more than 64 Mi tables.
    """
    if len(space.tables.level) > MAX_TABLES:
        raise UsageError(f"snapshot: {len(space.tables.level)} page-table pages, at most {MAX_TABLES}")
    caches = caches or empty_caches(space, placement, machine, stream.hits)
    flush_walk = np.unique(stream.offset[stream.flushes])  # every CPU's paging-structure caches are dropped
    walks = np.bincount(placement.chunk_cpu, np.diff(stream.offset), len(placement.cpu_node))
    trees = trees_of(space)
    walkers = [
        Walker(space.regions, placement.cpu_node, trees, caches, mine)
        for mine in work_by_thread(placement.cpu_node, walks, threads)
    ]
    every_page, every_write = read_only(stream.page), read_only(stream.write)
    cpus = np.unique(placement.chunk_cpu)
    concurrent = concurrent and len(np.unique(placement.cpu_node[cpus])) < len(cpus)  # two share a cache

    def carried(first: int, last: int) -> tuple[slice, Reads]:
        begin, end = int(stream.offset[first]), int(stream.offset[last])
        cpu = np.repeat(placement.chunk_cpu[first:last], np.diff(stream.offset[first : last + 1]))
        page, write, shares = every_page[begin:end], every_write[begin:end], len(caches.llc_ways)
        reads = seen = _empty(cpu.astype(np.int32), page, write, shares)
        flushes = flush_walk[np.searchsorted(flush_walk, begin) : np.searchsorted(flush_walk, end)] - begin
        folded = page if fold is None else read_only(fold.of(page))
        order = in_turns(reads.cpu, flushes) if concurrent else None
        if order is not None:
            seen = _empty(reads.cpu[order], read_only(folded[order]), read_only(write[order]), shares)
        elif fold is not None:
            seen = _empty(reads.cpu, folded, write, 0)._replace(read=reads.read, missed=reads.missed)
        deque(pool.map(lambda walker: walker.carry(reads, seen, flushes), walkers), 0)
        if order is not None:
            reads.read[order], reads.missed[order] = seen.read, seen.missed
        return slice(first, last), reads

    runs = chunk_runs(stream.offset, AT_ONCE if concurrent else batch)
    with ThreadPoolExecutor(1) as ahead, ThreadPoolExecutor(len(walkers)) as pool:
        for chunks, reads in in_order(ahead, carried, runs, int(threads > 1)):
            yield chunks, reads
            give_back(reads.page, reads.write)
    if len(flush_walk) and flush_walk[-1] == len(stream):
        caches.guest_pwc.tags[:] = EMPTY


AT_ONCE = 1 << 18  # walks of a `concurrent` batch: a program on fewer CPUs than it has runs threads in turn


def in_turns(cpu: np.ndarray, flushes: np.ndarray) -> np.ndarray:
    """int64[n]: the walks of n in an order in which all CPUs are equally far, from one flush to the next.

    cpu  int32[n]; a CPU's own walks stay in order
    """
    part = np.searchsorted(flushes, np.arange(len(cpu)), side="right")
    group = part * (int(cpu.max(initial=0)) + 1) + cpu
    by_group = np.argsort(group, kind="stable")
    _, first, count = np.unique(group[by_group], return_index=True, return_counts=True)
    far = (np.arange(len(cpu)) - np.repeat(first, count) + 0.5) / np.repeat(count, count)
    when = np.empty(len(cpu))
    when[by_group] = far
    return np.argsort(part + when, kind="stable")


def first_calls(
    space: AddressSpace, placement: Placement, machine: Machine
) -> Iterator[tuple[Any, Callable[[], tuple[Any, ...]]]]:
    """Iterate (kernel, what returns its arguments for no walks), the longest to compile first."""
    caches = empty_caches(space, replace(placement, cpu_node=placement.cpu_node[:0]), machine, NO_WALKS.hits)
    everyone = np.ones(len(placement.cpu_node), np.bool_)
    return Walker(space.regions, placement.cpu_node, trees_of(space), caches, everyone).calls(no_reads())


NOTHING = read_only(np.zeros(0, np.uint32)), read_only(np.zeros(0, bool))  # page, write


def no_reads() -> Reads:
    """Reads of no walk at all, of the types that cache_pass yields."""
    return _empty(np.zeros(0, np.int32), *NOTHING, 1)


def _empty(cpu: np.ndarray, page: np.ndarray, write: np.ndarray, shares: int) -> Reads:
    n = len(page)
    leaf, host_leaf = np.empty((2, n), np.int32)
    slot, host_slot = np.empty((2, n), np.int16)
    read, missed = np.empty(n, np.uint64), np.zeros((n, (OWN_CACHES + shares).bit_length()), np.uint64)
    return Reads(cpu, page, write, leaf, slot, host_leaf, host_slot, read, missed)


# Lines that a walk to a random page reads beyond L1D: leaf entry and page directory; in a VM those of both
# tables, and what maps the guest's leaf table.
NATIVE, NESTED = 2, 5


def ways_of_tables(l2: Cache, hits: np.ndarray, tables: int) -> int:
    """Ways of each set of an L2 that hold page tables: as many of its lines as they bring (ADR 41).

    hits    int64[cpus, 3] as WalkStream.hits; what misses the first level of the TLB brings a line of data
    tables  lines that a walk brings, and of data where no hit of a TLB is known
    """
    first, second, walks = hits.sum(axis=0).tolist()
    data = (second + walks) / walks if walks and first + second else tables
    share = l2.share * tables / (l2.share * tables + (1 - l2.share) * data)
    return max(round(l2.ways * share), 1)


def empty_caches(
    space: AddressSpace, placement: Placement, machine: Machine, hits: np.ndarray
) -> walker.Caches:
    """Paging-structure caches of each CPU, and what its data caches and LLCs hold of page tables."""
    cpus, nodes = len(placement.cpu_node), int(placement.cpu_node.max(initial=0)) + 1
    nested = 0 if space.native else cpus
    own, l1d, l2 = machine.walk_caches, machine.l1d, machine.l2
    by_level = [None, *map(shape, (own.pde, own.pdpte, own.pml4e, own.pml5e))]
    tables = ways_of_tables(l2, hits, NESTED if nested else NATIVE)
    second = max(l2.bytes // (LINE_BYTES * l2.ways), 1), tables
    sets, ways = machine.llc.stacks
    every, more = ways[-1]
    return walker.Caches(
        row_bank(cpus, by_level),
        row_bank(nested, by_level),
        row_bank(nested, [shape(own.nested)]),
        row_bank(cpus, [l1d and (l1d.lines // l1d.ways, l1d.ways), second]),
        row_bank(nodes, [(sets, every + (more > 0))]),
        np.array(ways, np.int64),
    )


def forget_tables(caches: walker.Caches, tables: np.ndarray) -> None:
    """Let no page-walk cache find these tables, flat ids: pages of other tables are walked in their place.

    Their entries stay until others replace them, as nothing flushes them. Data caches keep the lines: a
    kernel that makes a table has just written them.
    """
    tags = caches.guest_pwc.tags
    tags[np.isin(tags, tables.astype(np.uint32))] = NEVER
