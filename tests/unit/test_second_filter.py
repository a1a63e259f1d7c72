"""The second filter keeps what its twin keeps; a trace without spared chunks is one filtered as a whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import second as naive
from ptanalyze.core.second import ONE_IN, RUN, SETS, numbers, spared
from ptanalyze.kernels.second import keep_again
from ptanalyze.world.second_filter import filtered_throughout
from strategies import build_snapshot, build_trace, small_tlb
from stripped_traces import walks_by_chunk

pytestmark = pytest.mark.twin

COUNT_MAX = (1 << 18) - 1
PAGES = st.one_of(st.integers(0, 6), st.integers(0, 5).map(lambda k: 3 + 128 * k), st.integers(0, 1 << 40))
COUNTS = st.one_of(st.integers(1, 5), st.integers(COUNT_MAX - 4, COUNT_MAX))
PERIOD = RUN * ONE_IN
HUGE = 1 << 21
TLBS = [small_tlb((64, 4), (512, 4)), small_tlb((64, 64), (384, 6)), small_tlb((64, 4), (256, 2), (32, 4))]


@settings(deadline=None)
@given(st.lists(st.tuples(PAGES, st.booleans(), COUNTS), min_size=1, max_size=120))
def test_the_kernel_keeps_what_its_naive_twin_keeps(records):
    columns, kinds = zip(*records, strict=True), (np.int64, np.bool_, np.int64)
    page, write, count = (np.array(one, kind) for one, kind in zip(columns, kinds, strict=True))
    kept = keep_again(page, write, count, SETS)
    found = zip(page[kept].tolist(), write[kept].tolist(), count[kept].tolist(), strict=True)
    assert list(found) == naive.second(records)


@given(st.lists(st.integers(0, 65535), min_size=1, max_size=60))
def test_chunks_are_numbered_by_thread(threads):
    expect = [threads[:at].count(thread) for at, thread in enumerate(threads)]
    assert numbers(np.array(threads, np.uint16)).tolist() == expect


@pytest.mark.parametrize("thread", [0, 3, 65535])
def test_one_run_of_chunks_in_sixteen_is_spared(thread):
    found = spared(thread, np.arange(3 * PERIOD), ONE_IN, RUN)
    assert found.tolist() == [naive.spared(thread, number) for number in range(3 * PERIOD)]


@pytest.mark.parametrize("tlb", TLBS)
def test_a_trace_without_spared_chunks_walks_like_one_that_was_filtered_as_a_whole(tlb, tmp_path):
    """Its touches that stand for those left out change nothing; pages of 2 MiB among them."""
    rng = np.random.default_rng(5)
    chunks = [
        (thread, [(int(page) << 12, bool(write)) for page, write in zip(pages, pages % 3 == 0, strict=True)])
        for thread in (0, 1)
        for pages in rng.zipf(1.2, (70, 60)) % 900
    ]
    trace = build_trace(chunks)
    trace.facts["second"] = (SETS, 2, 4)
    rows = [(touch, write, 1) for _, run_ in chunks for touch, write in run_]
    left = []
    for thread, run_ in chunks:
        records = [(va >> 12, write, 1) for va, write in run_]
        number = sum(1 for other, _ in left if other == thread)
        kept = naive.second(records) if naive.spared(thread, number, 2, 4) else records
        left.append((thread, [(page << 12, write) for page, write, _ in kept]))
    assert sum(len(run_) for _, run_ in left) < len(rows)
    snapshot = build_snapshot([*((page << 12, 5000 + page) for page in range(512)), (HUGE, 1 << 20, 2)])
    found, expect = (
        walks_by_chunk(one, snapshot, tlb) for one in (filtered_throughout(trace), build_trace(left))
    )
    assert found.tolist() == expect.tolist()
