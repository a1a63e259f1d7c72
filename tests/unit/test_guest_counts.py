"""Tables of a guest counted level by level, beside those that are read whole."""

from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guest_memories import hostile_memory, memory_of, reader
from ptanalyze.capture.live import survey_guest
from ptanalyze.capture.live.survey_guest import count_tables
from ptanalyze.core import snapshot
from strategies import build_tree, trees


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from([4, 5]))
def test_counts_are_those_of_the_tables(data, levels):
    pages = [page for page in data.draw(trees(levels)) if page.va < 1 << (11 + 9 * levels)]
    tree = build_tree(pages, iter(range(1 << 20, 1 << 21)), levels=levels)
    found = count_tables(reader(memory_of(tree)), 1 << 20, levels)
    for level in range(1, levels + 1):
        rows = tree.level == level
        assert found.frames[level].tolist() == sorted(tree.frame[rows].tolist())
        assert found.mapped[level] == np.count_nonzero(snapshot.leaf(tree.entries[rows], level))
    bytes_mapped = [found.mapped[level] * (4096 << 9 * (level - 1)) for level in (1, 2, 3)]
    assert found.mapped_bytes == sum(bytes_mapped) and found.huge_bytes == sum(bytes_mapped[1:])
    assert found.unread == 0


@settings(max_examples=200, deadline=None)
@given(hostile_memory(), st.sampled_from([4, 5]), st.sampled_from([1, 3, 100]))
def test_hostile_tables_are_read_at_most_once_a_level(memory, levels, limit):
    reads, whole = count(), reader(memory)

    def read(gpa, n):
        next(reads)
        return whole(gpa, n)

    found = count_tables(read, min(memory), levels, limit)
    assert next(reads) <= 1 + (levels - 1) * limit
    assert all(len(set(frames.tolist())) == len(frames) <= limit for frames in found.frames.values())
    assert {frame for frames in found.frames.values() for frame in frames.tolist()} <= set(memory)


def test_the_kernels_half_is_not_counted_and_what_lies_in_no_memory_is_said():
    memory = {1: {0: 2 << 12 | 0x67, 1: 99 << 12 | 0x67, 256: 3 << 12 | 0x67}, 2: {}, 3: {}}
    found = count_tables(reader(memory), 1, 4)
    assert found.frames[3].tolist() == [2] and found.unread == 1
    assert count_tables(reader(memory), 99, 4) is None


def test_tables_full_of_pointers_take_memory_for_the_most_that_are_read(monkeypatch):
    memory = {1: {k: (10 + k) << 12 | 0x67 for k in range(200)}}
    memory |= {10 + k: {at: (1000 + 512 * k + at) << 12 | 0x67 for at in range(512)} for k in range(200)}
    merged = []

    def at_most(limit, frames):
        merged.append(len(frames))
        return whole(limit, frames)

    whole = survey_guest.at_most
    monkeypatch.setattr(survey_guest, "at_most", at_most)
    monkeypatch.setattr(survey_guest, "AT_ONCE", 8)
    monkeypatch.setattr(survey_guest, "MOST_POINTERS", 10_000)
    found = count_tables(reader(memory), 1, 4, limit=300)
    assert max(merged) <= 10_000 + 8 * 512
    assert len(found.frames[3]) == 200 and not len(found.frames[2])
    assert found.unread == 200 * 512


@pytest.mark.parametrize("tables", [1023, 1024, 1025])
def test_more_tables_than_fit_at_once(tables):
    memory = {1: {0: 2 << 12 | 0x67}, 2: {k: (10 + k) << 12 | 0x67 for k in range(3)}}
    leaves = [1000 + k for k in range(tables)]
    for k in range(3):
        memory[10 + k] = {at: frame << 12 | 0x67 for at, frame in enumerate(leaves[512 * k : 512 * (k + 1)])}
    memory |= {frame: {3: 0x5067, 4: 0x6067} for frame in leaves}
    found = count_tables(reader(memory), 1, 4)
    assert found.frames[1].tolist() == leaves and found.mapped[1] == 2 * tables
