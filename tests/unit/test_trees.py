"""Surgery on page tables against its naive twins."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive.trees import by_steps, leaf_map
from ptanalyze.core import snapshot as bits
from ptanalyze.formats.tables import read_tree, write_tree
from ptanalyze.world.address_space import address_space, host_index
from ptanalyze.world.trees import (
    free_frame,
    with_frame,
    with_huge_leaves,
    with_root_above,
    with_small_leaves,
)
from strategies import PAGE, REGION, Page, build_snapshot, snapshots

pytestmark = pytest.mark.twin

GIB = 1 << 30


def is_sound(tree, snapshot):
    """Levels, parents and links fit; every leaf is found by following them; depth first."""
    address_space(replace(snapshot, guest=tree, host=None), np.zeros(0, np.uint64))
    assert [len(c) for c in (tree.entries, tree.base, tree.frame, tree.node, tree.flags)] == [len(tree)] * 5
    order = [(int(base), -int(level)) for base, level in zip(tree.base, tree.level, strict=True)]
    assert order == sorted(order)
    for address, (level, frame, _) in leaf_map(tree).items():
        assert by_steps(tree, address)[1:] == (level, frame)


def either(snapshot, data):
    """One of the trees of a snapshot."""
    return snapshot.guest if snapshot.native or data.draw(st.booleans()) else snapshot.host


@settings(max_examples=100, deadline=None)
@given(snapshots(), st.data())
def test_a_huge_leaf_takes_the_place_of_a_leaf_table_and_nothing_else_changes(snapshot, data):
    tree = either(snapshot, data)
    before, entries = leaf_map(tree), tree.entries.copy()
    there = st.sampled_from(np.flatnonzero(tree.level == 1).tolist() or [0])
    tables = np.array(data.draw(st.lists(there, unique=True)), np.int64)
    tables = tables[tree.level[tables] == 1]
    flags = bits.HUGE | np.uint64({"x86": 1, "ept": 7, "kvm": 0x801}[tree.encoding])
    leaves = with_frame(np.full(len(tables), flags), 512 * np.arange(len(tables)), tree.encoding)
    after = with_huge_leaves(tree, tables, leaves)
    is_sound(after, snapshot)
    assert (tree.entries == entries).all() and len(after) == len(tree) - len(tables)
    bases = tree.base[tables].tolist()
    expected = {at: leaf for at, leaf in before.items() if leaf[0] > 1 or at // REGION * REGION not in bases}
    expected |= {base: (2, 512 * k, int(flags) & ~0x80) for k, base in enumerate(bases)}
    assert leaf_map(after) == expected


@settings(max_examples=100, deadline=None)
@given(snapshots(), st.data(), st.sampled_from([2, 3]))
def test_a_table_of_small_leaves_maps_what_its_huge_leaf_did(snapshot, data, level):
    tree = either(snapshot, data)
    huge = [(t, s) for t in np.flatnonzero(tree.level == level) for s in range(512)
            if bits.leaf(tree.entries[t, s], level, tree.encoding)]  # fmt: skip
    if not huge:
        return
    chosen = data.draw(st.lists(st.sampled_from(huge), min_size=1, unique=True))
    tables, slots = np.array(chosen, np.int64).T
    after = with_small_leaves(tree, tables, slots)
    is_sound(after, snapshot)
    assert len(after) == len(tree) + len(chosen)
    expected = leaf_map(tree)
    for table, slot in chosen:
        at = int(tree.base[table]) + (int(slot) << (3 + 9 * level))
        _, frame, flags = expected.pop(at)
        small = 512 ** (level - 2)
        hint = flags if flags & 1 or tree.encoding != "x86" else flags | 0x100
        expected |= {at + k * small * PAGE: (level - 1, frame + k * small, hint) for k in range(512)}
    assert leaf_map(after) == expected


def test_small_leaves_have_no_bit_7_and_those_of_a_page_being_split_stay_inaccessible():
    """Bit 7 of a 4 KiB entry is no size (PAT); a huge entry with bit 7 alone is mapped (pmd_present)."""
    tree = build_snapshot([(GIB, 512, 2), (GIB + REGION, 1024, 2)]).guest
    (table,) = np.flatnonzero(tree.level == 2)
    tree.entries[table, 1] = (~(1024 << 12) & ((1 << 52) - (1 << 12))) | 0x80
    after = with_small_leaves(tree, np.array([table, table]), np.array([0, 1]))
    first, second = after.entries[after.level == 1]
    assert first[1] == 513 << 12 | 0x67 and (second & np.uint64(0x181) == 0x100).all()
    assert bits.frame(second, 1).tolist() == list(range(1024, 1536))


@settings(max_examples=100, deadline=None)
@given(snapshots(), st.data())
def test_a_root_above_adds_one_table_to_every_way_down(snapshot, data):
    tree = either(snapshot, data)
    if tree.levels == 5:
        return
    after = with_root_above(tree, 77)
    is_sound(after, snapshot)
    assert leaf_map(after) == leaf_map(tree)
    assert (after.levels, after.level[0], after.frame[0], after.node[0]) == (5, 5, 77, tree.node[0])
    assert np.count_nonzero(after.entries[0]) == 1
    assert bits.frame(after.entries[0, 0], 5, tree.encoding, leaves=False) == tree.frame[0]
    for address in leaf_map(tree):
        passed = by_steps(tree, address)[0]
        assert by_steps(after, address)[0] == [0, *(table + 1 for table in passed)]


def test_a_root_above_a_capture_on_disk_copies_no_entries_and_leaves_the_file_as_it_was(tmp_path):
    write_tree(tmp_path, "gpt", build_snapshot([(GIB, 5), (3 * GIB, 6)]).guest)
    recorded = (tmp_path / "gpt.entries").read_bytes()
    tree = read_tree(tmp_path, "gpt")
    after = with_root_above(tree)
    assert isinstance(after.entries, np.memmap) and after.entries.filename == tree.entries.filename
    assert (
        leaf_map(after)
        == leaf_map(tree)
        == leaf_map(with_root_above(replace(tree, entries=np.array(tree.entries))))
    )
    assert (tmp_path / "gpt.entries").read_bytes() == recorded


def test_a_root_above_a_changed_copy_of_a_capture_keeps_the_changes(tmp_path):
    write_tree(tmp_path, "gpt", build_snapshot([(GIB, 5)]).guest)
    tree = read_tree(tmp_path, "gpt")
    own = np.memmap(tmp_path / "gpt.entries", np.uint64, "c", tree.entries.offset, tree.entries.shape)
    own[3, 0] = 9 << 12 | 0x67
    assert leaf_map(with_root_above(replace(tree, entries=own))) == {GIB: (1, 9, 0x67)}


@given(st.integers(0, (1 << 40) - 1), st.integers(0, (1 << 40) - 1), st.booleans())
def test_an_entry_with_another_frame_keeps_its_flags(old, new, protnone):
    page = Page(GIB, old, protnone=protnone)
    raw = build_snapshot([page]).guest.entries[3, :1]
    changed = with_frame(raw, np.array([new]), "x86")
    assert bits.frame(changed, 1)[0] == new
    assert (changed & ~bits.ADDRESS == raw & ~bits.ADDRESS).all()


def test_a_free_frame_is_the_next_that_no_table_is_in():
    snapshot = build_snapshot([(GIB, 5)], [])
    root = int(snapshot.guest.frame[0])
    assert free_frame(snapshot.guest, host_index(snapshot)) == root + len(snapshot.guest)
    full = np.arange(root, root + 512)
    crowded = replace(snapshot.guest, frame=full)
    assert free_frame(crowded, host_index(snapshot)) == 0  # the only other block that the host maps
    nowhere = replace(snapshot.guest, frame=np.full(len(snapshot.guest), -1))
    assert free_frame(nowhere, host_index(snapshot)) == -1


@pytest.mark.parametrize("encoding", ["ept", "kvm"])
def test_a_root_above_a_host_tree_points_with_its_own_encoding(encoding):
    host = build_snapshot([(GIB, 5)], [], host_encoding=encoding).host
    after = with_root_above(host)
    assert bits.table(after.entries[0], 5, encoding).tolist() == [True] + 511 * [False]
