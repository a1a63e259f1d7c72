"""Guests read from outside."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive.trees import read_guest_tables as naive
from ptanalyze.capture.check.tables import check_tree
from ptanalyze.capture.live.process import Process
from ptanalyze.core.errors import UsageError
from ptanalyze.formats.snapshot import read_tree, write_tree
from ptanalyze_host import guests
from ptanalyze_host.guests import LIMIT, SEEN, Space, address_spaces, is_pti_pair, read_guest_tables
from strategies import Page, build_tree, trees

# Memories of guests as dicts {frame: {slot: entry}}, sane and hostile, and what reads them.

TABLE, HUGE = 0x67, 0xE7
MANY = st.sampled_from([0, 1, 2, 255, 256, 300, 511])


def reader(memory):
    """The read function of a dict {frame: {slot: entry}}; whole pages only."""

    def read(gpa, n):
        assert gpa % 4096 == 0 and n == 4096
        if gpa >> 12 not in memory:
            return None
        page = np.zeros(512, "<u8")
        for slot, raw in memory[gpa >> 12].items():
            page[slot] = raw
        return page.tobytes()

    return read


def memory_of(tree):
    return {
        int(frame): {int(slot): int(row[slot]) for slot in np.flatnonzero(row)}
        for frame, row in zip(tree.frame, tree.entries, strict=True)
    }


@st.composite
def hostile_memory(draw):
    """{frame: {slot: entry}}: a few pages whose entries point anywhere, themselves and beyond included."""
    frames = draw(st.lists(st.integers(1, 24), min_size=1, max_size=10, unique=True))
    anywhere = st.sampled_from(frames) | st.integers(0, 30) | st.integers(0, (1 << 40) - 1)
    flags = st.sampled_from([TABLE, TABLE, TABLE, HUGE, 0x66, 0x100, 1])
    entry = st.builds(lambda frame, flag: frame << 12 | flag, anywhere, flags) | st.integers(0, (1 << 64) - 1)
    return {frame: draw(st.dictionaries(MANY, entry, max_size=5)) for frame in frames}


# Guest tables read from outside: sane ones as they are, hostile ones in bounded time into a closed tree.

VA = 0x7F00_0000_0000


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from([4, 5]))
def test_sane_tables_are_read_as_they_are(data, levels):
    pages = [page for page in data.draw(trees(levels)) if page.va < 1 << (11 + 9 * levels)]
    tree = build_tree(pages, iter(range(1 << 20, 1 << 21)), levels=levels)
    found = read_guest_tables(reader(memory_of(tree)), 1 << 20, levels)
    assert found.dropped == {}
    for column in ("entries", "base", "frame", "parent", "level"):
        assert np.array_equal(getattr(found.tree, column), getattr(tree, column)), column


@settings(max_examples=300, deadline=None)
@given(hostile_memory(), st.sampled_from([4, 5]), st.sampled_from([1, 3, 100]))
def test_hostile_tables_become_what_the_naive_reader_keeps_of_them(memory, levels, limit):
    root = min(memory)
    found = read_guest_tables(reader(memory), root, levels, limit)
    expected = naive(memory, root, levels, limit)
    rows = zip(*(getattr(found.tree, c).tolist() for c in ("base", "frame", "parent", "level")), strict=True)
    assert list(rows) == expected[0]
    alone = (replace(found.tree, frame=np.zeros(1, int), entries=row[None]) for row in found.tree.entries)
    assert [memory_of(each)[0] for each in alone] == expected[1]
    assert found.dropped == expected[2]


@settings(max_examples=100, deadline=None)
@given(hostile_memory(), st.sampled_from([4, 5]))
def test_whatever_a_guest_holds_becomes_a_closed_tree_that_can_be_stored(tmp_path_factory, memory, levels):
    place = tmp_path_factory.mktemp("hostile")
    tree = read_guest_tables(reader(memory), min(memory), levels).tree
    write_tree(place, "gpt", tree)
    assert [f.name for f in check_tree(read_tree(place), "gpt", None) if f.wrong] == []
    assert len(tree) <= len(memory)


def test_the_kernels_half_is_left_out():
    root = {0: 2 << 12 | TABLE, 256: 3 << 12 | TABLE, 511: 1 << 12 | TABLE}
    found = read_guest_tables(reader({1: root, 2: {}, 3: {7: 4 << 12 | TABLE}, 4: {}}), 1, 4)
    assert found.dropped == {}
    assert found.tree.frame.tolist() == [1, 2] and not found.tree.entries[0, 256:].any()


@pytest.mark.parametrize("fan", ["every table is every table's child", "a new table in every entry"])
def test_work_on_the_worst_memory_is_bounded(fan):
    """Full tables all the way down: the limits hold whatever the entries are."""
    reads = [0]

    def read(gpa, n):
        reads[0] += 1
        frame = gpa >> 12
        targets = (frame * 512 * (1 if fan.startswith("a new") else 0) + np.arange(1, 513)) & ((1 << 40) - 1)
        return (targets.astype(np.uint64) << np.uint64(12) | np.uint64(TABLE)).tobytes()

    began = time.perf_counter()
    found = read_guest_tables(read, 0, 5, limit=300)
    assert time.perf_counter() - began < 10
    assert len(found.tree) <= 300 and reads[0] <= 2 * 4 * 300 + 2
    assert set(found.dropped) <= {LIMIT, SEEN, guests.SELF_MAP} and LIMIT in found.dropped


def vcpu(number, cr3, cr0=1 << 31, cr4=0, efer=1 << 10):
    return guests.Registers(number, 100 + number, cr0, cr3, cr4, efer)


def test_registers_say_levels_and_root():
    assert vcpu(0, 0x1234_5FFF).root == 0x12345
    assert vcpu(0, 1 << 63 | 3 << 61 | 0x5001).root == 5
    assert (vcpu(0, 0).levels, vcpu(0, 0, cr4=1 << 12).levels) == (4, 5)
    assert vcpu(0, 0, cr0=0).levels == vcpu(0, 0, efer=0).levels == 0


PTI = {
    6: {0: 9 << 12 | 1 << 63 | 0x67, 300: 8 << 12 | TABLE},
    7: {0: 9 << 12 | 0x27},
    9: {},
    12: {0: 9 << 12 | TABLE},
    13: {0: 10 << 12 | TABLE},
}  # fmt: skip


def test_two_roots_that_differ_in_bit_12_and_share_their_user_half_are_one_process():
    vcpus = [vcpu(0, 0x6000), vcpu(1, 0x7FFF), vcpu(2, 0xC000), vcpu(3, 0xD000)]
    spaces, left_out = address_spaces(reader(PTI), vcpus)
    assert spaces == [Space(6, 4, (0, 1), True), Space(12, 4, (2,), False), Space(13, 4, (3,), False)]
    assert left_out == []


def test_empty_halves_and_single_roots_are_no_pair():
    assert not is_pti_pair(reader({6: {}, 7: {}}), 6)
    assert not is_pti_pair(reader({6: {0: 9 << 12 | TABLE}}), 6)


def test_vcpus_without_readable_tables_are_told_and_none_at_all_is_an_error():
    read = reader(PTI)
    spaces, left_out = address_spaces(read, [vcpu(0, 0xC000), vcpu(1, 0, efer=0), vcpu(2, 0xFFFF_F000)])
    assert [space.root for space in spaces] == [12]
    assert left_out[0] == "vCPU 1: not in 64-bit mode"
    assert "vCPU 2: its root 0xfffff000 cannot be read" in left_out[1]
    with pytest.raises(UsageError, match="no vCPU's page tables can be read: vCPU 0: not in 64-bit mode"):
        address_spaces(read, [vcpu(0, 0, efer=0)])


def test_memory_of_no_process_is_an_error():
    with pytest.raises(UsageError, match="is PID 0 the VMM"):
        guests.GuestMemory(Process(0, Path("/proc/0")), ())


def test_a_huge_page_at_any_level_ends_the_walk():
    pages = [Page(VA, 7), Page(VA + (1 << 21), 512, 2), Page(VA + (1 << 30), 1 << 18, 3)]
    tree = build_tree(pages, iter(range(1 << 20, 1 << 21)))
    assert len(read_guest_tables(reader(memory_of(tree)), 1 << 20, 4).tree) == len(tree) == 4
