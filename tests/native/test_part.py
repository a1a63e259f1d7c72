"""Traces of a part: of TLB sets exactly what the analysis takes from a whole trace; of windows of time."""

import numpy as np
import pytest

from ptanalyze.capture.live.tracers import Options
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_machine
from ptanalyze.core.sample import sample_of
from ptanalyze.core.strip import Strip
from ptanalyze.world.address_space import address_space
from ptanalyze.world.captured_world import sample_for
from ptanalyze.world.moves import NOTHING_MOVES
from ptanalyze.world.sampling import recorded_sets
from ptanalyze.world.tlb_filter import TlbFilter
from ptanalyze.world.traced_windows import traced_windows, window_of_chunks
from strategies import build_snapshot, place, small_tlb

pytestmark = pytest.mark.native
LOAD, STORE, MUNMAP, TURN = range(4)
BASE, PAGE = 1 << 30, 1 << 12
PAGES, HUGE, THREADS = 1500, 6, 3
SMALL = small_tlb((16, 1), (48, 3), (16, 2))


def rows_of(seed, number=12_000):
    """Threads that take turns on hot pages and all others, of 4 KiB and 2 MiB, some of which go at times."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((number, 4), np.uint64)
    rows[:, 0] = np.repeat(rng.integers(0, THREADS, number // 40 + 1), 40)[:number]
    page = np.where(rng.random(number) < 0.5, rng.integers(0, 30, number) * 7, rng.integers(0, PAGES, number))
    page = np.where(rng.random(number) < 0.1, PAGES + rng.integers(0, HUGE * 512, number), page)
    page = np.repeat(page, rng.integers(1, 4, number))[:number]
    address = BASE + page * PAGE + np.where(page >= PAGES, 1 << 21, 0) + rng.integers(0, PAGE - 8, number)
    rows[:, 1], rows[:, 2] = rng.random(number) < 0.3, address
    gone = rng.random(number) < 0.002
    rows[gone, 1], rows[gone, 2] = MUNMAP, rows[gone, 2] // PAGE * PAGE
    rows[gone, 3] = rng.choice([PAGE, 20 * PAGE, 1 << 21], int(gone.sum()))
    return rows


def walks(trace, sample, tlb):
    small = [(BASE + page * PAGE, 5000 + page) for page in range(PAGES)]
    above = (BASE + PAGES * PAGE + (1 << 21)) >> 21 << 21
    huge = [(above + k * (1 << 21), (1 << 20) + 512 * k, 2) for k in range(HUGE + 2)]
    space = address_space(build_snapshot([*small, *huge]), trace.regions)
    known = recorded_sets(sample_for(trace, sample), space.regions, tlb)
    return TlbFilter(trace, space, place(trace, 2, 2), tlb, sampling=known).first()


@pytest.mark.parametrize(
    ("sample", "machine", "strip"),
    [("sets:1/8", None, False), ("sets:1/2@1", None, False), ("sets:1/4", "vmitosis-cascade-lake", True)],
)
def test_walks_of_a_recorded_sample_are_those_that_the_analysis_takes_from_the_whole(
    play, sample, machine, strip
):
    tlb = load_machine(machine).tlb if machine else SMALL
    rows = rows_of(len(sample))
    whole, part = play(rows, Options(strip=strip)), play(rows, Options(strip=strip, sample=sample))
    assert part.facts["sample"] == sample and part.touches < whole.touches
    for name in ("accesses", "thread"):
        assert np.array_equal(part.chunks[name], whole.chunks[name]), name
    assert part.regions.tolist() == whole.regions.tolist()
    expected, found = walks(whole, sample_of(sample), tlb), walks(part, None, tlb)
    assert len(expected) > 100
    for name in ("page", "write", "offset", "hits"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


def test_a_window_holds_all_touches_and_what_lies_between_the_first_of_each_thread(play):
    own = [(k % 3, LOAD, BASE + page * PAGE, 0) for k, page in enumerate([*range(40)] * 4)]
    rows = np.array(([*own, (0, TURN, 0, 0)]) * 5, np.uint64)
    whole = play(rows, Options(strip=Strip.OFF))
    trace = play(rows, Options(strip=Strip.OFF, every=0.06, seconds=0.03))
    assert (trace.facts["every_ns"], trace.facts["window_ns"]) == (60_000_000, 30_000_000)
    assert trace.accesses == whole.accesses == 5 * len(own)
    window, touched = window_of_chunks(trace), {}
    for batch in trace.batches(1 << 16):
        chunk = np.arange(batch.chunks.start, batch.chunks.stop)
        chunk = np.repeat(chunk, trace.chunks["touches"][batch.chunks])
        for at, page in zip(chunk.tolist(), batch.page.tolist(), strict=True):
            inside = bool(window[at])
            touched.setdefault(inside, []).append((int(trace.chunks["thread"][at]), page))
    outside = touched[False]
    assert len(outside) == len(set(outside)), "each thread's first touch of a page, and no other"
    counted = int(trace.chunks["accesses"][window > 0].sum())
    assert len(touched[True]) == counted and 0 < counted < trace.accesses
    known = traced_windows(sample_for(trace, None), trace, NOTHING_MOVES)
    assert (
        known.outside == len(np.unique(window[window > 0]))
        and (known.group[window == 0] == known.outside).all()
    )


def test_pages_that_are_unmapped_between_windows_are_first_touched_again(play):
    page = (0, LOAD, BASE, 0)
    away = [(0, TURN, 0, 0), page, page, (0, MUNMAP, BASE, PAGE), page, page, (1, *page[1:]), (1, *page[1:])]
    trace = play(np.array([page, *away], np.uint64), Options(strip=Strip.OFF, every=600, seconds=0.02))
    assert trace.chunks["touches"].tolist() == [1, 1, 1, 1]
    assert trace.chunks["accesses"].tolist() == [1, 2, 2, 2]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (Options(sample="regions:1/8"), "walks of one region depend on all others; record --every"),
        (Options(sample="sets:1/3"), "a rate is 1/2, 1/4, 1/8"),
        (Options(sample="sets:1/8", every=2, seconds=1), "either a sample or windows"),
        (Options(every=10), "name a shorter time to trace, as --for 1s"),
        (Options(every=0.05), "name a shorter time to trace, as --for 5ms"),
        (Options(every=1, seconds=1), "name a shorter time to trace"),
    ],
)
def test_what_cannot_be_recorded_is_refused_in_a_line(options, why):
    with pytest.raises(UsageError, match=why) as refused:
        list(options.items())
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("sample", "tlb", "why"),
    [
        ("sets:1/4", small_tlb((64, 4), (128, 4), (16, 4)), "for arrays of 8 sets or more; record the whole"),
        ("sets:1/16", small_tlb((64, 4), (128, 4), (32, 4)), "at most 1/8 apart; record the whole"),
    ],
)
def test_a_machine_that_needs_other_classes_is_refused(play, sample, tlb, why):
    trace = play(rows_of(1, 400), Options(strip=Strip.OFF, sample=sample))
    with pytest.raises(UsageError, match=why):
        walks(trace, None, tlb)
