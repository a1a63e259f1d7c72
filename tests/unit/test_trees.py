"""Surgery on page tables, and their flat ids."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive.trees import by_steps, leaf_map
from ptanalyze.core import snapshot as bits
from ptanalyze.core.errors import CaptureError
from ptanalyze.world.address_space import address_space
from ptanalyze.world.trees import with_frame, with_huge_leaves
from ptanalyze_policies.shadow import with_small_leaves
from strategies import PAGE, REGION, Page, build_snapshot, slot_of, snapshots

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


@pytest.mark.twin
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


@pytest.mark.twin
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


@pytest.mark.twin
@given(st.integers(0, (1 << 40) - 1), st.integers(0, (1 << 40) - 1), st.booleans())
def test_an_entry_with_another_frame_keeps_its_flags(old, new, protnone):
    raw = build_snapshot([Page(GIB, old, protnone=protnone)]).guest.entries[3, :1]
    changed = with_frame(raw, np.array([new]), "x86")
    assert bits.frame(changed, 1)[0] == new
    assert (changed & ~bits.ADDRESS == raw & ~bits.ADDRESS).all()


# Flat ids, host leaves of guest tables, inferred tables.

MIB2 = 1 << 21


def regions_of(snapshot, *addresses):
    return address_space(snapshot, np.array([a >> 21 for a in addresses], np.uint64)).regions


def descend(tree, address):
    """(table, level, slot, frame) of the leaf entry for an address by following entries, or None."""
    table = 0
    for level in range(tree.levels, 0, -1):
        slot = slot_of(address, level)
        raw = int(tree.entries[table, slot])
        if not raw & 0x101:
            return None
        if level == 1 or raw & 0x80:
            frame = ((raw if raw & 1 else ~raw) & ((1 << 52) - 1)) >> (3 + 9 * level) << (9 * (level - 1))
            return table, level, slot, frame
        base = address >> (3 + 9 * level) << (3 + 9 * level)
        table = next(t for t in range(len(tree)) if tree.level[t] == level - 1 and tree.base[t] == base)


@settings(max_examples=100, deadline=None)
@given(snapshots(), st.data())
def test_every_region_is_resolved_as_by_following_entries(snapshot, data):
    tree = snapshot.guest
    leaves = [int(tree.base[t]) for t in range(len(tree)) if tree.level[t] == 1]
    vas = data.draw(st.lists(st.sampled_from([*leaves, 0, GIB, 5 * GIB, 9 * GIB + MIB2]), unique=True))
    space = address_space(snapshot, np.array([va >> 21 for va in vas], np.uint64))
    for k, va in enumerate(vas):
        leaf, level = int(space.regions.leaf[k]), int(space.regions.level[k])
        found = descend(tree, va)
        if found and found[1] > 1:
            assert (leaf, level, int(space.regions.slot[k])) == found[:3]
        else:
            assert level == 1
            assert int(space.tables.base[leaf]) == va >> 21 << 21
            assert space.tables.level[leaf] == 1
    # every table hangs below one that stands before it, up to a root at the top level
    parent, level, base = space.tables.parent, space.tables.level.astype(int), space.tables.base
    for t in range(len(level)):
        if parent[t] < 0:
            continue
        assert parent[t] < t and level[parent[t]] == level[t] + 1
        span = 12 + 9 * int(level[t] + 1)
        assert int(base[t]) >> span == int(base[parent[t]]) >> span


def test_guest_tables_know_the_host_entry_of_their_frame():
    snapshot = build_snapshot([(GIB, 5)], [Page(0x1_0000_0000, 0, 3)], host_levels=5)
    tables = address_space(snapshot, np.zeros(0, np.uint64)).tables
    guest = len(snapshot.guest)
    host = snapshot.host
    for t in range(guest):
        leaf, slot = int(tables.host_leaf[t]) - guest, int(tables.host_slot[t])
        frame = int(snapshot.guest.frame[t])
        assert host.level[leaf] == 3
        assert slot == frame >> 18 & 511
        assert host.base[leaf] == frame << 12 >> 39 << 39


def test_guest_frames_outside_the_host_are_counted_never_followed():
    snapshot = build_snapshot([(GIB, 5)], [])
    snapshot.guest.frame[1] = 1 << 39
    snapshot.guest.frame[2] = -1
    space = address_space(snapshot, np.zeros(0, np.uint64))
    assert space.unplaced == 2
    assert space.tables.host_leaf[[1, 2]].tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("guest", "host", "expected"),
    [(1, 1, 1), (2, 1, 1), (2, 2, 2), (1, 3, 1), (3, 2, 2), (3, 3, 3), (2, 3, 2)],
)
def test_a_tlb_entry_spans_the_smaller_of_both_leaves(guest, host, expected):
    snapshot = build_snapshot([(GIB, 2 << 18, guest)], [Page(2 * GIB, 0, host)])
    assert regions_of(snapshot, GIB).tlb_level.tolist() == [expected]


def test_a_1_gib_page_resolves_each_of_its_regions_by_its_own_host_leaf():
    snapshot = build_snapshot([(GIB, 2 << 18, 3)], [Page(2 * GIB, 0, 2), Page(2 * GIB + MIB2, 0)])
    assert regions_of(snapshot, GIB, GIB + MIB2, GIB + 2 * MIB2).tlb_level.tolist() == [2, 1, 1]


@pytest.mark.parametrize(("column", "table", "value"), [("parent", 2, 3), ("level", 3, 2)])
def test_a_parent_after_its_child_and_a_wrong_level_are_refused(column, table, value):
    snapshot = build_snapshot([(GIB, 5)])
    getattr(snapshot.guest, column)[table] = value
    with pytest.raises(CaptureError, match=f"gpt.tables: {column} of table {table} = {value}"):
        regions_of(snapshot)


def test_a_native_snapshot_has_no_nested_tables_to_ask_for():
    snapshot = build_snapshot([(GIB, 5)])
    assert snapshot.native
    with pytest.raises(ValueError, match="no nested tables"):
        _ = snapshot.nested
