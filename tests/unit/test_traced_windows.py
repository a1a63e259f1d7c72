"""Traces of windows of time: which walks count, what they stand for, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.sample import sample_of
from ptanalyze.core.trace import EVENT_DTYPE, Event
from ptanalyze.core.walks import WalkStream
from ptanalyze.formats.trace_file import read_trace
from ptanalyze.formats.trace_writer import trace_writer
from ptanalyze.world.captured_world import sample_for
from ptanalyze.world.moves import NOTHING_MOVES, Moves
from ptanalyze.world.traced_windows import WARM, traced_windows, window_of_chunks
from strategies import PAGE, build_trace

EVERY, WINDOW, STEP = 100, 40, 5


def windowed(threads, accesses):
    """Trace of a chunk each STEP ns, of these threads, with windows of 40 ns of 100."""
    trace = build_trace([(thread, [PAGE] * n) for thread, n in zip(threads, accesses, strict=True)])
    chunks = trace.chunks.copy()
    chunks["time"] = np.arange(len(chunks)) * STEP
    rows, latest = [], {}
    for number, chunk in enumerate(chunks):
        window = chunk["time"] // EVERY + 1 if chunk["time"] % EVERY < WINDOW else 0
        if latest.get(int(chunk["thread"])) != window:
            row = np.zeros(1, EVENT_DTYPE)
            row["chunk"], row["time"], row["kind"], row["a"] = number, chunk["time"], Event.WINDOW, window
            row["thread"] = latest_thread = chunk["thread"]
            latest[int(latest_thread)] = window
            rows.append(row)
    events = np.concatenate(rows)
    facts = trace.facts | {"every_ns": EVERY, "window_ns": WINDOW}
    return replace(trace, chunks=chunks, events=events, facts=facts)


def stream_of(walks):
    offset = np.concatenate([[0], np.cumsum(walks)])
    hits = np.array([[7, 3, offset[-1]]], np.int64)
    return WalkStream(np.zeros(offset[-1], np.uint32), np.zeros(offset[-1], bool), offset, hits)


@pytest.mark.twin
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1 << 32), number=st.integers(120, 400))
def test_groups_and_scale_are_those_of_one_walk_at_a_time(seed, number):
    rng = np.random.default_rng(seed)
    threads, accesses, walks = (
        rng.integers(low, high, number).tolist() for low, high in ((0, 3), (1, 10), (0, 5))
    )
    trace = windowed(threads, accesses)
    known = traced_windows(sample_for(trace, None), trace, NOTHING_MOVES)
    stream = stream_of(walks)
    found, expected = window_of_chunks(trace).tolist(), []
    used = sorted({n for n in found if n})
    begins = {n: found.index(n) * STEP for n in used}
    for k, (window, one) in enumerate(zip(found, walks, strict=True)):
        assert window == (k * STEP // EVERY + 1 if k * STEP % EVERY < WINDOW else 0)
        counts = window and k * STEP >= begins[window] + WARM * WINDOW
        group = used.index(window) * known.outside // len(used) if counts else known.outside
        expected += [group] * one
    assert known.groups_of(stream, 0, len(stream)).tolist() == expected
    for begin, end in ((0, 0), (3, 3), (1, len(expected) // 2), (len(expected) // 3, len(expected))):
        assert known.groups_of(stream, begin, end).tolist() == expected[begin:end]
    if len(set(expected) - {known.outside}) < known.least:
        return
    weights = known.weights(stream)
    first = next(k for k, one in enumerate(walks) if one)
    held = [0] * (known.outside + 1)
    for group, one in zip(known.group[first:].tolist(), accesses[first:], strict=True):
        held[group] += one
    assert weights.held[:, 0].tolist() == held[:-1]
    scale = sum(accesses[first:]) / sum(held[:-1])
    assert weights.scales() == pytest.approx(scale)
    assert weights.estimate() == round(sum(g != known.outside for g in expected) * scale)
    inside = sum(one for one, window in zip(accesses[first:], found[first:], strict=True) if window)
    second, third = round(3 * sum(accesses[first:]) / inside), weights.estimate()
    assert known.hits(stream).tolist() == [max(sum(accesses[first:]) - second - third, 0), second, third]
    assert known.by_chunk(stream).sum() == pytest.approx(sum(g != known.outside for g in expected) * scale)


def test_too_few_windows_are_refused_with_the_way_out():
    trace = windowed([0] * 50, [3] * 50)
    known = traced_windows(sample_for(trace, None), trace, NOTHING_MOVES)
    with pytest.raises(UsageError, match="3 groups, too few to tell its error; record more windows"):
        known.weights(stream_of([1] * 50))


def test_a_trace_of_a_part_takes_no_other_sample_and_no_data_that_move_by_accesses():
    trace = windowed([0] * 50, [3] * 50)
    sample = sample_for(trace, None)
    assert (str(sample), sample.one_in) == ("windows:4e-08s of 1e-07s", 3)
    with pytest.raises(UsageError, match=r"recorded as windows:.* and holds no other part"):
        sample_for(trace, sample_of("sets:1/8"))
    with pytest.raises(UsageError, match="NUMA balancing"):
        traced_windows(sample, trace, Moves(autonuma=True))
    of_sets = replace(trace, facts={"sample": "sets:1/8"})
    assert str(sample_for(of_sets, None)) == str(sample_for(of_sets, sample_of("sets:1/8"))) == "sets:1/8"
    for other in ("sets:1/16", "sets:1/8@1", "sets:1/4", "regions:1/8"):
        with pytest.raises(UsageError, match=f"sample = {other}: the trace was recorded as sets:1/8"):
            sample_for(of_sets, sample_of(other))


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"sample": "sets:1/8", "every_ns": 9, "window_ns": 3}, "either a sample or windows"),
        ({"every_ns": 9, "window_ns": 9}, "9 ns of 9: expected more than none, less than all"),
        ({"every_ns": 9}, "0 ns of 9: expected more"),
    ],
)
def test_a_header_of_an_impossible_part_is_one_line(tmp_path, facts, why):
    with trace_writer(tmp_path / "t.ptt", **facts) as writer:
        writer.chunk(np.array([5]), np.array([False]), np.array([1]))
    with pytest.raises(CaptureError, match=why) as refused:
        read_trace(tmp_path / "t.ptt")
    assert "\n" not in str(refused.value)


def test_chunks_of_a_part_count_more_accesses_than_they_have_touches_and_never_fewer(tmp_path):
    page = np.array([5]), np.array([False]), np.array([2])
    for facts, left_out, fails in (
        ({"sample": "sets:1/8"}, 7, False),
        ({"sample": "sets:1/8"}, -1, True),
        ({}, 7, True),
    ):
        with trace_writer(tmp_path / "t.ptt", **facts) as writer:
            writer.chunk(*page, left_out=left_out)
            writer.chunk(*(column[:0] for column in page), left_out=3 if facts else 0)
        if fails:
            with pytest.raises(CaptureError, match="do not add up"):
                read_trace(tmp_path / "t.ptt")
        else:
            trace = read_trace(tmp_path / "t.ptt")
            assert (trace.accesses, trace.touches, trace.facts["sample"]) == (12, 1, "sets:1/8")
