"""Scratch arrays: the same memory again, more of it when more is asked for."""

import numpy as np

from ptanalyze.core.trace import Scratch


def test_a_name_has_the_same_memory_again_until_more_is_asked_for():
    scratch = Scratch()
    first = scratch.empty("page", 100, np.uint32)
    assert first.shape == (100,) and first.dtype == np.uint32
    assert np.shares_memory(first, scratch.empty("page", 60, np.uint32))
    assert not np.shares_memory(first, scratch.empty("other page", 60, np.uint32))
    more = scratch.empty("page", 1000, np.uint32)
    assert more.shape == (1000,) and not np.shares_memory(first, more)
    assert np.shares_memory(more, scratch.empty("page", 1000, np.uint32))


def test_zeros_are_zero_whatever_was_there():
    scratch = Scratch()
    scratch.empty("missed", 9, np.bool_)[:] = True
    assert not scratch.zeros("missed", 7, np.bool_).any()
