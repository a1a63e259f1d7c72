"""What is read of EPT entries, against the tables of Intel's manual, each bit of them.

Intel SDM volume 3C, chapter "VMX support for address translation": formats of an EPT PML5 or PML4 entry, of
those that reference a table, and of those that map 1 GiB, 2 MiB or 4 KiB. N is the physical-address width;
bits 51:N are reserved, and N is at most 52.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ept_layout import converted, npt_to_ept
from naive import ept as naive
from ptanalyze.analysis.leaf_classes import classify_pages
from ptanalyze.capture.vm.join import put_together
from ptanalyze.core import snapshot
from ptanalyze.core import snapshot as bits
from ptanalyze.core.snapshot import NO_PARENT
from ptanalyze.formats.snapshot import read_snapshot
from ptanalyze.formats.vm import read_vm
from ptanalyze.world.address_space import address_space
from vm_samples import NAMES, unpack

pytestmark = pytest.mark.twin

RIGHTS = {"read": (0, 0), "write": (1, 1), "execute": (2, 2)}
POINTS = {  # to a table of the next level
    **RIGHTS, "reserved": (3, 6), "page: 0": (7, 7), "accessed": (8, 8), "ignored 9": (9, 9),
    "execute in user mode": (10, 10), "ignored 11": (11, 11), "address": (12, 51), "ignored 52": (52, 63),
}  # fmt: skip
ENDS = {  # maps a page
    **RIGHTS, "memory type": (3, 5), "ignore PAT": (6, 6), "accessed": (8, 8), "dirty": (9, 9),
    "execute in user mode": (10, 10), "ignored 11": (11, 11), "ignored 52": (52, 56),
    "verify guest paging": (57, 57), "paging-write": (58, 58), "ignored 59": (59, 59),
    "supervisor shadow stack": (60, 60), "ignored 62": (62, 62), "suppress #VE": (63, 63),
}  # fmt: skip
LARGE = {**ENDS, "page: 1": (7, 7), "ignored 61": (61, 61)}
FORMATS = {
    (5, "table"): POINTS,
    (4, "table"): POINTS,
    (3, "table"): POINTS,
    (2, "table"): POINTS,
    (3, "page"): {**LARGE, "reserved": (12, 29), "address": (30, 51)},
    (2, "page"): {**LARGE, "reserved": (12, 20), "address": (21, 51)},
    (1, "page"): {**ENDS, "ignored 7": (7, 7), "address": (12, 51), "sub-page write": (61, 61)},
}
FIXED = {"page: 0": 0, "page: 1": 1, "reserved": 0}
CASES = st.sampled_from(sorted(FORMATS))


def placed(value, field):
    low, high = field
    return (value & ((1 << (high - low + 1)) - 1)) << low


@st.composite
def entries(draw, lowest=1, highest=7):
    """(level, kind, entry, address): all that the manual leaves free is drawn, rights from these two."""
    level, kind = draw(CASES)
    fields, entry = FORMATS[level, kind], placed(draw(st.integers(lowest, highest)), (0, 2))
    for name, field in fields.items():
        if name not in RIGHTS:
            entry |= placed(FIXED.get(name, draw(st.integers(0, (1 << 40) - 1))), field)
    low, high = fields["address"]
    return level, kind, entry, entry & ((1 << (high + 1)) - (1 << low))


def read(entry, level):
    word = np.array([entry], np.uint64)
    return (
        bool(bits.present(word, "ept")[0]),
        bool(bits.leaf(word, level, "ept")[0]),
        bool(bits.table(word, level, "ept")[0]),
        int(bits.frame(word, level, "ept", bool(bits.leaf(word, level, "ept")[0]))[0]) << 12,
    )


@pytest.mark.parametrize("case", FORMATS)
def test_each_bit_of_an_entry_is_in_one_field(case):
    used = [bit for low, high in FORMATS[case].values() for bit in range(low, high + 1)]
    assert sorted(used) == list(range(64))


@given(entries())
def test_presence_size_and_address_are_the_manuals_whatever_all_other_bits_are(case):
    """Accessed and dirty bits on or off, mode-based execute, #VE, guest paging verified, shadow stacks."""
    level, kind, entry, address = case
    assert read(entry, level) == (True, kind == "page", kind == "table", address)


