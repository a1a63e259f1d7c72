"""The decoders inside kernels agree with those for arrays, for any bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptanalyze.core import pte as entries
from ptanalyze.kernels import entries as kernel

ENTRY = st.integers(0, (1 << 64) - 1) | st.sampled_from([0, 1, 0x80, 0x100, 0x180, 0x800, 0x801, 7, 6])


@pytest.mark.parametrize("encoding", list(kernel.CODES))
@settings(deadline=None)
@given(entry=ENTRY, level=st.integers(1, 5))
def test_mapped_leaf_and_frame_agree_with_the_array_decoders(encoding, entry, level):
    code, raw = kernel.CODES[encoding], np.array([entry], np.uint64)
    assert bool(kernel.mapped(raw[0], level, code)) == bool(entries.mapped(raw, level, encoding)[0])
    is_leaf = bool(entries.leaf(raw, level, encoding)[0])
    assert bool(kernel.leaf(raw[0], level, code)) == is_leaf
    if is_leaf:
        assert kernel.frame(raw[0], level, code) == entries.frame(raw, level, encoding)[0]
