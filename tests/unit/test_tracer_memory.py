"""Memory of the tracer in a recorded process: what it had when it began, and what nobody else used."""

import time
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.capture.live.record import emulator_ranges
from ptanalyze.capture.live.supervise import TICK, Peak, Run
from ptanalyze.core.snapshot import VMA_DTYPE
from ptanalyze.core.trace import Event
from strategies import PAGE, REGION, build_trace

HEAP = 1 << 40
KINDS = {"mmap": Event.MMAP, "mremap": Event.MREMAP, "tracer": Event.TRACER_MAP}


def vma_table(ranges):
    table = np.zeros(len(ranges), VMA_DTYPE)
    for row, (start, end) in zip(table, ranges, strict=True):
        row["start"], row["end"] = start, end
    return table


def event(kind, start, length):
    if kind == "mmap":
        return 0, 0, Event.MMAP, (0, length, 3, 0x22), start
    if kind == "mremap":
        return 0, 0, Event.MREMAP, (start, PAGE, length, 1), start
    return 0, 0, Event.TRACER_MAP, (start, length), 0


def found(vmas, touches=(), events=(), heap=()):
    calls = [event(*one) for one in events] + [(0, 0, Event.BRK, (end,), end) for end in heap]
    trace = build_trace([(0, list(touches))] if touches else [], calls, threads=1)
    return emulator_ranges(trace, vma_table(vmas))


def test_what_the_tracer_had_when_it_began_is_its_own_beside_pages_that_the_program_touched():
    vmas = [(HEAP, HEAP + 4 * PAGE), (HEAP + 8 * PAGE, HEAP + 12 * PAGE)]
    events = [("mmap", HEAP, 4 * PAGE), ("tracer", HEAP + 8 * PAGE, 4 * PAGE)]
    assert found(vmas, [HEAP], events) == [[HEAP + 8 * PAGE, HEAP + 12 * PAGE]]
    assert found(vmas, [HEAP], events[:1]) == []  # older traces: the 2 MiB are one


def test_zeroed_data_right_behind_a_file_of_the_program_stay_its_own():
    vmas = [(HEAP, HEAP + PAGE), (HEAP + PAGE, HEAP + 3 * PAGE), (HEAP + 3 * PAGE, HEAP + 4 * PAGE)]
    events = [("mmap", HEAP, PAGE), ("tracer", HEAP, 4 * PAGE)]
    assert found(vmas, [HEAP + PAGE], events) == [[HEAP + 3 * PAGE, HEAP + 4 * PAGE]]


def naive(vmas, touches, events, heap):
    """Addresses of pages that are the tracer's, page by page."""

    def pages(start, length):
        return set(range(start // PAGE, -(-(start + length) // PAGE)))

    mapped = set().union(*(pages(a, n) for kind, a, n in events if kind != "tracer"))
    installed = set().union(*(pages(a, n) for kind, a, n in events if kind == "tracer"))
    if heap:
        mapped |= pages(min(heap), max(heap) - min(heap))
    touched = set().union(*(pages(t // REGION * REGION, REGION) for t in touches))
    program = [bool(pages(a, b - a) & mapped) for a, b in vmas]
    ends = {b for (_, b), its in zip(vmas, program, strict=True) if its}
    own = set()
    for (a, b), its in zip(vmas, program, strict=True):
        here = pages(a, b - a)
        if not its and (not here & touched or (here & installed and a not in ends)):
            own |= here
    return own


PLACES = st.integers(0, 40).map(lambda n: HEAP + n * (REGION // 8))
SIZES = st.integers(1, 20).map(lambda n: n * (REGION // 16))


@pytest.mark.twin
@given(
    st.lists(st.tuples(PLACES, SIZES), min_size=1, max_size=8),
    st.lists(PLACES, max_size=4),
    st.lists(st.tuples(st.sampled_from(sorted(KINDS)), PLACES, SIZES), max_size=6),
    st.lists(PLACES, max_size=3),
)
def test_every_page_is_whose_its_twin_says(wanted, touches, events, heap):
    vmas, last = [], 0
    for start, size in sorted(wanted):
        if start >= last:
            vmas.append((start, start + size))
            last = start + size
    ranges = found(vmas, touches, events, heap)
    assert {p for a, b in ranges for p in range(a // PAGE, b // PAGE)} == naive(vmas, touches, events, heap)
    assert all(a[1] < b[0] for a, b in pairwise(ranges))


def test_of_a_small_program_the_page_tables_of_its_peak_are_read_beside_the_tracers_own_memory(tmp_path):
    """Page tables are due when the program has grown, not when it has doubled its tracer."""
    peak, mib = Peak(1), 1 << 20
    peak.statm = tmp_path / "statm"
    kept = []
    for resident in (40 * mib, 40.5 * mib, 42 * mib, 42.2 * mib, 44 * mib, 41 * mib):
        peak.statm.write_text(f"0 {int(resident) >> 12} 0")
        if peak.due():
            peak.kept = peak.resident()
            kept.append(resident / mib)
    assert kept == [40, 42, 44]
    assert not peak.larger_now()


def test_a_short_program_is_looked_at_often_enough_to_see_its_peak():
    """sort of 2 MB takes half a second under its tracer, and frees all of it at its end."""
    ran = SimpleNamespace(started=time.monotonic(), peak=None)
    assert Run.pause(ran) == TICK
    ran.peak = Peak(1)
    assert Run.pause(ran) < TICK / 5
    ran.started -= 100
    assert Run.pause(ran) == TICK
