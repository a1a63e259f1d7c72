"""Memory-management events: CPU seconds for 300,000 of each kind, as steps and under three policies."""

import time
from statistics import median

import numpy as np

from ptanalyze.analysis.replay import replay_walks, start
from ptanalyze.core.machine import load_machine
from ptanalyze.core.snapshot import VMA_DTYPE, Node, Snapshot, Topology, Tree
from ptanalyze.core.trace import CHUNK_DTYPE, EVENT_DTYPE, THREAD_DTYPE, Event, Trace, WalkStream
from ptanalyze.policies import plan_for
from ptanalyze.world.scenario import Scenario
from ptanalyze.world.thread_placement import place

EVENTS, REGIONS, THREADS, RUNS = 300_000, 512, 4, 3
SMALLEST = {"EVENTS": 300, "RUNS": 1}
PAGE, BASE, FAR = 1 << 12, 1 << 44, 1 << 45
SPAN = REGIONS << 21
POLICIES = ("linux", "mitosis", "hydra")
DONTNEED, PRIVATE = 4, 0x22


def run():
    """[(what, value, unit, note)]: VMAs of 16 pages in 1 GiB, with gaps, walked from all nodes."""
    rows = []
    for name, fill in CASES.items():
        case = process(fill)
        steps = warm_seconds(lambda: scenario(*case).history)  # noqa: B023
        rows.append((f"{name}: steps", steps, "CPU s", f"{EVENTS:,} events"))
        rows += [(f"{name}: replay, {policy}", replayed(policy, *case), "CPU s", "") for policy in POLICIES]
    return rows


def scenario(snapshot, trace, stream):
    machine = load_machine("vmitosis-cascade-lake")
    placement = place(trace, machine, "round-robin", snapshot.topology)
    return Scenario(snapshot, trace, machine, placement).keeping(stream=stream)


def replayed(policy, snapshot, trace, stream):
    """CPU seconds of the cache pass, of marking faults, and of a policy's replay; the steps are known."""
    made = scenario(snapshot, trace, stream)
    made.history  # noqa: B018
    once = lambda: replay_walks([start(plan_for(policy), made)], made, made.reads())  # noqa: E731
    return warm_seconds(once)


def warm_seconds(action):
    """Median CPU seconds, all compiled."""
    seconds = []
    for _ in range(RUNS + 1):
        begin = time.process_time()
        action()
        seconds.append(time.process_time() - begin)
    return median(seconds[1:])


def pages(k):
    """Addresses of the VMAs: 16 pages each, 16 pages apart."""
    return BASE + k % (SPAN // (32 * PAGE)) * 32 * PAGE


def mprotect(events, k):
    events["kind"], events["a"], events["b"] = Event.MPROTECT, pages(k // 2), 8 * PAGE
    events["c"] = np.where(k % 2, 3, 1)


def madvise(events, k):
    events["kind"], events["a"], events["b"], events["c"] = Event.MADVISE, pages(k), 8 * PAGE, DONTNEED


def mmap(events, k):
    """In the gaps; half of them unmap again what the one before mapped."""
    address = pages(k // 2) + 20 * PAGE
    events["kind"], events["b"] = np.where(k % 2, Event.MUNMAP, Event.MMAP), 8 * PAGE
    events["a"], events["c"], events["d"] = np.where(k % 2, address, 0), np.where(k % 2, 0, 3), PRIVATE
    events["result"] = np.where(k % 2, 0, address)


def mmap_many(events, k):
    """Maps as many VMAs as Linux allows, 65,536, in no order and again and again."""
    address = BASE + SPAN + k * 40503 % 65536 * 32 * PAGE
    events["kind"], events["b"], events["c"], events["d"] = Event.MMAP, 16 * PAGE, 3, PRIVATE | 0x10
    events["result"] = address


def mremap(events, k):
    """A buffer of 64 pages goes back and forth."""
    there = np.where(k % 2, BASE, FAR)
    events["kind"], events["a"] = Event.MREMAP, BASE + FAR - there
    events["b"], events["c"], events["d"], events["result"] = 16 * PAGE, 16 * PAGE, 1, there


def mremap_growing(events, k):
    """A buffer of 16 pages each in some regions, which moves on by a page and grows by one."""
    events["kind"], events["a"] = Event.MREMAP, BASE + k % REGIONS * (512 * PAGE) + k // REGIONS * PAGE
    events["b"], events["c"], events["d"], events["result"] = 16 * PAGE, 17 * PAGE, 1, events["a"] + PAGE


CASES = {
    "madvise": madvise,
    "mprotect": mprotect,
    "mmap": mmap,
    "mmap, many": mmap_many,
    "mremap": mremap,
    "mremap, growing": mremap_growing,
}


def process(fill):
    """(Snapshot, Trace, WalkStream): each page of the VMAs is walked, events in between."""
    regions = np.append((BASE >> 21) + np.arange(REGIONS), FAR >> 21).astype(np.uint64)
    chunks = np.zeros(EVENTS // 10, CHUNK_DTYPE)
    chunks["touches"] = chunks["accesses"] = 4
    chunks["first"], chunks["cpu"] = np.arange(len(chunks)) * 4, -1
    chunks["thread"] = np.arange(len(chunks)) % THREADS
    events, k = np.zeros(EVENTS, EVENT_DTYPE), np.arange(EVENTS)
    events["chunk"], events["thread"] = k // 10, k % THREADS
    fill(events, k)
    root = Tree(
        np.zeros((1, 512), np.uint64), np.zeros(1, np.uint64), np.zeros(1, np.int64),
        np.full(1, -1, np.int32), np.zeros(1, np.int16), np.full(1, 4, np.uint8), np.zeros(1, np.uint8), 4,
    )  # fmt: skip
    starts = np.unique(pages(np.arange(SPAN // (32 * PAGE))))
    vmas = np.zeros(len(starts), VMA_DTYPE)
    vmas["start"], vmas["end"], vmas["prot"] = starts, starts + 16 * PAGE, 3
    topology = Topology(tuple(Node(n, (n,), np.zeros((0, 2), np.int64)) for n in range(4)))
    trace = Trace(chunks, events, np.zeros(THREADS, THREAD_DTYPE), regions, lambda least: iter(()), {})
    rng, walks = np.random.default_rng(1), 4 * len(chunks)
    page = rng.integers(0, len(regions) << 9, walks).astype(np.uint32)
    offset = np.arange(len(chunks) + 1) * 4
    stream = WalkStream(page, np.zeros(walks, bool), offset, np.zeros((THREADS, 3), np.int64))
    return Snapshot(root, vmas, ("m",) * len(vmas), topology), trace, stream
