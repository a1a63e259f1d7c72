"""The decoders inside kernels agree with those for arrays, for any bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from ptanalyze.core import snapshot as entries
from ptanalyze.kernels import walker as kernel

pytestmark = pytest.mark.twin

ENTRY = st.integers(0, (1 << 64) - 1) | st.sampled_from([0, 1, 0x80, 0x100, 0x180, 0x800, 0x801, 7, 6])


@njit
def decoded(raw, level, code):
    return kernel.mapped(raw, level, code), kernel.leaf(raw, level, code), kernel.frame(raw, level, code)


@pytest.mark.parametrize("encoding", list(kernel.CODES))
@settings(deadline=None)
@given(entry=ENTRY, level=st.integers(1, 5))
def test_mapped_leaf_and_frame_agree_with_the_array_decoders(encoding, entry, level):
    code, raw = kernel.CODES[encoding], np.array([entry], np.uint64)
    mapped, leaf, frame = decoded(raw[0], level, code)
    assert bool(mapped) == bool(entries.mapped(raw, level, encoding)[0])
    assert bool(leaf) == bool(entries.leaf(raw, level, encoding)[0])
    if leaf:
        assert frame == entries.frame(raw, level, encoding)[0]
