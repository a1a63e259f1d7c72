"""The cache pass: the entries that each walk reads, in caches or DRAM. Independent of the policy."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import UsageError
from ..core.machine import Array, Cache, Machine
from ..core.trace import chunk_runs, give_back, read_only
from ..core.walks import Placement, Reads, WalkStream
from .address_space import AddressSpace
from .mm_events import invalidations
from .steps_in_turn import in_turn, side_by_side
from .walk_steps import Batch, Steps

if TYPE_CHECKING:
    from ..kernels import walker

MAX_TABLES = (1 << 26) - 1  # tags of lines are 32 bits, table << 6 | line; EMPTY is a value, too


def cache_pass(
    space: AddressSpace,
    placement: Placement,
    machine: Machine,
    stream: WalkStream,
    *,
    events: np.ndarray | None = None,
    begin: int = 0,
    batch: int = 1 << 17,
    caches: "walker.Caches | None" = None,
    threads: int = 1,
) -> Iterator[tuple[slice, Reads]]:
    """Iterate (chunks, Reads): the walks of a run of whole chunks, about `batch` walks or a single chunk.

    chunks  slice of the trace's chunks; row r is walk r + stream.offset[chunks.start]
    events  Trace.events: each event that changes translations drops the paging-structure caches of every CPU
    begin   chunk: events before it are not done, as in a further run of the chunks from `begin` on

    caches  their contents, which change; None: empty_caches, forgotten afterwards

    threads  2 or more: two threads share out the steps of walks

    Walks run in the order of the trace, and all caches keep their contents between batches, so results
    depend neither on `batch` nor on `threads`. Data pages whose guest frame leads nowhere have host_leaf -1
    and no nested reads. Memory: about 40 bytes per walk of a batch, on two threads of two batches. UsageError
    for more than 64 Mi tables.
    """
    from ..kernels.setrows import EMPTY

    if len(space.tables.level) > MAX_TABLES:
        raise UsageError(f"snapshot: {len(space.tables.level)} page-table pages, at most {MAX_TABLES}")
    caches = caches or empty_caches(space, placement, machine)
    flush_walk = _flushes(stream, events, begin)
    steps = Steps(space, placement, caches)

    def begun(run: tuple[int, int]) -> Batch:
        first, last = run
        begin, end = int(stream.offset[first]), int(stream.offset[last])
        cpu = np.repeat(placement.chunk_cpu[first:last], np.diff(stream.offset[first : last + 1]))
        page, write = read_only(stream.page[begin:end]), read_only(stream.write[begin:end])
        reads = _empty(cpu.astype(np.int32), page, write)
        flushes = flush_walk[np.searchsorted(flush_walk, begin) : np.searchsorted(flush_walk, end)] - begin
        return Batch(slice(first, last), reads, flushes)

    batches = (begun(run) for run in chunk_runs(stream.offset, batch))
    for done in in_turn(steps, batches) if threads < 2 else side_by_side(steps, batches):
        yield done.chunks, done.reads
        give_back(done.reads.page)
        give_back(done.reads.write)
    if len(flush_walk) and flush_walk[-1] == len(stream):
        caches.guest_pwc.tags[:] = EMPTY


def first_calls(
    space: AddressSpace, placement: Placement, machine: Machine
) -> Iterator[tuple[Any, Callable[[], tuple[Any, ...]]]]:
    """Iterate (kernel, what returns its arguments for no walks), the longest to compile first."""
    caches = empty_caches(space, replace(placement, cpu_node=placement.cpu_node[:0]), machine)
    return Steps(space, placement, caches).calls(Batch(slice(0), no_reads(), np.zeros(0, np.int64)))


def no_reads() -> Reads:
    """Reads of no walk at all, of the types that cache_pass yields."""
    return _empty(
        np.zeros(0, np.int32),
        read_only(np.zeros(0, np.uint32)),
        read_only(np.zeros(0, bool)),
    )


def _empty(cpu: np.ndarray, page: np.ndarray, write: np.ndarray) -> Reads:
    n = len(page)
    leaf, host_leaf = np.empty((2, n), np.int32)
    slot, host_slot = np.empty((2, n), np.int16)
    read, dram = np.empty((2, n), np.uint64)
    return Reads(cpu, page, write, leaf, slot, host_leaf, host_slot, read, dram)


def empty_caches(space: AddressSpace, placement: Placement, machine: Machine) -> "walker.Caches":
    """Paging-structure caches of each CPU, and what L2s and LLCs hold of page tables."""
    from ..kernels import walker
    from ..kernels.setrows import row_bank

    cpus, nodes = len(placement.cpu_node), int(placement.cpu_node.max(initial=0)) + 1
    own = machine.walk_caches
    by_level = [None, *(shape(array) for array in (own.pde, own.pdpte, own.pml4e, own.pml5e))]
    return walker.Caches(
        row_bank(cpus, by_level),
        row_bank(0 if space.native else cpus, by_level),
        row_bank(0 if space.native else cpus, [shape(own.nested)]),
        row_bank(cpus, [_lines(machine.l2)]),
        row_bank(nodes, [_lines(machine.llc)]),
    )


def shape(array: Array | None) -> tuple[int, int] | None:
    """(sets, ways) of an array, None if the machine lacks it."""
    return (array.sets, array.ways) if array else None


def _lines(cache: Cache) -> tuple[int, int]:
    return cache.lines // cache.ways, cache.ways


def _flushes(stream: WalkStream, events: np.ndarray | None, begin: int) -> np.ndarray:
    """int64[k], sorted: walks before which events from chunk `begin` on drop the paging-structure caches."""
    if events is None:
        return np.zeros(0, np.int64)
    chunk = invalidations(events)["chunk"]
    return np.unique(stream.offset[chunk[chunk >= begin]])
