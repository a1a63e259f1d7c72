"""Rates of the kernels that do not depend on the policy, beside plain NumPy and the memory-read bandwidth."""

import time
from collections import deque
from functools import partial

import numpy as np

from ptanalyze.analysis.leaf_classes import classify_pages
from ptanalyze.core.machine import load_machine
from ptanalyze.core.snapshot import VMA_DTYPE, Node, Snapshot, Topology, Tree
from ptanalyze.core.trace import CHUNK_DTYPE, EVENT_DTYPE, Placement, Touches, Trace, WalkStream, read_only
from ptanalyze.world import tlb_filter
from ptanalyze.world.address_space import address_space
from ptanalyze.world.cache_pass import cache_pass

from .bandwidth import best, read_bandwidth

TABLES, TOUCHES, WALKS, NODES = 1 << 15, 8_000_000, 2_000_000, 4
SMALLEST = {"TABLES": 1 << 9, "TOUCHES": 10_000, "WALKS": 10_000}
MACHINE = load_machine("vmitosis-cascade-lake")  # of NODES nodes


def tree(frames, encoding="x86", flag=0x67):
    """A full tree over TABLES leaf tables that map `frames` (uint64[TABLES, 512]) from address 0 on."""
    upper = TABLES // 512
    parent = np.concatenate([[-1, 0], np.full(upper, 1), 2 + np.arange(TABLES) // 512]).astype(np.int32)
    level = np.concatenate([[4, 3], np.full(upper, 2), np.full(TABLES, 1)]).astype(np.uint8)
    base = np.concatenate([[0, 0], np.arange(upper) << 30, np.arange(TABLES) << 21]).astype(np.uint64)
    entries = np.zeros((len(level), 512), np.uint64)
    entries[2 + upper :] = frames << np.uint64(12) | np.uint64(flag)
    node = np.random.default_rng(1).integers(0, NODES, len(level)).astype(np.int16)
    return Tree(entries, base, np.arange(len(level)), parent, node, level, level * 0, 4, encoding)


def snapshot(two_dimensional):
    nodes = tuple(Node(n, (n,), np.array([[n << 24, n + 1 << 24]])) for n in range(NODES))
    frames = np.arange(TABLES * 512, dtype=np.uint64).reshape(TABLES, 512)
    host = tree(frames, "ept", 0x37) if two_dimensional else None
    if two_dimensional:
        frames = np.random.default_rng(2).permutation(frames.ravel()).reshape(frames.shape)
    return Snapshot(tree(frames), np.zeros(0, VMA_DTYPE), (), Topology(nodes), host)


def rates(name, count, seconds, numpy_seconds, read_bytes, bandwidth, note):
    """The rate in millions per second, and as ratios to NumPy and to the bandwidth."""
    return [
        (name, count / seconds / 1e6, "M/s", note),
        (f"{name}, to NumPy", numpy_seconds / seconds, "x", ""),
        (
            f"{name}, to memory read",
            read_bytes / seconds / bandwidth,
            "x",
            f"{read_bytes / count:.1f} bytes each",
        ),
    ]


def bench_classify(two_dimensional, bandwidth):
    shot = snapshot(two_dimensional)
    space = address_space(shot, np.zeros(0, np.uint64))
    classify_pages(space)
    entries, first = shot.guest.entries, len(shot.guest) - TABLES
    node = shot.guest.node
    pages = TABLES * 512

    def numpy_native():
        leaf = entries[first:]
        mapped = ((leaf | leaf >> np.uint64(8)) & np.uint64(1)).sum(axis=1)
        return np.bincount(node[first:], weights=mapped)

    def numpy_nested():
        leaf = entries[first:]
        host = shot.host.node[space.host_of[leaf >> np.uint64(21)] - space.guest_tables]
        return np.bincount((node[first:, None] * NODES + host)[(leaf & np.uint64(1)) > 0], minlength=NODES**2)

    dimensions = 2 if two_dimensional else 1
    name = f"classify {dimensions}D"
    plain = best(numpy_nested if two_dimensional else numpy_native, 1)
    read = entries.nbytes * dimensions
    return rates(
        name, pages, best(lambda: classify_pages(space)), plain, read, bandwidth, "guest PTEs, host read too"
    )


def one_chunk_trace(page):
    chunks = np.zeros(1, CHUNK_DTYPE)
    chunks["touches"] = chunks["accesses"] = len(page)
    write, regions = np.zeros(len(page), bool), np.arange(TABLES, dtype=np.uint64)
    batches = lambda least: iter([Touches(slice(0, 1), page, write, page)])  # noqa: E731
    return Trace(chunks, np.zeros(0, EVENT_DTYPE), np.zeros(1), regions, batches, {})


def numpy_direct_mapped(page):
    """NumPy's version without a loop: a TLB of as many entries, but direct-mapped."""
    sets = page % np.uint32(1536)
    order = np.argsort(sets, kind="stable")
    return np.count_nonzero(page[order][1:] != page[order][:-1])


def bench_tlb(bandwidth):
    from ptanalyze.kernels import lru as kernels

    space = address_space(snapshot(False), np.arange(TABLES, dtype=np.uint64))
    pages = tlb_filter._pages(space.regions)
    rng, missed = np.random.default_rng(0), np.zeros(TOUCHES, bool)
    cold = rng.integers(0, TABLES * 512, TOUCHES).astype(np.uint32)
    warm = np.where(rng.random(TOUCHES) < 0.95, rng.integers(0, 48, TOUCHES), cold).astype(np.uint32)
    results = []
    for machine, label in ((MACHINE, "TLB filter"), (load_machine("epyc-milan"), "TLB filter, EPYC")):
        tlb = machine.tlb
        kernel = kernels.filter_common if tlb_filter.is_common(tlb) else kernels.filter_any
        first, second = (f"{array.entries}/{array.ways}" for array in (tlb.l1_4k, tlb.l2))
        for name, page in ((f"{label}, all miss", cold), (f"{label}, 95 % hit", warm)):
            state, trace = tlb_filter._states(tlb, 1, tlb_filter.is_common(tlb))[0], one_chunk_trace(page)
            shootdowns = tlb_filter._shootdowns(trace.events, pages)
            chunks = np.array([[0, 0, TOUCHES]])
            call = lambda: kernel(read_only(page), chunks, pages, shootdowns, state, missed)  # noqa: B023, E731
            call()
            plain = best(lambda: numpy_direct_mapped(page), 1)  # noqa: B023
            note = f"{first} + {second} entries, one core"
            results += rates(name, TOUCHES, best(call), plain, 4 * TOUCHES, bandwidth, note)
    return results


def bench_walks(two_dimensional, bandwidth):
    space = address_space(snapshot(two_dimensional), np.arange(TABLES, dtype=np.uint64))
    rng = np.random.default_rng(0)
    chunks, cpus = 1000, NODES
    offset = np.linspace(0, WALKS, chunks + 1).astype(np.int64)
    placement = Placement(np.arange(chunks, dtype=np.int32) % cpus, np.arange(cpus, dtype=np.int16), None, "")
    results = []
    skewed = np.minimum(rng.zipf(1.1, WALKS), TABLES * 512) - 1
    for name, page in (("uniform", rng.integers(0, TABLES * 512, WALKS)), ("zipf 1.1", skewed)):
        stream = WalkStream(
            page.astype(np.uint32), np.zeros(WALKS, bool), offset, np.zeros((cpus, 3), np.int64)
        )
        call = lambda threads=1: deque(  # noqa: E731
            cache_pass(space, placement, MACHINE, stream, threads=threads),  # noqa: B023
            maxlen=0,
        )
        call()
        plain = best(lambda: numpy_leaf_lines(space, stream.page), 1)  # noqa: B023
        label = f"cache pass {2 if two_dimensional else 1}D, {name}"
        results += rates(
            label, WALKS, best(call), plain, 40 * WALKS, bandwidth, f"walks over {TABLES >> 9} GiB"
        )
        one, two = (best(partial(call, threads), 5, time.perf_counter) for threads in (1, 2))
        results.append((f"{label}, elapsed", WALKS / one / 1e6, "M/s", "one thread"))
        results.append((f"{label}, elapsed", WALKS / two / 1e6, "M/s", f"two threads, {one / two:.2f} times"))
    return results


def numpy_leaf_lines(space, page):
    """NumPy's version without a loop: the leaf line of each walk, no caches."""
    region = page >> np.uint32(9)
    return space.regions.leaf[region].astype(np.int64) << 6 | (page & np.uint32(511)) >> np.uint32(3)


def run():
    bandwidth = read_bandwidth()
    results = [("memory read", bandwidth / 1e9, "GB/s", "of this run")]
    for two_dimensional in (False, True):
        results += bench_classify(two_dimensional, bandwidth) + bench_walks(two_dimensional, bandwidth)
    return results + bench_tlb(bandwidth)
