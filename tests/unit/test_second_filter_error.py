"""How wrong walks are said to be, against how wrong they are."""

import numpy as np
import pytest

from ptanalyze.core.second import ONE_IN, RUN, SETS, spared
from ptanalyze.core.strip import Strip
from ptanalyze.core.trace import CHUNK_DTYPE, Trace
from ptanalyze.world.second_filter import LEAST_RUNS, LEAST_WALKS, filtered_throughout, measured
from strategies import build_snapshot, small_tlb
from stripped_traces import of_small_chunks, walks_by_chunk

PERIOD = RUN * ONE_IN
TLBS = [small_tlb((64, 4), (512, 4)), small_tlb((64, 64), (384, 6)), small_tlb((64, 4), (256, 2), (32, 4))]


def of_chunks(number, threads=1):
    chunks = np.zeros(number, CHUNK_DTYPE)
    chunks["thread"] = np.arange(number) % threads
    return Trace(chunks, None, None, None, None, {"second": (SETS, ONE_IN, RUN)})


def test_a_difference_of_each_chunk_is_that_of_all():
    """A tenth of a walk per chunk: the first halves of the runs, where TLBs settle, do not count."""
    trace = of_chunks(20 * PERIOD)
    number = np.arange(20 * PERIOD)
    own = spared(0, number, ONE_IN, RUN)
    throughout = np.full(len(number), 10.0)
    walks = throughout + np.where(own, np.where(number % RUN < RUN // 2, 7.0, 0.1), 0)
    known = measured(trace, walks, throughout, 0, 1536)
    missing = 0.1 * len(number) - (walks - throughout).sum()
    assert known.runs == 20
    assert known.percent.middle == pytest.approx(-100 * missing / (walks.sum() + missing))
    least = LEAST_WALKS * len(number) / (20 * RUN / 2)
    assert known.percent.low == pytest.approx(-100 * (missing + least) / (walks.sum() + missing + least))
    assert known.most == max(abs(known.percent.low), abs(known.percent.high))


def test_differences_that_vary_widen_the_interval():
    number = np.arange(20 * PERIOD)
    own, throughout = spared(0, number, ONE_IN, RUN), np.full(len(number), 100.0)
    more = np.where(own & (number % RUN >= RUN // 2), 2.0 * (number // PERIOD % 4), 0)
    flat, varied = (
        measured(of_chunks(len(number)), throughout + one, throughout, 0, 1536).percent
        for one in (own * 3.0, more)
    )
    assert varied.middle == pytest.approx(flat.middle, abs=0.3)
    assert varied.high - varied.low > 3 * (flat.high - flat.low)
    exact = -100 * (3 - 3 / 16) / 103
    assert varied.low < exact < varied.high


@pytest.mark.parametrize("threads", [1, 3])
def test_too_few_runs_tell_nothing(threads):
    few, enough = ((LEAST_RUNS + more) * PERIOD for more in (-1, threads * 2))
    trace = of_chunks(enough, threads)
    walks = np.ones(enough)
    assert measured(trace, walks, walks, 0, 1536).percent is not None
    known = measured(trace, walks, walks, enough - few, 1536)
    assert known.percent is None and known.runs < LEAST_RUNS
    assert set(known.row().values()) == {None}


@pytest.mark.parametrize(("entries", "settles"), [(128, True), (129, False)])
def test_runs_with_fewer_walks_than_a_quarter_of_the_tlb_are_said_not_to_settle(entries, settles):
    walks = np.ones(9 * PERIOD)
    assert measured(of_chunks(len(walks)), walks, walks, 0, entries).settles is settles


def test_intervals_hold_the_errors_that_the_whole_traces_show(tmp_path):
    """Ten of 12, at 95 %, and not as they hold anything; what is measured is what the whole trace has."""
    number = np.arange(9 * PERIOD)
    settled = spared(0, number, ONE_IN, RUN) & (number % RUN >= RUN // 2)
    pages = build_snapshot([(3 * page << 12, 5000 + page) for page in range(4800)])
    held, told, measured_there, whole_there = [], 0, [], []
    for seed in range(4):
        once, twice = (
            of_small_chunks(tmp_path / f"{how}.ptt", seed, len(number), how) for how in (Strip.ON, Strip.L2)
        )
        for tlb in TLBS:
            exact, found, throughout = (
                walks_by_chunk(one, pages, tlb) for one in (once, twice, filtered_throughout(twice))
            )
            low, _, high = measured(twice, found, throughout, 0, tlb.l2.entries).percent
            held.append(low <= 100 * (found.sum() / exact.sum() - 1) <= high)
            told += low > 0 or high < 0
            measured_there.append((found - throughout)[settled].sum())
            whole_there.append((exact - throughout)[settled].sum())
    assert sum(held) >= 10 and told >= 4, (held, told)
    assert np.abs(np.subtract(measured_there, whole_there)).sum() < 0.1 * np.abs(whole_there).sum()
