"""Replay: native walks/s of each policy on one core, random pages of 16 GiB, four nodes; and compile time."""

import time
from statistics import median

import numpy as np

from ptanalyze.analysis.replay import start
from ptanalyze.core.errors import RefusedError
from ptanalyze.core.machine import load_machine
from ptanalyze.core.snapshot import VMA_DTYPE, Node, Snapshot, Topology, Tree
from ptanalyze.core.trace import CHUNK_DTYPE, EVENT_DTYPE, THREAD_DTYPE, Trace, WalkStream
from ptanalyze.kernels.replay import mark_faults
from ptanalyze.policies import plan_for, policies
from ptanalyze.world.scenario import Scenario
from ptanalyze.world.thread_placement import place

from .bandwidth import read_bandwidth

REGIONS, THREADS, CHUNK, WALKS, RUNS = 8192, 4, 4096, 1 << 22, 3
SMALLEST = {"REGIONS": 512, "WALKS": 1 << 13, "RUNS": 1}
LEAVES_PER_LEVEL_2 = 512


def run():
    """[(what, value, unit, note)]: steady state = every page was touched from every node before."""
    machine = load_machine("vmitosis-cascade-lake")
    snapshot, trace, stream = _process()
    placement = place(trace, machine, "round-robin", snapshot.topology)
    scenario = Scenario(snapshot, trace, machine, placement).keeping(stream=stream)
    space, past = scenario.space, scenario.history
    reads = next(iter(scenario.reads(batch=WALKS)))[1]
    mapped, fault = past.mapped(), np.zeros(WALKS, np.uint8)
    mark = lambda: mark_faults(  # noqa: E731
        reads.page, reads.slot, past.rows, space.tables.parent, past.steps, mapped, 0, 0, fault
    )
    rows = [("first batch: faults", WALKS / _seconds(mark) / 1e6, "M walks/s", "compilation included")]
    cold = fault.copy()
    rows.append(
        (
            "faults, shared by all policies",
            WALKS / _median(mark) / 1e6,
            "M walks/s",
            "nothing faults any more",
        )
    )
    bandwidth, read_bytes = read_bandwidth(), sum(column.nbytes for column in reads)
    plain = _median(lambda: _numpy_linux(reads, space.tables, placement.cpu_node))
    for policy in policies().values():
        plan = plan_for(policy)
        if policy.reshape or not allowed(plan, scenario):
            continue
        started = start(plan, scenario)
        replay = lambda started=started: started.replay(scenario, reads, fault, mapped, 0)  # noqa: E731
        first = lambda started=started: started.replay(scenario, reads, cold, mapped, 0)  # noqa: E731
        small = reads._replace(**{name: getattr(reads, name)[:1] for name in reads._fields})
        built = _seconds(lambda: started.replay(scenario, small, cold[:1], mapped, 0))  # noqa: B023
        rows.append(
            (
                f"{policy.name}: first touches",
                WALKS / _seconds(first) / 1e6,
                "M walks/s",
                f"{built:.1f} s compiling",
            )
        )
        steady = _median(replay)
        rows += [
            (f"{policy.name}: steady", WALKS / steady / 1e6, "M walks/s", "one core"),
            (f"{policy.name}: steady, to NumPy", plain / steady, "x", "linux by bincount"),
            (f"{policy.name}: steady, to memory read", read_bytes / steady / bandwidth, "x", ""),
        ]
    return rows


def allowed(plan, scenario):
    """Whether a native process on a machine without slow nodes has what the policy needs."""
    try:
        plan.check(scenario)
    except RefusedError:
        return False
    return True


def _numpy_linux(reads, tables, cpu_node):
    """Counts of the replay of linux in plain NumPy: reads by bit, reader's node, serving node, from DRAM."""
    node, at = cpu_node[reads.cpu].astype(np.int64), reads.leaf.astype(np.int64)
    for level in range(1, 5):
        bit = np.uint64(8 * level)
        here = np.flatnonzero((reads.read >> bit) & np.uint64(1))
        dram = ((reads.missed[here, -1] >> bit) & np.uint64(1)).astype(np.int64)
        np.bincount((node[here] * 4 + tables.node[at[here]]) * 2 + dram, minlength=32)
        at = tables.parent[at]


def _seconds(action):
    """CPU seconds."""
    begin = time.process_time()
    action()
    return time.process_time() - begin


def _median(action):
    return median(_seconds(action) for _ in range(RUNS))


def _process():
    """(Snapshot, Trace, WalkStream): four threads, each walking for random pages of one VMA."""
    base = 1 << 44
    level_2 = REGIONS // LEAVES_PER_LEVEL_2
    level = np.array([4, 3, *([2, *[1] * LEAVES_PER_LEVEL_2] * level_2)], np.uint8)
    parent = np.full(len(level), -1, np.int32)
    parent[1] = 0
    at = 2 + np.arange(level_2) * (LEAVES_PER_LEVEL_2 + 1)
    parent[at] = 1
    for first in at:
        parent[first + 1 : first + 1 + LEAVES_PER_LEVEL_2] = first
    bases = np.full(len(level), base, np.uint64)
    bases[0] = 0
    bases[at] = base + np.arange(level_2, dtype=np.uint64) * np.uint64(1 << 30)
    bases[level == 1] = base + np.arange(REGIONS, dtype=np.uint64) * np.uint64(1 << 21)
    entries = np.full((len(level), 512), 0x1067, np.uint64)
    node = (np.arange(len(level)) % 4).astype(np.int16)
    tree = Tree(entries, bases, np.arange(len(level)), parent, node, level, np.zeros(len(level), np.uint8), 4)
    vmas = np.zeros(1, VMA_DTYPE)
    vmas["start"], vmas["end"], vmas["prot"] = base, base + (REGIONS << 21), 3
    topology = Topology(tuple(Node(n, (n,), np.zeros((0, 2), np.int64)) for n in range(4)))
    chunks = np.zeros(WALKS // CHUNK, CHUNK_DTYPE)
    chunks["touches"], chunks["accesses"], chunks["cpu"] = CHUNK, CHUNK, -1
    chunks["first"] = np.arange(len(chunks)) * CHUNK
    chunks["thread"] = np.arange(len(chunks)) % THREADS
    regions = (base >> 21) + np.arange(REGIONS, dtype=np.uint64)
    threads = np.zeros(THREADS, THREAD_DTYPE)
    trace = Trace(chunks, np.zeros(0, EVENT_DTYPE), threads, regions, lambda least: iter(()), {})
    page = np.random.default_rng(1).integers(0, REGIONS << 9, WALKS).astype(np.uint32)
    offset = np.arange(len(chunks) + 1) * CHUNK
    stream = WalkStream(page, np.zeros(WALKS, bool), offset, np.zeros((THREADS, 3), np.int64))
    return Snapshot(tree, vmas, ("heap",), topology), trace, stream
