"""The set-associative array against one OrderedDict a set."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from naive.setassoc import SetAssoc
from ptanalyze.kernels.setassoc import EMPTY, bank, drop, touch

STEPS = st.lists(st.tuples(st.sampled_from(["touch", "touch", "drop"]), st.integers(0, 12)), max_size=80)


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
