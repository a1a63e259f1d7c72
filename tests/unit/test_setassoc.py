"""The set-associative array against one OrderedDict a set."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from naive.setassoc import SetAssoc
from ptanalyze.kernels import lru
from ptanalyze.kernels.lru import EMPTY, bank, find, row_bank

pytestmark = pytest.mark.twin

STEPS = st.lists(st.tuples(st.sampled_from(["touch", "touch", "drop"]), st.integers(0, 12)), max_size=80)


@njit
def touch(tags, first, ways, tag):
    return lru.touch(tags, first, ways, tag)


@njit
def drop(tags, first, ways, tag):
    lru.drop(tags, first, ways, tag)


@settings(deadline=None)
@given(STEPS, st.integers(1, 5), st.integers(1, 4))
def test_touches_and_drops_agree_with_the_naive_array(steps, sets, ways):
    array, twin = bank(1, [(sets, ways)]), SetAssoc(sets, ways)
    for what, tag in steps:
        first = tag % sets * ways
        if what == "touch":
            assert touch(array.tags, first, ways, np.uint32(tag)) == twin.touch(tag, tag)
        else:
            drop(array.tags, first, ways, np.uint32(tag))
            twin.drop(tag)
    for s, row in enumerate(twin.sets):
        held = array.tags[s * ways : (s + 1) * ways]
        assert held[held != EMPTY].tolist() == list(reversed(row))


def test_a_bank_lays_out_the_arrays_of_its_owners_one_after_the_other():
    b = bank(3, [(2, 4), None, (5, 1)])
    assert (b.stride, len(b.tags), b.start.tolist(), b.ways.tolist()) == (13, 39, [0, 8, 8], [4, 0, 1])


def test_an_array_the_machine_lacks_always_misses():
    b = bank(1, [None])
    assert not touch(b.tags, 0, int(b.ways[0]), np.uint32(1)) and not touch(b.tags, 0, 0, np.uint32(1))


def test_a_cyclic_sweep_one_larger_than_a_set_misses_every_time():
    b = bank(1, [(1, 4)])
    assert not any(touch(b.tags, 0, 4, np.uint32(k % 5)) for k in range(50))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from([0, 1, 2, 4, 5, 11, 16, 17, 20, 32, 64, 72])),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 90)), max_size=200),
)
def test_sets_in_rows_hit_and_evict_as_the_naive_ones_whatever_their_ways(shapes, touches):
    shapes = [shape if shape[1] else None for shape in shapes]
    found = row_bank(2, shapes)
    naive = [[SetAssoc(*(shape or (1, 0))) for shape in shapes] for _ in range(2)]
    for owner, array, tag in touches:
        array %= len(shapes)
        assert touch_one(found, owner, array, np.uint32(tag)) == naive[owner][array].touch(tag, tag)


@pytest.mark.parametrize("ways", [16, 17, 24, 32, 64, 72])
@pytest.mark.parametrize("tags", [12, 70, 80])
def test_long_sets_that_are_full_hit_and_evict_as_the_naive_ones(ways, tags):
    found, naive = row_bank(1, [(2, ways)]), SetAssoc(2, ways)
    hits = []
    for tag in np.random.default_rng(ways).integers(0, 2 * tags, 3000).tolist():
        hits.append(touch_one(found, 0, 0, np.uint32(tag)))
        assert hits[-1] == naive.touch(tag, tag)
    assert any(hits) and len(found.tags) == 2 * -(-ways // 16) * 16
    for s, row in enumerate(naive.sets):
        held = found.tags[s * len(found.tags) // 2 :][:ways]
        assert held[held != EMPTY].tolist() == list(reversed(row))


def test_a_row_of_16_tags_is_a_line_of_the_cache():
    assert all(row_bank(owners, [(3, 11)]).tags.ctypes.data % 64 == 0 for owners in (1, 2, 500))


@njit
def touch_one(bank, owner, array, tag):
    return find(bank, owner, array, tag, tag)
