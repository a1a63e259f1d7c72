"""One thread's long trace: the TLB filter on one and two cores, what opening takes, events, resident memory.

Pairs of runs, one after the other, on pinned cores; medians of the ratios. On a machine that is shared with
others look at the CPU time: two cores cannot be faster than 2 over the ratio of CPU times.
"""

import os
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from ptanalyze.core.machine import load_machine
from ptanalyze.core.snapshot import VMA_DTYPE
from ptanalyze.core.trace import CHUNK_DTYPE, EVENT_DTYPE, THREAD_DTYPE, Event, Trace, WalkStream
from ptanalyze.formats.trace import open_trace, read_index, trace_of
from ptanalyze.world.address_space import address_space
from ptanalyze.world.scenario import Scenario
from ptanalyze.world.thread_placement import place
from ptanalyze.world.tlb_filter import TlbFilter
from ptanalyze_formats.trace_writer import new_trace

from .bench_kernels import snapshot

TOUCHES, BLOCK, PAIRS = 24_000_000, 1_000_000, 5
MACHINE = load_machine("vmitosis-cascade-lake")
BASE, REGIONS = 1 << 44, 4096
EVENTS = 300_000
SMALLEST = {"TOUCHES": 20_000, "BLOCK": 10_000, "PAIRS": 1, "EVENTS": 300}
CALLS = {
    "madvise (DONTNEED)": ([Event.MADVISE], [4], 0),
    "mprotect": ([Event.MPROTECT], [1, 3], 0),
    "mmap and munmap": ([Event.MMAP, Event.MUNMAP], [3, 0], 0x22),
}


def run():
    with TemporaryDirectory() as place_:
        path = f"{place_}/trace.ptt"
        write(path)
        begun = time.perf_counter()
        index = read_index(path)
        whole = time.perf_counter() - begun
        open_trace(path, Path(place_))  # which keeps the index
        begun = time.perf_counter()
        open_trace(path, Path(place_))
        opened = time.perf_counter() - begun
        size = os.stat(path).st_size / 1e6
        yield (
            "opening by the index",
            opened * 1e3,
            "ms",
            f"{size:.0f} MB; {whole * 1e3:.0f} ms by its touches",
        )
        yield from filtering(trace_of(path, index, checked=True))
    yield from happening()


def write(path):
    """A thread that walks for most of what it touches, as stripped traces do."""
    rng = np.random.default_rng(1)
    with new_trace(path, ended="exit") as writer:
        for k in range(TOUCHES // BLOCK):
            page = rng.integers(0, REGIONS << 9, BLOCK)
            swept = rng.random(BLOCK) < 0.3
            page[swept] = np.arange(np.count_nonzero(swept)) % 700
            page += BASE >> 12
            writer.accesses_of(page, page % 2 == 0, thread=0, time=np.arange(BLOCK) + k * BLOCK)


def filtering(trace):
    space = address_space(snapshot(False), trace.regions)
    placement = place(trace, MACHINE, "block")

    def filtered(threads, cores):
        os.sched_setaffinity(0, cores)
        wall, cpu = time.perf_counter(), time.process_time()
        stream = TlbFilter(trace, space, placement, MACHINE.tlb, threads=threads).first()
        spent = time.perf_counter() - wall, time.process_time() - cpu
        del stream  # after the clock: its file goes with it
        return spent

    cores = sorted(os.sched_getaffinity(0))
    one, two = set(cores[:1]), set(cores[:2])
    filtered(2, two)
    pairs = [(filtered(1, one), filtered(2, two)) for _ in range(PAIRS)]
    os.sched_setaffinity(0, cores)
    alone = [a for a, _ in pairs]
    rate = TOUCHES / min(cpu for _, cpu in alone) / 1e6
    yield (
        "filter of a thread's trace, one core",
        rate,
        "M touches/s",
        "CPU time: decoding, filter, stream stored",
    )
    ratios = [a[0] / b[0] for a, b in pairs]
    note = f"of elapsed time, median of {PAIRS} pairs, {min(ratios):.2f} to {max(ratios):.2f}"
    yield "two cores to one", median(ratios), "x", note
    spent = median(b[1] / a[1] for a, b in pairs)
    yield "CPU time on two cores to one", spent, "x", f"at most {2 / spent:.2f} times as fast"


def happening():
    """300,000 calls on 16 pages each, a walk between two."""
    shot = replace(
        snapshot(False), vmas=np.array([(0, REGIONS << 21, 3, 0, 0)], VMA_DTYPE), vma_names=("heap",)
    )
    for name, (kind, c, d) in CALLS.items():
        trace = calls(np.resize(kind, EVENTS), np.resize(c, EVENTS), d)
        stepping(shot, trace)  # compiles, few calls would not
        seconds, steps = stepping(shot, trace)
        yield f"{EVENTS:,} calls: {name}", seconds, "s", f"CPU time; {steps:,} steps"


def stepping(shot, trace):
    """(CPU seconds, steps) of the calls of a trace with a walk between two."""
    scenario = Scenario(shot, trace, MACHINE, place(trace, MACHINE, "round-robin"))
    page = np.random.default_rng(2).integers(0, REGIONS << 9, EVENTS).astype(np.uint32)
    columns = page, page < 0, np.arange(EVENTS + 1), np.zeros((4, 3), np.int64)
    scenario = scenario.keeping(stream=WalkStream(*columns))
    assert scenario.space
    begun = time.process_time()
    steps = len(scenario.history.steps.at)
    return time.process_time() - begun, steps


def calls(kind, c, d):
    """A Trace of four threads that make these calls in turn, one before each chunk of a touch."""
    chunks, events = np.zeros(EVENTS, CHUNK_DTYPE), np.zeros(EVENTS, EVENT_DTYPE)
    chunks["touches"] = chunks["accesses"] = 1
    chunks["first"] = events["chunk"] = np.arange(EVENTS)
    chunks["thread"] = events["thread"] = np.arange(EVENTS) % 4
    at = np.random.default_rng(3).integers(0, REGIONS * 8, EVENTS // 2).repeat(2) << 18
    events["kind"], events["a"], events["b"], events["c"], events["d"] = kind, at, 16 << 12, c, d
    events["result"] = np.where(kind == Event.MMAP, at, 0)
    threads, regions = np.zeros(4, THREAD_DTYPE), np.arange(REGIONS, dtype=np.uint64)
    return Trace(chunks, events, threads, regions, lambda least: iter(()), {})
