"""EPT entries: against Intel's manual, and made from NPT."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from captures import NAMES, unpack
from naive import trees as naive
from ptanalyze.analysis.leaf_classes import classify_pages
from ptanalyze.capture.check.tables import check_tree
from ptanalyze.capture.vm.join import put_together
from ptanalyze.core import snapshot as bits
from ptanalyze.core.snapshot import NO_PARENT, Tree
from ptanalyze.formats.snapshot import read_snapshot, read_vm
from ptanalyze.world.address_space import address_space

pytestmark = pytest.mark.twin

# KVM's nested entries in AMD's layout (NPT) and in Intel's (EPT), bit by bit. EPT Intel SDM volume 3C,
# chapter 29.3.2: 0 read, 1 write, 2 execute, 3-5 memory type and 6 "ignore PAT" of leaves, 7 maps a page, 8
# accessed, 9 dirty (leaves), 10 execute in user mode, 63 suppress #VE. NPT AMD APM volume 2, 15.25.5: x86-64
# entries; 0 present, 1 write, 2 user, 3 PWT, 4 PCD, 5 accessed, 6 dirty, 7 maps a page, 63 no execute. KVM
# arch/x86/kvm/mmu/spte.h: 11 MMU-present in both; host-writable and MMU-writable are 9 and 10 in NPT, 57 and
# 58 in EPT; 52-53 how accesses are tracked; EPT without accessed bits keeps read and execute of an entry that
# it made inaccessible in 54 and 56. MMIO and removed entries lack bit 11: they map nothing.

Entries = NDArray[np.uint64]
ADDRESS = np.uint64((1 << 52) - (1 << 12))
TRACKING = np.uint64(3 << 52)
MMU_PRESENT, HUGE = np.uint64(1 << 11), np.uint64(1 << 7)
SAME = ADDRESS | TRACKING | MMU_PRESENT | HUGE
WRITE_BACK, WRITE_THROUGH, UNCACHED = (np.uint64(kind << 3) for kind in (6, 4, 0))
IGNORE_PAT = np.uint64(1 << 6)
PWT, PCD, NX = (np.uint64(1 << bit) for bit in (3, 4, 63))
EXECUTE = np.uint64(4)
ACCESS = np.uint64(7)
HARDWARE = ADDRESS | np.uint64(0x7FF) | np.uint64(1 << 63)
NONE = np.uint64(0)
MOVED = ((0, 0), (1, 1), (5, 8), (6, 9), (9, 57), (10, 58))  # bit in NPT, bit in EPT


def npt_to_ept(entries: Entries, level: int) -> Entries:
    """uint64, the shape of `entries`: what KVM keeps on Intel for the NPT entries of tables at `level`.

    Pages become write-back with "ignore PAT", as KVM maps memory, or the type that PWT and PCD ask for. What
    maps nothing becomes 0.
    """
    entries = np.asarray(entries, np.uint64)
    out = entries & SAME
    for npt, ept in MOVED:
        out |= (entries >> np.uint64(npt) & np.uint64(1)) << np.uint64(ept)
    out |= np.where(entries & NX == NONE, EXECUTE, NONE)
    kind = np.where(entries & PWT != NONE, WRITE_THROUGH, WRITE_BACK)
    kind = np.where(entries & PCD != NONE, UNCACHED, kind)
    leaf = np.full(np.shape(entries), True) if level == 1 else (entries & HUGE).astype(bool)
    out |= np.where(leaf, kind | IGNORE_PAT, NONE)
    out &= np.where(leaf, ~NONE, ~np.uint64(1 << 9))
    return np.where(entries & MMU_PRESENT != NONE, out, NONE)


def hardware(entries: Entries) -> Entries:
    """uint64: KVM's EPT entries as the CPU reads them, its own bits and what maps nothing cleared."""
    entries = np.asarray(entries, np.uint64)
    return np.where((entries & MMU_PRESENT != NONE) & (entries & ACCESS != NONE), entries & HARDWARE, NONE)


def as_ept(tree: Tree) -> Tree:
    """A Tree of KVM's NPT entries as the EPT that the CPU would walk; encoding "ept"."""
    return converted(tree, "ept", lambda raw, level: hardware(npt_to_ept(raw, level)))


def converted(tree: Tree, encoding: str, convert: Callable[[Entries, int], Entries]) -> Tree:
    """`tree` with every entry converted: convert(entries uint64[n, 512], level)."""
    entries = np.empty(tree.entries.shape, np.uint64)
    for level in range(1, tree.levels + 1):
        at = tree.level == level
        entries[at] = convert(tree.entries[at], level)
    return replace(tree, entries=entries, encoding=encoding)


# What is read of EPT entries, against the tables of Intel's manual, each bit of them. Intel SDM volume 3C,
# chapter "VMX support for address translation": formats of an EPT PML5 or PML4 entry, of those that reference
# a table, and of those that map 1 GiB, 2 MiB or 4 KiB. N is the physical-address width; bits 51:N are
# reserved, and N is at most 52.
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
    leaf, table = (bool(of(word, level, "ept")[0]) for of in (bits.leaf, bits.table))
    return bool(bits.present(word, "ept")[0]), leaf, table, int(bits.frame(word, level, "ept", leaf)[0]) << 12


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
    assert bits.present(word, "kvm").tolist() == [False, False]


