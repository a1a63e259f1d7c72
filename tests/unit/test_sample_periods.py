"""Samples that stand for different numbers of events."""

import io
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive.sample_periods import copies_of
from ptanalyze.core.errors import CaptureError
from ptanalyze.formats.foreign.perf_samples import (
    MOST_COPIES,
    MOST_PERIOD,
    NOT_PRINTED,
    PIECE,
    Periods,
    import_samples,
    pieces,
)
from ptanalyze.formats.trace import read_trace

pytestmark = pytest.mark.twin

SAMPLES = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(0, 900)), min_size=1, max_size=250
)


def columns(block):
    return (np.array([sample[at] for sample in block], np.int64) for at in (2, 0, 1))


@given(st.lists(SAMPLES, min_size=1, max_size=4))
def test_copies_are_those_of_the_twin_over_several_blocks(blocks):
    periods = Periods("text")
    assert [periods.copies(*columns(block)).tolist() for block in blocks] == copies_of(blocks)


@given(SAMPLES)
def test_each_threads_pages_are_within_one_sample_of_their_periods(block):
    periods = Periods("text")
    copies = periods.copies(*columns(block))
    written, weight = Counter(), Counter()
    for (thread, page, period), count in zip(block, copies.tolist(), strict=True):
        written[thread, page] += count
        weight[thread, page] += max(period, 1)
    total, all_of_it = int(copies.sum()), sum(weight.values())
    assert total >= 1 and 2 * abs(total * periods.unit - all_of_it) <= periods.unit + 1
    for key, events in weight.items():
        assert abs(written[key] * periods.unit - events) < periods.unit
        assert abs(written[key] / total - events / all_of_it) < 1.5 / total + 1 / periods.unit


@given(st.integers(0, MOST_PERIOD), st.integers(1, 50))
def test_equal_periods_change_nothing(period, n):
    page = np.arange(n) % 7
    assert Periods("text").copies(np.full(n, period), np.zeros(n, np.int64), page).tolist() == [1] * n
    assert Periods("text").copies(np.full(n, NOT_PRINTED), page, page).tolist() == [1] * n


def test_one_long_period_costs_no_other_sample():
    period, page = np.full(1000, 50), np.arange(1000) % 3
    period[100], page[100] = 50 * 200, 7
    copies = Periods("text").copies(period, np.zeros(1000, np.int64), page)
    assert copies[100] == 200 and (np.delete(copies, 100) == 1).all()
    period[100] = MOST_PERIOD
    copies = Periods("text").copies(period, np.zeros(1000, np.int64), page)
    assert MOST_COPIES - 1 <= copies[100] <= MOST_COPIES and copies.sum() == copies[100]


def test_two_pages_that_take_turns_at_half_a_unit_are_both_written():
    page = np.array([9] * 4 + [1, 2] * 50)
    period = np.array([1000] * 4 + [500] * 100)
    copies = Periods("text").copies(period, np.zeros(104, np.int64), page)
    assert [int(copies[page == number].sum()) for number in (1, 2, 9)] == [25, 25, 4]


def test_many_copies_are_written_a_piece_at_a_time():
    copies = np.random.default_rng(1).integers(0, MOST_COPIES, 5000)
    found = list(pieces(copies))
    assert len(found) > 1 and max(map(len, found)) <= PIECE
    assert np.concatenate(found).tolist() == np.repeat(np.arange(5000), copies).tolist()
    assert list(pieces(np.zeros(3, np.int64))) == []
    assert [piece.tolist() for piece in pieces(np.array([2 * PIECE, 1]))] == [[0] * 2 * PIECE, [1]]


def perf_text(*samples):
    return "".join(
        f"7 [000] {10 + at}.5:  {period} tlb-miss: {page << 12:x}\n"
        for at, (period, page) in enumerate(samples)
    )


def imported(text, tmp_path):
    samples = import_samples(io.BytesIO(text.encode()), tmp_path / "t.ptt")
    trace = read_trace(tmp_path / "t.ptt")
    return samples, [page for batch in trace.batches(9) for page in (batch.page & 511).tolist()]


def test_a_sample_with_a_long_period_weighs_as_much_as_two_with_half_of_it(tmp_path):
    samples, pages = imported(perf_text((100, 1), (50, 2), (50, 2), (100, 3), (0, 4)), tmp_path)
    assert sorted(pages) == [1, 2, 3] and samples.said() == {"period_unit": 100}


def test_without_periods_each_sample_counts_once_and_it_is_said(tmp_path):
    samples, pages = imported("7 1.5: tlb-miss: 1000\n7 1.6: tlb-miss: 2000\n", tmp_path)
    assert pages == [1, 2] and samples.said() == {"periods": "not printed"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (perf_text((MOST_PERIOD + 1, 1)), r"period = 1099511627777: at most 2\*\*40"),
        (perf_text(((1 << 64) - 1, 1)), r"period = \d+: at most"),
        (perf_text((10**40, 1)), r"period = \d+: at most"),
        (perf_text((5, 1)) + "7 99.5: tlb-miss: 1000\n", "period = only some samples have one: print all"),
        (perf_text((5, 1)).replace(" 5 ", " 5a "), "line at byte 0"),
        (perf_text((5, 1)).replace(" 5 ", " -5 "), "line at byte 0"),
    ],
)  # fmt: skip
def test_bad_periods_are_one_line(tmp_path, text, error):
    with pytest.raises(CaptureError, match=error) as raised:
        imported(text, tmp_path)
    assert "\n" not in str(raised.value) and list(tmp_path.iterdir()) == []


def test_a_period_out_of_proportion_to_the_first_is_one_line():
    periods = Periods("text")
    one = np.ones(1, np.int64)
    assert periods.copies(3 * one, one, one).tolist() == [1]
    assert periods.copies((3 * MOST_COPIES - 1) * one, one, one).sum() <= MOST_COPIES
    with pytest.raises(CaptureError, match=r"text: period = 3072: 1024 times those before it \(3\)"):
        periods.copies(3 * MOST_COPIES * one, one, one)
