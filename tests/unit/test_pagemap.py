"""Building a tree from what pagemap shows: shapes, holes, huge pages, inverted entries."""

import tempfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptanalyze.capture.completeness import completeness
from ptanalyze.capture.live.pagemap import REGION, Leaves, add_huge, infer_tree, joined, to_entries
from ptanalyze.core import pte as E
from ptanalyze.formats.tables_file import read_tree, write_tree

PAGE = st.integers(0, 4 * 512 - 1)


def words(frames, present):
    return np.where(present, np.uint64(1 << 63) | np.asarray(frames, np.uint64), np.uint64(1 << 62))


def found(tree):
    pages = {}
    for table, slot in np.argwhere(tree.entries):
        level, entry = int(tree.level[table]), tree.entries[table, slot]
        if E.leaf(entry, level):
            address = int(tree.base[table]) + (int(slot) << (3 + 9 * level))
            first = int(E.frame(entry, level))
            pages.update((address // 4096 + i, first + i) for i in range(512 ** (level - 1)))
    return pages


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(PAGE, st.integers(0, 1 << 30), min_size=1, max_size=20),
    PAGE,
    st.booleans(),
    st.sampled_from([4, 5]),
)
def test_every_page_is_found_again_however_the_ranges_were_cut(tmp_path, pages, cut, accessible, levels):
    leaves, base = Leaves(tmp_path), 1 << 39
    frames, present = np.zeros(2048, np.int64), np.zeros(2048, bool)
    frames[list(pages)], present[list(pages)] = list(pages.values()), True
    for start, end in ((0, cut), (cut, 2048)):
        leaves.add(base + start * 4096, to_entries(words(frames, present)[start:end], accessible))
    with tempfile.TemporaryDirectory(dir=tmp_path) as where:
        tree = infer_tree(leaves, levels, where)
        write_tree(where, "gpt", tree)
        read = read_tree(where)
    assert found(read) == {base // 4096 + page: frame for page, frame in pages.items()}
    assert all(
        E.present(e) == accessible for e in read.entries[read.level == 1][read.entries[read.level == 1] != 0]
    )


def test_a_whole_huge_page_is_one_leaf_and_part_of_one_is_small_pages(tmp_path):
    leaves = Leaves(tmp_path)
    entries = to_entries(words(np.arange(1024, 2048), np.ones(1024, bool)), True)
    add_huge(leaves, 8 * REGION, entries)
    add_huge(leaves, 16 * REGION, entries[:100])
    tree = infer_tree(leaves, 4, tmp_path)
    assert sorted(leaves.huge) == [8 * REGION, 9 * REGION] and (tree.level == 1).sum() == 1
    pages = found(tree)
    assert len(pages) == 1124 and pages[8 * 512] == 1024 and pages[9 * 512 + 511] == 2047


def test_a_process_without_pages_still_has_a_root(tmp_path):
    tree = infer_tree(Leaves(tmp_path), 4, tmp_path)
    assert tree.level.tolist() == [4] and not tree.entries.any()


def test_only_small_pages_are_joined_and_only_over_small_holes():
    ranges = [
        (0, 1, False),
        (10, 20, False),
        (20, 30, True),
        (30, 40, False),
        (40 + (1 << 30), 1 << 31, False),
    ]
    assert list(joined(ranges)) == [(0, 20, False), *ranges[2:]]
    assert list(joined([])) == []


@pytest.mark.parametrize("levels", [4, 5])
@pytest.mark.parametrize("huge", [0, 3])
def test_the_kernel_counts_tables_below_the_p4d_and_one_in_reserve_per_huge_page(tmp_path, levels, huge):
    leaves = Leaves(tmp_path)
    for base in (0, 1 << 39, 3 << 39 if levels == 4 else 3 << 48):
        leaves.add(base, to_entries(words(np.arange(2), np.ones(2, bool)), True))
    add_huge(leaves, 8 * REGION, to_entries(words(np.arange(512 * huge), np.ones(512 * huge, bool)), True))
    tree = infer_tree(leaves, levels, tmp_path)
    counted = 3 * 3 + huge  # a leaf table, a PMD and a PUD for each of the ranges, and the reserve
    assert len(tree) == {4: 9 + 1, 5: 9 + 2 + 1}[levels]
    exact = completeness(tree, huge, 4096 * counted)
    assert exact["explained"] and (exact["counted_by_kernel"], exact["difference"]) == (counted, huge)
    assert not completeness(tree, huge, 4096 * (counted + 1))["explained"]
    assert not completeness(tree, huge, 4096 * (counted - huge - 1))["explained"]