@given(entries(), st.sampled_from([2, 6]))
def test_what_the_manual_calls_a_misconfiguration_is_one_for_the_twin(case, rights):
    level, kind, entry, _ = case
    assert naive.misconfigured(entry & ~7 | rights, level) == "writable but not readable"
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


@pytest.mark.compiled
def test_a_recorded_guest_is_the_same_under_five_levels_of_ept(tmp_path):
    place = unpack(NAMES[1], tmp_path)
    host, guest = read_vm(place / "host"), read_snapshot(place / "guest")
    nowhere = np.zeros(0, np.uint64)
    before = put_together(host, guest, "vm.json")[0]
    four = converted(before.host, "kvm", npt_to_ept)
    five = with_a_fifth_level(four)
    spaces = (address_space(replace(before, host=tree), nowhere) for tree in (four, five))
    expected, found = (classify_pages(space) for space in spaces)
    assert np.array_equal(found.counts, expected.counts) and found.unresolved == expected.unresolved


# NPT to EPT: any entry that KVM writes, and whole recorded tables.
MMIO_NPT, MMIO_EPT, REMOVED = 1 << 51 | 7 | 0xFEC00 << 12, 6 | 0xFEC00 << 12 | 5 << 52, 0x5A0
NO_VE = 1 << 63  # set since Linux 6.10 in entries that map nothing
FLAG = st.integers(0, 1)


@st.composite
def npt_entries(draw, level=None):
    """(entry, level) as KVM writes them on AMD: user pages, PWT and PCD together or not at all."""
    level = level or draw(st.integers(1, 5))
    leaf = level == 1 or (level < 4 and draw(st.booleans()))
    entry = draw(st.integers(0, (1 << 40) - 1)) << 12
    if leaf:
        entry = entry >> (3 + 9 * level) << (3 + 9 * level)
    entry |= 0x805 | draw(FLAG) << 1 | draw(FLAG) << 5 | draw(FLAG) << 9 | draw(FLAG) << 10 | draw(FLAG) << 63
    entry |= draw(st.integers(0, 2)) << 52
    if leaf:
        entry |= draw(FLAG) << 6 | draw(st.sampled_from([0, 1 << 3, 1 << 4])) | (level > 1) << 7
    return entry, level


def one(entry):
    return np.array([entry], np.uint64)


@given(npt_entries())
def test_intel_accepts_what_is_made_and_every_decoder_reads_the_same_of_it(case):
    entry, level = case
    npt, kept = one(entry), npt_to_ept(one(entry), level)
    seen = hardware(kept)
    assert naive.misconfigured(int(seen[0]), level) == ""
    for words, encoding in ((kept, "kvm"), (seen, "ept")):
        for read in (bits.mapped, bits.leaf, bits.table):
            assert read(words, level, encoding) == read(npt, level, "kvm")
        assert bits.present(words, encoding) == bits.present(npt, "kvm")
        leaf = bool(bits.leaf(npt, level, "kvm")[0])
        assert bits.frame(words, level, encoding, leaf) == bits.frame(npt, level, "kvm", leaf)


@pytest.mark.parametrize("entry", [0, MMIO_NPT, MMIO_EPT, REMOVED, NO_VE, NO_VE | REMOVED])
@pytest.mark.parametrize("level", range(1, 6))
def test_what_maps_nothing_stays_nothing(entry, level):
    words = one(entry)
    assert not bits.mapped(words, level, "kvm")[0] and not bits.present(words, "kvm")[0]
    assert npt_to_ept(words, level)[0] == hardware(words)[0] == 0


@given(npt_entries(level=1))
def test_suspended_access_is_still_a_mapping_that_faults(case):
    entry = int(npt_to_ept(one(case[0]), 1)[0]) & ~2
    suspended = one(entry & ~7 | (entry & 5) << 54)
    assert bits.mapped(suspended, 1, "kvm")[0] and not bits.present(suspended, "kvm")[0]
    assert bits.frame(suspended, 1, "kvm")[0] == bits.frame(one(entry), 1, "kvm")[0]
    assert hardware(suspended)[0] == 0


@pytest.fixture(scope="module", params=NAMES[1:])
def recorded(request, tmp_path_factory):
    """(HostDump, guest Snapshot) of a recorded VM on AMD."""
    place = unpack(request.param, tmp_path_factory.mktemp("ept"))
    return read_vm(place / "host"), read_snapshot(place / "guest")


def test_intel_would_accept_every_recorded_entry(recorded):
    tree = as_ept(recorded[0].tree)
    for level in range(1, 5):
        for entry in np.unique(tree.entries[tree.level == level]).tolist():
            assert naive.misconfigured(entry, level) == ""


@pytest.mark.compiled
def test_classification_of_recorded_guests_is_the_same_on_intels_tables(recorded):
    host, guest = recorded
    nowhere = np.zeros(0, np.uint64)
    expected = classify_pages(address_space(put_together(host, guest, "vm.json")[0], nowhere))
    trees = [as_ept(host.tree), converted(host.tree, "kvm", npt_to_ept)]
    for tree in trees:
        assert [f.name for f in check_tree(tree, "ept", host.topology) if f.wrong] == []
        same = put_together(replace(host, tree=tree), guest, "vm.json")[0]
        found = classify_pages(address_space(same, nowhere))
        assert np.array_equal(found.counts, expected.counts) and found.unresolved == expected.unresolved
