"""How steps are made does not show in them. What they are, test_replay asks tests/naive/memory_manager."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptanalyze.world import history
from replay_cases import cases, world_of

pytestmark = pytest.mark.twin

EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 30
LITTLE = {"STEPS_PER_CALL": 0, "ROOM": 0, "WALKS_AT_ONCE": 1, "WORTH_COMPILING": 0}


def arrays(history):
    """All of a History but the CPUs."""
    parts = [*history.steps, *history.shootdowns, history.vma_owner, history.vma, history.mixed_row]
    return [*parts, history.mixed, history.valid, history.exists, *history.last, history.home]


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans(), moving=st.booleans())
def test_steps_do_not_depend_on_compilation_nor_on_how_much_is_done_at_once(data, native, moving):
    case = data.draw(cases(native, moving))
    whole = world_of(case).history
    with pytest.MonkeyPatch.context() as changed:
        for name, value in LITTLE.items():
            changed.setattr(history, name, value)
        parts = world_of(case).history
    assert all(np.array_equal(*pair) for pair in zip(arrays(whole), arrays(parts), strict=True))
