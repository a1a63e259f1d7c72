"""Regions that mremap moved touched ones to, however many moves are looked at together."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from naive import passed_regions as naive
from ptanalyze.core.trace import Event
from ptanalyze.world import mm_events
from strategies import build_trace

pytestmark = pytest.mark.twin

PAGE, REGION = 1 << 12, 1 << 21
ADDRESS = st.builds(
    lambda region, page: region * REGION + page * PAGE, st.integers(1, 8), st.integers(0, 511)
)
SIZE = st.sampled_from(
    [0, 1, PAGE, 16 * PAGE, REGION, REGION + PAGE, 3 * REGION, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
)
START = ADDRESS | st.sampled_from([(1 << 63) - PAGE, 1 << 63, (1 << 64) - PAGE])
RESULT = ADDRESS | st.sampled_from([-12, 0, (1 << 63) - PAGE])
MOVE = st.tuples(START, SIZE, SIZE, RESULT)


@given(
    touched=st.lists(st.integers(1, 8), max_size=4, unique=True),
    moves=st.lists(MOVE, max_size=8),
    at_once=st.sampled_from([1, 2, 4096]),
)
@example(
    touched=[1], moves=[(2 * REGION, PAGE, PAGE, 3 * REGION), (REGION, PAGE, PAGE, 2 * REGION)] * 2, at_once=2
)
def test_as_the_moves_say_one_after_the_other(touched, moves, at_once):
    calls = [(0, 0, Event.MREMAP, (a, b, c, 1), result) for a, b, c, result in moves]
    trace = build_trace([(0, [region * REGION for region in touched])], calls)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(mm_events, "MOVES_AT_ONCE", at_once)
        found = mm_events.regions_with_passed(trace)
    assert found.dtype == np.uint64
    assert found.tolist() == naive.regions_with_passed(trace.regions.tolist(), trace.events)
