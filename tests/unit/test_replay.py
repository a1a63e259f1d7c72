"""The replay loop and all policies against their naive twins."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import replay as naive
from replay_cases import cases, events, reads_of, run

EXAMPLES = 25 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 60
FILTERS = ("off", "single", "all", "all-or-none")

hydra = st.fixed_dictionaries(
    {
        "prefetch": st.integers(0, 9),
        "prefetch_on": st.sampled_from(["every", "first"]),
        "tlbflush": st.sampled_from(FILTERS),
    }
)


def assert_as_naive(case, name, params, every_step=False, batch=1 << 20):
    reads = reads_of(case)
    whole = reads[0][1] if reads else None
    assert len(reads) <= 1
    if whole is None:
        return
    found, classes, happened, pages = naive.replay(
        name, params, case.snapshot, case.trace, case.space, case.placement, whole, case.machine, every_step
    )
    done = run(case, name, params, batch).counters
    assert events(done) == happened
    assert done.pages.tolist() == pages
    assert {tuple(at.tolist()): int(done.reads[tuple(at)]) for at in np.argwhere(done.reads)} == found
    assert {tuple(at.tolist()): int(done.classes[tuple(at)]) for at in np.argwhere(done.classes)} == classes


@pytest.mark.parametrize("name", ["linux", "first-touch", "interleave", "bind", "ideal", "mitosis"])
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans())
def test_policies_with_fixed_copies_count_what_their_twins_count(name, data, native):
    assert_as_naive(data.draw(cases(native)), name, {})


@settings(max_examples=3 * EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans(), params=hydra, batch=st.sampled_from([1, 3, 1 << 20]))
def test_hydra_counts_what_its_twin_counts_and_keeps_its_invariants_at_every_step(
    data, native, params, batch
):
    assert_as_naive(data.draw(cases(native)), "hydra", params, every_step=True, batch=batch)


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_mitosis_on_some_nodes_counts_what_its_twin_counts(data):
    case = data.draw(cases())
    some = data.draw(st.lists(st.integers(0, case.machine.nodes - 1), min_size=1, unique=True))
    assert_as_naive(case, "mitosis", {"nodes": ",".join(map(str, sorted(some)))})
