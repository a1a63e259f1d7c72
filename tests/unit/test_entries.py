"""What raw entries say: present, mapped, leaf and frame, by encoding; against bit-by-bit twins."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core import snapshot as E

WORDS = st.integers(0, (1 << 64) - 1)
LEVELS = st.integers(1, 5)
ENCODINGS = st.sampled_from(["x86", "ept", "kvm"])


def naive(entry, level, encoding):
    """(present, mapped, leaf, table, frame) of one entry, by the manuals."""
    if encoding == "x86":
        present = entry & 1 == 1
        hinted = entry >> 8 & 1 == 1 or (level > 1 and entry >> 7 & 1 == 1)
        mapped = present or hinted
        address = entry ^ (1 << 64) - 1 if mapped and not present else entry
    else:
        mapped = entry & 7 != 0 if encoding == "ept" else entry >> 11 & 1 == 1
        present = mapped if encoding == "ept" else mapped and entry & 1 == 1
        address = entry
    leaf = mapped and (level == 1 or (level <= 3 and entry >> 7 & 1 == 1))
    frame = (address >> 12) & ((1 << 40) - 1)
    if level > 1:
        frame = frame >> 9 * (level - 1) << 9 * (level - 1)
    return present, mapped, leaf, present and level > 1 and not leaf, frame


@given(WORDS, LEVELS, ENCODINGS)
def test_every_word_reads_as_the_manual_says(entry, level, encoding):
    words = np.array([entry], np.uint64)
    present, mapped, leaf, table, frame = naive(entry, level, encoding)
    assert E.present(words, encoding)[0] == present
    assert E.mapped(words, level, encoding)[0] == mapped
    assert E.leaf(words, level, encoding)[0] == leaf
    assert E.table(words, level, encoding)[0] == table
    if leaf:
        assert E.frame(words, level, encoding)[0] == frame


@given(st.integers(0, (1 << 40) - 1), st.integers(1, 3))
def test_an_inverted_entry_gives_the_frame_it_was_made_of(frame, level):
    frame = frame >> 9 * (level - 1) << 9 * (level - 1)
    huge = 0x80 if level > 1 else 0
    entry = np.uint64((~frame << 12) & ((1 << 52) - (1 << 12)) | 0x100 | huge)
    assert not E.present(entry) and E.leaf(entry, level) and E.frame(entry, level) == frame


def test_swap_entries_and_nothing_are_not_mapped():
    words = np.array([0, 0x0FFF_FFFF_FFFF_F002, 1 << 62], np.uint64)
    assert not E.mapped(words, 1).any() and not E.mapped(words, 2).any()


def test_the_frame_of_a_pointer_keeps_its_low_bits():
    assert E.frame(np.uint64(0x12345 << 12 | 0x67), 3, leaves=False) == 0x12345


def test_arrays_keep_their_shape():
    words = np.zeros((3, 512), np.uint64)
    assert (
        E.leaf(words, 2).shape == E.frame(words, 2).shape == E.inaccessible(words, 4, "ept").shape == (3, 512)
    )