@given(entries(0, 0))
def test_an_entry_without_rights_is_not_present(case):
    """Under mode-based execute control bit 10 alone makes one present. KVM has bit 11 in all that it maps
    (encoding kvm): such a page is mapped, though the walker is refused."""
    level, _, entry, _ = case
    assert read(entry, level)[:3] == (False, False, False)
    assert naive.misconfigured(entry, level) == ""
    word = np.array([entry & ~(1 << 11), entry | 1 << 11], np.uint64)
    assert bits.mapped(word, level, "kvm").tolist() == [False, True]
    assert bits.inaccessible(word, level, "kvm").tolist() == [False, True]


@given(entries())
def test_each_field_is_named_for_people(case):
    level, kind, entry, _ = case
    said = snapshot.words(entry, level, True).split(", ")
    for name, (low, _) in FORMATS[level, kind].items():
        if name in ("read", "write", "execute", "accessed", "execute in user mode", "ignore PAT"):
            assert (name in said) == bool(entry >> low & 1)
        if name in ("dirty", "supervisor shadow stack", "sub-page write", "suppress #VE"):
            assert (name in said) == bool(entry >> low & 1)
    kinds = [
        "uncached",
        "write-combining",
        None,
        None,
        "write-through",
        "write-protected",
        "write-back",
        None,
    ]
    name = kinds[entry >> 3 & 7] or f"reserved memory type {entry >> 3 & 7}"
    assert (name in said) == (kind == "page")


@given(entries(), st.sampled_from([2, 6]))
def test_what_the_manual_calls_a_misconfiguration_is_one_for_the_twin(case, rights):
    level, kind, entry, _ = case
    wrong = entry & ~7 | rights  # writable but not readable
    assert naive.misconfigured(wrong, level) == "writable but not readable"
    right = entry & ~7 | 1
    reserved = kind == "page" and right >> 3 & 7 in (2, 3, 7)
    assert (naive.misconfigured(right, level) == "reserved memory type") == reserved


def with_a_fifth_level(tree):
    """The tree below one more root, whose entry 0 points to the former."""
    root = np.zeros((1, 512), np.uint64)
    frame = int(tree.frame.max()) + 1
    root[0, 0] = int(tree.frame[0]) << 12 | 0x807
    assert np.count_nonzero(tree.parent == NO_PARENT) == 1
    return replace(
        tree,
        entries=np.concatenate([root, np.asarray(tree.entries)]),
        base=np.concatenate([np.zeros(1, np.uint64), tree.base]),
        frame=np.concatenate([np.array([frame], tree.frame.dtype), tree.frame]),
        parent=np.append(NO_PARENT, np.where(tree.parent == NO_PARENT, 0, tree.parent + 1)).astype(np.int32),
        node=np.concatenate([tree.node[:1], tree.node]),
        level=np.concatenate([np.array([5], np.uint8), tree.level]),
        flags=np.concatenate([np.zeros(1, np.uint8), tree.flags]),
        levels=5,
    )


def test_a_recorded_guest_is_the_same_under_five_levels_of_ept(tmp_path):
    place = unpack(NAMES[1], tmp_path)
    host, guest = read_vm(place / "host"), read_snapshot(place / "guest")
    nowhere = np.zeros(0, np.uint64)
    before = put_together(host, guest, "vm.json").snapshot
    four = converted(before.host, "kvm", npt_to_ept)
    five = with_a_fifth_level(four)
    spaces = (address_space(replace(before, host=tree), nowhere) for tree in (four, five))
    expected, found = (classify_pages(space, weight="4k") for space in spaces)
    assert np.array_equal(found.counts, expected.counts) and found.unresolved == expected.unresolved
