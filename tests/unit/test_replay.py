"""The replay loop and all policies against their naive twins."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import replay as naive
from ptanalyze.core.trace import Event
from ptanalyze.kernels.replay import FAULT
from replay_cases import HEAP, case, cases, events, reads_of, run
from strategies import PAGE, REGION, Page, build_snapshot, build_trace

pytestmark = pytest.mark.twin

EXAMPLES = 25 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 60
FILTERS = ("off", "single", "munmap-all", "all", "all-or-none")

hydra = st.fixed_dictionaries(
    {
        "prefetch": st.integers(0, 9),
        "prefetch_on": st.sampled_from(["every", "first"]),
        "tlbflush": st.sampled_from(FILTERS),
    }
)


def assert_as_naive(case, name, params, every_step=False, batch=1 << 20):
    assert_same_as(case, name, name, params, batch, every_step)


def assert_same_as(case, twin, name, params, batch=1 << 20, every_step=False):
    """twin: name of the twin, or what makes it."""
    reads = reads_of(case)
    whole = reads[0][1] if reads else None
    assert len(reads) <= 1
    if whole is None:
        return
    found, classes, happened, pages = naive.replay(
        twin, params, case.snapshot, case.trace, case.space, case.placement, whole, case.machine, every_step
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


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans())
def test_weighted_interleave_places_what_its_twin_places(data, native):
    case = data.draw(cases(native))
    nodes = case.machine.nodes
    weights = data.draw(st.lists(st.integers(0, 3), min_size=nodes, max_size=nodes).filter(any))
    assert_as_naive(case, "interleave", {"weights": ",".join(map(str, weights))})


@settings(max_examples=3 * EXAMPLES, deadline=None)
@given(data=st.data(), native=st.booleans(), params=hydra, batch=st.sampled_from([1, 3, 1 << 20]))
def test_hydra_counts_what_its_twin_counts_and_keeps_its_invariants_at_every_step(
    data, native, params, batch
):
    assert_as_naive(data.draw(cases(native)), "hydra", params, every_step=True, batch=batch)


@settings(max_examples=EXAMPLES, deadline=None)
@given(case=cases(native=False), layers=st.sampled_from(["both", "gpt", "ept"]))
def test_replication_in_either_dimension_counts_what_its_twin_counts(case, layers):
    assert_as_naive(case, "vmitosis-replicate", {"layers": layers})


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_mitosis_on_some_nodes_counts_what_its_twin_counts(data):
    case = data.draw(cases())
    some = data.draw(st.lists(st.integers(0, case.machine.nodes - 1), min_size=1, unique=True))
    assert_as_naive(case, "mitosis", {"nodes": ",".join(map(str, sorted(some)))})


@pytest.mark.parametrize("name", ["linux", "first-touch", "interleave", "bind", "ideal", "mitosis", "hydra"])
def test_tables_that_are_freed_made_again_and_moved_into_are_as_the_twin_has_them(name):
    there, elsewhere = HEAP, HEAP + (1 << 39)
    maps = [
        (0, 0, Event.MMAP, (0, REGION, 3, 0x22), there),
        (2, 0, Event.MUNMAP, (there, REGION), 0),
        (2, 1, Event.MMAP, (0, REGION, 3, 0x22), there),
        (3, 1, Event.MPROTECT, (there, PAGE, 1), 0),
        (4, 2, Event.MREMAP, (there, REGION, REGION, 1), elsewhere),
    ]
    touches = [(0, [there]), (1, [there]), (1, [there]), (2, [there, there + PAGE]), (0, [elsewhere])]
    snapshot = build_snapshot([(elsewhere, 1)], nodes=3, vmas=[(elsewhere, elsewhere + REGION, "m")])
    process = case(snapshot, build_trace(touches, maps), 3)
    assert_as_naive(process, name, {}, every_step=True)
    counted = events(run(process, name).counters)
    assert sum(n for key, n in counted.items() if key[0] == "tables_freed") >= 6
    if name == "first-touch":
        assert counted["faults", 1, 1] == 1
        assert counted["tables_new", 2, 2] == 3
    if name == "hydra":
        assert ("pte_fanout", 1, 0) not in counted


def test_a_huge_page_whose_protection_changed_piece_by_piece_before_the_region_was_mapped():
    snapshot = build_snapshot([Page(HEAP, 512, 2)], vmas=[(HEAP - REGION, HEAP + 4 * REGION, "h")])
    events = [
        (0, 0, Event.MPROTECT, (HEAP, PAGE, 4), 0),
        (0, 0, Event.MPROTECT, (HEAP, REGION, 4), 0),
        (0, 0, Event.ROI_START, (), 0),
    ]
    assert_as_naive(case(snapshot, build_trace([(0, [HEAP])], events)), "hydra", {"prefetch": 0})


def test_a_huge_page_across_vmas_that_met_before_the_region_was_mapped():
    snapshot = build_snapshot([Page(HEAP, 512, 2)], vmas=[(HEAP - REGION, HEAP + 4 * REGION, "h")])
    half = HEAP + 100 * PAGE
    events = [
        (0, 0, Event.MMAP, (0, half - (HEAP - REGION), 3, 0x22), HEAP - REGION),
        (0, 1, Event.MMAP, (0, HEAP + 4 * REGION - half, 3, 0x22), half),
        (0, 0, Event.ROI_START, (), 0),
    ]
    process = case(snapshot, build_trace([(0, [HEAP]), (1, [HEAP])], events))
    for name in ("linux", "hydra"):
        assert_as_naive(process, name, {})
        assert not run(process, name).counters.events[:, FAULT].any()
